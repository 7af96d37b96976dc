//! Writing or adding a tensor to a part of another.

use ggml_sys as sys;

use super::check::Call;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::header::Layout;
use crate::options::options;
use crate::tensor::Tensor;

options! {
    /// The part of the first operand that [`Context::set`] and [`Context::acc`] write to. Its shape is that of the
    /// second.
    ///
    /// ```
    /// use ggml::{Part, prelude::*};
    /// let ctx = Context::new();
    /// let [a, b] = [ctx.input("a", DType::F32, [8, 6])?, ctx.input("b", DType::F32, [8, 2])?];
    /// // Replaces rows 1 and 3.
    /// let [_, row, ..] = a.nb();
    /// assert_eq!(ctx.set(a, b, Part::new(row).with_strides([2 * row, 6 * row, 6 * row]))?.ne(), a.ne());
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Part {
        /// The part at `offset` bytes from the start of the first operand.
        new(offset: usize);
        /// Sets the strides in bytes of the second, third and fourth dimension; `None` for those of the first operand.
        with_strides(strides: Option<[usize; 3]> = None, into);
    }
}

/// The C builders, by the parameters of the part that they take.
#[derive(Clone, Copy)]
enum Builder {
    Part(unsafe extern "C-unwind" fn(Ctx, T, T, usize, usize, usize, usize) -> T),
    Row(unsafe extern "C-unwind" fn(Ctx, T, T, usize) -> T),
    Rows(unsafe extern "C-unwind" fn(Ctx, T, T, usize, usize) -> T),
}

type Ctx = *mut sys::ggml_context;
type T = *mut sys::ggml_tensor;

/// The exclusive upper bounds of strides and offsets, which C keeps in 32 bits.
const END_OF_STRIDES: usize = 1 << 31;
const END_OF_OFFSETS: usize = 1 << 30;

