//! Computations in the format of trace viewers.

use ggml::run::Profile;
use serde_json::json;

/// A trace of a computation.
///
/// ```
/// use ggml_draw::ToTrace as _;
/// # use ggml::prelude::*; let ctx = Context::new();
/// let y = ctx.sqr(ctx.arange(0.0, 4.0, 1.0)?)?;
/// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?;
/// let trace = run.profile()?.to_trace();
/// assert!(trace.contains("\"sqr\""));
/// # Ok::<(), ggml::Error>(())
/// ```
pub trait ToTrace {
    /// The computation in the trace format that `chrome://tracing` and Perfetto open, one track for each backend.
    fn to_trace(&self) -> String;
}

impl ToTrace for Profile {
    fn to_trace(&self) -> String {
        let mut backends: Vec<&str> = Vec::new();
        let mut events = Vec::new();
        for t in &self.timings {
            let thread = backends.iter().position(|b| *b == t.backend).unwrap_or_else(|| {
                backends.push(&t.backend);
                backends.len() - 1
            });
            events.push(json!({
                "ph": "X", "pid": 1, "tid": thread, "name": t.op,
                "ts": t.start.as_secs_f64() * 1e6, "dur": t.time.as_secs_f64() * 1e6,
                "args": { "name": t.name, "shape": t.shape.ne(), "bytes": t.bytes },
            }));
        }
        for (thread, name) in backends.iter().enumerate() {
            events.push(json!({ "ph": "M", "pid": 1, "tid": thread, "name": "thread_name", "args": { "name": name } }));
        }
        json!({ "traceEvents": events, "displayTimeUnit": "ms" }).to_string()
    }
}
