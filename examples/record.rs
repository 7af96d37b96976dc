//! A device that writes down what it computes: operations, shapes, bytes and times, as a trace for `chrome://tracing`. It
//! wraps the CPU, whose kernels compute each operation on a thread of its own, as a driver can't call ggml itself.
#![allow(clippy::print_stdout, clippy::indexing_slicing, reason = "a program for people to read, small numbers")]

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ggml::driver::{Driver, DriverInfo, DriverStream, Failure, NoBuffer, NoEvent, Node, Nodes, OpParams};
use ggml::prelude::*;
use ggml::{Registry, SoftMax};

/// The events of the trace.
type Trace = Arc<Mutex<Vec<String>>>;

/// An operand's type, shape and bytes.
type Operand = (DType, [i64; 4], Vec<u8>);

/// An operation with the bytes of its operands, and where its result goes.
struct Task {
    params: OpParams,
    sources: Vec<Option<Operand>>,
    result: (DType, [i64; 4]),
    to: Sender<Result<Vec<u8>, String>>,
}

struct Recorder(Trace);

impl Driver for Recorder {
    type Buffer = NoBuffer;
    type Stream = Recording;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        DriverInfo::new("recorder".into(), DeviceType::Accelerator).with_description("The CPU, recorded")
    }

    fn supports(&self, node: &Node<'_, Self>) -> bool {
        let dense = |t: ggml::driver::TensorView<'_>| t.is_contiguous();
        node.operation().is_ok() && node.suits_cpu().is_ok() && node.sources().all(|s| dense(s.tensor()))
    }

    fn stream(&self, _params: &str) -> Result<Recording, Failure> {
        let (tasks, queue) = channel::<Task>();
        std::thread::spawn(move || {
            for task in queue {
                let result = compute(&task).map_err(|e| e.to_string());
                task.to.send(result).unwrap_or_default();
            }
        });
        Ok(Recording { tasks, trace: Arc::clone(&self.0), start: Instant::now() })
    }
}

/// Computes one operation with the CPU's kernels.
fn compute(task: &Task) -> Result<Vec<u8>, Failure> {
    let ctx = Context::new();
    let input = |(dtype, ne, _): &Operand| ctx.input("", *dtype, *ne);
    let inputs = task.sources.iter().map(|s| s.as_ref().map(input).transpose()).collect::<ggml::Result<Vec<_>>>()?;
    let result = task.params.operation()?.build(&ctx, &inputs, task.result.0, task.result.1)?;
    let graph = ctx.graph([result])?;
    let mut sched = Sched::builder().backend(Backend::cpu()?).build()?;
    let mut run = sched.alloc(&graph)?;
    for (input, (_, _, bytes)) in
        inputs.iter().zip(&task.sources).filter_map(|(i, s)| Some((*i.as_ref()?, s.as_ref()?)))
    {
        run.set_bytes(input, bytes)?;
    }
    run.compute()?;
    Ok(run.get_bytes(result)?)
}

struct Recording {
    tasks: Sender<Task>,
    trace: Trace,
    start: Instant,
}

impl DriverStream<Recorder> for Recording {
    fn compute(&mut self, nodes: Nodes<'_, Recorder>) -> Result<(), Failure> {
        for mut node in nodes {
            let (params, op, result) = (node.params(), node.op(), node.result().tensor());
            let slots: Vec<_> =
                (0..10).map(|i| node.source(i).map(|s| (s.tensor().dtype(), s.tensor().ne()))).collect();
            let (began, start) = (self.start.elapsed(), Instant::now());
            let (to, from) = channel();
            node.on_host(|out, bytes| {
                let read: usize = bytes.iter().map(|b| b.len()).sum();
                let with = |(i, slot): (usize, &Option<(DType, [i64; 4])>)| slot.map(|(d, ne)| (d, ne, bytes[i].to_vec()));
                let sources = slots.iter().enumerate().map(with).collect();
                let task = Task { params, sources, result: (result.dtype(), result.ne()), to };
                self.tasks.send(task).map_err(|_| Failure::lost("the thread is gone"))?;
                let computed = from.recv().map_err(|_| Failure::lost("the thread is gone"))?.map_err(Failure::new)?;
                out.copy_from_slice(&computed);
                let (ts, dur) = (began.as_micros(), start.elapsed().as_micros());
                let (shape, bytes) = (result.ne(), read + out.len());
                let args = format!("{{\"shape\": {shape:?}, \"bytes\": {bytes}}}");
                let event = format!(
                    "{{\"name\": \"{op}\", \"ph\": \"X\", \"pid\": 1, \"tid\": 1, \"ts\": {ts}, \"dur\": {dur}, \"args\": {args}}}"
                );
                self.trace.lock().map_err(|_| Failure::new("the trace is lost"))?.push(event);
                Ok::<_, Failure>(())
            })??;
        }
        Ok(())
    }
}

fn main() -> ggml::Result<()> {
    let trace = Trace::default();
    let recorder = Registry::register("Recorder", [Recorder(Arc::clone(&trace))])?.devices()?;
    let ctx = Context::new();
    let [q, k] = [ctx.input("q", DType::F32, [64, 8])?, ctx.input("k", DType::F32, [64, 16])?];
    let scores = ctx.soft_max_ext(ctx.mul_mat(k, q)?, SoftMax::new().with_scale(0.125))?;
    let graph = ctx.graph([ctx.sum_rows(scores)?])?;
    let backends = recorder.iter().map(|d| d.init()).collect::<ggml::Result<Vec<_>>>()?;
    let builder = backends.into_iter().fold(Sched::builder(), ggml::SchedBuilder::backend);
    let mut sched = builder.backend(Backend::cpu()?).build()?;
    let mut run = sched.alloc(&graph)?;
    run.set(q, &[0.5_f32; 64 * 8])?;
    run.set(k, &[0.25_f32; 64 * 16])?;
    run.compute()?;
    let events = trace.lock().map(|events| events.join(",\n")).unwrap_or_default();
    println!("[\n{events}\n]");
    Ok(())
}
