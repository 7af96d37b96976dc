//! Rows picked by number.

use ggml_sys as sys;

use super::check::Call;
use super::index::{self, Indices};
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

impl Context {
    /// The rows of `a` whose numbers are in `rows` (`ggml_get_rows`), as `f32`, or `i32` for an `a` of `i32`.
    ///
    /// The numbers must be an input, a view of one, or made by `argsort` or `top_k`: those of an input are checked when it
    /// is set, because ggml's kernels abort on a number that is out of range, or read beyond the tensor.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `rows` is `i32`; [`Error::Shape`](crate::Error::Shape) unless its
    /// numbers are known to be in range, and its second and third dimension are the third and fourth of `a`.
    #[doc(alias = "ggml_get_rows")]
    pub fn get_rows<'c>(&'c self, a: Tensor<'c>, rows: Tensor<'c>) -> Result<Tensor<'c>> {
        self.rows_of(a, rows, Indices::Checked)
    }

    /// [`Context::get_rows`] with numbers from anywhere, such as a [`State`](crate::State) or another operation.
    ///
    /// # Errors
    ///
    /// As [`Context::get_rows`], but for where the numbers come from. Those of an input are checked all the same.
    ///
    /// # Safety
    ///
    /// Whenever the result is computed, all numbers must lie in 0 to below the second dimension of `a`: kernels read
    /// beyond the tensor otherwise, or end the process.
    pub unsafe fn get_rows_unchecked<'c>(&'c self, a: Tensor<'c>, rows: Tensor<'c>) -> Result<Tensor<'c>> {
        self.rows_of(a, rows, Indices::Promised)
    }

    fn rows_of<'c>(&'c self, a: Tensor<'c>, rows: Tensor<'c>, indices: Indices) -> Result<Tensor<'c>> {
        let call = Call { op: "get_rows", operands: &[a, rows] };
        call.dtype(rows.dtype() == DType::I32, "the row numbers (second) must be i32")?;
        let ([n, n_rows, a2, a3], [r0, r1, r2, r3]) = (a.ne(), rows.ne());
        call.shape(
            a2 == r1 && a3 == r2 && r3 == 1,
            "the row numbers must have the upper dimensions of the first operand",
        )?;
        call.shape(a.ptr().has_contiguous_rows(), "the elements of a row must lie side by side; use `cont`")?;
        indices.check(call, rows, n_rows)?;
        call.result([n, r0, r1, r2], DType::F32)?;
        self.build("ggml_get_rows", &[a, rows], |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above. The
            // result keeps both as sources.
            unsafe { sys::ggml_get_rows(c, a.as_ptr(), rows.as_ptr()) }
        })
    }

    /// The gradient of [`Context::get_rows`] (`ggml_get_rows_back`): a matrix of zeros in the shape of `like`, to whose rows
    /// `rows` those of `a` are added. Rows that are named more than once get the sum.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32` or `f16` and `rows` is `i32`;
    /// [`Error::Shape`](crate::Error::Shape) unless `a` and `like` are matrices of one row length, `rows` has a number for
    /// each row of `a`, and the numbers are known to be in range, as for [`Context::get_rows`].
    #[doc(alias = "ggml_get_rows_back")]
    pub fn get_rows_back<'c>(&'c self, a: Tensor<'c>, rows: Tensor<'c>, like: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: "get_rows_back", operands: &[a, rows, like] };
        call.dtype(rows.dtype() == DType::I32, "the row numbers (second) must be i32")?;
        call.dtype(matches!(a.dtype(), DType::F32 | DType::F16), "the rows (first) must be f32 or f16")?;
        let ([n, n_rows, a2, a3], [l0, l1, l2, l3]) = (a.ne(), like.ne());
        call.shape([a2, a3, l2, l3] == [1; 4], "rows and result must be matrices")?;
        call.shape(n == l0, "the rows of the result must be as long as those that are added")?;
        // H12: C takes any number of them.
        call.shape(rows.ne() == [n_rows, 1, 1, 1], "there must be one number for each row of the first operand")?;
        index::check(call, rows, l1)?;
        call.result([n, l1, 1, 1], DType::F32)?;
        self.build("ggml_get_rows_back", &[a, rows, like], |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above. The
            // result keeps the first two as sources; of the third, C reads the shape.
            unsafe { sys::ggml_get_rows_back(c, a.as_ptr(), rows.as_ptr(), like.as_ptr()) }
        })
    }

    /// Writes the rows of `b` into `a`, at the places that are in `rows`, converting to the type of `a`; the result is a
    /// view of `a` (`ggml_set_rows`). With `a` of shape `[n, rows, n2, n3]`, `b` has `[n, k, n2, n3]`, and `rows` has `k`
    /// numbers, for all planes or for each: `[k, m2, m3]`, where `m2` divides `n2` and `m3` divides `n3`.
    ///
    /// The numbers must be an input, a view of one, or made by `argsort` or `top_k`. No plane of `a` may be given two rows
    /// for one place: threads would write both at once. An input is therefore set as a whole, and refused where it repeats
    /// a number.
    ///
    /// What reads `a` itself does not wait for the write: read the result.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `b` is `f32` or `f16` and `rows` is `i32` or `i64`;
    /// [`Error::Shape`](crate::Error::Shape) where shapes do not fit, numbers are not known to be in range and different,
    /// rows of `a` or `b` are not contiguous, both share memory, or `a` lies in an input;
    /// [`Error::Frozen`](crate::Error::Frozen) where it lies in weights.
    #[doc(alias = "ggml_set_rows")]
    pub fn set_rows<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, rows: Tensor<'c>) -> Result<Tensor<'c>> {
        self.with_rows(a, b, rows, Indices::Checked)
    }

    /// [`Context::set_rows`] with numbers from anywhere, such as a [`State`](crate::State) or another operation.
    ///
    /// # Errors
    ///
    /// As [`Context::set_rows`], but for where the numbers come from. Those of an input are checked all the same.
    ///
    /// # Safety
    ///
    /// Whenever the result is computed, all numbers must lie in 0 to below the second dimension of `a`, and those of one
    /// row of `rows` must differ: kernels write beyond the tensor otherwise, end the process, or write to one row from two
    /// threads.
    pub unsafe fn set_rows_unchecked<'c>(
        &'c self,
        a: Tensor<'c>,
        b: Tensor<'c>,
        rows: Tensor<'c>,
    ) -> Result<Tensor<'c>> {
        self.with_rows(a, b, rows, Indices::Promised)
    }

    fn with_rows<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, rows: Tensor<'c>, indices: Indices) -> Result<Tensor<'c>> {
        let call = Call { op: "set_rows", operands: &[a, b, rows] };
        call.writable(a)?;
        call.dtype(matches!(b.dtype(), DType::F32 | DType::F16), "the rows (second) must be f32 or f16")?;
        call.dtype(matches!(rows.dtype(), DType::I32 | DType::I64), "the row numbers (third) must be i32 or i64")?;
        let ([a0, a1, a2, a3], [b0, b1, b2, b3], [r0, r1, r2, r3]) = (a.ne(), b.ne(), rows.ne());
        call.shape([a0, a2, a3] == [b0, b2, b3], "both must have the same dimensions, but for the number of rows")?;
        call.shape(r0 == b1 && r3 == 1, "there must be one number for each row of the second operand")?;
        call.shape(b2 % r1 == 0 && b3 % r2 == 0, "the upper dimensions of the numbers must divide those of the rows")?;
        let dense = a.ptr().has_contiguous_rows() && b.ptr().has_contiguous_rows();
        call.shape(dense, "the elements of a row must lie side by side; use `cont`")?;
        let apart = !a.ptr().overlaps(b.ptr()) && !a.ptr().overlaps(rows.ptr());
        call.shape(apart, "what is written to must not share memory with another operand; copy that (`dup`) before")?;
        indices.check(call, rows, a1)?;
        indices.check_distinct(call, rows)?;
        self.build("ggml_set_rows", &[a, b, rows], |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above, and `a`
            // may be written. The result keeps all three as sources.
            unsafe { sys::ggml_set_rows(c, a.as_ptr(), b.as_ptr(), rows.as_ptr()) }
        })
    }
}