impl Context {
    /// A copy of `a` with a part replaced by `b` (`ggml_set`).
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless both have the same type, and no block type;
    /// [`Error::Shape`](crate::Error::Shape) unless `a` is contiguous; [`Error::Param`](crate::Error::Param) unless the
    /// part lies inside `a`, strides and offset are multiples of the type's size, strides below 2³¹ and not 0, the
    /// offset below 2³⁰, and no elements of the part overlap.
    #[doc(alias = "ggml_set")]
    pub fn set<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, part: Part) -> Result<Tensor<'c>> {
        self.write("ggml_set", Builder::Part(sys::ggml_set), [a, b], part, false)
    }

    /// [`Context::set`] in place (`ggml_set_inplace`): writes `b` to a part of `a`, and returns a view of `a`.
    ///
    /// # Errors
    ///
    /// As [`Context::set`]; [`Error::Frozen`](crate::Error::Frozen) where `a` lies in weights,
    /// [`Error::Shape`](crate::Error::Shape) where it lies in an input, holds indices, or shares memory with `b`.
    #[doc(alias = "ggml_set_inplace")]
    pub fn set_inplace<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, part: Part) -> Result<Tensor<'c>> {
        self.write("ggml_set_inplace", Builder::Part(sys::ggml_set_inplace), [a, b], part, true)
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
        self.write("ggml_set_1d", Builder::Row(sys::ggml_set_1d), [a, b], Part::new(offset), false)
    }

    /// [`Context::set_1d`] in place (`ggml_set_1d_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::set_inplace`].
    #[doc(alias = "ggml_set_1d_inplace")]
    pub fn set_1d_inplace<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, offset: usize) -> Result<Tensor<'c>> {
        self.write("ggml_set_1d_inplace", Builder::Row(sys::ggml_set_1d_inplace), [a, b], Part::new(offset), true)
    }

    /// [`Context::set`] at `offset` bytes, with a row stride of `stride` bytes and the upper strides of `a`
    /// (`ggml_set_2d`).
    ///
    /// # Errors
    ///
    /// As [`Context::set`].
    #[doc(alias = "ggml_set_2d")]
    pub fn set_2d<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, stride: usize, offset: usize) -> Result<Tensor<'c>> {
        self.write("ggml_set_2d", Builder::Rows(sys::ggml_set_2d), [a, b], rows_of(a, stride, offset), false)
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
        let part = rows_of(a, stride, offset);
        self.write("ggml_set_2d_inplace", Builder::Rows(sys::ggml_set_2d_inplace), [a, b], part, true)
    }

    /// A copy of `a` with `b` added to a part of it (`ggml_acc`).
    ///
    /// # Errors
    ///
    /// As [`Context::set`]; [`Error::DType`](crate::Error::DType) unless both are `f32`.
    #[doc(alias = "ggml_acc")]
    pub fn acc<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, part: Part) -> Result<Tensor<'c>> {
        let call = Call { op: "acc", operands: &[a, b] };
        call.dtype(a.dtype() == DType::F32, "both operands must be f32")?;
        self.write("ggml_acc", Builder::Part(sys::ggml_acc), [a, b], part, false)
    }

    /// [`Context::acc`] in place (`ggml_acc_inplace`): adds `b` to a part of `a`, and returns a view of `a`.
    ///
    /// # Errors
    ///
    /// As [`Context::acc`] and [`Context::set_inplace`].
    #[doc(alias = "ggml_acc_inplace")]
    pub fn acc_inplace<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, part: Part) -> Result<Tensor<'c>> {
        let call = Call { op: "acc_inplace", operands: &[a, b] };
        call.dtype(a.dtype() == DType::F32, "both operands must be f32")?;
        self.write("ggml_acc_inplace", Builder::Part(sys::ggml_acc_inplace), [a, b], part, true)
    }

    /// Checks the operands, and calls `f`, which is the C function `c`.
    fn write<'c>(
        &'c self,
        c: &'static str,
        f: Builder,
        [a, b]: [Tensor<'c>; 2],
        part: Part,
        in_place: bool,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: c.strip_prefix("ggml_").unwrap_or(c), operands: &[a, b] };
        let one = a.dtype() == b.dtype() && a.dtype().block_size() == 1;
        call.dtype(one, "both operands must have the same type, and no block type")?;
        call.shape(a.is_contiguous(), "the operand that is written to must be contiguous; use `cont`")?;
        if in_place {
            call.writable(a)?;
            // Threads write rows in any order.
            call.shape(!a.ptr().overlaps(b.ptr()), "they must not share memory; copy the second (`dup`) before")?;
        }
        let [nb1, nb2, nb3] = inside(call, a, b, part)?;
        self.build(c, &[a, b], |c| {
            let (a, b, offset) = (a.as_ptr(), b.as_ptr(), part.offset);
            // In each case: `f` is one of the builders above. The context is live and has room; the operands are live
            // for 'c. `inside` has checked that the part lies in `a`, last row included, aligned and without overlap
            // (H5), and fits 32 bits; `writable` that it may be written in place. The result keeps both as sources.
            match f {
                // SAFETY: as above.
                Builder::Part(f) => unsafe { f(c, a, b, nb1, nb2, nb3, offset) },
                // SAFETY: as above; C uses the strides of `a`, which `inside` has checked.
                Builder::Row(f) => unsafe { f(c, a, b, offset) },
                // SAFETY: as above; C uses the upper strides of `a`, which `inside` has checked.
                Builder::Rows(f) => unsafe { f(c, a, b, nb1, offset) },
            }
        })
    }
}

/// The part that [`Context::set_2d`] writes to.
fn rows_of(a: Tensor<'_>, stride: usize, offset: usize) -> Part {
    let [_, _, nb2, nb3] = a.nb();
    Part::new(offset).with_strides([stride, nb2, nb3])
}

/// Checks that `b` fits into `part` of `a`, and returns the strides.
fn inside(call: Call<'_, '_>, a: Tensor<'_>, b: Tensor<'_>, part: Part) -> Result<[usize; 3]> {
    let unit = a.dtype().type_size();
    let [_, nb1, nb2, nb3] = a.nb();
    let strides = part.strides.unwrap_or([nb1, nb2, nb3]);
    // Other devices divide by strides, even by those of dimensions of 1.
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
