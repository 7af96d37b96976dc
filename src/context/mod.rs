//! Contexts: arenas of tensor headers, in which computations are built.

#[cfg(feature = "rpc")]
mod placed;
pub(crate) mod raw;

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;

use ggml_sys as sys;

use crate::debug::debug;
use crate::dtype::{CType as _, DType};
use crate::entries::StorePool;
use crate::error::{Error, Result, TensorInfo};
use crate::header::arena::Arena;
use crate::header::init::{self, TensorInit};
use crate::header::{Owner, TensorPtr, any_in_use};
use crate::shape::{CShape as _, MAX_BYTES, Shape};
use crate::tensor::Tensor;
use crate::{callback, guard};
use raw::Pool;

/// Bytes of the first pool; each further pool is twice as large as the previous one, up to [`LAST_POOL`].
const FIRST_POOL: usize = 16 << 10;
const LAST_POOL: usize = 1 << 20;

/// The maximum number of tensors that one builder makes (`ggml_conv_3d`).
const MAX_TENSORS: usize = 8;

/// An arena of tensor headers, in which computations are built (`ggml_context`).
///
/// It grows on demand, and holds no tensor data: inputs and results get memory when a [`Graph`](crate::Graph) is
/// allocated, and weights lie in [`Weights`](crate::Weights). Tensors of other contexts, weights and states can be
/// operands if they outlive the result, which lifetimes check.
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
/// assert_eq!(sched.run(&graph, (x, &[-1.0_f32, 0.0, 1.0, 2.0]))?.get::<f32>(y)?, [0.0, 0.0, 1.0, 2.0]);
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
    /// The index of the pool in use; all later pools are empty.
    current: Cell<usize>,
    /// The C context of the current pool, and the number of builders that surely fit into it.
    open: Cell<Open>,
    /// Tensors that Rust makes without C's builders.
    arena: Arena,
    /// Lists of dropped graphs, for reuse.
    stores: OnceCell<StorePool>,
    /// Closures that tensors of the pools point to.
    kept: RefCell<KeptList>,
}

/// An object that a context keeps as long as its tensors.
pub(crate) trait Kept: Send + Sync {
    /// Called when the context's tensors are gone.
    fn give_back(self: Arc<Self>);
}

#[derive(Default)]
struct KeptList(Vec<Arc<dyn Kept>>);

impl KeptList {
    fn give_back(&mut self) {
        self.0.drain(..).for_each(Kept::give_back);
    }
}

impl Drop for KeptList {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// A pool with free memory.
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

// SAFETY: a context moves only while no handle to its tensors exists (handles borrow it), and pointers from its tensors
// to other contexts are only followed through such handles. C contexts have no thread affinity.
#[expect(clippy::non_send_fields_in_send_ty, reason = "the pools move with their only owner")]
unsafe impl Send for Context {}

impl Context {
    /// An empty context. It allocates nothing until it is used.
    pub fn new() -> Self {
        Self::default()
    }

