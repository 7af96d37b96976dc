//! Contexts: arenas of tensor headers, in which computations are written down.

pub(crate) mod raw;

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use ggml_sys as sys;

use crate::dtype::DType;
use crate::error::{Error, Result, TensorInfo};
use crate::graph::{Graph, Spares};
use crate::header::arena::Arena;
use crate::header::init::{self, TensorInit};
use crate::header::{Owner, TensorPtr, any_in_use};
use crate::shape::{MAX_BYTES, Shape};
use crate::tensor::Tensor;
use crate::{callback, guard};
use raw::Pool;

/// Bytes of the first pool; each further one is twice as large as the one before, up to [`LAST_POOL`].
const FIRST_POOL: usize = 16 << 10;
const LAST_POOL: usize = 1 << 20;

/// The most tensors that one builder makes (`ggml_conv_3d`).
const MOST_TENSORS: usize = 8;

/// An arena of tensors, in which computations are written down (`ggml_context`).
///
/// It grows by itself, and holds no data: inputs and results get memory when a [`Graph`] is allocated, weights lie in
/// [`Weights`](crate::Weights). Tensors of other contexts, of weights and of states may be used as operands as long as
/// they outlive the result, which the handles' lifetimes see to.
///
/// ```
/// use ggml::prelude::*;
/// # fn main() -> ggml::Result<()> {
/// let ctx = Context::new();
/// let x = ctx.input("x", DType::F32, [4])?;
/// let y = ctx.relu(x)?;
/// let graph = ctx.graph([y])?;
///
/// let mut sched = Sched::builder().backend(Backend::cpu()?).build()?;
/// let mut run = sched.alloc(&graph)?;
/// run.set(x, &[-1.0_f32, 0.0, 1.0, 2.0])?;
/// run.compute()?;
/// assert_eq!(run.get::<f32>(y)?, [0.0, 0.0, 1.0, 2.0]);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ggml_context")]
#[doc(alias = "ggml_init")]
#[doc(alias = "ggml_free")]
#[doc(alias = "ggml_tensor_overhead")]
#[derive(Default)]
pub struct Context {
    pools: RefCell<Vec<Pool>>,
    /// The pool that is being filled; those after it are empty.
    current: Cell<usize>,
    /// That pool's C context, and for how many more builders it surely has room.
    open: Cell<Open>,
    /// Tensors that Rust makes.
    arena: Arena,
    /// What former graphs were made of.
    spares: OnceCell<Spares>,
    /// What C keeps pointers to in the tensors of the pools: closures.
    kept: RefCell<Vec<Arc<dyn Any + Send + Sync>>>,
}

/// A pool with room.
#[derive(Clone, Copy)]
struct Open {
    raw: *mut sys::ggml_context,
    builders: usize,
}

impl Default for Open {
    fn default() -> Self {
        Self { raw: std::ptr::null_mut(), builders: 0 }
    }
}

// SAFETY: a context moves only while no handle to its tensors exists (handles borrow it), and what its tensors point to
// in other contexts is only followed through such handles. C contexts belong to no thread.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the pools move with their only owner")]
unsafe impl Send for Context {}

impl Context {
    /// An empty context. It takes no memory until it is used.
    pub fn new() -> Self {
        Self::default()
    }

