//! What is lent to a driver: tensors, the nodes of a graph, and regions of buffers.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use ggml_sys as sys;

use super::operation::{OpParams, Operation};
use super::state::{DeviceState, Memory};
use super::{Driver, Failure};
use crate::dtype::DType;
use crate::error::Result;
use crate::ffi;
use crate::header::{Layout, TensorPtr};
use crate::rules::cpu;
use crate::shape::MAX_BYTES;

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

    /// The name, empty if it has none.
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

    /// Whether it holds weights, which stay the same.
    pub fn is_weight(self) -> bool {
        let buffer = self.t.root().buffer();
        // SAFETY: not NULL (checked here), so the tensor's live buffer; C reads a field.
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
    /// In host memory: [`Node::on_host`] lends it.
    Host,
    /// In a buffer of this device or another one of its registry.
    Buffer {
        /// The buffer.
        buffer: &'a D::Buffer,
        /// The byte of the buffer at which the first element lies. All elements lie inside.
        offset: usize,
    },
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
}

impl<'a, D: Driver> Operand<'a, D> {
    /// The tensor.
    pub fn tensor(&self) -> TensorView<'a> {
        self.view
    }

    /// Where it lies; `None` if it has no memory yet, as when a node is judged ([`Driver::supports`]), or none that the
    /// device can use.
    pub fn place(&self) -> Option<Place<'a, D>> {
        // SAFETY: buffers of what is lent live as long (`Node::new`).
        match unsafe { self.device.memory_of(self.view.t) }? {
            Memory::Host(_) => Some(Place::Host),
            Memory::Own(buffer, offset) => Some(Place::Buffer { buffer, offset }),
        }
    }
}

impl<D: Driver> fmt::Debug for Operand<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view.fmt(f)
    }
}

/// An operation with its operands.
///
#[doc = include_str!("probe.txt")]
/// fn compute(nodes: Nodes<'_, Probe>) -> Result<(), Failure> {
///     for mut node in nodes {
///         node.on_host(|to, from| {
///             let x: &[f32] = bytemuck::cast_slice(from[0]);
///             let y: &mut [f32] = bytemuck::cast_slice_mut(to);
///             y.iter_mut().zip(x).for_each(|(y, x)| *y = x * x);
///         })?;
///     }
///     Ok(())
/// }
/// assert_eq!(squares("node", |node| matches!(node.operation(), Ok(Operation::Sqr)), compute)?, [9.0, 16.0]);
/// # Ok(())
/// # }
/// ```
pub struct Node<'a, D: Driver> {
    view: TensorView<'a>,
    device: &'static DeviceState<D>,
    /// Whether host memory of the graph's nodes is lent; `None` outside of computations.
    lent: Option<&'a Cell<bool>>,
}

impl<'a, D: Driver> Node<'a, D> {
    /// # Safety
    ///
    /// The tensor and its sources must meet the invariants of [`TensorPtr`] for `'a`. With `lent`, which belongs to one
    /// computation, all must have memory that no other thread writes to for `'a`, and [`check`] must have passed.
    pub(super) unsafe fn new(t: TensorPtr, device: &'static DeviceState<D>, lent: Option<&'a Cell<bool>>) -> Self {
        // SAFETY: by contract.
        Self { view: unsafe { TensorView::new(t) }, device, lent }
    }

