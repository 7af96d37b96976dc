//! Draws a scheduled graph as SVG: a column for each split, in which data flows downwards. Nodes have their device's
//! colour, and tensors that the scheduler copies between devices are dashed and labelled with their size.

mod columns;
mod layers;
mod layout;
mod page;
mod straight;

use std::collections::BTreeSet;

use layout::Size;
use page::Page;

/// The content of a drawing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Drawing {
    /// The headline.
    pub(crate) title: String,
    /// The devices, in the scheduler's order.
    pub(crate) devices: Vec<Device>,
    /// Operations and leaves, each after its sources.
    pub(crate) nodes: Vec<Node>,
    /// Pairs of node indices, source and user, the lower first.
    pub(crate) edges: BTreeSet<(usize, usize)>,
}

/// A device, as shown in the legend.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    /// Its short name, such as `CPU`.
    pub(crate) name: String,
    /// Its description.
    pub(crate) description: String,
}

/// A tensor of the graph.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// The node's kind.
    pub(crate) kind: Kind,
    /// The operation that computes it; not shown for weights and inputs.
    pub(crate) op: String,
    /// The tensor's name, possibly empty.
    pub(crate) name: String,
    /// Element type and shape.
    pub(crate) shape: String,
    /// The index of its device.
    pub(crate) device: Option<usize>,
    /// The index of the scheduler's split that computes it.
    pub(crate) split: Option<usize>,
}

/// A node's role in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Set before each computation.
    Input,
    /// Constant across computations.
    Weight,
    /// Kept between computations.
    State,
    /// Computed by an operation.
    Op,
    /// A view of its source's memory.
    View,
    /// A copy of its source on another device for one split, with its size in bytes.
    Copy(usize),
}

/// The width of a character of the 12 pixel monospaced font.
const CHAR: f64 = 7.25;

impl Node {
    fn headline(&self) -> String {
        match self.kind {
            Kind::Input | Kind::Weight | Kind::State => self.name.clone(),
            Kind::Op | Kind::View => self.op.clone(),
            Kind::Copy(bytes) => with_unit(bytes),
        }
    }

    fn badge(&self) -> String {
        match (self.kind, self.split) {
            (Kind::Input, _) => "input".to_owned(),
            (Kind::Weight, _) => "weight".to_owned(),
            (Kind::State, _) => "state".to_owned(),
            (Kind::View, _) => "view".to_owned(),
            (Kind::Op, Some(split)) => format!("split {split}"),
            (Kind::Op, None) | (Kind::Copy(_), _) => String::new(),
        }
    }

    /// The second line.
    fn detail(&self) -> String {
        match self.kind {
            Kind::Op if !self.name.is_empty() => format!("{} · {}", self.shape, self.name),
            _ => self.shape.clone(),
        }
    }

    fn size(&self) -> Size {
        if self.is_copy() {
            return Size { width: chars(&self.headline()) * CHAR + 10.0, height: 18.0 };
        }
        let first = chars(&self.headline()) + chars(&self.badge()) + 2.0;
        let width = first.max(chars(&self.detail())) * CHAR + 20.0;
        Size { width: width.max(120.0), height: 44.0 }
    }

    fn is_copy(&self) -> bool {
        matches!(self.kind, Kind::Copy(_))
    }

    /// The text shown when the pointer is over the node.
    fn tooltip(&self, devices: &[Device]) -> String {
        let device = self.device.and_then(|d| devices.get(d)).map_or("no device", |d| &d.name);
        let what = if self.is_copy() { "copied to" } else { "on" };
        format!("{} {} {} {what} {device}", self.op, self.name, self.shape)
    }
}

impl Drawing {
    /// The SVG document.
    pub(crate) fn to_svg(&self) -> String {
        let sizes: Vec<_> = self.nodes.iter().map(Node::size).collect();
        let columns = columns::of_nodes(&self.nodes, &self.edges);
        let layout = columns::arrange(&sizes, &self.edges, &columns);
        Page { drawing: self, sizes, layout }.write()
    }

    /// The symbol and text of each legend row.
    fn legend(&self) -> Vec<(Sample, String)> {
        let mut rows: Vec<_> = self
            .devices
            .iter()
            .enumerate()
            .map(|(i, device)| {
                let computed = self.nodes.iter().filter(|n| n.device == Some(i) && n.kind == Kind::Op).count();
                let operations = if computed == 1 { "operation" } else { "operations" };
                let mut text = format!("{} · {computed} {operations}", device.name);
                if !device.description.is_empty() {
                    text = format!("{text} · {}", device.description);
                }
                (Sample::Device(i), text)
            })
            .collect();
        let copied: Vec<_> = self
            .nodes
            .iter()
            .filter_map(|node| if let Kind::Copy(bytes) = node.kind { Some(bytes) } else { None })
            .collect();
        if !copied.is_empty() {
            let bytes = with_unit(copied.iter().sum());
            let tensors = if copied.len() == 1 { "tensor" } else { "tensors" };
            let text = format!("copied to another device · {} {tensors} · {bytes}", copied.len());
            rows.push((Sample::Copy, text));
        }
        rows
    }
}

/// The symbol of a legend row.
enum Sample {
    Device(usize),
    Copy,
}

#[expect(clippy::cast_precision_loss, reason = "lengths of a line of text")]
fn chars(text: &str) -> f64 {
    text.chars().count() as f64
}

/// Formats bytes in a unit that needs few digits.
fn with_unit(bytes: usize) -> String {
    let mut units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].into_iter();
    #[expect(clippy::cast_precision_loss, reason = "it is shown with two digits")]
    let mut n = bytes as f64;
    let mut unit = None;
    while n >= 1024.0 {
        n /= 1024.0;
        unit = units.next();
    }
    unit.map_or_else(|| format!("{bytes} B"), |unit| format!("{n:.2} {unit}"))
}

#[cfg(test)]
mod tests;
