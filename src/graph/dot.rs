//! Prints graphs in the DOT language, for Graphviz and other viewers.

use std::fmt::{self, Write as _};

use super::Graph;
use crate::entries::{Entry, Kind};
use crate::error::{Error, Result};
use crate::header::TensorPtr;

/// Fill colours by device index, light enough for black text.
const COLOURS: [&str; 8] = ["#cfe8cf", "#cfdcf5", "#f7dcc4", "#e6d3ee", "#f7f0bf", "#c9ecec", "#f5cfd5", "#dddddd"];

impl Graph<'_> {
    /// Prints the graph in the DOT language, data flowing downwards: operations as boxes, inputs as ellipses, weights
    /// and states as cylinders (`ggml_graph_dump_dot`). [`Run::to_dot`](crate::Run::to_dot) adds devices.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let graph = ctx.graph([ctx.relu(ctx.input("x", DType::F32, [2])?)?])?;
    /// assert!(graph.to_dot()?.starts_with("digraph ggml {")); // for `dot -Tsvg`
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[doc(alias = "ggml_graph_dump_dot")]
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    pub fn to_dot(&self) -> Result<String> {
        self.dot(&[], |_| None)
    }

    /// Prints the graph with devices; `device` returns an index into `devices`.
    pub(crate) fn dot(&self, devices: &[String], device: impl Fn(TensorPtr) -> Option<usize>) -> Result<String> {
        let mut out = Text::default();
        self.write_dot(&mut out, devices, device).map_err(|_| Error::no_memory("a graph in the DOT language"))?;
        Ok(out.0)
    }

    fn write_dot(
        &self,
        out: &mut Text,
        devices: &[String],
        device: impl Fn(TensorPtr) -> Option<usize>,
    ) -> fmt::Result {
        out.write_str(
            "digraph ggml {\n  rankdir=TB;\n  node [fontname=\"sans-serif\", style=filled, fillcolor=white];\n",
        )?;
        for (i, e) in self.entries().iter().enumerate() {
            let place = device(e.ptr);
            let colour = place.and_then(|d| COLOURS.get(d % COLOURS.len())).copied().unwrap_or("white");
            let shape = match e.kind {
                Kind::Node => "box",
                Kind::Input => "ellipse",
                Kind::Placed(_) => "cylinder",
            };
            let label = label(e, place.and_then(|d| devices.get(d)));
            writeln!(out, "  n{i} [shape={shape}, fillcolor=\"{colour}\", label=\"{label}\"];")?;
        }
        for (i, e) in self.entries().iter().enumerate() {
            for (slot, src) in self.entries().srcs(e) {
                if let Some(from) = self.entries().position(src) {
                    writeln!(out, "  n{from} -> n{i} [label=\"{slot}\"];")?;
                }
            }
        }
        out.write_str("}\n")
    }
}

/// A text that fails to grow where memory runs out.
#[derive(Default)]
struct Text(String);

impl fmt::Write for Text {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.0.try_reserve(part.len()).map_err(|_| fmt::Error)?;
        self.0.push_str(part);
        Ok(())
    }
}

/// Operation, name, type and shape, and device, one per line.
fn label(e: &Entry, device: Option<&String>) -> String {
    let mut lines = Vec::new();
    if e.kind == Kind::Node {
        lines.push(e.ptr.op_name());
    }
    lines.push(e.ptr.name());
    lines.push(format!("{} {:?}", e.ptr.dtype(), e.ptr.ne()));
    lines.extend(device.cloned());
    lines.retain(|line| !line.is_empty());
    let escaped: Vec<_> = lines.iter().map(|line| line.replace('\\', "\\\\").replace('"', "\\\"")).collect();
    escaped.join("\\n")
}
