//! A device that writes down what it computes: operations, shapes, bytes and times, as a trace for `chrome://tracing`. It
//! wraps the CPU, whose kernels compute each operation on a thread of its own, as a driver can't call ggml itself.
#![allow(clippy::print_stdout, clippy::indexing_slicing, reason = "a program for people to read, small numbers")]

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ggml::driver::{Driver, DriverInfo, DriverStream, Failure, NoBuffer, NoEvent, Node, Nodes, Recipe};
use ggml::prelude::*;
use ggml::{Registry, ops::SoftMaxOptions};

/// The events of the trace.
pub(crate) type Trace = Arc<Mutex<Vec<String>>>;

/// An operation with the bytes of its operands by slot, and where its result goes.
struct Task {
    recipe: Recipe,
    sources: Vec<Vec<u8>>,
    to: Sender<Result<Vec<u8>, Failure>>,
}

/// The device. The CPU's kernels run on `threads` threads, on whose number the order of some sums depends.
pub(crate) struct Recorder {
    pub(crate) trace: Trace,
    pub(crate) threads: usize,
}

impl Driver for Recorder {
    type Buffer = NoBuffer;
    type Stream = Recording;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        DriverInfo::new("recorder".into(), DeviceType::Accelerator).with_description("The CPU, recorded")
    }

    fn supports(&self, node: &Node<'_, Self>) -> bool {
        node.suits_cpu().is_ok() && node.rebuilds().is_ok()
    }

    fn stream(&self, _params: &str) -> Result<Recording, Failure> {
        let ((tasks, queue), threads) = (channel(), self.threads);
        std::thread::Builder::new().spawn(move || compute_all(&queue, threads))?;
        Ok(Recording { tasks, trace: Arc::clone(&self.trace), start: Instant::now() })
    }
}

fn compute_all(queue: &Receiver<Task>, threads: usize) {
    for task in queue {
        let Ok(()) = task.to.send(compute(&task, threads)) else { return };
    }
}

/// Computes one operation with the CPU's kernels. The elements of the result come in order.
fn compute(task: &Task, threads: usize) -> Result<Vec<u8>, Failure> {
    let mut cpu = Backend::cpu()?;
    cpu.set_threads(threads)?;
    let ctx = Context::new();
    let built = task.recipe.build(&ctx)?;
    let graph = ctx.graph([built.result])?;
    let mut sched = Sched::builder().backend(cpu).build()?;
    let mut run = sched.alloc(&graph)?;
    for (slot, input) in built.inputs {
        run.set_bytes(input, &task.sources[slot])?;
    }
    run.compute()?;
    Ok(run.get_bytes(built.result)?)
}

/// A copy of bytes, or an error if there is no memory for it.
fn copy(bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(bytes.len())?;
    copy.extend_from_slice(bytes);
    Ok(copy)
}

pub(crate) struct Recording {
    tasks: Sender<Task>,
    trace: Trace,
    start: Instant,
}

impl DriverStream<Recorder> for Recording {
    fn compute(&mut self, nodes: Nodes<'_, Recorder>) -> Result<(), Failure> {
        for mut node in nodes {
            let (recipe, op, shape) = (node.recipe(), node.op(), node.result().tensor().ne());
            let (began, start) = (self.start.elapsed(), Instant::now());
            let bytes = node.on_host(|result, sources| {
                let (to, from) = channel();
                let sources = sources.iter().map(|bytes| copy(bytes)).collect::<Result<Vec<_>, _>>()?;
                let bytes = sources.iter().map(Vec::len).sum::<usize>() + result.len();
                self.tasks.send(Task { recipe, sources, to }).map_err(|_| Failure::lost("the thread is gone"))?;
                let computed = from.recv().map_err(|_| Failure::lost("the thread is gone"))??;
                recipe.store(&computed, result)?;
                Ok::<_, Failure>(bytes)
            })??;
            let (ts, dur) = (began.as_micros(), start.elapsed().as_micros());
            let args = format!("{{\"shape\": {shape:?}, \"bytes\": {bytes}}}");
            let event = format!(
                "{{\"name\": \"{op}\", \"ph\": \"X\", \"pid\": 1, \"tid\": 1, \"ts\": {ts}, \"dur\": {dur}, \"args\": {args}}}"
            );
            self.trace.lock().map_err(|_| Failure::new("the trace is lost"))?.push(event);
        }
        Ok(())
    }
}

fn main() -> ggml::Result<()> {
    let trace = Trace::default();
    let driver = Recorder { trace: Arc::clone(&trace), threads: Backend::cpu()?.threads() };
    let [recorder] = Registry::register("Recorder", [driver])?.devices()?[..] else {
        return Ok(()); // one driver, one device
    };
    let ctx = Context::new();
    let [q, k] = [ctx.input("q", DType::F32, [64, 8])?, ctx.input("k", DType::F32, [64, 16])?];
    let scores = ctx.soft_max_ext(ctx.mul_mat(k, q)?, SoftMaxOptions::new().with_scale(0.125))?;
    // Each row of scores is of equal ones; half of them, as 16-bit floats, from a view.
    let half = ctx.view(scores, [8, 8], [scores.nb()[1], scores.nb()[2], scores.nb()[3]], 0)?;
    let narrow = ctx.cast(half, DType::F16)?;
    let wide = ctx.cast(narrow, DType::F32)?;
    let sums = ctx.sum_rows(wide)?;
    let graph = ctx.graph([sums])?;
    let mut sched = Sched::builder().backend(recorder.init()?).backend(Backend::cpu()?).build()?;
    // ggml's scheduler would leave casts to the CPU.
    let mut run = sched.alloc_pinned(&graph, &[(narrow, 0), (wide, 0)])?;
    run.set(q, &[0.5_f32; 64 * 8])?;
    run.set(k, &[0.25_f32; 64 * 16])?;
    run.compute()?;
    assert_eq!(run.get::<f32>(sums)?, [0.5; 8], "half of what adds up to 1");
    let events = trace.lock().map(|events| events.join(",\n")).unwrap_or_default();
    println!("[\n{events}\n]");
    Ok(())
}
