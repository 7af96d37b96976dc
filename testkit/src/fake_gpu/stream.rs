//! Streams: threads that compute what they are told, later.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use ggml::driver::{DriverStream, Failure, HostSource, HostTarget, Node, Nodes, Operand, Place, Region, SplitNodes};

use super::fault::Call;
use super::memory::Bytes;
use super::race::{self, Access, Clock};
use super::{Control, FakeGpu, told_to_panic};
use crate::kernels::Kernels;

/// How much of a stream's work is done, and why it failed.
#[derive(Default)]
struct Progress {
    done: Mutex<(u64, Option<String>)>,
    more: Condvar,
}

impl Progress {
    fn wait(&self, number: u64) -> Option<String> {
        let guard = self.done.lock().unwrap();
        self.more.wait_while(guard, |(n, _)| *n < number).unwrap().1.clone()
    }

    fn finish(&self, result: Result<(), String>) {
        let mut done = self.done.lock().unwrap();
        done.0 += 1;
        if let Err(why) = result {
            done.1.get_or_insert(why);
        }
        self.more.notify_all();
    }
}

/// A point in a stream's queue.
#[derive(Default)]
pub struct FakeEvent(Mutex<Option<(Arc<Progress>, u64, Clock)>>);

impl FakeEvent {
    pub(super) fn wait(&self) {
        let recorded = self.0.lock().unwrap().clone();
        if let Some((progress, number, clock)) = recorded {
            progress.wait(number);
            race::known(&clock);
        }
    }
}

type Task = Box<dyn FnOnce(&mut Kernels) -> Result<(), String> + Send>;

pub struct FakeStream {
    id: usize,
    control: Arc<Control>,
    progress: Arc<Progress>,
    tasks: Option<Sender<Task>>,
    submitted: u64,
    thread: Option<thread::JoinHandle<()>>,
}

impl FakeStream {
    pub(super) fn new(control: &Arc<Control>) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let id = NEXT.fetch_add(1, Ordering::SeqCst);
        let (tasks, queue) = mpsc::channel::<Task>();
        let progress = Arc::new(Progress::default());
        let (shared, done) = (Arc::clone(control), Arc::clone(&progress));
        let thread = thread::spawn(move || {
            let mut kernels = Kernels::default();
            let mut random = fastrand::Rng::with_seed(id as u64);
            for task in queue {
                while shared.hangs.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(1));
                }
                if shared.delays.load(Ordering::SeqCst) && random.u8(..8) == 0 {
                    thread::sleep(Duration::from_micros(random.u64(..200)));
                }
                let told = shared.told(Call::Work);
                let work = || if told.is_some() { Err("told to fail".into()) } else { task(&mut kernels) };
                let result = catch_unwind(AssertUnwindSafe(work));
                done.finish(result.unwrap_or_else(|_| Err("the work panicked".into())));
            }
        });
        let control = Arc::clone(control);
        Self { id, control, progress, tasks: Some(tasks), submitted: 0, thread: Some(thread) }
    }

    fn submit(
        &mut self,
        accesses: &[Access],
        what: &str,
        task: impl FnOnce(&mut Kernels) -> Result<(), String> + Send + 'static,
    ) -> Result<(), Failure> {
        race::submit(self.id, accesses, what);
        self.submitted += 1;
        let tasks = self.tasks.as_ref().ok_or_else(|| Failure::lost("the thread is gone"))?;
        tasks.send(Box::new(task)).map_err(|_| Failure::lost("the thread is gone"))?;
        if self.control.asynchronous {
            return Ok(());
        }
        self.drain()
    }

    fn drain(&mut self) -> Result<(), Failure> {
        let failed = self.progress.wait(self.submitted);
        race::known(&race::clock(self.id));
        failed.map_or(Ok(()), |why| Err(Failure::lost(why)))
    }
}

impl Drop for FakeStream {
    fn drop(&mut self) {
        race::freed(self.id);
        drop(self.tasks.take());
        let joined = self.thread.take().map(thread::JoinHandle::join);
        if !thread::panicking() {
            assert!(joined.is_none_or(|j| j.is_ok()), "a stream's thread panicked");
            if self.control.enter(Call::DropStream).is_err() {
                told_to_panic();
            }
        }
    }
}

/// Where a tensor lies in its buffer.
struct Span {
    buffer: Bytes,
    range: Range<usize>,
}

/// Where an operand lies, and the access to it.
fn at(operand: &Operand<'_, FakeGpu>, writes: bool) -> Result<(Span, Access), Failure> {
    let Some(Place::Buffer { buffer, offset }) = operand.place() else {
        return Err(Failure::new(format!("{operand:?} is not in device memory")));
    };
    let len = operand.tensor().nbytes();
    let span = Span { buffer: Arc::clone(&buffer.bytes), range: offset..offset + len };
    Ok((span, buffer.access(offset, len, writes)))
}

