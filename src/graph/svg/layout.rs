//! Where the nodes and lines go: a thin layer over the `layout-rs` crate, which draws for itself; only its placing is used.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use layout::core::base::Orientation;
use layout::core::format::{ClipHandle, RenderBackend};
use layout::core::geometry::{Point, Position};
use layout::core::style::StyleAttr;
use layout::std_shapes::shapes::{Arrow, Element, ShapeKind};
use layout::topo::layout::VisualGraph;

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// What came out. The upper left corner is at (0, 0).
#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    pub(super) size: Size,
    /// The centre of each node.
    pub(super) nodes: Vec<(f64, f64)>,
    /// What goes into the `d` of an SVG path, for each line.
    pub(super) paths: Vec<String>,
}

/// The free space round a node: half of it on each side.
const GAP: Point = Point { x: 28.0, y: 34.0 };
/// Places nodes of the given sizes so that each line goes downwards. The lines lead to greater indices.
pub(super) fn arrange(sizes: &[Size], lines: &BTreeSet<(usize, usize)>) -> Layout {
    if sizes.is_empty() {
        return Layout::default(); // which `layout-rs` takes for a mistake
    }
    // It trips over assertions of its own for one graph in ten thousand. Nothing of what it used is looked at after that.
    catch_unwind(AssertUnwindSafe(|| arrange_well(sizes, lines))).unwrap_or_else(|_| arrange_in_rows(sizes, lines))
}

/// As `layout-rs` does.
fn arrange_well(sizes: &[Size], lines: &BTreeSet<(usize, usize)>) -> Layout {
    let look = StyleAttr::simple();
    let mut graph = VisualGraph::new(Orientation::TopToBottom);
    let handles: Vec<_> = sizes
        .iter()
        .map(|size| {
            let size = Point::new(size.width, size.height);
            let mut element = Element::create(ShapeKind::new_box(""), look.clone(), Orientation::TopToBottom, size);
            element.pos = Position::new(Point::zero(), size, Point::zero(), GAP);
            graph.add_node(element)
        })
        .collect();
    // What comes first is drawn straight: rather the flow of the data than the leaves that join it.
    let computed: BTreeSet<_> = lines.iter().map(|&(_, to)| to).collect();
    let (main, side): (Vec<_>, Vec<_>) = lines.iter().enumerate().partition(|(_, (from, _))| computed.contains(from));
    for (i, &(from, to)) in main.into_iter().chain(side) {
        // The index comes back to `draw_arrow` as the arrow's properties.
        let arrow = Arrow::simple_with_properties("", i.to_string());
        if let (Some(&from), Some(&to)) = (handles.get(from), handles.get(to)) {
            graph.add_edge(arrow, from, to);
        }
    }
    let mut seen = Collector { paths: vec![Vec::new(); lines.len()], bounds: None };
    graph.do_it(false, false, false, &mut seen);
    for &handle in &handles {
        let (from, to) = graph.pos(handle).bbox(false);
        seen.cover(from);
        seen.cover(to);
    }
    let (low, high) = seen.bounds.unwrap_or((Point::zero(), Point::zero()));
    let shifted = |p: Point| (p.x - low.x, p.y - low.y);
    Layout {
        size: Size { width: high.x - low.x, height: high.y - low.y },
        nodes: handles.iter().map(|&handle| shifted(graph.pos(handle).center())).collect(),
        paths: seen.paths.iter().map(|path| path_data(path, shifted)).collect(),
    }
}

