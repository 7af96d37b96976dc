//! The CPU as a device in Rust that works in host memory. On demand it leaves a result unwritten.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;

use ggml::driver::{Driver, DriverInfo, DriverStream, Failure, NoBuffer, NoEvent, Node, Nodes};
use ggml::{Device, DeviceType, Registry};

use crate::kernels::Kernels;

/// How a device leaves a result unwritten, and says that all went well.
#[derive(Debug, Clone, Copy)]
pub enum Lazy {
    /// It computes all others.
    Skips,
    /// It computes none after it either.
    Stops,
    /// It computes it, but panics before the result is written, and catches that.
    Panics,
}

/// What tests ask of a device.
#[derive(Default)]
pub struct CpuControl {
    /// How many more nodes it computes before it is lazy.
    lazy: Mutex<Option<(usize, Lazy)>>,
}

impl CpuControl {
    /// Leaves the result of the `n`th node from now on unwritten, or no one's.
    pub fn be_lazy(&self, lazy: Option<(usize, Lazy)>) {
        *self.lazy.lock().unwrap() = lazy;
    }

    /// Whether it was lazy since it was told to be.
    pub fn was_lazy(&self) -> bool {
        self.lazy.lock().unwrap().is_none()
    }

    fn next(&self) -> Option<Lazy> {
        let mut lazy = self.lazy.lock().unwrap();
        let (left, how) = (*lazy)?;
        *lazy = left.checked_sub(1).map(|left| (left, how));
        lazy.is_none().then_some(how)
    }
}

/// Registers a device.
pub fn device() -> (Device, Arc<CpuControl>) {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("HostCpu{}", COUNT.fetch_add(1, Ordering::SeqCst));
    let control = Arc::new(CpuControl::default());
    let driver = HostCpu { name: name.clone(), control: Arc::clone(&control) };
    (Registry::register(&name, [driver]).unwrap().devices().unwrap()[0], control)
}

struct HostCpu {
    name: String,
    control: Arc<CpuControl>,
}

type CpuTask = Box<dyn FnOnce(&mut Kernels) + Send>;

struct Stream {
    tasks: Sender<CpuTask>,
    control: Arc<CpuControl>,
}

impl Driver for HostCpu {
    type Buffer = NoBuffer;
    type Stream = Stream;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        DriverInfo::new(self.name.clone(), DeviceType::Accelerator)
    }

    fn supports(&self, node: &Node<'_, Self>) -> bool {
        node.suits_cpu().is_ok() && node.rebuilds().is_ok()
    }

    fn stream(&self, _: &str) -> Result<Stream, Failure> {
        let (tasks, queue) = mpsc::channel::<CpuTask>();
        thread::spawn(move || {
            let mut kernels = Kernels::default();
            for task in queue {
                task(&mut kernels);
            }
        });
        Ok(Stream { tasks, control: Arc::clone(&self.control) })
    }
}

impl Stream {
    /// Computes a node on the thread whose kernels may call ggml.
    fn node(&self, mut node: Node<'_, HostCpu>, panics: bool) -> Result<(), Failure> {
        let recipe = node.recipe();
        node.on_host(|to, from| {
            let from: Vec<_> = from.iter().map(|bytes| bytes.to_vec()).collect();
            let (done, result) = mpsc::channel();
            let task = move |kernels: &mut Kernels| {
                let mut data = Vec::new();
                let read = |slot: usize| from[slot].clone();
                let computed = kernels.run(&recipe, read, |bytes| {
                    data = bytes.to_vec();
                    Ok(())
                });
                let _gone = done.send(computed.map(|()| data));
            };
            self.tasks.send(Box::new(task)).map_err(|_| Failure::lost("the thread is gone"))?;
            let data = result.recv().map_err(|_| Failure::lost("the thread panicked"))?.map_err(Failure::lost)?;
            if panics {
                std::panic::resume_unwind(Box::new("told to panic"));
            }
            recipe.store(&data, to)
        })?
    }
}

impl DriverStream<HostCpu> for Stream {
    fn compute(&mut self, nodes: Nodes<'_, HostCpu>) -> Result<(), Failure> {
        for node in nodes {
            match self.control.next() {
                None => self.node(node, false)?,
                Some(Lazy::Skips) => {}
                Some(Lazy::Stops) => return Ok(()),
                Some(Lazy::Panics) => {
                    let lends = std::panic::AssertUnwindSafe(|| self.node(node, true));
                    let caught = std::panic::catch_unwind(lends);
                    assert!(caught.is_err(), "it was told to panic");
                }
            }
        }
        Ok(())
    }
}
