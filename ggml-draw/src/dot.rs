//! Graphs in the DOT language, for Graphviz and other viewers.

use std::collections::HashMap;
use std::fmt::{self, Write as _};

use ggml::{Backend, Error, Graph, Result, Run, Tensor};

/// Fill colours by backend, light enough for black text.
const COLOURS: [&str; 8] = ["#cfe8cf", "#cfdcf5", "#f7dcc4", "#e6d3ee", "#f7f0bf", "#c9ecec", "#f5cfd5", "#dddddd"];

/// A graph in the DOT language.
///
/// ```
/// use ggml_draw::ToDot as _;
/// # use ggml::prelude::*; let ctx = Context::new();
/// let graph = ctx.graph([ctx.relu(ctx.input("x", DType::F32, [2])?)?])?;
/// assert!(graph.to_dot()?.starts_with("digraph ggml {")); // for `dot -Tsvg`
/// # Ok::<(), ggml::Error>(())
/// ```
pub trait ToDot {
    /// Prints the graph in the DOT language, data flowing downwards: operations as boxes, inputs as ellipses, weights and
    /// states as cylinders (as `ggml_graph_dump_dot` does). That of a [`Run`] has the backend of each tensor.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    #[doc(alias = "ggml_graph_dump_dot")]
    fn to_dot(&self) -> Result<String>;
}

impl ToDot for Graph<'_> {
    fn to_dot(&self) -> Result<String> {
        dot(self, &[], |_| None)
    }
}

impl ToDot for Run<'_, '_> {
    fn to_dot(&self) -> Result<String> {
        let backends: Vec<_> = self.backends().iter().map(Backend::name).collect();
        dot(self.graph(), &backends, |t| {
            let backend = self.backend_of(t)?;
            self.backends().iter().position(|b| std::ptr::eq(b, backend))
        })
    }
}

/// Prints the graph with backends; `backend` returns an index into `backends`.
fn dot(graph: &Graph<'_>, backends: &[String], backend: impl Fn(Tensor<'_>) -> Option<usize>) -> Result<String> {
    let mut out = Text::default();
    write(graph, &mut out, backends, backend).map_err(|_| Error::OutOfMemory {
        what: "a graph in the DOT language".into(),
        bytes: None,
        log: Box::default(),
    })?;
    Ok(out.0)
}

fn write(
    graph: &Graph<'_>,
    out: &mut Text,
    backends: &[String],
    backend: impl Fn(Tensor<'_>) -> Option<usize>,
) -> fmt::Result {
    out.write_str("digraph ggml {\n  rankdir=TB;\n  node [fontname=\"sans-serif\", style=filled, fillcolor=white];\n")?;
    let mut index = HashMap::new();
    for (i, t) in graph.leaves().chain(graph.nodes()).enumerate() {
        index.try_reserve(1).map_err(|_| fmt::Error)?;
        index.insert(t, i);
        let place = backend(t);
        let colour = place.and_then(|b| COLOURS.get(b % COLOURS.len())).copied().unwrap_or("white");
        let shape = match (t.op().as_str(), t.is_weight() || t.is_state()) {
            ("NONE", true) => "cylinder",
            ("NONE", false) => "ellipse",
            _ => "box",
        };
        let label = label(t, place.and_then(|b| backends.get(b)));
        writeln!(out, "  n{i} [shape={shape}, fillcolor=\"{colour}\", label=\"{label}\"];")?;
    }
    for t in graph.nodes() {
        for (operand, source) in graph.sources(t).enumerate() {
            if let (Some(from), Some(to)) = (index.get(&source), index.get(&t)) {
                writeln!(out, "  n{from} -> n{to} [label=\"{operand}\"];")?;
            }
        }
    }
    out.write_str("}\n")
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

/// Operation, name, type and shape, and backend, one per line.
fn label(t: Tensor<'_>, backend: Option<&String>) -> String {
    let op = Some(t.op()).filter(|op| op != "NONE").map(|op| op.to_lowercase());
    let mut lines: Vec<_> = op.into_iter().collect();
    lines.push(t.name());
    lines.push(format!("{} {:?}", t.dtype(), t.ne()));
    lines.extend(backend.cloned());
    lines.retain(|line| !line.is_empty());
    let escaped: Vec<_> = lines.iter().map(|line| line.replace('\\', "\\\\").replace('"', "\\\"")).collect();
    escaped.join("\\n")
}
