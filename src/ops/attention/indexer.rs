//! The indexer of sparse attention.

use crate::ops::prelude::*;

impl Context {
    /// The relevance of each key to each query (`ggml_lightning_indexer`): the sum over heads of `weights * max(q k^T,
    /// 0)`, plus the mask.
    ///
    /// `q` is `[size, heads, n_batch, batches]`, `k` is `[size, 1, n_kv, batches]`, `weights` are
    /// `[heads, n_batch, 1, batches]`, and `mask` is `[n_kv, n_batch, 1, batches or a divisor]`; the result is
    /// `[n_kv, n_batch, 1, batches]`, of `f32`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let q = ctx.input("q", DType::F32, [128, 4, 10])?; // 4 heads, 10 tokens
    /// let k = ctx.input("k", DType::F16, [128, 1, 256])?; // 256 cells
    /// let weights = ctx.input("weights", DType::F32, [4, 10])?;
    /// let mask = ctx.input("mask", DType::F16, [256, 10])?;
    /// assert_eq!(ctx.lightning_indexer(q, k, weights, mask)?.ne(), [256, 10, 1, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless shapes are as above, [`Error::DType`](crate::Error::DType) unless `q`
    /// and `weights` are `f32` and the mask is `f16`.
    #[doc(alias = "ggml_lightning_indexer")]
    pub fn lightning_indexer<'c>(
        &'c self,
        q: Tensor<'c>,
        k: Tensor<'c>,
        weights: Tensor<'c>,
        mask: Tensor<'c>,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("lightning_indexer"), operands: &[q, k, weights, mask] };
        let types = q.dtype() == DType::F32 && weights.dtype() == DType::F32 && mask.dtype() == DType::F16;
        call.dtype(types, "queries and weights must be f32, the mask f16")?;
        let ([q0, q1, q2, q3], [_, _, k2, _], [.., m3]) = (q.ne(), k.ne(), mask.ne());
        call.shape(k.ne() == [q0, 1, k2, q3], "keys must have one head, and the queries' size and batches")?;
        call.shape(weights.ne() == [q1, q2, 1, q3], "there must be a weight per head, query and batch")?;
        let fits = mask.ne() == [k2, q2, 1, m3] && q3 % m3 == 0;
        call.shape(fits, "the mask must have a column per key, a row per query, and divide the batches")?;
        call.result([k2, q2, 1, q3], DType::F32)?;
        build!(self, sys::ggml_lightning_indexer(q, k, weights, mask))
    }
}
