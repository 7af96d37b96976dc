//! Writing or adding a tensor to a part of another.

use crate::header::Layout;
use crate::op::SetOptions;
use crate::ops::prelude::*;

/// The exclusive upper bounds of strides and offsets, which C keeps in 32 bits.
const END_OF_STRIDES: usize = 1 << 31;
const END_OF_OFFSETS: usize = 1 << 30;

impl Context {
    /// A copy of `a` with a part replaced by `b` (`ggml_set`).
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless both have the same type, which is no block type;
    /// [`Error::Shape`](crate::Error::Shape) unless `a` is contiguous; [`Error::Param`](crate::Error::Param) unless the
    /// part lies inside `a`, strides and offset are multiples of the type's size, strides below 2³¹ and not 0, the
    /// offset below 2³⁰, and no elements of the part overlap.
    #[doc(alias = "ggml_set")]
    pub fn set<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, part: SetOptions) -> Result<Tensor<'c>> {
        let [nb1, nb2, nb3] = inside(Call { op: entered!("set"), operands: &[a, b] }, a, b, part, false)?;
        build!(self, sys::ggml_set(a, b; nb1, nb2, nb3, part.offset))
    }

    /// [`Context::set`] in place (`ggml_set_inplace`): writes `b` to a part of `a`, and returns a view of `a`.
    ///
    /// # Errors
    ///
    /// As [`Context::set`]; [`Error::Frozen`](crate::Error::Frozen) where `a` lies in weights,
    /// [`Error::Shape`](crate::Error::Shape) where it lies in an input, holds indices, or shares memory with `b`.
    #[doc(alias = "ggml_set_inplace")]
    pub fn set_inplace<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, part: SetOptions) -> Result<Tensor<'c>> {
        let [nb1, nb2, nb3] = inside(Call { op: entered!("set_inplace"), operands: &[a, b] }, a, b, part, true)?;
        build!(self, sys::ggml_set_inplace(a, b; nb1, nb2, nb3, part.offset))
    }

    /// [`Context::set`] at `offset` bytes, with the strides of `a` (`ggml_set_1d`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let (a, b) = (ctx.arange(0.0, 4.0, 1.0)?, ctx.arange(8.0, 10.0, 1.0)?);
    /// let y = ctx.set_1d(a, b, a.nb()[0])?; // from element 1 on
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [0.0, 8.0, 9.0, 3.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::set`].
    #[doc(alias = "ggml_set_1d")]
    pub fn set_1d<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, offset: usize) -> Result<Tensor<'c>> {
        inside(Call { op: entered!("set_1d"), operands: &[a, b] }, a, b, SetOptions::new(offset), false)?;
        build!(self, sys::ggml_set_1d(a, b; offset))
    }

    /// [`Context::set_1d`] in place (`ggml_set_1d_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::set_inplace`].
    #[doc(alias = "ggml_set_1d_inplace")]
    pub fn set_1d_inplace<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, offset: usize) -> Result<Tensor<'c>> {
        inside(Call { op: entered!("set_1d_inplace"), operands: &[a, b] }, a, b, SetOptions::new(offset), true)?;
        build!(self, sys::ggml_set_1d_inplace(a, b; offset))
    }

    /// [`Context::set`] at `offset` bytes, with a row stride of `stride` bytes and the upper strides of `a`
    /// (`ggml_set_2d`).
    ///
    /// # Errors
    ///
    /// As [`Context::set`].
    #[doc(alias = "ggml_set_2d")]
    pub fn set_2d<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, stride: usize, offset: usize) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("set_2d"), operands: &[a, b] };
        inside(call, a, b, rows_of(a, stride, offset), false)?;
        build!(self, sys::ggml_set_2d(a, b; stride, offset))
    }

    /// [`Context::set_2d`] in place (`ggml_set_2d_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::set_inplace`].
    #[doc(alias = "ggml_set_2d_inplace")]
    pub fn set_2d_inplace<'c>(
        &'c self,
        a: Tensor<'c>,
        b: Tensor<'c>,
        stride: usize,
        offset: usize,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("set_2d_inplace"), operands: &[a, b] };
        inside(call, a, b, rows_of(a, stride, offset), true)?;
        build!(self, sys::ggml_set_2d_inplace(a, b; stride, offset))
    }

    /// A copy of `a` with `b` added to a part of it (`ggml_acc`).
    ///
    /// # Errors
    ///
    /// As [`Context::set`]; [`Error::DType`](crate::Error::DType) unless both are `f32`.
    #[doc(alias = "ggml_acc")]
    pub fn acc<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, part: SetOptions) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("acc"), operands: &[a, b] };
        call.dtype(a.dtype() == DType::F32, "both operands must be f32")?;
        let [nb1, nb2, nb3] = inside(call, a, b, part, false)?;
        build!(self, sys::ggml_acc(a, b; nb1, nb2, nb3, part.offset))
    }

    /// [`Context::acc`] in place (`ggml_acc_inplace`): adds `b` to a part of `a`, and returns a view of `a`.
    ///
    /// # Errors
    ///
    /// As [`Context::acc`] and [`Context::set_inplace`].
    #[doc(alias = "ggml_acc_inplace")]
    pub fn acc_inplace<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, part: SetOptions) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("acc_inplace"), operands: &[a, b] };
        call.dtype(a.dtype() == DType::F32, "both operands must be f32")?;
        let [nb1, nb2, nb3] = inside(call, a, b, part, true)?;
        build!(self, sys::ggml_acc_inplace(a, b; nb1, nb2, nb3, part.offset))
    }
}

/// The part of `a` that [`Context::set_2d`] writes to.
fn rows_of(a: Tensor<'_>, stride: usize, offset: usize) -> SetOptions {
    let [_, _, nb2, nb3] = a.nb();
    SetOptions::new(offset).with_strides([stride, nb2, nb3])
}

/// Checks the operands of `set` and `acc`, and that all of `b`, its last row included, fits into `a` at `part` (H5).
/// Returns the strides of the part.
fn inside(call: Call<'_, '_>, a: Tensor<'_>, b: Tensor<'_>, part: SetOptions, in_place: bool) -> Result<[usize; 3]> {
    let one = a.dtype() == b.dtype() && a.dtype().block_size() == 1;
    call.dtype(one, "both operands must have the same type, and no block type")?;
    call.shape(a.is_contiguous(), "the operand that is written to must be contiguous; use `cont`")?;
    if in_place {
        call.writable(a)?;
        // Threads write rows in any order, so the operands must not overlap.
        call.shape(!a.ptr().overlaps(b.ptr()), "they must not share memory; copy the second (`dup`) before")?;
    }
    let unit = a.dtype().type_size();
    let [_, nb1, nb2, nb3] = a.nb();
    let strides = part.strides.unwrap_or([nb1, nb2, nb3]);
    // Devices other than the CPU divide by strides, even by those of dimensions of 1, so none may be 0.
    let known = strides.iter().all(|&nb| nb.is_multiple_of(unit) && (1..END_OF_STRIDES).contains(&nb));
    call.param(known, "strides", strides, "they must be multiples of the type's size, above 0 and below 2^31")?;
    let whole = part.offset.is_multiple_of(unit) && part.offset < END_OF_OFFSETS;
    call.param(whole, "offset", part.offset, "it must be a multiple of the type's size, and below 2^30")?;
    let [nb1, nb2, nb3] = strides;
    let layout = Layout { dtype: a.dtype(), ne: b.ne(), nb: [unit, nb1, nb2, nb3] };
    call.param(layout.is_disjoint(), "strides", strides, "elements must not overlap")?;
    let fits = layout.fits(part.offset, a.ptr().span());
    call.param(fits, "offset", part.offset, "the part must end inside the operand that is written to")?;
    Ok(strides)
}