/// A row for each step of the longest way from a leaf.
fn arrange_in_rows(sizes: &[Size], lines: &BTreeSet<(usize, usize)>) -> Layout {
    let mut rows = vec![0; sizes.len()];
    // In the order of where they begin, which no later line changes.
    for &(from, to) in lines {
        let below = rows.get(from).map_or(0, |row| row + 1);
        if let Some(row) = rows.get_mut(to) {
            *row = below.max(*row);
        }
    }
    let mut widths = vec![0.0; rows.iter().max().map_or(0, |last| last + 1)];
    let tallest = sizes.iter().map(|size| size.height).fold(0.0, f64::max);
    let nodes: Vec<_> = (sizes.iter().zip(&rows))
        .map(|(size, &row)| {
            let left = widths.get(row).copied().unwrap_or(0.0);
            if let Some(width) = widths.get_mut(row) {
                *width = left + size.width + GAP.x;
            }
            #[expect(clippy::cast_precision_loss, reason = "a number of rows")]
            let y = row as f64 * (tallest + GAP.y) + tallest / 2.0;
            (left + size.width / 2.0, y)
        })
        .collect();
    let end = |i: usize, side: f64| {
        let ((x, y), size) = (nodes.get(i).copied().unwrap_or_default(), sizes.get(i).copied().unwrap_or_default());
        (x, y + side * size.height / 2.0)
    };
    let paths = lines.iter().map(|&(from, to)| {
        let ((ax, ay), (bx, by)) = (end(from, 1.0), end(to, -1.0));
        format!("M{ax:.1} {ay:.1}L{bx:.1} {by:.1}")
    });
    Layout {
        size: Size {
            width: widths.iter().copied().fold(0.0, f64::max),
            height: nodes.iter().map(|&(_, y)| y + tallest / 2.0).fold(0.0, f64::max),
        },
        paths: paths.collect(),
        nodes,
    }
}

/// The first pair is a point and the control point behind it, all others are a control point and the point that it leads to.
fn path_data(path: &[(Point, Point)], shifted: impl Fn(Point) -> (f64, f64)) -> String {
    let mut data = String::new();
    for (i, &(a, b)) in path.iter().enumerate() {
        let ((ax, ay), (bx, by)) = (shifted(a), shifted(b));
        let written = match i {
            0 => write!(data, "M{ax:.1} {ay:.1}C{bx:.1} {by:.1}"),
            1 => write!(data, " {ax:.1} {ay:.1} {bx:.1} {by:.1}"),
            _ => write!(data, "S{ax:.1} {ay:.1} {bx:.1} {by:.1}"),
        };
        debug_assert!(written.is_ok(), "a String takes all that is written");
    }
    data
}

/// Draws nothing, but keeps what it was asked to draw.
struct Collector {
    paths: Vec<Vec<(Point, Point)>>,
    bounds: Option<(Point, Point)>,
}

impl Collector {
    fn cover(&mut self, p: Point) {
        let (low, high) = self.bounds.unwrap_or((p, p));
        self.bounds = Some((Point::new(low.x.min(p.x), low.y.min(p.y)), Point::new(high.x.max(p.x), high.y.max(p.y))));
    }
}

impl RenderBackend for Collector {
    fn draw_rect(&mut self, _: Point, _: Point, _: &StyleAttr, _: Option<String>, _: Option<ClipHandle>) {}

    fn draw_line(&mut self, _: Point, _: Point, _: &StyleAttr, _: Option<String>) {}

    fn draw_circle(&mut self, _: Point, _: Point, _: &StyleAttr, _: Option<String>) {}

    fn draw_text(&mut self, _: Point, _: &str, _: &StyleAttr) {}

    fn draw_arrow(
        &mut self,
        path: &[(Point, Point)],
        _dashed: bool,
        _head: (bool, bool),
        _look: &StyleAttr,
        properties: Option<String>,
        _text: &str,
    ) {
        for &(a, b) in path {
            self.cover(a);
            self.cover(b);
        }
        let index = properties.and_then(|p| p.parse::<usize>().ok());
        if let Some(slot) = index.and_then(|i| self.paths.get_mut(i)) {
            *slot = path.to_vec();
        }
    }

    fn create_clip(&mut self, _: Point, _: Point, _: usize) -> ClipHandle {
        0
    }
}
