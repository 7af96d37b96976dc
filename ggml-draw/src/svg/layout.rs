//! Computes positions of nodes and lines, in layers from top to bottom (Sugiyama's method). Time is linear in nodes and
//! lines, so that graphs of thousands of nodes are fast.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::layers::{Item, Layers};
use super::straight;

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The computed layout. Its upper edge is 0.
#[derive(Debug, Clone, Default)]
pub(super) struct Layout {
    pub(super) size: Size,
    /// Each node's centre.
    pub(super) nodes: Vec<(f64, f64)>,
    /// The `d` attribute of each line's SVG path.
    pub(super) paths: Vec<String>,
}

/// The gap between neighbouring nodes, and between a line and its neighbours.
const GAP: f64 = 28.0;
const LINE_GAP: f64 = 14.0;

/// The gap between layers, and how much lines that lead far to the side may add to it.
const LAYER_GAP: f64 = 34.0;
const MOST_MORE: f64 = 80.0;

/// The minimum distance of a line's end from a corner.
const CORNER: f64 = 24.0;

/// Places nodes of these sizes to the right of `begin` so that lines, which lead to greater indices, go downwards.
pub(super) fn arrange(sizes: &[Size], lines: &BTreeSet<(usize, usize)>, begin: f64) -> Layout {
    let layers = Layers::new(sizes.len(), lines);
    let halves: Vec<_> = (layers.items.iter())
        .map(|item| match item.node.and_then(|node| sizes.get(node)) {
            Some(size) => f64::midpoint(size.width, GAP),
            None => LINE_GAP / 2.0,
        })
        .collect();
    let xs = straight::place(&layers, &halves);
    let bands = bands(&layers, &xs, sizes);
    let reach = |sign: f64| {
        let edges = layers.items.iter().zip(&xs).filter_map(move |(item, x)| {
            let half = sizes.get(item.node?)?.width / 2.0;
            Some(x + sign * half)
        });
        let bends = layers.items.iter().zip(&xs).filter(|(item, _)| item.node.is_none()).map(|(_, x)| *x);
        edges.chain(bends).map(move |x| sign * x).fold(f64::NEG_INFINITY, f64::max)
    };
    let (left, right) = (-reach(-1.0), reach(1.0));
    if sizes.is_empty() {
        return Layout::default();
    }
    let drawn = Drawn { sizes, layers: &layers, xs: xs.iter().map(|x| x - left + begin).collect(), bands };
    Layout {
        size: Size { width: right - left, height: drawn.bands.last().map_or(0.0, |band| band.bottom) },
        nodes: (0..sizes.len()).map(|i| drawn.centre(i)).collect(),
        paths: lines.iter().zip(&layers.bends).map(|(&line, bends)| drawn.path(line, bends.clone())).collect(),
    }
}

/// The vertical extent of a layer.
#[derive(Debug, Clone, Copy, Default)]
struct Band {
    top: f64,
    bottom: f64,
}

fn bands(layers: &Layers, xs: &[f64], sizes: &[Size]) -> Vec<Band> {
    let mut heights = vec![0.0_f64; layers.rows.len()];
    let mut aside = vec![0.0_f64; layers.rows.len()];
    let x = |i: usize| xs.get(i).copied().unwrap_or_default();
    for (i, item) in layers.items.iter().enumerate() {
        let height = item.node.and_then(|node| sizes.get(node)).map_or(0.0, |size| size.height);
        if let (Some(most), Some(far)) = (heights.get_mut(item.layer), aside.get_mut(item.layer)) {
            *most = most.max(height);
            *far = item.below.iter().map(|&below| (x(i) - x(below)).abs()).fold(*far, f64::max);
        }
    }
    let mut top = 0.0;
    (heights.iter().zip(&aside))
        .map(|(height, aside)| {
            let band = Band { top, bottom: top + height };
            top = band.bottom + LAYER_GAP + (aside / 12.0).min(MOST_MORE);
            band
        })
        .collect()
}

struct Drawn<'a> {
    sizes: &'a [Size],
    layers: &'a Layers,
    xs: Vec<f64>,
    bands: Vec<Band>,
}

impl Drawn<'_> {
    fn x(&self, item: usize) -> f64 {
        self.xs.get(item).copied().unwrap_or_default()
    }

    fn band(&self, item: usize) -> Band {
        let layer = self.layers.items.get(item).map_or(0, |item: &Item| item.layer);
        self.bands.get(layer).copied().unwrap_or_default()
    }

    fn size(&self, node: usize) -> Size {
        self.sizes.get(node).copied().unwrap_or_default()
    }

    fn centre(&self, node: usize) -> (f64, f64) {
        let band = self.band(node);
        (self.x(node), f64::midpoint(band.top, band.bottom))
    }

    /// A line leaves its node near the middle of its lower edge, passes layers vertically, and arrives on the side that
    /// it comes from.
    fn path(&self, (from, to): (usize, usize), bends: std::ops::Range<usize>) -> String {
        let (x, y) = self.centre(from);
        let mut at = (x, y + self.size(from).height / 2.0);
        let mut data = format!("M{:.1} {:.1}", at.0, at.1);
        for bend in bends {
            let (x, band) = (self.x(bend), self.band(bend));
            curve(&mut data, at, (x, band.top));
            at = (x, band.bottom);
            curve(&mut data, (x, band.top), at);
        }
        let ((x, y), size) = (self.centre(to), self.size(to));
        let room = (size.width / 2.0 - CORNER).max(0.0);
        let end = (x + (at.0 - x).clamp(-room, room), y - size.height / 2.0);
        curve(&mut data, at, end);
        data
    }
}

/// Draws a curve from one point to another, vertical at both.
fn curve(data: &mut String, (ax, ay): (f64, f64), (bx, by): (f64, f64)) {
    let written = if (ax - bx).abs() < 0.5 {
        write!(data, "L{bx:.1} {by:.1}")
    } else {
        let middle = f64::midpoint(ay, by);
        write!(data, "C{ax:.1} {middle:.1} {bx:.1} {middle:.1} {bx:.1} {by:.1}")
    };
    debug_assert!(written.is_ok(), "writing to a String can't fail");
}
