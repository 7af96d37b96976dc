//! Measures each operation of a graph.

use std::cell::Cell;
use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::Run;
use crate::backend::Backend;
use crate::callback;
use crate::error::Result;
use crate::list;
use crate::shape::Shape;

/// How out-of-memory errors name what the memory was for.
const TIMINGS: &str = "a profile";

/// One operation of a [`Profile`].
///
/// ```
/// # use ggml::prelude::*; let ctx = Context::new();
/// let y = ctx.sqr(ctx.arange(0.0, 256.0, 1.0)?)?;
/// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?;
/// let profile = run.profile()?;
/// let square = &profile.timings[1];
/// println!("{} of {} on {}: {:?}", square.op, square.shape, square.backend, square.time);
/// assert_eq!((&*square.op, square.bytes), ("sqr", 2 * 256 * 4));
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timing {
    /// ggml's name for the operation.
    pub op: String,
    /// The name of the operation's result.
    pub name: String,
    /// The shape of the operation's result.
    pub shape: Shape,
    /// The backend that computed the operation.
    pub backend: String,
    /// When the operation started, relative to the start of the computation.
    pub start: Duration,
    /// How long the operation took, from its submission to its completion on the device.
    pub time: Duration,
    /// The size of the operation's operands and result in bytes.
    pub bytes: usize,
}

/// The time that each operation of a computation took, in execution order.
///
/// `Display` prints a table with one row for each kind of operation, the most expensive first.
///
/// ```
/// # use ggml::prelude::*; let ctx = Context::new();
/// let y = ctx.sum(ctx.sqr(ctx.arange(0.0, 256.0, 1.0)?)?)?;
/// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?;
/// let profile = run.profile()?;
/// println!("{profile}"); // the most expensive operations first
/// assert!(profile.timings.iter().map(|t| t.time).sum::<std::time::Duration>() <= profile.total);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Profile {
    /// The timings of all operations, except views.
    pub timings: Vec<Timing>,
    /// The time of the whole computation. What exceeds the sum of the operations was spent on copies between devices
    /// and on running each operation separately.
    pub total: Duration,
}

impl Run<'_, '_> {
    /// Computes the graph as [`Run::compute`] does, but one operation at a time, and measures each one.
    ///
    /// Devices can't overlap or fuse operations here, so the sum of their times exceeds the time of a normal
    /// computation.
    ///
    /// # Errors
    ///
    /// As [`Run::compute`].
    pub fn profile(&mut self) -> Result<Profile> {
        callback::check_reentry("Run::profile")?;
        let graph = self.graph;
        let entries = graph.entries();
        let names = entries.iter().map(|e| self.engine.backend_of(e.ptr).map_or_else(String::new, Backend::name));
        let backends = list::collect(names, TIMINGS)?;
        let begin = Instant::now();
        let asked = Cell::new(begin);
        // Memory for all timings is reserved here, because the closure below can't return an error.
        let mut timings = list::reserved(graph.n_nodes(), TIMINGS)?;
        let ask = |t: crate::Tensor<'_>| {
            asked.set(Instant::now());
            !t.ptr().is_view_op()
        };
        self.compute_with(ask, |observed| {
            let time = asked.get().elapsed();
            let t = observed.tensor().ptr();
            let size = |t: crate::header::TensorPtr| t.span().unwrap_or(0);
            let backend = graph.entries().position(t).and_then(|i| backends.get(i));
            timings.push(Timing {
                op: t.op_name(),
                name: t.name(),
                shape: Shape::from(t.ne()),
                backend: backend.cloned().unwrap_or_default(),
                start: asked.get().duration_since(begin),
                time,
                bytes: t.sources().map(size).chain([size(t)]).sum(),
            });
            ControlFlow::Continue(())
        })?;
        Ok(Profile { timings, total: begin.elapsed() })
    }
}

/// The total of all operations of one kind on one backend: a row of the printed table.
#[derive(Default)]
struct TimingRow<'a> {
    op: &'a str,
    backend: &'a str,
    count: usize,
    time: Duration,
    bytes: usize,
}

impl Profile {
    fn rows(&self) -> Vec<TimingRow<'_>> {
        let mut rows: Vec<TimingRow<'_>> = Vec::new();
        for t in &self.timings {
            let at = rows.iter().position(|r| r.op == t.op && r.backend == t.backend).unwrap_or(rows.len());
            if at == rows.len() {
                rows.push(TimingRow { op: &t.op, backend: &t.backend, ..TimingRow::default() });
            }
            if let Some(row) = rows.get_mut(at) {
                row.count += 1;
                row.time += t.time;
                row.bytes += t.bytes;
            }
        }
        rows.sort_by_key(|r| std::cmp::Reverse(r.time));
        rows
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows();
        let op = rows.iter().map(|r| r.op.len()).fold("operation".len(), usize::max);
        let backend = rows.iter().map(|r| r.backend.len()).fold("backend".len(), usize::max);
        writeln!(
            f,
            "{:<op$}  {:<backend$}  {:>6}  {:>12}  {:>6}  {:>10}  {:>8}",
            "operation", "backend", "count", "time", "share", "MiB", "GiB/s"
        )?;
        for r in &rows {
            let seconds = r.time.as_secs_f64();
            let share = 100.0 * seconds / self.total.as_secs_f64().max(f64::MIN_POSITIVE);
            let mib = mebibytes(r.bytes);
            writeln!(
                f,
                "{:<op$}  {:<backend$}  {:>6}  {:>9.3} ms  {share:>4.1} %  {mib:>10.3}  {:>8.2}",
                r.op,
                r.backend,
                r.count,
                seconds * 1e3,
                mib / 1024.0 / seconds.max(f64::MIN_POSITIVE),
            )?;
        }
        write!(f, "total {:.3} ms", self.total.as_secs_f64() * 1e3)
    }
}

#[expect(clippy::cast_precision_loss, reason = "it is shown with a few digits")]
fn mebibytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
