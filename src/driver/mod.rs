//! Devices written in Rust.
//!
//! A [`Driver`] implements a device: it says which operations it computes, allocates [buffers](DriverBuffer), and makes
//! [streams](DriverStream) that compute graphs. [`Registry::register`](crate::Registry::register) makes devices of
//! drivers. From then on each is a [`Device`](crate::Device) like any other: listed, scheduled, compared, and a
//! possible member of a meta device.
//!
//! References that a driver's function gets are valid until it returns. All operands were checked: they lie inside
//! their buffers, and their strides and sizes are those of tensors. No function can call ggml
//! ([`Error::Nested`](crate::Error::Nested)); a driver that computes with ggml does so on a thread of its own.
//!
//! A panic in a driver is caught. The device is then lost: calls return
//! [`Error::DeviceLost`](crate::Error::DeviceLost).

mod computation;
mod failure;
mod host;
mod info;
mod memory;
mod node;
mod operation;
mod raw;
mod recipe;
mod register;
mod split;
mod state;
mod view;

pub use crate::op::{OpParams, Operation};
pub use failure::Failure;
pub use host::{HostSource, HostTarget, zeroed};
pub use info::DriverInfo;
pub use node::{Node, Nodes};
pub use recipe::{Rebuilt, Recipe};
pub use split::SplitNodes;
pub use view::{Operand, Place, Region, TensorView};

use std::convert::Infallible;

/// A device's implementation (`ggml_backend_device_i`).
///
/// The functions of a driver may be called from any thread, and from several at once.
///
/// ```standalone_crate
/// use ggml::driver::{Driver, DriverInfo, DriverStream, Failure, NoBuffer, NoEvent, Node, Nodes, Operation};
/// use ggml::prelude::*;
/// use ggml::Registry;
///
/// struct Squares;
///
/// impl Driver for Squares {
///     type Buffer = NoBuffer; // it works in the memory of the CPU
///     type Stream = Self;
///     type Event = NoEvent;
///
///     fn info(&self) -> DriverInfo {
///         DriverInfo::new("Squares0".into(), DeviceType::Accelerator)
///     }
///
///     fn supports(&self, node: &Node<'_, Self>) -> bool {
///         let x = node.result().tensor();
///         matches!(node.operation(), Ok(Operation::Sqr)) && x.dtype() == DType::F32 && x.is_contiguous()
///     }
///
///     fn stream(&self, _params: &str) -> Result<Self, Failure> {
///         Ok(Self)
///     }
/// }
///
/// impl DriverStream<Self> for Squares {
///     fn compute(&mut self, nodes: Nodes<'_, Self>) -> Result<(), Failure> {
///         for mut node in nodes {
///             node.on_host(|to, from| {
///                 let x: &[f32] = bytemuck::cast_slice(from[0]);
///                 bytemuck::cast_slice_mut(to).iter_mut().zip(x).for_each(|(y, x): (&mut f32, _)| *y = x * x);
///             })?;
///         }
///         Ok(())
///     }
/// }
///
/// # fn main() -> ggml::Result<()> {
/// let [device] = Registry::register("Squares", [Squares])?.devices()?[..] else { panic!("one driver, one device") };
/// assert_eq!(Device::by_name("Squares0")?, device);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ggml_backend_device_i")]
pub trait Driver: Send + Sync + Sized + 'static {
    /// The type of the device's buffers; [`NoBuffer`] if the device works in host memory.
    type Buffer: DriverBuffer;
    /// The type of the device's streams, which compute.
    type Stream: DriverStream<Self>;
    /// The type of events, which are points in a stream's queue; [`NoEvent`] if the device has none.
    type Event: Send + Sync + 'static;

    /// What the device is called and can do. This is called once, when the device is registered.
    fn info(&self) -> DriverInfo;

    /// The device's free and total memory in bytes; zeros if it has none of its own.
    fn memory(&self) -> [usize; 2] {
        [0, 0]
    }

    /// Whether the device computes `node`, whose operands may have no memory yet. The answer for the same node must not
    /// change.
    ///
    /// This is not called for views, which need no computation, nor for closures, which a driver can't call.
    fn supports(&self, node: &Node<'_, Self>) -> bool;

    /// Whether the device should compute `node` even if that means copying weights to it. This is not called for
    /// `mul_mat_id`, because ggml would read that operation's indices from the device.
    fn offloads(&self, node: &Node<'_, Self>) -> bool {
        let _ = node;
        false
    }

    /// The bytes that a tensor takes in the device's buffers. An answer below [`TensorView::nbytes`] is raised to it.
    /// Extra room is ignored for results of operations where ggml allows none.
    fn alloc_size(&self, tensor: TensorView<'_>) -> usize {
        tensor.nbytes()
    }

    /// Allocates a buffer of `size` bytes, at least 1, for example by [`zeroed`]. Its content is undefined.
    ///
    /// # Errors
    ///
    /// Every failure counts as a lack of memory: the call returns [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    fn allocate(&self, size: usize) -> Result<Self::Buffer, Failure> {
        let _ = size;
        Err(Failure::new("the device has no memory of its own"))
    }

    /// Makes a stream. `params` is what [`Device::init_with`](crate::Device::init_with) was given, or else empty.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn stream(&self, params: &str) -> Result<Self::Stream, Failure>;

    /// Makes an event. It counts as reached until a stream records it.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn event(&self) -> Result<Self::Event, Failure> {
        Err(Failure::new("the device has no events"))
    }

    /// Waits for an event.
    ///
    /// # Errors
    ///
    /// After any failure the device is lost, because nobody knows what still runs.
    fn wait_for(&self, event: &Self::Event) -> Result<(), Failure> {
        let _ = event;
        Err(Failure::new("the device has no events"))
    }
}

