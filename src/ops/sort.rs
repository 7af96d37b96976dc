//! The order of the elements of rows.
//!
//! ggml's CPU kernels hand a comparison by `<` to `std::sort` and `std::partial_sort`, which NaN turns into something that
//! orders nothing: the behaviour is then undefined, and the results, which others use as indices, may be anything. So each
//! builder here puts a clamp to the infinities in front, which leaves numbers as they are and makes numbers of the rest.

use ggml_sys as sys;

use super::check::Call;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// Which end of the order comes first.
#[doc(alias = "ggml_sort_order")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SortOrder {
    /// The smallest.
    Asc,
    /// The largest.
    Desc,
}

impl Context {
    /// The places of each row's elements in the order of their values (`ggml_argsort`): an `i32` for each element. Equal
    /// elements come in any order; NaN counts as infinite, on the CPU as positive.
    ///
    /// The result may be used as row numbers, such as those of [`Context::get_rows`].
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`; [`Error::Shape`](crate::Error::Shape) unless its rows are
    /// shorter than 2³¹ and equally far apart.
    #[doc(alias = "ggml_argsort")]
    pub fn argsort<'c>(&'c self, a: Tensor<'c>, order: SortOrder) -> Result<Tensor<'c>> {
        sortable(Call { op: "argsort", operands: &[a] }, a)?;
        let order = match order {
            SortOrder::Asc => sys::GGML_SORT_ORDER_ASC,
            SortOrder::Desc => sys::GGML_SORT_ORDER_DESC,
        };
        let a = self.numbers(a)?;
        self.build("ggml_argsort", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c, has rows as short as C asserts, and no NaN. The
            // result keeps it as source.
            unsafe { sys::ggml_argsort(c, a.as_ptr(), order) }
        })
    }

    /// The places of the `k` largest elements of each row, the largest first (`ggml_argsort_top_k`): a view of the result
    /// of [`Context::argsort`].
    ///
    /// # Errors
    ///
    /// As [`Context::argsort`]; [`Error::Param`](crate::Error::Param) unless `k` lies in 1 to the length of a row.
    #[doc(alias = "ggml_argsort_top_k")]
    pub fn argsort_top_k<'c>(&'c self, a: Tensor<'c>, k: i32) -> Result<Tensor<'c>> {
        some_of_row(Call { op: "argsort_top_k", operands: &[a] }, a, k)?;
        let a = self.numbers(a)?;
        self.build("ggml_argsort_top_k", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c, has no NaN and rows of at least `k`, which is
            // positive. The result is a view of a sort that keeps `a` as source.
            unsafe { sys::ggml_argsort_top_k(c, a.as_ptr(), k) }
        })
    }

    /// The places of the `k` largest elements of each row, in any order (`ggml_top_k`). NaN as in [`Context::argsort`].
    ///
    /// # Errors
    ///
    /// As [`Context::argsort_top_k`].
    #[doc(alias = "ggml_top_k")]
    pub fn top_k<'c>(&'c self, a: Tensor<'c>, k: i32) -> Result<Tensor<'c>> {
        some_of_row(Call { op: "top_k", operands: &[a] }, a, k)?;
        let a = self.numbers(a)?;
        self.build("ggml_top_k", &[a], |c| {
            // SAFETY: as in `argsort_top_k`; the result keeps `a` as source.
            unsafe { sys::ggml_top_k(c, a.as_ptr(), k) }
        })
    }

    /// `a` without NaN: the kernel's two comparisons are both false for it, and each then takes the limit. A new tensor.
    fn numbers<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        self.clamp(a, f32::NEG_INFINITY, f32::INFINITY)
    }
}

fn sortable(call: Call<'_, '_>, a: Tensor<'_>) -> Result<()> {
    call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
    let [n, ..] = a.ne();
    call.shape(i32::try_from(n).is_ok(), "rows must be shorter than 2^31")?;
    // The kernel of the clamp, too, finds row i at i * nb[1] (H10).
    let even = a.ptr().has_contiguous_rows() && a.ptr().is_contiguous_1();
    call.shape(even, "all rows must be equally far apart, their elements side by side; use `cont`")
}

fn some_of_row(call: Call<'_, '_>, a: Tensor<'_>, k: i32) -> Result<()> {
    sortable(call, a)?;
    let [n, ..] = a.ne();
    call.param(k >= 1 && i64::from(k) <= n, "k", k, format_args!("it must lie in 1 to {n}"))
}
