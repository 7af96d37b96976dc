//! Operations written in Rust: closures that ggml calls during a computation.

mod call;
mod map;
mod op;
mod parts;

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use ggml_sys as sys;

use crate::dtype::{CType as _, Element};
use crate::error::Error;
use crate::ops::prelude::*;
use crate::options::options;
use crate::shape::{CShape as _, Shape};

pub(crate) use call::take_panic;
pub use op::CustomOp;
pub use parts::{Operands, Rows, RowsMut};

options! {
    /// The options of a custom operation.
    ///
    /// ```
    /// use ggml::{ops::CustomOptions, prelude::*};
    /// let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [3, 2])?;
    /// let y = ctx.map_custom1::<f32>(x, CustomOptions::new().with_n_tasks(1), |out, x| {
    ///     out.for_each(|(i, row)| row.copy_from_slice(x.row(i)));
    /// })?;
    /// # assert_eq!(y.ne(), x.ne());
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy)]
    pub struct CustomOptions {
        /// Uses all threads of the backend.
        new();
        /// Sets the most tasks into which the rows are split. Each is one call of the closure, in parallel with the
        /// others; `None` for as many as the backend has threads.
        with_n_tasks(n_tasks: Option<usize> = None, into);
        /// Sets the dimension, 1 to 3, that is divided among the tasks: each gets the rows with some of the indices in
        /// this dimension, and with all indices in the others. `None` divides all rows, counted through the three
        /// dimensions.
        with_split(split: Option<usize> = None, into);
    }
}