/// Memory of a device, which the host can't address (`ggml_backend_buffer_i`).
///
/// Offsets count from the buffer's start. All ranges were checked: they lie inside the buffer. A buffer's functions may
/// be called from any thread, and from several at once. It is dropped when ggml frees it, even if the device is lost.
///
/// ```
/// # use ggml::prelude::*;
/// use std::sync::{Mutex, PoisonError};
/// use ggml::driver::{DriverBuffer, Failure, TensorView};
///
///
/// /// Bytes in place of a device's memory.
/// struct Memory(Mutex<Vec<u8>>);
///
/// impl Memory {
///     fn with<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
///         f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
///     }
/// }
///
/// impl DriverBuffer for Memory {
///     fn set(&self, _: TensorView<'_>, offset: usize, data: &[u8]) -> Result<(), Failure> {
///         self.with(|bytes| bytes[offset..][..data.len()].copy_from_slice(data));
///         Ok(())
///     }
///
///     fn get(&self, _: TensorView<'_>, offset: usize, data: &mut [u8]) -> Result<(), Failure> {
///         self.with(|bytes| data.copy_from_slice(&bytes[offset..][..data.len()]));
///         Ok(())
///     }
///
///     fn fill(&self, offset: usize, len: usize, value: u8) -> Result<(), Failure> {
///         self.with(|bytes| bytes[offset..][..len].fill(value));
///         Ok(())
///     }
/// }
/// let memory = Memory(Mutex::new(vec![0; 8]));
/// memory.fill(2, 3, 7)?;
/// assert_eq!(memory.with(|bytes| bytes.to_vec()), [0, 0, 7, 7, 7, 0, 0, 0]);
/// # Ok::<(), Failure>(())
/// ```
#[doc(alias = "ggml_backend_buffer_i")]
pub trait DriverBuffer: Send + Sync + Sized + 'static {
    /// Writes `data` to bytes of `tensor`, which begin at byte `offset` of the buffer.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn set(&self, tensor: TensorView<'_>, offset: usize, data: &[u8]) -> Result<(), Failure>;

    /// Reads bytes of `tensor`, which begin at byte `offset` of the buffer.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn get(&self, tensor: TensorView<'_>, offset: usize, data: &mut [u8]) -> Result<(), Failure>;

    /// Sets `len` bytes from byte `offset` of the buffer on to `value`.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn fill(&self, offset: usize, len: usize, value: u8) -> Result<(), Failure>;

    /// Copies `len` bytes of `from`, a buffer of the same registry or this one, without the host. Returns `false` if
    /// that is impossible: ggml then copies through the host.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn copy(&self, offset: usize, from: &Self, from_offset: usize, len: usize) -> Result<bool, Failure> {
        let _ = (offset, from, from_offset, len);
        Ok(false)
    }
}