    fn operand(&self, t: TensorPtr) -> Operand<'a, D> {
        // SAFETY: the node's tensor or one of its sources, which live as long (`new`).
        Operand { view: unsafe { TensorView::new(t) }, device: self.device }
    }

    /// ggml's name of the operation, such as `MUL_MAT` or `RELU`.
    pub fn op(&self) -> String {
        self.view.t.op_desc()
    }

    /// The operation with its parameters, as ggml keeps it.
    pub fn params(&self) -> OpParams {
        OpParams::of(self.view.t)
    }

    /// The operation with its parameters.
    ///
    /// # Errors
    ///
    /// As [`OpParams::operation`].
    pub fn operation(&self) -> Result<Operation, Failure> {
        self.params().operation()
    }

    /// The result. It may lie where a source does: ggml writes some results over their first operand.
    pub fn result(&self) -> Operand<'a, D> {
        self.operand(self.view.t)
    }

    /// The source in slot `i`, in the order of ggml's builder.
    pub fn source(&self, i: usize) -> Option<Operand<'a, D>> {
        self.view.t.source(i).map(|t| self.operand(t))
    }

    /// The sources, without empty slots.
    pub fn sources(&self) -> impl Iterator<Item = Operand<'a, D>> {
        self.view.t.sources().map(|t| self.operand(t))
    }

    /// Checks that ggml's CPU kernels can compute the operation with these types and layouts, for drivers that compute
    /// with them.
    ///
    /// # Errors
    ///
    /// A failure with the reason.
    pub fn suits_cpu(&self) -> Result<(), Failure> {
        cpu::accepts(self.view.t).map_err(|refusal| Failure::new(refusal.0))
    }

    /// Lends the bytes of the result and of the sources, by slot, all of which must lie in host memory. An empty slot has
    /// no bytes. Bytes are those from the first element to the end of the last, by the tensors' strides.
    ///
    /// A new result is zero; that of an operation in place has the bytes it is to change. Sources that share memory with
    /// the result are copied first.
    ///
    /// # Errors
    ///
    /// A failure if one lies elsewhere, outside of [`DriverStream::compute`](super::DriverStream::compute), and while
    /// memory of another node is lent.
    pub fn on_host<R>(&mut self, f: impl FnOnce(&mut [u8], &[&[u8]]) -> R) -> Result<R, Failure> {
        let lent = self.lent.ok_or_else(|| Failure::new("a node that is only judged lends no memory"))?;
        if lent.replace(true) {
            return Err(Failure::new("the memory of another node is lent already"));
        }
        let _back = Back(lent);
        let t = self.view.t;
        // SAFETY: as in `Operand::place`.
        let at = |t: TensorPtr| match unsafe { self.device.memory_of(t) } {
            Some(Memory::Host(start)) => Ok((start, t.span().unwrap_or(0))),
            _ => Err(Failure::new("an operand doesn't lie in host memory")),
        };
        let (to, size) = at(t)?;
        let mut copies = Vec::new();
        let mut places = [None; sys::GGML_MAX_SRC as usize];
        for (place, source) in places.iter_mut().zip(t.slots()) {
            let Some((from, n)) = source.map(at).transpose()? else { continue };
            let apart = from.addr() + n <= to.addr() || to.addr() + size <= from.addr();
            if apart {
                *place = Some((from.cast_const(), n));
                continue;
            }
            // SAFETY: `n` bytes of host memory inside a live buffer (`memory_of`), initialised as every operand's are,
            // and not written to meanwhile (`new`). The slice ends here.
            let bytes: Box<[u8]> = unsafe { ffi::slice(from.cast_const(), n) }.into();
            *place = Some((bytes.as_ptr(), n));
            copies.push(bytes);
        }
        if t.view_src().is_none() {
            // SAFETY: `size` bytes of host memory inside a live buffer (`memory_of`), which nothing else uses meanwhile;
            // the sources that overlap were copied.
            unsafe { to.write_bytes(0, size) };
        }
        let sources = places.map(|place| match place {
            // SAFETY: host memory as above, apart from the result, or a copy, which lives until the end of this function.
            Some((from, n)) => unsafe { ffi::slice(from, n) },
            None => &[],
        });
        // SAFETY: as for `write_bytes`; all bytes are initialised: they were zeroed, or hold what the operation changes.
        let result = unsafe { ffi::slice_mut(to, size) };
        let value = f(result, &sources);
        drop(copies);
        Ok(value)
    }
}

/// Takes lent memory back.
struct Back<'a>(&'a Cell<bool>);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<D: Driver> fmt::Debug for Node<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources: Vec<_> = self.sources().collect();
        write!(f, "{:?} = {}{sources:?}", self.view, self.op())
    }
}

