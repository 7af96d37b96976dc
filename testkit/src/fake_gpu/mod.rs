//! A GPU that is made of the CPU: memory that the host can't address, and streams that compute on threads of their own, some
//! time after they were told to. It watches who touches its memory when, and fails on demand.

mod fault;
mod memory;
mod order;
mod race;
mod stream;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ggml::driver::{Driver, DriverInfo, Failure, Node, TensorView};
use ggml::{Device, DeviceType, Registry};

pub use fault::{Call, Fault};
pub use memory::FakeBuffer;
pub use order::{Order, shuffled};
pub use race::{Race, fail_on_races, take_races};
pub use stream::{FakeEvent, FakeStream};

use fault::Faults;

/// What tests know of a device, and can ask of it.
pub struct Control {
    pub name: String,
    limit: usize,
    used: AtomicUsize,
    faults: Mutex<Faults>,
    /// Whether streams wait a random time before each piece of work.
    delays: AtomicBool,
    /// Whether streams wait until they are told.
    hangs: AtomicBool,
    asynchronous: bool,
    ordered: bool,
    order: Mutex<Order>,
}

impl Control {
    /// Makes the `n`th call of a function from now on fail in this way.
    pub fn fail(&self, call: Call, n: usize, fault: Fault) {
        self.faults.lock().unwrap().set(call, n, fault);
    }

    /// Whether the fault happened.
    pub fn has_failed(&self) -> bool {
        self.faults.lock().unwrap().happened()
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::SeqCst)
    }

    pub fn set_delays(&self, on: bool) {
        self.delays.store(on, Ordering::SeqCst);
    }

    /// Sets how streams order nodes; at random by default.
    pub fn set_order(&self, order: Order) {
        *self.order.lock().unwrap() = order;
    }

    /// Lets streams hang, or go on.
    pub fn hang(&self, on: bool) {
        self.hangs.store(on, Ordering::SeqCst);
    }

    /// The fault of this call.
    fn told(&self, call: Call) -> Option<Fault> {
        self.faults.lock().unwrap().next(call)
    }

    /// Fails as it was told to. Returns `false` if the call is to say that it can't.
    fn enter(&self, call: Call) -> Result<bool, Failure> {
        match self.told(call) {
            None => Ok(true),
            Some(Fault::Refuse) => Ok(false),
            Some(Fault::Fail) => Err(Failure::new("told to fail")),
            Some(Fault::Lose) => Err(Failure::lost("told to be lost")),
            Some(Fault::Panic) => told_to_panic(),
        }
    }
}

/// Panics without a message and a backtrace, which take a second.
fn told_to_panic() -> ! {
    std::panic::resume_unwind(Box::new("told to panic"))
}

/// How a device is made.
#[derive(Debug, Clone, Copy)]
pub struct FakeOptions {
    pub limit: usize,
    pub asynchronous: bool,
    pub events: bool,
    /// Whether copies between devices come after the destination's earlier work, as ggml asks of a driver. CUDA's don't.
    pub ordered: bool,
}

impl Default for FakeOptions {
    fn default() -> Self {
        Self { limit: 1 << 30, asynchronous: true, events: true, ordered: false }
    }
}

/// Registers `N` devices that can copy to each other.
pub fn devices<const N: usize>(options: FakeOptions) -> [(Device, Arc<Control>); N] {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let first = COUNT.fetch_add(N, Ordering::SeqCst);
    let controls: [_; N] = std::array::from_fn(|i| {
        Arc::new(Control {
            name: format!("Fake{}", first + i),
            limit: options.limit,
            used: AtomicUsize::new(0),
            faults: Mutex::default(),
            delays: AtomicBool::new(false),
            hangs: AtomicBool::new(false),
            asynchronous: options.asynchronous,
            ordered: options.ordered,
            order: Mutex::new(shuffled),
        })
    });
    let drivers = controls.iter().map(|control| FakeGpu { control: Arc::clone(control), events: options.events });
    let registry = Registry::register(&format!("Fake-{first}"), drivers).unwrap();
    let devices = registry.devices().unwrap();
    std::array::from_fn(|i| (devices[i], Arc::clone(&controls[i])))
}

/// The device.
pub struct FakeGpu {
    control: Arc<Control>,
    events: bool,
}

impl Driver for FakeGpu {
    type Buffer = FakeBuffer;
    type Stream = FakeStream;
    type Event = FakeEvent;

    fn info(&self) -> DriverInfo {
        DriverInfo::new(self.control.name.clone(), DeviceType::Gpu)
            .with_description("The CPU, pretending")
            .with_memory(true)
            .with_async(self.control.asynchronous)
            .with_events(self.events)
            .with_optimize(true)
    }

    fn memory(&self) -> [usize; 2] {
        [self.control.limit - self.control.used(), self.control.limit]
    }

    fn supports(&self, node: &Node<'_, Self>) -> bool {
        match self.control.told(Call::Supports) {
            Some(Fault::Panic) => told_to_panic(),
            Some(_) => return false,
            None => {}
        }
        node.suits_cpu().is_ok() && node.rebuilds().is_ok()
    }

    fn alloc_size(&self, tensor: TensorView<'_>) -> usize {
        match self.control.told(Call::AllocSize) {
            Some(Fault::Panic) => told_to_panic(),
            Some(_) => usize::MAX,
            None => tensor.nbytes(),
        }
    }

    fn allocate(&self, size: usize) -> Result<FakeBuffer, Failure> {
        self.control.enter(Call::Allocate)?;
        FakeBuffer::new(&self.control, size)
    }

    fn stream(&self, _params: &str) -> Result<FakeStream, Failure> {
        self.control.enter(Call::Stream)?;
        Ok(FakeStream::new(&self.control))
    }

    fn event(&self) -> Result<FakeEvent, Failure> {
        self.control.enter(Call::Event)?;
        Ok(FakeEvent::default())
    }

    fn wait_for(&self, event: &FakeEvent) -> Result<(), Failure> {
        self.control.enter(Call::WaitFor)?;
        event.wait();
        Ok(())
    }
}
