//! Makes a drawing of what the scheduler did with a graph.

use ggml::{Allocated, Device, Graph, Split, Tensor};

use crate::devices::{self, Devices};
use crate::digits::model::INPUT;
use crate::svg::{self, Drawing, Kind, Node};

/// The graph with its splits and copies.
pub(crate) fn draw(graph: &Graph<'_>, run: &Allocated<'_, '_>, devices: &Devices) -> Drawing {
    let devices = &devices.all;
    let splits = run.splits();
    let mut picture = Picture { run, splits: &splits, devices, drawn: Vec::new(), drawing: Drawing::default() };
    picture.drawing.title = format!("sched_demo: {} operations in {} splits", graph.n_nodes(), splits.len());
    picture.drawing.devices = devices
        .iter()
        .map(|&device| svg::Device { name: device.name(), description: devices::description(device) })
        .collect();
    for node in graph.nodes() {
        let device = picture.device_of(node);
        let sources: Vec<_> = graph.sources(node).map(|source| picture.seen_from(device, source)).collect();
        let kind = if node.is_view() { Kind::View } else { Kind::Op };
        let index = picture.add(kind, node, device);
        picture.drawing.edges.extend(sources.into_iter().map(|source| (source, index)));
    }
    picture.drawing
}

/// A drawing while it grows.
struct Picture<'a> {
    run: &'a Allocated<'a, 'a>,
    splits: &'a [Split<'a>],
    devices: &'a [Device],
    /// The tensors that are drawn, and the device that a copy is on, with their nodes.
    drawn: Vec<(Tensor<'a>, Option<usize>, usize)>,
    drawing: Drawing,
}

impl<'a> Picture<'a> {
    fn device_of(&self, t: Tensor<'_>) -> Option<usize> {
        let device = self.run.backend_of(t)?.device();
        self.devices.iter().position(|&d| d == device)
    }

    /// The node that an operation on `device` reads `source` from: the tensor itself, or a copy on that device.
    fn seen_from(&mut self, device: Option<usize>, source: Tensor<'a>) -> usize {
        let own = self.find(source, None).unwrap_or_else(|| {
            // Operations come before those that use them, so that only leaves are left.
            let kind = if source.name() == INPUT { Kind::Input } else { Kind::Weight };
            self.add(kind, source, self.device_of(source))
        });
        let bytes = self
            .splits
            .iter()
            .filter(|split| device.and_then(|d| self.devices.get(d)) == Some(&split.backend.device()))
            .flat_map(|split| &split.inputs)
            .find_map(|input| (input.tensor == source).then_some(input.bytes));
        let Some(bytes) = bytes else { return own };
        self.find(source, device).unwrap_or_else(|| {
            let copy = self.add(Kind::Copy(bytes as u64), source, device);
            self.drawing.edges.insert((own, copy));
            copy
        })
    }

    fn find(&self, t: Tensor<'_>, copied_to: Option<usize>) -> Option<usize> {
        self.drawn.iter().find(|&&(drawn, to, _)| drawn == t && to == copied_to).map(|&(_, _, index)| index)
    }

    fn add(&mut self, kind: Kind, t: Tensor<'a>, device: Option<usize>) -> usize {
        let index = self.drawing.nodes.len();
        let copied_to = device.filter(|_| matches!(kind, Kind::Copy(_)));
        self.drawn.push((t, copied_to, index));
        self.drawing.nodes.push(Node {
            kind,
            op: t.op().to_ascii_lowercase(),
            name: given_name(t),
            shape: shape(t),
            device,
            split: self.splits.iter().position(|split| split.nodes.contains(&t)),
        });
        index
    }
}

/// The name of a tensor, unless it is one that ggml made up, such as `node_7` or ` (reshaped)`.
fn given_name(t: Tensor<'_>) -> String {
    let name = t.name();
    if name.starts_with("node_") || name.ends_with(')') { String::new() } else { name }
}

/// Such as `f32 8x8x16x60`.
fn shape(t: Tensor<'_>) -> String {
    let ne = t.ne();
    let used = ne.iter().rposition(|&n| n > 1).map_or(1, |last| last + 1);
    let dimensions: Vec<_> = ne.iter().take(used).map(i64::to_string).collect();
    format!("{} {}", t.dtype(), dimensions.join("x"))
}
