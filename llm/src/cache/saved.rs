//! The bytes of a sequence's keys and values, and their move to other positions.

use ggml::{Context, DType, Tensor, ops::RopeOptions};

use super::{KvCache, names};
use crate::config::Attention;
use crate::error::{Error, Result};

impl KvCache {
    /// The bytes of one token: each layer's keys, then its values.
    pub(crate) fn token_len(&self) -> usize {
        self.rows().iter().flatten().sum()
    }

    /// The bytes of a row, of each layer's tensors.
    fn rows(&self) -> Vec<[usize; 2]> {
        let row = |i| {
            let [_, row, ..] = self.state.at(i).nb();
            row
        };
        self.layers.iter().map(|tensors| tensors.map(row)).collect()
    }

    /// The keys and values in these cells: layer by layer, keys before values, in the order of the cells.
    pub(crate) fn read(&self, cells: &[usize]) -> Result<Vec<u8>> {
        let mut all = Vec::with_capacity(cells.len() * self.token_len());
        for (layer, rows) in self.rows().into_iter().enumerate() {
            for (name, row) in names(layer).iter().zip(rows) {
                let bytes = self.state.read_bytes(name)?;
                for cell in cells {
                    all.extend_from_slice(bytes.get(cell * row..(cell + 1) * row).unwrap_or_default());
                }
            }
        }
        Ok(all)
    }

    /// Sets the keys and values in these cells to what [`KvCache::read`] returned.
    pub(crate) fn write(&self, cells: &[i32], mut all: &[u8]) -> Result<()> {
        if all.len() != cells.len() * self.token_len() {
            return Err(Error::Saved(
                format!("{} bytes of keys and values for {} tokens", all.len(), cells.len()).into(),
            ));
        }
        for (layer, rows) in self.rows().into_iter().enumerate() {
            for (name, row) in names(layer).iter().zip(rows) {
                let mut bytes = self.state.read_bytes(name)?;
                for &cell in cells {
                    let (now, later) = all.split_at(row);
                    let at = usize::try_from(cell).unwrap_or(usize::MAX).saturating_mul(row);
                    if let Some(to) = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..row)) {
                        to.copy_from_slice(now);
                    }
                    all = later;
                }
                self.state.set_bytes(name, &bytes)?;
            }
        }
        Ok(())
    }

    /// The operation that rotates a layer's keys by `deltas`, a number of positions for each cell.
    #[expect(clippy::indexing_slicing, reason = "there are tensors for each layer of the model")]
    pub(crate) fn rotate<'c>(
        &'c self,
        ctx: &'c Context,
        layer: usize,
        config: &Attention,
        deltas: Tensor<'c>,
        rope: RopeOptions<'c>,
    ) -> ggml::Result<Tensor<'c>> {
        let [k, _] = self.layers[layer];
        let k = ctx.reshape(self.state.at(k), [config.n_embd_head_k, config.n_head_kv, self.cells.len()])?;
        if k.dtype() == DType::F16 || k.dtype() == DType::F32 {
            return ctx.rope_ext_inplace(k, deltas, rope);
        }
        ctx.cpy(ctx.rope_ext(ctx.cast(k, DType::F32)?, deltas, rope)?, k)
    }
}
