//! Draws a scheduled graph as SVG: data flows downwards, nodes have their device's colour, and what the scheduler copies
//! from one device to another is dashed and labelled with its size.

mod layout;
mod page;

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use indicatif::BinaryBytes;

use layout::Size;
use page::Page;

/// What is drawn.
#[derive(Debug, Clone, Default)]
pub(crate) struct Drawing {
    /// The headline.
    pub(crate) title: String,
    /// The devices, in the scheduler's order.
    pub(crate) devices: Vec<Device>,
    /// Operations and leaves, each behind what it uses.
    pub(crate) nodes: Vec<Node>,
    /// Who is used by whom: indices of nodes.
    pub(crate) edges: BTreeSet<(usize, usize)>,
}

/// A device, as the legend names it.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    /// Its short name, such as `CPU`.
    pub(crate) name: String,
    /// What it is.
    pub(crate) description: String,
}

/// A tensor of the graph.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// What it is to the graph.
    pub(crate) kind: Kind,
    /// The operation that computes it; not shown for weights and inputs.
    pub(crate) op: String,
    /// Its own name, which may be empty.
    pub(crate) name: String,
    /// Element type and shape.
    pub(crate) shape: String,
    /// Index into the devices, where it has one.
    pub(crate) device: Option<usize>,
    /// Which of the scheduler's splits computes it.
    pub(crate) split: Option<usize>,
}

/// What a node is to the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Set from outside, anew for each run.
    Input,
    /// Stays the same for all runs.
    Weight,
    /// Computed.
    Op,
    /// Another look at the memory of its source.
    View,
    /// Its source, copied to another device for one split; so many bytes.
    Copy(u64),
}

/// A character of the 12 pixel monospaced font.
const CHAR: f64 = 7.25;

impl Node {
    fn headline(&self) -> String {
        match self.kind {
            Kind::Input | Kind::Weight => self.name.clone(),
            Kind::Op | Kind::View => self.op.clone(),
            Kind::Copy(bytes) => BinaryBytes(bytes).to_string(),
        }
    }

    fn badge(&self) -> String {
        match (self.kind, self.split) {
            (Kind::Input, _) => "input".to_owned(),
            (Kind::Weight, _) => "weight".to_owned(),
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

    /// What a viewer shows while the pointer rests on the node.
    fn tooltip(&self, devices: &[Device]) -> String {
        let device = self.device.and_then(|d| devices.get(d)).map_or("no device", |d| &d.name);
        let what = if self.is_copy() { "copied to" } else { "on" };
        format!("{} {} {} {what} {device}", self.op, self.name, self.shape)
    }
}

impl Drawing {
    /// The SVG document.
    ///
    /// # Errors
    /// Where an edge names a node, or a node a device, that is not there, where a node comes before what it uses, or
    /// where no layout was found.
    pub(crate) fn to_svg(&self) -> Result<String> {
        let (nodes, devices) = (self.nodes.len(), self.devices.len());
        for &(from, to) in &self.edges {
            ensure!(from.max(to) < nodes, "an edge from {from} to {to} in a drawing of {nodes} nodes");
            // Sources come first in a list of nodes, so that there can't be a circle.
            ensure!(from < to, "node {to} uses node {from}, which comes after it");
        }
        for device in self.nodes.iter().filter_map(|node| node.device) {
            ensure!(device < devices, "a node is on device {device} of {devices}");
        }
        let sizes: Vec<_> = self.nodes.iter().map(Node::size).collect();
        let layout = layout::arrange(&sizes, &self.edges)?;
        Ok(Page { drawing: self, sizes, layout }.write()?)
    }

    /// Name, swatch and explanation of what the legend lists.
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
            let bytes = BinaryBytes(copied.iter().sum());
            let tensors = if copied.len() == 1 { "tensor" } else { "tensors" };
            let text = format!("copied to another device · {} {tensors} · {bytes}", copied.len());
            rows.push((Sample::Copy, text));
        }
        rows
    }
}

/// What a row of the legend explains.
enum Sample {
    Device(usize),
    Copy,
}

#[expect(clippy::cast_precision_loss, reason = "lengths of a line of text")]
fn chars(text: &str) -> f64 {
    text.chars().count() as f64
}

#[cfg(test)]
mod tests;