impl Context {
    /// A tensor of this shape, of `T`, computed by a closure from any operands (`ggml_custom_4d`), on the CPU.
    ///
    /// The closure is called once per task, from several threads at once ([`CustomOptions::with_n_tasks`]). Each call
    /// gets rows of the result to fill, which hold zeros and which no other call has, and may read all operands.
    ///
    /// The closure lives until the context is dropped or [reset](Context::reset), so it can't borrow; share data by
    /// [`Arc`]. It can't call ggml: functions that would do so fail with [`Error::Nested`].
    ///
    /// Custom operations can hold your own kernels: `examples/kernels` has those of a transformer's encoder.
    ///
    /// ```
    /// use ggml::prelude::*;
    /// use ggml::ops::CustomOptions;
    /// # fn main() -> ggml::Result<()> {
    /// let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [3, 2])?;
    /// let scale = 2.0;
    /// let sums = ctx.custom::<f32>(&[x], [1, 2], CustomOptions::new(), move |out, operands| {
    ///     let x = operands.rows::<f32>(0);
    ///     for (i, row) in out {
    ///         row[0] = scale * x.row(i).iter().sum::<f32>();
    ///     }
    /// })?;
    /// let graph = ctx.graph([sums])?;
    /// let mut sched = Sched::builder().backend(Backend::cpu()?).build()?;
    /// let mut run = sched.alloc(&graph)?;
    /// run.set(x, &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// run.compute()?;
    /// assert_eq!(run.get::<f32>(sums)?, [12.0, 30.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] where no tensor can have the shape, or there are more than 9 operands; [`Error::Param`] unless
    /// `n_tasks` lies in 1 to 2^31 - 1, and `split` in 1 to 3.
    ///
    /// # Panics
    ///
    /// This call never panics. If the closure panics, the computation runs to its end, and
    /// [`compute`](crate::Run::compute) then resumes the panic. No results can be read after it.
    #[doc(alias = "ggml_custom_4d")]
    pub fn custom<'c, T: Element>(
        &'c self,
        operands: &[Tensor<'c>],
        shape: impl Into<Shape>,
        how: CustomOptions,
        f: impl Fn(RowsMut<'_, T>, Operands<'_>) + Send + Sync + 'static,
    ) -> Result<Tensor<'c>> {
        entered!("custom");
        self.custom_op(&CustomOp::new(how, f), operands, shape)
    }

    /// A tensor computed by a closure, as by [`Context::custom`], with an operation that was made before.
    ///
    /// # Errors
    ///
    /// As [`Context::custom`].
    pub fn custom_op<'c, T: Element>(
        &'c self,
        op: &CustomOp<T>,
        operands: &[Tensor<'c>],
        shape: impl Into<Shape>,
    ) -> Result<Tensor<'c>> {
        entered!("custom_op");
        let (call, shape) = (Call { op: entered!("custom"), operands }, shape.into());
        call.shape(operands.len() < sys::GGML_MAX_SRC as usize, "there can be 9 operands at most")?;
        call.shape(shape.bytes(T::DTYPE).is_ok(), "no tensor can have the shape of the result")?;
        let [n0, n1, n2, n3] = shape.ne();
        let (mut args, n) = pointers(operands);
        let t = T::DTYPE.raw();
        self.closure("ggml_custom_4d", call, None, op, |c, n_tasks, user| {
            let args = args.as_mut_ptr();
            // SAFETY: the context is live and has room; the operands are live for 'c and fewer than `GGML_MAX_SRC`, and
            // a tensor can have the shape (both checked above). C copies the array `args`. The result keeps the
            // operands, and the closure, which lives as long as the context (`Context::keep`).
            unsafe { sys::ggml_custom_4d(c, t, n0, n1, n2, n3, args, n, Some(call::custom), n_tasks, user) }
        })
    }

    /// [`Context::custom`] in place: changes the rows of `a` and returns a view of `a` (`ggml_custom_inplace`). The
    /// closure gets `operands` to read, without `a`.
    ///
    /// # Errors
    ///
    /// As [`Context::custom`], where there can be 8 operands beside `a`; [`Error::ElementType`] unless `a` is of `T`;
    /// [`Error::Shape`] where the rows of `a` are not contiguous, it shares memory with an operand, or lies in an
    /// input; [`Error::Frozen`] where it lies in weights.
    #[doc(alias = "ggml_custom_inplace")]
    pub fn custom_inplace<'c, T: Element>(
        &'c self,
        a: Tensor<'c>,
        operands: &[Tensor<'c>],
        how: CustomOptions,
        f: impl Fn(RowsMut<'_, T>, Operands<'_>) + Send + Sync + 'static,
    ) -> Result<Tensor<'c>> {
        let all: Vec<_> = std::iter::once(a).chain(operands.iter().copied()).collect();
        let call = Call { op: entered!("custom_inplace"), operands: &all };
        call.shape(all.len() < sys::GGML_MAX_SRC as usize, "there can be 8 operands beside the first at most")?;
        let (mut args, n) = pointers(operands);
        self.closure("ggml_custom_inplace", call, Some(a), &CustomOp::new(how, f), |c, n_tasks, user| {
            let args = args.as_mut_ptr();
            // SAFETY: context, operands and closure are live, and C copies `args`, as for `ggml_custom_4d`; `a`, the
            // first source, may be written (`Context::closure`).
            unsafe { sys::ggml_custom_inplace(c, a.as_ptr(), args, n, Some(call::custom), n_tasks, user) }
        })
    }

    /// Builds an operation with a closure, and keeps the closure as long as the context. `target` is the first operand,
    /// if the operation changes it in place.
    fn closure<'c, T: Element>(
        &'c self,
        name: &'static str,
        call: Call<'_, 'c>,
        target: Option<Tensor<'c>>,
        op: &CustomOp<T>,
        build: impl FnOnce(*mut sys::ggml_context, c_int, *mut c_void) -> *mut sys::ggml_tensor,
    ) -> Result<Tensor<'c>> {
        if let Some(a) = target {
            call.writable(a)?;
            is::<T>(call, a)?;
            call.shape(a.layout().has_dense_rows(), "rows of the operand that is changed must be contiguous")?;
            let apart = call.operands.iter().skip(1).all(|&b| !a.ptr().overlaps(b.ptr()));
            call.shape(
                apart,
                "the operand that is changed must not share memory with another; copy that (`dup`) before",
            )?;
        }
        let CustomOptions { n_tasks, split } = op.how();
        let c_tasks = n_tasks.map_or(Ok(ALL_THREADS), c_int::try_from).unwrap_or(0);
        call.param(c_tasks != 0, "n_tasks", n_tasks, "it must lie in 1 to 2^31 - 1")?;
        call.param(split.is_none_or(|d| (1..=3).contains(&d)), "split", split, "it must lie in 1 to 3")?;
        let closure = op.closure(target.is_some())?;
        let user = Arc::as_ptr(&closure).cast_mut().cast();
        self.keep(closure)?;
        self.build(name, call.operands, |c| build(c, c_tasks, user))
    }
}

/// ggml's `GGML_N_TASKS_MAX`: as many tasks as there are threads.
const ALL_THREADS: c_int = -1;

/// Checks that `t` holds elements of type `T`.
fn is<T: Element>(call: Call<'_, '_>, t: Tensor<'_>) -> Result<()> {
    if t.dtype() == T::DTYPE {
        return Ok(());
    }
    Err(Error::ElementType { call: call.op.name(), tensor: t.info(), asked: T::NAME })
}

/// The operands as pointers for C. There are fewer than the array has room for.
fn pointers(operands: &[Tensor<'_>]) -> ([*mut sys::ggml_tensor; sys::GGML_MAX_SRC as usize], c_int) {
    let mut all = [std::ptr::null_mut(); sys::GGML_MAX_SRC as usize];
    all.iter_mut().zip(operands).for_each(|(to, t)| *to = t.as_ptr());
    (all, c_int::try_from(operands.len()).unwrap_or(c_int::MAX))
}
