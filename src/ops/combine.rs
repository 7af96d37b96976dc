//! Copies, repetitions and concatenations.

use ggml_sys as sys;

use crate::dtype::CType as _;
use crate::header::Layout;
use crate::header::init::{self, TensorInit};
use crate::ops::prelude::*;
use crate::shape::{CShape as _, Shape};

impl Context {
    /// A contiguous copy of `a` (`ggml_cont`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.reshape(ctx.arange(0.0, 6.0, 1.0)?, [3, 2])?; // rows 0, 1, 2 and 3, 4, 5
    /// let columns = ctx.cont(ctx.transpose(x)?)?;
    /// # let (graph, mut sched) = (ctx.graph([columns])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(columns)?, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// An error only if memory runs out.
    #[doc(alias = "ggml_cont")]
    pub fn cont<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        entered!("cont");
        build!(self, sys::ggml_cont(a), |t| contiguous(t, a, a.shape()))
    }

    /// A contiguous copy of `a` with another shape, the elements in the same order (`ggml_cont_4d`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.transpose(ctx.input("x", DType::F32, [3, 2])?)?;
    /// let rows = ctx.cont_4d(x, [3, 2])?; // `reshape` takes contiguous tensors only
    /// assert!(rows.is_contiguous() && ctx.reshape(x, [3, 2]).is_err());
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) unless `shape` has as many elements as `a`, in whole blocks.
    #[doc(alias = "ggml_cont_1d")]
    #[doc(alias = "ggml_cont_2d")]
    #[doc(alias = "ggml_cont_3d")]
    #[doc(alias = "ggml_cont_4d")]
    pub fn cont_4d<'c>(&'c self, a: Tensor<'c>, shape: impl Into<Shape>) -> Result<Tensor<'c>> {
        let shape = shape.into();
        let call = Call { op: entered!("cont_4d"), operands: &[a] };
        let same = shape.bytes(a.dtype()).is_ok() && shape.elements() == a.shape().elements();
        call.param(same, "shape", shape.ne(), "it must have as many elements as the operand, in whole blocks")?;
        let [n0, n1, n2, n3] = shape.ne();
        build!(self, sys::ggml_cont_4d(a; n0, n1, n2, n3), |t| contiguous(t, a, shape))
    }

    /// A copy of `a` (`ggml_dup`).
    ///
    /// # Errors
    ///
    /// An error only if memory runs out.
    #[doc(alias = "ggml_dup")]
    pub fn dup<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        entered!("dup");
        build!(self, sys::ggml_dup(a))
    }

    /// A copy of `a` onto itself (`ggml_dup_inplace`): an operation that changes nothing, and a view of `a`.
    ///
    /// # Errors
    ///
    /// As [`Context::relu_inplace`], for all types.
    #[doc(alias = "ggml_dup_inplace")]
    pub fn dup_inplace<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        Call { op: entered!("dup_inplace"), operands: &[a] }.in_place(a, &[])?;
        build!(self, sys::ggml_dup_inplace(a))
    }

    /// A copy of `a` with element type `dtype` (`ggml_cast`). From `f32` to `i32`, it cuts off fractions; values that
    /// don't fit become arbitrary numbers.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.arange(0.0, 64.0, 1.0)?;
    /// let small = ctx.cast(x, DType::Q8_0)?;
    /// assert_eq!((x.nbytes(), small.nbytes()), (256, 68));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless the rows are whole blocks of `dtype`;
    /// [`Error::Param`](crate::Error::Param) for a type that the linked ggml doesn't have.
    #[doc(alias = "ggml_cast")]
    pub fn cast<'c>(&'c self, a: Tensor<'c>, dtype: DType) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("cast"), operands: &[a] };
        call.param(dtype.is_known(), "dtype", dtype, "this ggml has no such type")?;
        call.shape(a.shape().bytes(dtype).is_ok(), "rows must be whole blocks of the new type, and not too long")?;
        build!(self, sys::ggml_cast(a; dtype.raw()))
    }

    /// Copies `a` to `b`, which may be a [`State`](crate::State)'s tensor or a view of one, converts between element
    /// types, and returns a view of `b` (`ggml_cpy`). Operations that read `b` itself are not ordered after the copy:
    /// let them read the result, or give the copy to [`Context::graph`] before them.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("cache", DType::F16, [4])?;
    /// let state = builder.place_state(Device::cpu()?)?;
    /// let stored = ctx.cpy(ctx.arange(0.0, 4.0, 1.0)?, state.tensor("cache")?)?; // rounds to f16
    /// # let (graph, mut sched) = (ctx.graph([stored])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<half::f16>(stored)?, [0.0, 1.0, 2.0, 3.0].map(half::f16::from_f32));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless both have the same number of elements and share no memory, or where
    /// `b` lies in an input; [`Error::Frozen`](crate::Error::Frozen) where it lies in weights.
    #[doc(alias = "ggml_cpy")]
    pub fn cpy<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("cpy"), operands: &[a, b] };
        call.writable(b)?;
        call.shape(a.elements() == b.elements(), "both operands must have the same number of elements")?;
        let same_rows = a.shape() == b.shape() || (a.dtype().block_size() == 1 && b.dtype().block_size() == 1);
        call.shape(same_rows, "operands of a block type must have the same shape")?;
        // Threads copy parts in any order, with `memcpy`, so the operands must not overlap.
        call.shape(!a.ptr().overlaps(b.ptr()), "the operands must not share memory; copy the first (`dup`) before")?;
        let fill = |t: &mut TensorInit<'_>| {
            t.operation(sys::GGML_OP_CPY, [a.ptr(), b.ptr()], b.layout());
            t.view(b.ptr(), 0);
            let (from, to) = (a.ptr(), b.ptr());
            match (init::name_of(&to), init::name_of(&from)) {
                (b"", from) => t.name_of_parts(&[from, b" (copy)"]),
                (to, from) => t.name_of_parts(&[to, b" (copy of ", from, b")"]),
            }
        };
        build!(self, sys::ggml_cpy(a, b), fill)
    }

    /// Repeats `a` to the shape of `like` (`ggml_repeat`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let (row, like) = (ctx.arange(0.0, 2.0, 1.0)?, ctx.input("like", DType::F32, [4, 2])?);
    /// assert_eq!(ctx.repeat(row, like)?.ne(), [4, 2, 1, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless every dimension of `a` divides that of `like`.
    #[doc(alias = "ggml_repeat")]
    pub fn repeat<'c>(&'c self, a: Tensor<'c>, like: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("repeat"), operands: &[like, a] };
        call.repeats(a, like)?;
        call.dtype(a.dtype().block_size() == 1, "a block type can't be repeated; `cast` it first")?;
        build!(self, sys::ggml_repeat(a, like))
    }

    /// Repeats `a` to `shape` (`ggml_repeat_4d`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let y = ctx.repeat_4d(ctx.arange(0.0, 2.0, 1.0)?, [4, 2])?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) unless every dimension of `a` divides that of `shape`;
    /// [`Error::DType`](crate::Error::DType) for block types.
    #[doc(alias = "ggml_repeat_4d")]
    pub fn repeat_4d<'c>(&'c self, a: Tensor<'c>, shape: impl Into<Shape>) -> Result<Tensor<'c>> {
        let shape = shape.into();
        let call = Call { op: entered!("repeat_4d"), operands: &[a] };
        call.dtype(a.dtype().block_size() == 1, "a block type can't be repeated; `cast` it first")?;
        let divides = shape.ne().into_iter().zip(a.ne()).all(|(n, part)| n % part == 0);
        let fits = divides && shape.bytes(a.dtype()).is_ok();
        call.param(
            fits,
            "shape",
            shape.ne(),
            "each dimension must be a multiple of the operand's, and the result must fit the address space",
        )?;
        let [n0, n1, n2, n3] = shape.ne();
        build!(self, sys::ggml_repeat_4d(a; n0, n1, n2, n3))
    }

    /// Sums `a` to the shape of `like` (`ggml_repeat_back`), the gradient of [`Context::repeat`]: each element is the
    /// sum of all its repetitions.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let (x, like) = (ctx.arange(0.0, 6.0, 1.0)?, ctx.arange(0.0, 2.0, 1.0)?);
    /// let sums = ctx.repeat_back(x, like)?; // 0 + 2 + 4, 1 + 3 + 5
    /// # let (graph, mut sched) = (ctx.graph([sums])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(sums)?, [6.0, 9.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless every dimension of `like` divides that of `a`.
    #[doc(alias = "ggml_repeat_back")]
    pub fn repeat_back<'c>(&'c self, a: Tensor<'c>, like: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("repeat_back"), operands: &[a, like] };
        call.repeats(like, a)?;
        call.dtype(a.dtype().block_size() == 1, "a block type can't be summed; `cast` it first")?;
        build!(self, sys::ggml_repeat_back(a, like))
    }

    /// Concatenates `a` and `b` in dimension `dim` (`ggml_concat`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let (a, b) = (ctx.arange(0.0, 2.0, 1.0)?, ctx.arange(5.0, 8.0, 1.0)?);
    /// let both = ctx.concat(a, b, 0)?;
    /// # let (graph, mut sched) = (ctx.graph([both])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(both)?, [0.0, 1.0, 5.0, 6.0, 7.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) unless `dim` is 0 to 3; [`Error::DType`](crate::Error::DType) for two
    /// types; [`Error::Shape`](crate::Error::Shape) unless all other dimensions are equal.
    #[doc(alias = "ggml_concat")]
    pub fn concat<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, dim: usize) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("concat"), operands: &[a, b] };
        call.param(dim < 4, "dim", dim, "it must lie in 0 to 3")?;
        call.dtype(a.dtype() == b.dtype(), "both operands must have the same type")?;
        let others = a.ne().into_iter().zip(b.ne()).enumerate().all(|(i, (a, b))| i == dim || a == b);
        call.shape(others, "all dimensions except `dim` must be equal")?;
        let mut ne = a.ne();
        if let (Some(n), Some(more)) = (ne.get_mut(dim), b.ne().get(dim)) {
            *n = n.saturating_add(*more);
        }
        call.result(ne, a.dtype())?;
        let dim = i32::try_from(dim).unwrap_or(0);
        build!(self, sys::ggml_concat(a, b; dim))
    }
}

/// Fills in the header of a contiguous copy of `a`.
fn contiguous(t: &mut TensorInit<'_>, a: Tensor<'_>, shape: Shape) {
    t.operation(sys::GGML_OP_CONT, [a.ptr()], Layout::packed(a.dtype(), shape.ne()));
    t.name(a.ptr(), b" (cont)");
}
