//! Tensors that are lent to a driver: where they lie, and regions of buffers.

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use ggml_sys as sys;

use super::Driver;
use super::memory::{Known, LentMemory};
use super::state::DeviceState;
use crate::debug::debug;
use crate::dtype::DType;
use crate::header::TensorPtr;

/// A tensor's name, element type and layout.
///
#[doc = include_str!("probe.txt")]
/// let pairs = |node: &Node<'_, Probe>| {
///     let x = node.result().tensor();
///     x.dtype() == DType::F32 && x.is_contiguous() && x.ne() == [2, 1, 1, 1] && x.nbytes() == 8
/// };
/// assert_eq!(squares("view", pairs, square)?, [9.0, 16.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    t: TensorPtr,
    life: PhantomData<&'a ()>,
}

impl TensorView<'_> {
    /// # Safety
    ///
    /// The tensor must meet the invariants of [`TensorPtr`] for `'a`.
    pub(super) unsafe fn new(t: TensorPtr) -> Self {
        Self { t, life: PhantomData }
    }

    pub(super) fn ptr(self) -> TensorPtr {
        self.t
    }

    /// The name; empty if the tensor has none.
    pub fn name(self) -> String {
        self.t.name()
    }

    /// The element type.
    pub fn dtype(self) -> DType {
        self.t.dtype()
    }

    /// The number of elements in each dimension, in ggml's order: `ne[0]` is the innermost.
    pub fn ne(self) -> [i64; 4] {
        self.t.ne()
    }

    /// Strides in bytes: `nb[i]` is the distance between neighbours in dimension `i`.
    pub fn nb(self) -> [usize; 4] {
        self.t.nb()
    }

    /// The bytes from the first to the last element.
    pub fn nbytes(self) -> usize {
        self.t.span().unwrap_or(usize::MAX)
    }

    /// Whether the elements lie in order and without gaps.
    pub fn is_contiguous(self) -> bool {
        self.t.layout().is_contiguous()
    }

    /// Whether the tensor holds weights, which stay the same.
    pub fn is_weight(self) -> bool {
        let buffer = self.t.root().buffer();
        // SAFETY: the buffer is not NULL (checked here), so it is live; C reads a field.
        !buffer.is_null() && unsafe { sys::ggml_backend_buffer_get_usage(buffer) } == WEIGHTS
    }
}

const WEIGHTS: sys::ggml_backend_buffer_usage = sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS;

impl fmt::Debug for TensorView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.t.info().fmt(f)
    }
}

/// Where a tensor lies.
///
#[doc = include_str!("probe.txt")]
/// fn compute(nodes: Nodes<'_, Probe>) -> Result<(), Failure> {
///     for mut node in nodes {
///         match node.result().place() {
///             Some(Place::Host) => node.on_host(|to, from| squared(to, from[0]))?,
///             Some(Place::Buffer { offset, .. }) => return Err(Failure::new(format!("byte {offset} of a buffer"))),
///             None => return Err(Failure::new("no memory that this device can use")),
///         }
///     }
///     Ok(())
/// }
/// assert_eq!(squares("place", |_| true, compute)?, [9.0, 16.0]);
/// # Ok(())
/// # }
/// ```
pub enum Place<'a, D: Driver> {
    /// The tensor lies in host memory: [`Node::on_host`](super::Node::on_host) lends it.
    Host,
    /// The tensor lies in a buffer of this device or of another one of its registry.
    Buffer {
        /// The buffer.
        buffer: &'a D::Buffer,
        /// The byte of the buffer at which the first element lies. All elements lie inside the buffer.
        offset: usize,
    },
}

/// The tensor behind a pointer that C passes to a callback; `None` for NULL.
#[inline]
pub(super) fn tensor(raw: *const sys::ggml_tensor) -> Option<TensorPtr> {
    // SAFETY: C passes tensors that live during the callback, on the thread that owns them, as do their sources (rule 3
    // in `raw/mod.rs`).
    NonNull::new(raw.cast_mut()).map(|t| unsafe { TensorPtr::new(t) })
}

