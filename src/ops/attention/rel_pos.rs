//! Relative positions, as in SAM.

use crate::ops::prelude::*;

impl Context {
    /// Looks up the embedding of the distance between each of `qh` queries and each of `kh` keys (`ggml_get_rel_pos`).
    /// `a` is a table `[size, 2 * qh - 1]`; row `[.., j, i]` of the result `[size, kh, qh]` is row `i - j + kh - 1` of
    /// `a`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let table = ctx.input("table", DType::F16, [64, 2 * 14 - 1])?;
    /// assert_eq!(ctx.get_rel_pos(table, 14, 14)?.ne(), [64, 14, 14, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f16`, as the result is,
    /// [`Error::Shape`](crate::Error::Shape) unless `a` is a table of this shape, [`Error::Param`](crate::Error::Param)
    /// unless `qh` and `kh` are equal and at least 1.
    #[doc(alias = "ggml_get_rel_pos")]
    pub fn get_rel_pos<'c>(&'c self, a: Tensor<'c>, qh: i32, kh: i32) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("get_rel_pos"), operands: &[a] };
        // For an operand of `bf16`, the kernel would copy its bits to a result of `f16`.
        call.dtype(a.dtype() == DType::F16, "the operand must be f16")?;
        call.param(qh >= 1 && qh == kh, "kh", kh, "it must be equal to `qh`, and at least 1")?;
        let n = i64::from(qh);
        let [size, ..] = a.ne();
        call.shape(a.ne() == [size, 2 * n - 1, 1, 1], "there must be one row for each distance")?;
        call.param(i32::try_from(2 * n).is_ok(), "qh", qh, "it must be less than 2^30")?;
        call.result([size, n, n, 1], DType::F16)?;
        build!(self, sys::ggml_get_rel_pos(a; qh, kh))
    }

    /// Adds relative positions to `a` (`ggml_add_rel_pos`). `a` holds scores `[w * w, n1 * n2, batches]` for a square
    /// of keys; `pw` and `ph` are `[w, n1, n2, batches]`. The score of the key in column `x` and row `y`, element `x +
    /// w * y`, gets element `x` of `pw` and element `y` of `ph` added.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless all are contiguous and of these shapes,
    /// [`Error::DType`](crate::Error::DType) unless `pw` and `ph` are `f32`.
    #[doc(alias = "ggml_add_rel_pos")]
    pub fn add_rel_pos<'c>(&'c self, a: Tensor<'c>, pw: Tensor<'c>, ph: Tensor<'c>) -> Result<Tensor<'c>> {
        let operands = [a, pw, ph];
        add_fits(Call { op: entered!("add_rel_pos"), operands: &operands }, operands)?;
        build!(self, sys::ggml_add_rel_pos(a, pw, ph))
    }

    /// [`Context::add_rel_pos`] in place: writes to `a`, and returns a view of it (`ggml_add_rel_pos_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::add_rel_pos`]; also where `a` lies in an input or shares memory with another operand, and
    /// [`Error::Frozen`](crate::Error::Frozen) where it lies in weights.
    #[doc(alias = "ggml_add_rel_pos_inplace")]
    pub fn add_rel_pos_inplace<'c>(&'c self, a: Tensor<'c>, pw: Tensor<'c>, ph: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("add_rel_pos_inplace"), operands: &[a, pw, ph] };
        add_fits(call, [a, pw, ph])?;
        call.in_place(a, &[pw, ph])?;
        build!(self, sys::ggml_add_rel_pos_inplace(a, pw, ph))
    }
}

fn add_fits(call: Call<'_, '_>, [a, pw, ph]: [Tensor<'_>; 3]) -> Result<()> {
    call.dtype(pw.dtype() == DType::F32 && ph.dtype() == DType::F32, "the positions must be f32")?;
    call.all_contiguous(&[a, pw, ph])?;
    let [w, n1, n2, batches] = pw.ne();
    let fits = w.checked_mul(w).is_some_and(|keys| a.ne() == [keys, n1 * n2, batches, 1]);
    call.shape(
        fits && ph.shape() == pw.shape(),
        "scores must be [w * w, n1 * n2, batches] for positions, of rows and of columns, of [w, n1, n2, batches]",
    )
}