    /// An input: a tensor whose value is set before a computation (`ggml_new_tensor`, `ggml_set_input`).
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] if a dimension is below 1, the first is not a whole number of blocks, or the size overflows.
    #[doc(alias = "ggml_new_tensor")]
    #[doc(alias = "ggml_new_tensor_1d")]
    #[doc(alias = "ggml_new_tensor_2d")]
    #[doc(alias = "ggml_new_tensor_3d")]
    #[doc(alias = "ggml_new_tensor_4d")]
    #[doc(alias = "ggml_set_input")]
    pub fn input(&self, name: &str, dtype: DType, shape: impl Into<Shape>) -> Result<Tensor<'_>> {
        callback::check_reentry("Context::input")?;
        let t = self.leaf("input", name, dtype, shape.into())?;
        // The flag OUTPUT is needed, too: without it, the input's memory is reused after its last reader, and a second
        // compute would read garbage.
        t.ptr().add_flags((sys::GGML_TENSOR_FLAG_INPUT | sys::GGML_TENSOR_FLAG_OUTPUT).cast_signed());
        Ok(t)
    }

    /// An input with the type and shape of `like` (`ggml_dup_tensor`). They share no memory.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let w = ctx.input("w", DType::F16, [64, 8])?;
    /// let other = ctx.input_like("other", w)?;
    /// assert_eq!((other.dtype(), other.shape()), (w.dtype(), w.shape()));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]; the shape is valid already.
    #[doc(alias = "ggml_dup_tensor")]
    pub fn input_like(&self, name: &str, like: Tensor<'_>) -> Result<Tensor<'_>> {
        callback::check_reentry("Context::input_like")?;
        self.input(name, like.dtype(), like.shape())
    }

    /// Marks a tensor to be readable after the computation (`ggml_set_output`). [`Context::graph`] marks its outputs
    /// itself.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let hidden = ctx.output(ctx.sqr(ctx.arange(0.0, 3.0, 1.0)?)?)?; // else its memory is used again
    /// let y = ctx.sum(hidden)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(hidden)?, [0.0, 1.0, 4.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Frozen`] for tensors of weights or state, which are always readable.
    #[doc(alias = "ggml_set_output")]
    pub fn output<'c>(&'c self, t: Tensor<'c>) -> Result<Tensor<'c>> {
        callback::check_reentry("Context::output")?;
        t.check_free("Context::output")?;
        if !t.is_of_context() {
            return Err(Error::Frozen { call: "set_output", tensor: t.info() });
        }
        // A view has no memory of its own: its root must be kept.
        t.ptr().add_flags(sys::GGML_TENSOR_FLAG_OUTPUT.cast_signed());
        if t.ptr().owner() == Owner::Graph {
            t.ptr().root().add_flags(sys::GGML_TENSOR_FLAG_OUTPUT.cast_signed());
        }
        Ok(t)
    }

    /// The lists of dropped graphs, for reuse.
    pub(crate) fn stores(&self) -> &StorePool {
        self.stores.get_or_init(StorePool::default)
    }

    /// The bytes in use for tensor headers (`ggml_used_mem`). Graphs and tensor data are not counted.
    #[doc(alias = "ggml_used_mem")]
    pub fn used_mem(&self) -> usize {
        self.pools.borrow().iter().map(Pool::used).sum::<usize>() + self.arena.used()
    }

    /// The bytes that tensor headers can take before the context grows again (`ggml_get_mem_size`).
    #[doc(alias = "ggml_get_mem_size")]
    pub fn mem_size(&self) -> usize {
        self.pools.borrow().iter().map(Pool::len).sum::<usize>() + self.arena.len()
    }

    /// Drops all tensors but keeps their memory, so that the next computation reuses the arena. Closures of custom
    /// operations are dropped.
    ///
    /// The compiler makes sure that no handle of this context's tensors is used afterwards. Handles of
    /// [`Weights`](crate::Weights) and [`State`](crate::State) borrow only those, so they may be kept, and be operands
    /// again. So may indices ([`Weights::index`](crate::Weights::index)), which borrow nothing.
    ///
    /// ```
    /// use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// # let mut builder = WeightsBuilder::new();
    /// # builder.tensor("w", DType::F32, [4])?;
    /// # let weights = builder.place(Device::cpu()?)?;
    /// let (mut ctx, mut sched) = (Context::new(), Sched::best()?);
    /// let w = weights.tensor("w")?;
    /// for step in 0..3 {
    ///     ctx.reset();
    ///     let x = ctx.input("x", DType::F32, [4])?;
    ///     let graph = ctx.graph([ctx.add(x, w)?])?;
    ///     sched.run(&graph, (x, &[step as f32; 4]))?;
    /// }
    /// assert_eq!(sched.plans(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "ggml_reset")]
    pub fn reset(&mut self) {
        for pool in self.pools.get_mut() {
            // SAFETY: handles borrow the context; `&mut self` shows that none exist.
            unsafe { pool.reset() };
        }
        // SAFETY: handles borrow the context; `&mut self` shows that none exist.
        unsafe { self.arena.reset() };
        self.current.set(0);
        self.open.take();
        self.kept.get_mut().give_back();
    }

    /// Keeps a closure alive as long as this context's tensors.
    pub(crate) fn keep(&self, closure: Arc<dyn Kept>) -> Result<()> {
        let KeptList(kept) = &mut *self.kept.borrow_mut();
        kept.try_reserve(1).map_err(|_| Error::no_memory("closures"))?;
        kept.push(closure);
        Ok(())
    }

    /// Makes a leaf without memory.
    pub(crate) fn leaf(&self, call: &'static str, name: &str, dtype: DType, shape: Shape) -> Result<Tensor<'_>> {
        let ne = shape.ne();
        let info = || TensorInfo { name: name.into(), dtype: dtype.name(), ne };
        shape.bytes(dtype).map_err(|why| Error::shape(call, [info()], why))?;
        let t = self.build("ggml_new_tensor", &[], |c| {
            // SAFETY: the pool is live and has room; the four dimensions are positive and don't overflow (`bytes`).
            unsafe { sys::ggml_new_tensor(c, dtype.raw(), 4, ne.as_ptr()) }
        })?;
        t.ptr().set_name(name);
        Ok(t)
    }

    /// Runs one of ggml's builders and checks its result. `operands` are for error messages.
    #[inline]
    pub(crate) fn build<'c>(
        &'c self,
        call: &'static str,
        operands: &[Tensor<'c>],
        f: impl FnOnce(*mut sys::ggml_context) -> *mut sys::ggml_tensor,
    ) -> Result<Tensor<'c>> {
        check_operands(call, operands)?;
        let pool = self.pool_with_room()?;
        let raw = guard::new(call, || f(pool))?;
        // SAFETY: the tensor was just made in a pool of this context, which lives for 'c; all operands are handles of
        // 'c.
        let t = unsafe { TensorPtr::new(raw) };
        // Builders multiply dimensions without overflow checks, so the result's size is checked here.
        if !t.is_clearly_small() && (t.span().is_none_or(|n| n > MAX_BYTES) || Shape::from(t.ne()).elements().is_none())
        {
            return Err(too_large(call, operands));
        }
        // If the root of a view has memory now, ggml copies its address into the view. The address would dangle after
        // that allocation.
        if t.view_src().is_some() {
            t.release();
        }
        // SAFETY: the tensor was just made in a pool of this context, which lives for 'c; all operands are handles of
        // 'c.
        Ok(unsafe { Tensor::new(t) })
    }

    /// Makes a tensor in Rust, as ggml's builder `c` would; debug builds compare the two.
    #[inline]
    pub(crate) fn make<'c>(
        &'c self,
        call: &'static str,
        operands: &[Tensor<'c>],
        fill: impl FnOnce(&mut TensorInit<'_>),
        c: impl FnOnce(*mut sys::ggml_context) -> *mut sys::ggml_tensor,
    ) -> Result<Tensor<'c>> {
        callback::check_reentry(call)?;
        check_operands(call, operands)?;
        let raw = self.arena.push(|raw| fill(&mut TensorInit { raw }))?;
        // SAFETY: the tensor was just made in the arena of this context, which lives for 'c; all operands are handles
        // of 'c.
        let t = unsafe { TensorPtr::new(raw) };
        if cfg!(debug_assertions) {
            let theirs = self.build(call, operands, c)?;
            assert!(init::same(t, theirs.ptr()), "{call} makes another tensor: {theirs:?}");
        }
        // SAFETY: the tensor was just made in the arena of this context, which lives for 'c; all operands are handles
        // of 'c.
        Ok(unsafe { Tensor::new(t) })
    }

    /// A C context with room for the result of any builder.
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

    /// Finds a pool with room. Most builders need less than the maximum, so pools that counted as full are measured
    /// again first.
    #[cold]
    fn open_pool(&self) -> Result<*mut sys::ggml_context> {
        // SAFETY: the C function returns a constant.
        let need = MAX_TENSORS * unsafe { sys::ggml_tensor_overhead() };
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

/// Refuses operands that a running computation uses (`alloc/placement.rs`).
///
/// H27: repacked weights can only be the first operand of matrix multiplications. Where a builder hides repacked
/// weights behind other operations, they are found at allocation (`rules/run.rs`).
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
fn too_large(call: &'static str, operands: &[Tensor<'_>]) -> Error {
    let expected = "the result's size exceeds the address space; use smaller operands";
    Error::shape(call, operands.iter().map(|t| t.info()), expected)
}

debug!(Context, |this| bytes = &this.mem_size());