/// Whether a node needs a computation; views don't.
#[inline]
pub(super) fn is_computed(t: TensorPtr) -> bool {
    !t.is_view_op() && t.flags() & sys::GGML_TENSOR_FLAG_COMPUTE.cast_signed() != 0
}

/// A result or an operand of a node.
///
#[doc = include_str!("probe.txt")]
/// let of_inputs = |node: &Node<'_, Probe>| {
///     let x = node.source(0).expect("the operand of `sqr`");
///     x.tensor().name() == "x" && !x.tensor().is_weight()
/// };
/// assert_eq!(squares("operand", of_inputs, square)?, [9.0, 16.0]);
/// # Ok(())
/// # }
/// ```
pub struct Operand<'a, D: Driver> {
    view: TensorView<'a>,
    device: &'static DeviceState<D>,
    /// The buffers that the operand's computation has looked up; `None` outside of computations.
    known: Option<&'a Known<'a, D>>,
}

impl<'a, D: Driver> Operand<'a, D> {
    /// # Safety
    ///
    /// The tensor must meet the invariants of [`TensorPtr`] for `'a`, and its buffer, if it has one, must live as long.
    pub(super) unsafe fn new(t: TensorPtr, device: &'static DeviceState<D>, known: Option<&'a Known<'a, D>>) -> Self {
        // SAFETY: the tensor meets the invariants of `TensorPtr` for `'a`, by this function's `# Safety`.
        Self { view: unsafe { TensorView::new(t) }, device, known }
    }

    /// The tensor.
    pub fn tensor(&self) -> TensorView<'a> {
        self.view
    }

    /// Where the tensor lies; `None` if it has no memory yet, as in [`Driver::supports`], or none that the device can
    /// use.
    pub fn place(&self) -> Option<Place<'a, D>> {
        let memory = match self.known {
            Some(known) => known.memory_of(self.view.t),
            // SAFETY: the operand's buffer lives for `'a`, by the `# Safety` of `new`.
            None => unsafe { self.device.memory_of(self.view.t) },
        };
        match memory? {
            LentMemory::Host(..) => Some(Place::Host),
            LentMemory::Own(buffer, offset) => Some(Place::Buffer { buffer, offset }),
        }
    }
}

impl<D: Driver> fmt::Debug for Operand<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}

impl<D: Driver> fmt::Debug for Place<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("Host"),
            Self::Buffer { offset, .. } => write!(f, "Buffer + {offset}"),
        }
    }
}

/// Bytes of a tensor in a buffer, for a transfer.
///
#[doc = include_str!("store.txt")]
/// fn checked(from: Region<'_, Probe>, to: HostTarget) -> Result<(), Failure> {
///     assert_eq!((from.tensor().name(), from.len()), ("pair".to_string(), 8));
///     let mut data = zeroed(from.len())?;
///     from.buffer().get(from.tensor(), from.offset(), &mut data)?;
///     to.write(0, &data)
/// }
/// assert_eq!(stored("region", set, checked)?, [3.0, 4.0]);
/// # Ok(())
/// # }
/// ```
pub struct Region<'a, D: Driver> {
    pub(super) view: TensorView<'a>,
    pub(super) buffer: &'a D::Buffer,
    pub(super) offset: usize,
    pub(super) len: usize,
}

impl<'a, D: Driver> Region<'a, D> {
    /// The tensor.
    pub fn tensor(&self) -> TensorView<'a> {
        self.view
    }

    /// The buffer.
    pub fn buffer(&self) -> &'a D::Buffer {
        self.buffer
    }

    /// The byte of the buffer at which the bytes begin. All of them lie inside the buffer.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the number of bytes is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

debug!(Region<'_; D: Driver>, |this| tensor = &this.view, offset = &this.offset, len = &this.len);
