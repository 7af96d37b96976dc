//! Draws a scheduled graph.

use std::collections::HashMap;

use ggml::run::Split;
use ggml::{Backend, Device, Result, Run, Tensor};

use crate::svg::{self, Drawing, Kind, Node};

/// A picture of a graph with memory.
///
/// ```
/// use ggml_draw::ToSvg as _;
/// # use ggml::prelude::*; let ctx = Context::new();
/// let y = ctx.sqr(ctx.arange(0.0, 4.0, 1.0)?)?;
/// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?;
/// assert!(run.to_svg()?.starts_with("<svg"));
/// # Ok::<(), ggml::Error>(())
/// ```
pub trait ToSvg {
    /// Draws the graph as SVG, with a column for each split, in which data flows downwards: each operation has the colour
    /// of its device and the number of its split; tensors copied between devices are dashed lines with their sizes.
    ///
    /// Time grows linearly with operations and operands. More than a few hundred are hard to read.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](ggml::Error::OutOfMemory) where there is no room for the list of splits.
    fn to_svg(&self) -> Result<String>;
}

impl ToSvg for Run<'_, '_> {
    fn to_svg(&self) -> Result<String> {
        let splits = self.splits()?;
        let mut devices = Vec::new();
        for device in self.backends().iter().map(Backend::device) {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        let (graph, drawn, drawing) = (self.graph(), HashMap::new(), Drawing::default());
        let (of_split, copied) = index(&splits, &devices);
        let mut picture = Picture { run: self, of_split, copied, devices: &devices, drawn, drawing };
        picture.drawing.title = format!("{} operations in {} splits", graph.n_nodes(), splits.len());
        let device = |d: &Device| svg::Device { name: d.name(), description: d.description() };
        picture.drawing.devices = devices.iter().map(device).collect();
        for node in graph.nodes() {
            let device = picture.device_of(node);
            let sources: Vec<_> = graph.sources(node).map(|source| picture.seen_from(device, source)).collect();
            let kind = if is_view(&node.op()) { Kind::View } else { Kind::Op };
            let index = picture.add(kind, node, device);
            picture.drawing.edges.extend(sources.into_iter().map(|source| (source, index)));
        }
        Ok(picture.drawing.to_svg())
    }
}

/// The split that computes each tensor, and the bytes of it that are copied to each device.
fn index<'a>(
    splits: &[Split<'a>],
    devices: &[Device],
) -> (HashMap<Tensor<'a>, usize>, HashMap<(Tensor<'a>, usize), usize>) {
    let (mut of_split, mut copied) = (HashMap::new(), HashMap::new());
    for (i, split) in splits.iter().enumerate() {
        for &node in &split.nodes {
            of_split.entry(node).or_insert(i);
        }
        let device = split.backend.device();
        let Some(device) = devices.iter().position(|&d| d == device) else { continue };
        for input in &split.inputs {
            copied.entry((input.tensor, device)).or_insert(input.bytes);
        }
    }
    (of_split, copied)
}

/// A drawing under construction.
struct Picture<'a, 'c> {
    run: &'a Run<'a, 'c>,
    /// The split that computes each tensor.
    of_split: HashMap<Tensor<'a>, usize>,
    /// The bytes copied, by tensor and device.
    copied: HashMap<(Tensor<'a>, usize), usize>,
    devices: &'a [Device],
    /// The node of each drawn tensor, or of its copy on a device.
    drawn: HashMap<(Tensor<'a>, Option<usize>), usize>,
    drawing: Drawing,
}

impl<'a> Picture<'a, '_> {
    fn device_of(&self, t: Tensor<'_>) -> Option<usize> {
        let device = self.run.backend_of(t)?.device();
        self.devices.iter().position(|&d| d == device)
    }

    /// The node from which an operation on `device` reads `source`: the tensor itself, or its copy on that device.
    fn seen_from(&mut self, device: Option<usize>, source: Tensor<'a>) -> usize {
        let own = self.find(source, None).unwrap_or_else(|| {
            // Operations come before their users, so anything not drawn yet is a leaf.
            self.add(kind_of(source), source, self.device_of(source))
        });
        let bytes = device.and_then(|device| self.copied.get(&(source, device)).copied());
        let Some(bytes) = bytes else { return own };
        self.find(source, device).unwrap_or_else(|| {
            let copy = self.add(Kind::Copy(bytes), source, device);
            self.drawing.edges.insert((own, copy));
            copy
        })
    }

    fn find(&self, t: Tensor<'_>, copied_to: Option<usize>) -> Option<usize> {
        self.drawn.get(&(t, copied_to)).copied()
    }

    fn add(&mut self, kind: Kind, t: Tensor<'a>, device: Option<usize>) -> usize {
        let index = self.drawing.nodes.len();
        let copied_to = device.filter(|_| matches!(kind, Kind::Copy(_)));
        self.drawn.entry((t, copied_to)).or_insert(index);
        self.drawing.nodes.push(Node {
            kind,
            op: t.op().to_lowercase(),
            name: given_name(t),
            shape: shape(t),
            device,
            split: self.of_split.get(&t).copied(),
        });
        index
    }
}

/// The kind of a leaf.
fn kind_of(t: Tensor<'_>) -> Kind {
    if t.is_state() {
        Kind::State
    } else if t.is_weight() {
        Kind::Weight
    } else {
        Kind::Input
    }
}

/// A tensor's name, except for names that ggml generates, such as `node_7` or ` (reshaped)`.
fn given_name(t: Tensor<'_>) -> String {
    let name = t.name();
    if name.starts_with("node_") || name.ends_with(')') { String::new() } else { name }
}

/// Element type and shape, such as `f32 8x8x16x60`.
fn shape(t: Tensor<'_>) -> String {
    let ne = t.ne();
    let used = ne.iter().rposition(|&n| n > 1).map_or(1, |last| last + 1);
    let dimensions: Vec<_> = ne.iter().take(used).map(i64::to_string).collect();
    format!("{} {}", t.dtype(), dimensions.join("x"))
}

/// Whether a tensor is only a view: nothing is computed for it.
fn is_view(op: &str) -> bool {
    matches!(op, "RESHAPE" | "VIEW" | "PERMUTE" | "TRANSPOSE")
}