    /// A tensor whose value is set before each computation (`ggml_new_tensor`, `ggml_set_input`).
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] where a dimension is below 1, is no whole number of blocks, or the size is too large.
    #[doc(alias = "ggml_new_tensor")]
    #[doc(alias = "ggml_new_tensor_1d")]
    #[doc(alias = "ggml_new_tensor_2d")]
    #[doc(alias = "ggml_new_tensor_3d")]
    #[doc(alias = "ggml_new_tensor_4d")]
    #[doc(alias = "ggml_set_input")]
    pub fn input(&self, name: &str, dtype: DType, shape: impl Into<Shape>) -> Result<Tensor<'_>> {
        let t = self.leaf("input", name, dtype, shape.into())?;
        // OUTPUT as well: else its memory would be reused after its last reader, and a second compute see garbage.
        t.ptr().add_flags((sys::GGML_TENSOR_FLAG_INPUT | sys::GGML_TENSOR_FLAG_OUTPUT).cast_signed());
        Ok(t)
    }

    /// An input of the type and shape of another tensor (`ggml_dup_tensor`). It shares nothing with that.
    ///
    /// # Errors
    ///
    /// As [`Context::input`], which no tensor that exists can bring about.
    #[doc(alias = "ggml_dup_tensor")]
    pub fn input_like(&self, name: &str, like: Tensor<'_>) -> Result<Tensor<'_>> {
        self.input(name, like.dtype(), like.shape())
    }

    /// Marks a tensor whose value is to be readable after the computation (`ggml_set_output`). The tensors given to
    /// [`Context::graph`] are marked by it.
    ///
    /// # Errors
    ///
    /// [`Error::Frozen`] for tensors of weights or state, which are always readable.
    #[doc(alias = "ggml_set_output")]
    pub fn output<'c>(&'c self, t: Tensor<'c>) -> Result<Tensor<'c>> {
        callback::check_open("Context::output")?;
        t.check_free("Context::output")?;
        if !keeps_flags(t) {
            return Err(Error::Frozen { op: "set_output", tensor: t.info() });
        }
        // A view has no memory of its own: what must be kept is the tensor it looks at.
        t.ptr().add_flags(sys::GGML_TENSOR_FLAG_OUTPUT.cast_signed());
        if t.ptr().owner() == Owner::Graph {
            t.ptr().root().add_flags(sys::GGML_TENSOR_FLAG_OUTPUT.cast_signed());
        }
        Ok(t)
    }

    /// The computation of `outputs` and of everything they depend on, in the order in which they are given
    /// (`ggml_new_graph_custom`, `ggml_build_forward_expand`). The graph is complete: it can be allocated and computed,
    /// not changed.
    ///
    /// # Errors
    ///
    /// [`Error::EmptyGraph`] where no operation is among the outputs' ancestors.
    #[doc(alias = "ggml_new_graph_custom")]
    #[doc(alias = "ggml_new_graph")]
    #[doc(alias = "ggml_build_forward_expand")]
    pub fn graph<'c>(&'c self, outputs: impl AsRef<[Tensor<'c>]>) -> Result<Graph<'c>> {
        let outputs = outputs.as_ref();
        for &t in outputs.iter().filter(|&&t| keeps_flags(t)) {
            self.output(t)?;
        }
        Graph::new(self.spares.get_or_init(Spares::default), outputs)
    }

    /// The bytes that descriptions of tensors take (`ggml_used_mem`). They hold no data, and a graph has memory of its own.
    #[doc(alias = "ggml_used_mem")]
    pub fn used_mem(&self) -> usize {
        self.pools.borrow().iter().map(Pool::used).sum::<usize>() + self.arena.used()
    }

    /// The bytes that descriptions of tensors can take before the context grows again (`ggml_get_mem_size`).
    #[doc(alias = "ggml_get_mem_size")]
    pub fn mem_size(&self) -> usize {
        self.pools.borrow().iter().map(Pool::len).sum::<usize>() + self.arena.len()
    }

    /// Forgets all tensors but keeps the memory: the next computation is written into the same arena. Closures of custom
    /// operations are dropped.
    ///
    #[doc(alias = "ggml_reset")]
    pub fn reset(&mut self) {
        for pool in self.pools.get_mut() {
            // SAFETY: handles borrow the context, and `&mut self` says that there are none left.
            unsafe { pool.reset() };
        }
        // SAFETY: as above.
        unsafe { self.arena.reset() };
        self.current.set(0);
        self.open.take();
        self.kept.get_mut().clear();
    }

    /// Keeps `what` as long as the tensors of this context.
    pub(crate) fn keep(&self, what: Arc<dyn Any + Send + Sync>) {
        self.kept.borrow_mut().push(what);
    }

    /// A leaf without memory.
    pub(crate) fn leaf(&self, op: &'static str, name: &str, dtype: DType, shape: Shape) -> Result<Tensor<'_>> {
        shape.bytes(dtype).map_err(|why| Error::Shape {
            op,
            operands: [TensorInfo { name: name.into(), dtype: dtype.name(), ne: shape.ne() }].into(),
            expected: why.into(),
        })?;
        let ne = shape.ne();
        let t = self.build("ggml_new_tensor", &[], |c| {
            // SAFETY: the context is live and has room; the dimensions are four, positive, and of a size that fits.
            unsafe { sys::ggml_new_tensor(c, dtype.raw(), 4, ne.as_ptr()) }
        })?;
        t.ptr().set_name(name);
        Ok(t)
    }

    /// Runs one of ggml's builders and checks what it made. `operands` are what an error names.
    #[inline]
    pub(crate) fn build<'c>(
        &'c self,
        call: &'static str,
        operands: &[Tensor<'c>],
        f: impl FnOnce(*mut sys::ggml_context) -> *mut sys::ggml_tensor,
    ) -> Result<Tensor<'c>> {
        check_operands(call, operands)?;
        let pool = self.pool_with_room()?;
        let raw = guard::call(call, || f(pool))?;
        let raw = NonNull::new(raw).ok_or_else(|| null(call))?;
        // SAFETY: made just now in a pool of this context, which lives for 'c; all operands are handles of 'c.
        let t = unsafe { TensorPtr::new(raw) };
        // Builders multiply dimensions without checking the product: a result must have a size that exists.
        if !t.is_clearly_small() && (t.span().is_none_or(|n| n > MAX_BYTES) || Shape::from(t.ne()).elements().is_none())
        {
            return Err(too_large(call, operands));
        }
        // A view of a tensor that has memory at the moment would keep the address beyond its time.
        if t.view_src().is_some() {
            t.release();
        }
        // SAFETY: as above.
        Ok(unsafe { Tensor::new(t) })
    }

    /// Makes a tensor as ggml's builder would, which is `c`: debug builds compare the two.
    #[inline]
    pub(crate) fn make<'c>(
        &'c self,
        call: &'static str,
        operands: &[Tensor<'c>],
        fill: impl FnOnce(&mut TensorInit<'_>),
        c: impl FnOnce(*mut sys::ggml_context) -> *mut sys::ggml_tensor,
    ) -> Result<Tensor<'c>> {
        callback::check_open(call)?;
        check_operands(call, operands)?;
        let raw = self.arena.push(|raw| fill(&mut TensorInit { raw }))?;
        // SAFETY: made just now in the arena of this context, which lives for 'c; what it is made of are handles of 'c.
        let t = unsafe { TensorPtr::new(raw) };
        if cfg!(debug_assertions) {
            let theirs = self.build(call, operands, c)?;
            assert!(init::same(t, theirs.ptr()), "{call} makes another tensor: {theirs:?}");
        }
        // SAFETY: as above.
        Ok(unsafe { Tensor::new(t) })
    }

    /// The C context to build in, with room for whatever one builder makes.
    #[inline]
    fn pool_with_room(&self) -> Result<*mut sys::ggml_context> {
        let open = self.open.get();
        match open.builders.checked_sub(1) {
            Some(builders) => {
                self.open.set(Open { builders, ..open });
                Ok(open.raw)
            }
            None => self.open_pool(),
        }
    }

    /// Looks for room. Most builders make less than the most, so a pool is looked at again before it counts as full.
    #[cold]
    fn open_pool(&self) -> Result<*mut sys::ggml_context> {
        // SAFETY: a constant.
        let need = MOST_TENSORS * unsafe { sys::ggml_tensor_overhead() };
        let open = |pool: &Pool, room: usize| {
            let raw = pool.as_ptr();
            self.open.set(Open { raw, builders: room / need - 1 });
            raw
        };
        let mut pools = self.pools.borrow_mut();
        while let Some(pool) = pools.get(self.current.get()) {
            if pool.free() >= need {
                return Ok(open(pool, pool.free()));
            }
            self.current.set(self.current.get() + 1);
        }
        let size = pools.last().map_or(FIRST_POOL, |p| (p.len() * 2).min(LAST_POOL)).max(need);
        let pool = Pool::new(size)?;
        let raw = open(&pool, size);
        pools.push(pool);
        Ok(raw)
    }
}

/// Nothing is built from what a computation under way uses (`alloc/placement.rs`).
///
/// H27: weights that a device has repacked are the first operand of products, and nothing else. What a builder hides
/// behind other operations is found when the graph is allocated (`rules/run.rs`).
#[inline]
fn check_operands(call: &'static str, operands: &[Tensor<'_>]) -> Result<()> {
    if any_in_use() {
        operands.iter().try_for_each(|t| t.check_free(call))?;
    }
    for (i, t) in operands.iter().enumerate().filter(|(_, t)| t.ptr().owner() == Owner::Packed) {
        if i > 0 || !matches!(call, "ggml_mul_mat" | "ggml_mul_mat_id") {
            return Err(Error::Packed { call, tensor: t.info() });
        }
    }
    Ok(())
}

#[cold]
fn null(call: &'static str) -> Error {
    Error::Null { call, log: Box::default() }
}

#[cold]
fn too_large(call: &'static str, operands: &[Tensor<'_>]) -> Error {
    Error::Shape {
        op: call,
        operands: operands.iter().map(|t| t.info()).collect(),
        expected: "the result is too large for the address space".into(),
    }
}

/// Whether ggml's flags may be set on `t`: not on the leaves of weights and states, which other threads may be reading
/// and which are kept in any case.
fn keeps_flags(t: Tensor<'_>) -> bool {
    t.is_view() || t.ptr().owner() == Owner::Graph
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("bytes", &self.mem_size()).finish_non_exhaustive()
    }
}
