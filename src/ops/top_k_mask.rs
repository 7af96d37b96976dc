//! The mask of sparse attention, from the keys that were picked. Since ggml 0.28.

use super::check::OperandList;
use crate::op::TopKMaskOptions;
use crate::ops::prelude::*;

impl Context {
    /// The mask of the keys that were picked for each query (`ggml_top_k_mask`): the values of `mask` in the cells for
    /// which the picks in this row stand, and negative infinity elsewhere. Picks and cells that are out of range are
    /// ignored.
    ///
    /// `mask` is `[n_kv, m1, m2, m3]`, and `picks` `[n_top, n1, n2, n3]` of `i32`, such as `top_k` makes; `m1` divides
    /// `n1` and so on. The result is `[n_kv, n1, n2, n3]`, of the type of `mask`.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `mask` is `f32` or `f16` and the other operands have the types
    /// above; [`Error::Shape`](crate::Error::Shape) unless shapes are as above, scores and extra cells have the upper
    /// dimensions of `picks`, there are as many scores as blocks, and rows of `mask` are contiguous.
    #[doc(alias = "ggml_top_k_mask")]
    pub fn top_k_mask<'c>(
        &'c self,
        mask: Tensor<'c>,
        picks: Tensor<'c>,
        how: TopKMaskOptions<'c>,
    ) -> Result<Tensor<'c>> {
        let operands = OperandList::new(mask, [Some(picks), how.score, how.blocks, how.extra]);
        let call = Call { op: entered!("top_k_mask"), operands: &operands };
        call.dtype(matches!(mask.dtype(), DType::F32 | DType::F16), "the mask (first) must be f32 or f16")?;
        let is = |t: Option<Tensor<'_>>, dtype| t.is_none_or(|t| t.dtype() == dtype);
        call.dtype(
            is(Some(picks), DType::I32) && is(how.blocks, DType::I32) && is(how.extra, DType::I32),
            "picks, blocks and extra cells must be i32",
        )?;
        call.dtype(is(how.score, DType::F32), "the scores must be f32")?;
        let ([n_kv, m1, m2, m3], [_, n1, n2, n3]) = (mask.ne(), picks.ne());
        call.shape(mask.ptr().has_dense_rows(), "rows of the mask must be contiguous; use `cont`")?;
        call.shape(
            n1 % m1 == 0 && n2 % m2 == 0 && n3 % m3 == 0,
            "the upper dimensions of the mask must divide those of the picks",
        )?;
        let beside =
            |t: Option<Tensor<'_>>| t.is_none_or(|t| matches!(t.ne(), [_, t1, t2, t3] if [t1, t2, t3] == [n1, n2, n3]));
        call.shape(
            beside(how.score) && beside(how.extra),
            "scores and extra cells must have the upper dimensions of the picks",
        )?;
        if let Some(blocks) = how.blocks {
            let [_, n_pick, b2, b3] = blocks.ne();
            call.shape([b2, b3] == [1, 1], "blocks must be a matrix")?;
            let scores = how.score.is_none_or(|score| matches!(score.ne(), [n, ..] if n == n_pick));
            call.shape(scores, "there must be one score for each block")?;
        }
        call.result([n_kv, n1, n2, n3], mask.dtype())?;
        let TopKMaskOptions { score, blocks, extra } = how;
        build!(self, &operands, sys::ggml_top_k_mask(mask, picks, score, blocks, extra))
    }
}