impl FakeStream {
    fn node(&mut self, node: &Node<'_, FakeGpu>) -> Result<(), Failure> {
        let (to, access) = at(&node.result(), true)?;
        let mut accesses = vec![access];
        let mut sources = Vec::new();
        for source in node.slots() {
            let place = source.map(|source| at(&source, false)).transpose()?;
            sources.push(place.map(|(span, access)| {
                accesses.push(access);
                span
            }));
        }
        let what = format!("{} of {}", node.op(), node.result().tensor().name());
        let recipe = node.recipe();
        self.submit(&accesses, &what, move |kernels| {
            let read = |slot: usize| {
                let from = sources[slot].as_ref().unwrap();
                from.buffer.lock().unwrap()[from.range.clone()].to_vec()
            };
            kernels.run(&recipe, read, |data| recipe.store(data, &mut to.buffer.lock().unwrap()[to.range.clone()]))
        })
    }
}

impl DriverStream<FakeGpu> for FakeStream {
    fn optimize(&mut self, nodes: &SplitNodes<'_, FakeGpu>) -> Result<Option<Vec<usize>>, Failure> {
        self.control.clone().enter(Call::Optimize)?;
        let order = *self.control.order.lock().unwrap();
        order(nodes)
    }

    fn compute(&mut self, nodes: Nodes<'_, FakeGpu>) -> Result<(), Failure> {
        self.control.clone().enter(Call::Compute)?;
        for node in nodes {
            self.node(&node)?;
        }
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), Failure> {
        self.control.clone().enter(Call::Synchronize)?;
        self.drain()
    }

    fn set(&mut self, to: Region<'_, FakeGpu>, from: HostSource) -> Result<(), Failure> {
        self.control.clone().enter(Call::Set)?;
        let (bytes, offset, len) = (Arc::clone(&to.buffer().bytes), to.offset(), to.len());
        let access = to.buffer().access(offset, len, true);
        self.submit(&[access], &format!("a transfer to {}", to.tensor().name()), move |_| {
            let mut data = vec![0; len];
            from.read(0, &mut data).map_err(|e| e.to_string())?;
            bytes.lock().unwrap()[offset..][..len].copy_from_slice(&data);
            Ok(())
        })
    }

    fn get(&mut self, from: Region<'_, FakeGpu>, to: HostTarget) -> Result<(), Failure> {
        self.control.clone().enter(Call::Get)?;
        let (bytes, offset, len) = (Arc::clone(&from.buffer().bytes), from.offset(), from.len());
        let access = from.buffer().access(offset, len, false);
        self.submit(&[access], &format!("a transfer from {}", from.tensor().name()), move |_| {
            let data: Vec<_> = bytes.lock().unwrap()[offset..][..len].into();
            to.write(0, &data).map_err(|e| e.to_string())
        })
    }

    fn copy(
        &mut self,
        source: Option<&mut Self>,
        from: Region<'_, FakeGpu>,
        to: Region<'_, FakeGpu>,
    ) -> Result<bool, Failure> {
        if !self.control.clone().enter(Call::Copy)? {
            return Ok(false);
        }
        let len = to.len();
        let accesses = [from.buffer().access(from.offset(), len, false), to.buffer().access(to.offset(), len, true)];
        let what = format!("a copy to {}", to.tensor().name());
        let (source_bytes, start) = (Arc::clone(&from.buffer().bytes), from.offset());
        let (bytes, offset) = (Arc::clone(&to.buffer().bytes), to.offset());
        let task = move |_: &mut Kernels| {
            let data: Vec<_> = source_bytes.lock().unwrap()[start..][..len].into();
            bytes.lock().unwrap()[offset..][..len].copy_from_slice(&data);
            Ok(())
        };
        // As CUDA does it: the source's stream copies, and this one waits for that; CUDA's doesn't wait for this one.
        let Some(source) = source else { return self.submit(&accesses, &what, task).map(|()| true) };
        if self.control.ordered {
            let event = FakeEvent::default();
            self.record_event(&event);
            source.wait_event(&event)?;
        }
        source.submit(&accesses, &what, task)?;
        let event = FakeEvent::default();
        source.record_event(&event);
        self.wait_event(&event)?;
        Ok(true)
    }

    fn record(&mut self, event: &FakeEvent) -> Result<(), Failure> {
        self.control.clone().enter(Call::Record)?;
        self.record_event(event);
        Ok(())
    }

    fn wait(&mut self, event: &FakeEvent) -> Result<(), Failure> {
        self.control.clone().enter(Call::Wait)?;
        self.wait_event(event)
    }
}

impl FakeStream {
    fn record_event(&self, event: &FakeEvent) {
        let clock = race::clock(self.id);
        *event.0.lock().unwrap() = Some((Arc::clone(&self.progress), self.submitted, clock));
    }

    fn wait_event(&mut self, event: &FakeEvent) -> Result<(), Failure> {
        let recorded = event.0.lock().unwrap().clone();
        let Some((progress, number, clock)) = recorded else { return Ok(()) };
        race::wait(self.id, &clock);
        if Arc::ptr_eq(&progress, &self.progress) {
            return Ok(());
        }
        self.submit(&[], "a wait for an event", move |_| {
            progress.wait(number);
            Ok(())
        })
    }
}