/// A queue of work on a device (`ggml_backend_i`), used by one thread at a time.
///
/// Unless [`DriverInfo::with_async`] is set, only [`DriverStream::compute`] is called, and the work is done when it
/// returns.
///
#[doc = include_str!("probe.txt")]
/// /// Counts what it computed.
/// struct Counting(usize);
///
/// impl DriverStream<Probe> for Counting {
///     fn compute(&mut self, nodes: Nodes<'_, Probe>) -> Result<(), Failure> {
///         for mut node in nodes {
///             node.on_host(|to, from| squared(to, from[0]))?;
///             self.0 += 1;
///         }
///         Ok(())
///     }
///
///     fn synchronize(&mut self) -> Result<(), Failure> {
///         Ok(()) // the work was done when `compute` returned
///     }
/// }
/// assert_eq!(DriverStream::<Probe>::synchronize(&mut Counting(0)), Ok(()));
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ggml_backend_i")]
pub trait DriverStream<D: Driver>: Send + 'static {
    /// Computes the nodes in order, or submits them for computation in order.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn compute(&mut self, nodes: Nodes<'_, D>) -> Result<(), Failure>;

    /// Orders the nodes of a split, or prepares for them, whenever a scheduler plans or allocates a graph
    /// (`graph_optimize`). It is called if [`DriverInfo::with_optimize`] is set, and not for graphs of a
    /// [`GraphAllocator`](crate::GraphAllocator) or on a meta device.
    ///
    /// Returns the indices of the nodes in the order in which they shall be computed, or `None` to keep the given
    /// order. Each node must come after those in [`SplitNodes::before`], which has an example. The answer for the same
    /// nodes must not change.
    ///
    /// # Errors
    ///
    /// A failure of the device. The call that plans or allocates then returns
    /// [`Error::DeviceFailed`](crate::Error::DeviceFailed), as it does for an invalid order, or one that changes.
    #[doc(alias = "graph_optimize")]
    fn optimize(&mut self, nodes: &SplitNodes<'_, D>) -> Result<Option<Vec<usize>>, Failure> {
        let _ = nodes;
        Ok(None)
    }

    /// Waits until all submitted work is done. Afterwards, [`HostSource`]s and [`HostTarget`]s of this stream give no
    /// access any more.
    ///
    /// # Errors
    ///
    /// After any failure the device is lost, because nobody knows what still runs.
    fn synchronize(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Submits a write to device memory.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn set(&mut self, to: Region<'_, D>, from: HostSource) -> Result<(), Failure> {
        self.synchronize()?;
        let mut data = zeroed(to.len())?;
        from.read(0, &mut data)?;
        to.buffer().set(to.tensor(), to.offset(), &data)
    }

    /// Submits a read of device memory.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn get(&mut self, from: Region<'_, D>, to: HostTarget) -> Result<(), Failure> {
        self.synchronize()?;
        let mut data = zeroed(from.len())?;
        from.buffer().get(from.tensor(), from.offset(), &mut data)?;
        to.write(0, &data)
    }

    /// Submits a copy to this stream's device. `source` is a stream of the same registry, or `None` for this stream.
    /// The copy comes after all work that was submitted to either stream, and before work submitted to this stream
    /// later. Returns `false` if that is impossible: ggml then waits for both streams and copies.
    ///
    /// CUDA's copies don't wait for work submitted to the destination. The scheduler doesn't need that, but an
    /// all-reduce of a meta device does (docs/driver.md).
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn copy(&mut self, source: Option<&mut Self>, from: Region<'_, D>, to: Region<'_, D>) -> Result<bool, Failure> {
        let _ = (source, from, to);
        Ok(false)
    }

    /// Puts `event` behind all submitted work. The event may have been recorded before.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn record(&mut self, event: &D::Event) -> Result<(), Failure> {
        let _ = event;
        Err(Failure::new("the device has no events"))
    }

    /// Makes work that is submitted later wait for `event`.
    ///
    /// # Errors
    ///
    /// A failure of the device.
    fn wait(&mut self, event: &D::Event) -> Result<(), Failure> {
        let _ = event;
        Err(Failure::new("the device has no events"))
    }
}

/// The buffer type of drivers that work in host memory. No value of this type exists.
///
#[doc = include_str!("probe.txt")]
/// // `Probe` is a driver with `type Buffer = NoBuffer` and without `DriverInfo::with_memory`.
/// let in_host_memory = |node: &Node<'_, Probe>| node.sources().all(|x| !matches!(x.place(), Some(Place::Buffer { .. })));
/// assert_eq!(squares("nobuffer", in_host_memory, square)?, [9.0, 16.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct NoBuffer(Infallible);

impl DriverBuffer for NoBuffer {
    fn set(&self, _: TensorView<'_>, _: usize, _: &[u8]) -> Result<(), Failure> {
        match self.0 {}
    }

    fn get(&self, _: TensorView<'_>, _: usize, _: &mut [u8]) -> Result<(), Failure> {
        match self.0 {}
    }

    fn fill(&self, _: usize, _: usize, _: u8) -> Result<(), Failure> {
        match self.0 {}
    }
}

/// The event type of drivers without events. No value of this type exists.
///
#[doc = include_str!("probe.txt")]
/// // `Probe` is a driver with `type Event = NoEvent` and without `DriverInfo::with_events`.
/// let device = Registry::register("noevent", [Probe("noevent", |_| true, square)])?.devices()?[0];
/// assert!(!device.capabilities()?.events && ggml::Event::new(device).is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct NoEvent(Infallible);
