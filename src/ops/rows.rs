//! Rows picked by number.

use ggml_sys as sys;

use super::check::Call;
use super::index;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

impl Context {
    /// The rows of `a` whose numbers are in `rows` (`ggml_get_rows`), as `f32`, or `i32` for an `a` of `i32`.
    ///
    /// The numbers must be an input (or a view of one): they are checked when it is set, because ggml's kernels abort on
    /// a number that is out of range, or read beyond the tensor.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `rows` is `i32`; [`Error::Shape`](crate::Error::Shape) unless it is an
    /// input, and its second and third dimension are the third and fourth of `a`.
    #[doc(alias = "ggml_get_rows")]
    pub fn get_rows<'c>(&'c self, a: Tensor<'c>, rows: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: "get_rows", operands: &[a, rows] };
        call.dtype(rows.dtype() == DType::I32, "the row numbers (second) must be i32")?;
        let ([n, n_rows, a2, a3], [r0, r1, r2, r3]) = (a.ne(), rows.ne());
        call.shape(
            a2 == r1 && a3 == r2 && r3 == 1,
            "the row numbers must have the upper dimensions of the first operand",
        )?;
        call.shape(a.ptr().has_contiguous_rows(), "the elements of a row must lie side by side; use `cont`")?;
        index::check(call, rows, n_rows)?;
        call.result([n, r0, r1, r2], DType::F32)?;
        self.build("ggml_get_rows", &[a, rows], |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above. The
            // result keeps both as sources.
            unsafe { sys::ggml_get_rows(c, a.as_ptr(), rows.as_ptr()) }
        })
    }
}
