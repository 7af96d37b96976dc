//! The KV cache in a graph.

use anyhow::Result;
use ggml::{Context, Tensor};

/// The KV cache in a graph.
#[derive(Debug)]
pub(crate) struct Cache<'c, 'a> {
    pub(crate) layers: &'a [[Tensor<'c>; 2]],
    /// The indices of the rows to write.
    pub(crate) rows: Tensor<'c>,
}

impl<'c> Cache<'c, '_> {
    /// Writes a layer's keys and values to the cache, and returns the whole cache.
    pub(crate) fn put(&self, ctx: &'c Context, layer: usize, new: [Tensor<'c>; 2]) -> Result<[Tensor<'c>; 2]> {
        let Some(&[k, v]) = self.layers.get(layer) else { anyhow::bail!("the cache has no layer {layer}") };
        let put = |to: Tensor<'c>, new| {
            let [width, ..] = to.ne();
            let [n, ..] = self.rows.ne();
            // Reads the operation's result, so that reading comes after writing.
            ctx.set_rows(to, ctx.reshape(new, [width, n])?, self.rows)
        };
        let [new_k, new_v] = new;
        Ok([put(k, new_k)?, put(v, new_v)?])
    }
}
