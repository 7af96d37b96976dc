//! The KV cache: cells for one token each, which several sequences may share.

mod cells;
mod saved;

use std::ops::Range;

use ggml::{BufferType, Context, DType, LeafIndex, LeafInfo, State, Tensor, WeightsBuilder};
use half::f16;

use crate::config::{Attention, Config};
use crate::error::Result;

pub(crate) use cells::{Cells, MAX_SEQUENCES};

/// Graphs read a multiple of this many cells, so that steps have equal graphs until the next multiple.
pub(crate) const BUCKET: usize = 256;

/// Keys and values of earlier tokens, in all layers.
#[derive(Debug)]
pub(crate) struct KvCache {
    state: State,
    /// Keys and values of each layer, `[n_embd_gqa, cells]`.
    layers: Vec<[LeafIndex; 2]>,
    pub(crate) cells: Cells,
    window: Option<usize>,
}

/// What layers read and write in one graph.
pub(crate) struct KvTensors<'c> {
    cache: &'c KvCache,
    /// The position of each token.
    pub(crate) positions: Tensor<'c>,
    /// The cell of each token.
    pub(crate) rows: Tensor<'c>,
    /// Which cells each token sees: in layers without, and with a window.
    pub(crate) masks: [Option<Tensor<'c>>; 2],
    /// The cells that the graph reads.
    read: Range<usize>,
}

fn names(layer: usize) -> [String; 2] {
    [format!("k.{layer}"), format!("v.{layer}")]
}

impl KvCache {
    /// A cache with `size` cells; each layer's part lies where `place` says.
    pub(crate) fn new(
        config: &Config,
        attention: &Attention,
        size: usize,
        dtype: DType,
        place: impl Fn(usize) -> BufferType,
    ) -> Result<Self> {
        let (mut builder, mut layers) = (WeightsBuilder::new(), Vec::new());
        for layer in 0..config.n_layer {
            let [k, v] = names(layer);
            let k = builder.tensor(&k, dtype, [attention.n_embd_k_gqa(), size])?;
            layers.push([k, builder.tensor(&v, dtype, [attention.n_embd_v_gqa(), size])?]);
        }
        let mut places = (0..config.n_layer).flat_map(|layer| [place(layer); 2]);
        let usual = place(0);
        let state = builder.place_state(|_: &LeafInfo| places.next().unwrap_or(usual))?;
        let window = config.window.as_ref().map(|w| w.size);
        Ok(Self { state, layers, cells: Cells::new(size), window })
    }

    /// The cells that a graph has to read: those of these tokens' sequences, rounded to multiples. Others may hold texts that
    /// nobody goes on with at the moment.
    pub(crate) fn to_read(&self, tokens: impl Iterator<Item = (usize, i32)>) -> Range<usize> {
        let used = self.cells.range(tokens.fold(0, |all, (sequence, _)| all | 1 << sequence));
        used.start / BUCKET * BUCKET..used.end.max(1).next_multiple_of(BUCKET).min(self.cells.len())
    }

    /// Fills the mask of layers with or without a window, for tokens by sequence and position.
    pub(crate) fn fill_mask(
        &self,
        tokens: impl Iterator<Item = (usize, i32)>,
        read: Range<usize>,
        windowed: bool,
        mask: &mut Vec<f16>,
    ) {
        self.cells.mask(tokens, read, self.window.filter(|_| windowed), mask);
    }

    /// Makes the inputs of a graph.
    pub(crate) fn tensors<'c>(
        &'c self,
        ctx: &'c Context,
        n_tokens: usize,
        read: Range<usize>,
    ) -> ggml::Result<KvTensors<'c>> {
        let mask = |name| ctx.input(name, DType::F16, [read.len(), n_tokens]);
        Ok(KvTensors {
            cache: self,
            positions: ctx.input("positions", DType::I32, [n_tokens])?,
            rows: ctx.input("cells", DType::I32, [n_tokens])?,
            masks: [Some(mask("mask")?), if self.window.is_some() { Some(mask("mask of window")?) } else { None }],
            read,
        })
    }
}

impl<'c> KvTensors<'c> {
    /// The mask of layers with or without a window.
    pub(crate) fn mask(&self, windowed: bool) -> Option<Tensor<'c>> {
        let [all, window] = self.masks;
        if windowed { window } else { all }
    }

    /// Writes the keys and values of the batch, `[size, heads, tokens]`, to its cells, and returns the layer's tensors.
    #[expect(clippy::indexing_slicing, reason = "there are tensors for each layer of the model")]
    pub(crate) fn append(
        &self,
        ctx: &'c Context,
        layer: usize,
        [k, v]: [Tensor<'c>; 2],
    ) -> ggml::Result<[Tensor<'c>; 2]> {
        let write = |index: LeafIndex, new: Tensor<'c>| {
            let [size, heads, tokens, _] = new.ne();
            let [_, _, token, plane] = new.nb();
            let flat = if new.is_contiguous() {
                ctx.reshape(new, [size * heads, tokens])?
            } else {
                ctx.view(new, [size * heads, tokens], [token, plane, plane], 0)? // part of a fused matrix's product
            };
            ctx.set_rows(self.cache.state.at(index), flat, self.rows)
        };
        let [k_index, v_index] = self.cache.layers[layer];
        Ok([write(k_index, k)?, write(v_index, v)?])
    }

    /// The cells of a layer that the graph reads, by head: `[size, cells, heads]`.
    pub(crate) fn heads(
        &self,
        ctx: &'c Context,
        config: &Attention,
        [k, v]: [Tensor<'c>; 2],
    ) -> ggml::Result<[Tensor<'c>; 2]> {
        let heads = |t: Tensor<'c>, size: usize| {
            let ([_, row, ..], dtype) = (t.nb(), t.dtype());
            let head = dtype.row_size(i64::try_from(size).unwrap_or(i64::MAX)).unwrap_or(0);
            let shape = [size, config.n_head_kv, self.read.len()];
            let read = ctx.view(t, shape, [head, row, row * self.read.len()], row * self.read.start)?;
            ctx.permute(read, [0, 2, 1, 3])
        };
        Ok([heads(k, config.n_embd_head_k)?, heads(v, config.n_embd_head_v)?])
    }
}