/// The nodes of a graph in order, without those that need no computation, such as views.
///
#[doc = include_str!("probe.txt")]
/// fn compute(nodes: Nodes<'_, Probe>) -> Result<(), Failure> {
///     for mut node in nodes { // in order, without views
///         if node.op() != "SQR" {
///             return Err(Failure::new(format!("{} is not what `supports` said", node.op())));
///         }
///         node.on_host(|to, from| squared(to, from[0]))?;
///     }
///     Ok(())
/// }
/// assert_eq!(squares("nodes", |_| true, compute)?, [9.0, 16.0]);
/// # Ok(())
/// # }
/// ```
pub struct Nodes<'a, D: Driver> {
    list: &'a [*mut sys::ggml_tensor],
    device: &'static DeviceState<D>,
    lent: &'a Cell<bool>,
}

impl<'a, D: Driver> Nodes<'a, D> {
    /// # Safety
    ///
    /// All tensors and their sources must meet the invariants of [`TensorPtr`] for `'a`, and have memory that no other
    /// thread writes to for `'a`. `lent` must belong to this computation.
    ///
    /// # Errors
    ///
    /// A failure if an operand does not lie in memory that the device can use, or not inside its buffer.
    pub(super) unsafe fn new(
        list: &'a [*mut sys::ggml_tensor],
        device: &'static DeviceState<D>,
        lent: &'a Cell<bool>,
    ) -> Result<Self, Failure> {
        let this = Self { list, device, lent };
        this.tensors().try_for_each(|t| check(t, device))?;
        Ok(this)
    }

    fn tensors(&self) -> impl Iterator<Item = TensorPtr> + use<'a, D> {
        self.list.iter().filter_map(|&t| tensor(t)).filter(|t| is_computed(*t))
    }
}

/// Whether a node needs a computation.
pub(super) fn is_computed(t: TensorPtr) -> bool {
    !t.is_view_op() && t.flags() & sys::GGML_TENSOR_FLAG_COMPUTE.cast_signed() != 0
}

/// A live tensor that C passes to a callback.
pub(super) fn tensor(raw: *const sys::ggml_tensor) -> Option<TensorPtr> {
    // SAFETY: C passes tensors that live during the callback, on the thread that owns them, as do their sources.
    std::ptr::NonNull::new(raw.cast_mut()).map(|t| unsafe { TensorPtr::new(t) })
}

/// Checks that all operands of a node lie in memory that the device can use, inside their buffers.
fn check<D: Driver>(t: TensorPtr, device: &DeviceState<D>) -> Result<(), Failure> {
    for operand in t.sources().chain([t]) {
        // SAFETY: C computes tensors whose buffers live; the result isn't used.
        if unsafe { device.memory_of(operand) }.is_none() {
            let what = operand.info();
            return Err(Failure::new(format!("{}: {what} doesn't lie in memory of the device", t.op_name())));
        }
    }
    Ok(())
}

/// Whether a layout is one that a tensor can have.
pub(super) fn span(layout: Layout) -> Option<usize> {
    let positive = layout.ne.iter().all(|&n| n > 0);
    layout.span().filter(|&n| positive && n <= MAX_BYTES)
}

impl<'a, D: Driver> Iterator for Nodes<'a, D> {
    type Item = Node<'a, D>;

    fn next(&mut self) -> Option<Node<'a, D>> {
        let mut tensors = self.tensors();
        let t = tensors.next()?;
        let at = self.list.iter().position(|&node| std::ptr::eq(node, t.as_ptr()))?;
        self.list = self.list.get(at + 1..).unwrap_or_default();
        // SAFETY: by the contract of `new`, which has checked all operands.
        Some(unsafe { Node::new(t, self.device, Some(self.lent)) })
    }
}

impl<D: Driver> fmt::Debug for Nodes<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes").field("len", &self.tensors().count()).finish()
    }
}

/// Bytes of a tensor in a buffer, for a transfer.
///
#[doc = include_str!("store.txt")]
/// fn checked(from: Region<'_, Probe>, to: HostTarget) -> Result<(), Failure> {
///     assert_eq!((from.tensor().name(), from.len()), ("pair".to_string(), 8));
///     let mut data = vec![0; from.len()];
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

    /// The byte of the buffer at which the bytes begin. All lie inside.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<D: Driver> fmt::Debug for Region<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { view, offset, len, .. } = self;
        f.debug_struct("Region").field("tensor", view).field("offset", offset).field("len", len).finish()
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
