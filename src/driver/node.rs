//! The nodes of a graph.

use std::fmt;

use super::computation::Computation;
use super::state::DeviceState;
use super::view::Operand;
pub(super) use super::view::{TensorView, tensor};
use super::{Driver, Failure};
use crate::header::TensorPtr;
use crate::op::{OpParams, Operation};
use crate::rules::cpu;

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
    t: TensorPtr,
    device: &'static DeviceState<D>,
    /// The computation that the node is part of, and the node's number in it; `None` outside of computations.
    of: Option<(&'a Computation<'a, D>, usize)>,
}

impl<'a, D: Driver> Node<'a, D> {
    /// # Safety
    ///
    /// The tensor and its sources must meet the invariants of [`TensorPtr`] for `'a`. Their buffers, where they have
    /// any, must live for `'a` too.
    pub(super) unsafe fn new(t: TensorPtr, device: &'static DeviceState<D>) -> Self {
        Self { t, device, of: None }
    }

    fn operand(&self, t: TensorPtr) -> Operand<'a, D> {
        // SAFETY: `t` is the node's tensor or one of its sources. They live as long as their buffers, by the `# Safety`
        // of `new` or by that of the computation.
        unsafe { Operand::new(t, self.device, self.of.map(|(of, _)| of.known())) }
    }

    /// ggml's name of the operation, such as `MUL_MAT` or `RELU`.
    pub fn op(&self) -> String {
        self.t.op_desc()
    }

    /// The operation with its parameters, as ggml keeps it.
    pub fn params(&self) -> OpParams {
        OpParams::of(self.t)
    }

    /// The operation with its parameters.
    ///
    /// # Errors
    ///
    /// As [`OpParams::operation`].
    pub fn operation(&self) -> Result<Operation, Failure> {
        self.params().operation()
    }

    /// The result. It may overlap a source: ggml writes some results over their first operand.
    pub fn result(&self) -> Operand<'a, D> {
        self.operand(self.t)
    }

    /// The source in slot `i`, in the order of ggml's builder.
    pub fn source(&self, i: usize) -> Option<Operand<'a, D>> {
        self.t.source(i).map(|t| self.operand(t))
    }

    /// The sources by slot; `None` for empty slots. All operations have the same number of slots.
    pub fn slots(&self) -> impl ExactSizeIterator<Item = Option<Operand<'a, D>>> {
        self.t.slots().map(|t| t.map(|t| self.operand(t))).into_iter()
    }

    /// The sources, without empty slots.
    pub fn sources(&self) -> impl Iterator<Item = Operand<'a, D>> {
        self.t.sources().map(|t| self.operand(t))
    }

    /// Checks that ggml's CPU kernels can compute the operation with these types and layouts, for drivers that compute
    /// with them.
    ///
    /// # Errors
    ///
    /// A failure with the reason.
    pub fn suits_cpu(&self) -> Result<(), Failure> {
        cpu::accepts(self.t).map_err(|refusal| Failure::new(refusal.0))
    }

    /// Lends `f` the bytes of the result, and those of the sources by slot. All must lie in host memory. An empty slot
    /// has no bytes. A tensor's bytes are those from its first element to the end of its last, by its strides.
    ///
    /// The bytes of a new result are zero. An operation in place gets the bytes that it is to change. Sources that
    /// overlap the result are copied first.
    ///
    /// A driver must call this for each node whose result lies in host memory, in the order of nodes, because later
    /// nodes read that result. Otherwise the computation fails. If a driver computes several nodes together, it still
    /// calls this for each, and leaves that node's result in the lent bytes.
    ///
    /// # Errors
    ///
    /// A failure if one of the tensors doesn't lie in host memory; outside of
    /// [`DriverStream::compute`](super::DriverStream::compute); while memory of another node is lent; if an earlier
    /// node was not lent its memory yet; and if there is too little memory for the copies.
    pub fn on_host<R>(&mut self, f: impl FnOnce(&mut [u8], &[&[u8]]) -> R) -> Result<R, Failure> {
        let (of, number) = self.of.ok_or_else(|| Failure::new("a node that is only judged lends no memory"))?;
        of.lend(number, self.t, f)
    }
}

impl<D: Driver> fmt::Debug for Node<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sources: Vec<_> = self.sources().collect();
        write!(f, "{:?} = {}{sources:?}", self.result(), self.op())
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
    of: &'a Computation<'a, D>,
    next: usize,
}

impl<'a, D: Driver> Nodes<'a, D> {
    pub(super) fn new(of: &'a Computation<'a, D>) -> Self {
        Self { of, next: 0 }
    }
}

impl<'a, D: Driver> Iterator for Nodes<'a, D> {
    type Item = Node<'a, D>;

    #[inline]
    fn next(&mut self) -> Option<Node<'a, D>> {
        let (number, t) = self.of.next(self.next)?;
        self.next = number + 1;
        Some(Node { t, device: self.of.known().device(), of: Some((self.of, number)) })
    }
}

impl<D: Driver> fmt::Debug for Nodes<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = Self { ..*self };
        f.debug_struct("Nodes").field("len", &rest.count()).finish()
    }
}
