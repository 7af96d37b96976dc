//! The states of recurrent layers: of fixed size, one slot per sequence.

use ggml::{BufferType, Context, DType, LeafIndex, LeafInfo, Pieces, State, Tensor, WeightsBuilder};

use crate::config::{Config, Ssm};
use crate::error::{Error, Result};

/// The states of all sequences in all layers.
#[derive(Debug)]
pub(crate) struct Recurrent {
    state: State,
    /// For each layer the last columns of the convolution, and the states of the scan.
    layers: Vec<[LeafIndex; 2]>,
    sizes: [usize; 2],
    n_slots: usize,
}

/// What layers read and write in one graph.
pub(crate) struct StateTensors<'c> {
    recurrent: &'c Recurrent,
    /// The slot of each sequence of the batch.
    pub(crate) ids: Tensor<'c>,
    pub(crate) n_seqs: usize,
    pub(crate) n_slots: usize,
}

fn names(layer: usize) -> [String; 2] {
    [format!("conv.{layer}"), format!("scan.{layer}")]
}

impl Recurrent {
    pub(crate) fn new(config: &Config, ssm: &Ssm, n_slots: usize, place: impl Fn(usize) -> BufferType) -> Result<Self> {
        let sizes = [(ssm.d_conv - 1) * ssm.conv_channels(), ssm.d_state * ssm.d_inner];
        let (mut builder, mut layers) = (WeightsBuilder::new(), Vec::new());
        for layer in 0..config.n_layer {
            let [conv, scan] = names(layer);
            let conv = builder.tensor(&conv, DType::F32, [sizes[0], n_slots])?;
            layers.push([conv, builder.tensor(&scan, DType::F32, [sizes[1], n_slots])?]);
        }
        let mut places = (0..config.n_layer).flat_map(|layer| [place(layer); 2]);
        let usual = place(0);
        let state = builder.place_state(|_: &LeafInfo| places.next().unwrap_or(usual))?;
        Ok(Self { state, layers, sizes, n_slots })
    }

    /// Sets the states of a sequence to zero, as before its first token.
    pub(crate) fn clear(&self, slot: usize) -> Result<()> {
        self.write(slot, &vec![0.0; self.saved_len()])
    }

    /// Copies the states of a sequence.
    pub(crate) fn copy(&self, from: usize, to: usize) -> Result<()> {
        self.write(to, &self.read(from)?)
    }

    /// The number of floats of one sequence.
    pub(crate) fn saved_len(&self) -> usize {
        self.layers.len() * self.sizes.iter().sum::<usize>()
    }

    fn pieces(slot: usize, size: usize) -> Pieces {
        Pieces { offset: slot * size, len: size, count: 1, step: size, data_step: size }
    }

    /// The states of a sequence in all layers.
    pub(crate) fn read(&self, slot: usize) -> Result<Vec<f32>> {
        let mut all = vec![0.0; self.saved_len()];
        let mut rest = &mut *all;
        for layer in 0..self.layers.len() {
            for (name, size) in names(layer).iter().zip(self.sizes) {
                let (now, later) = rest.split_at_mut(size);
                self.state.read_2d(name, Self::pieces(slot, size), now)?;
                rest = later;
            }
        }
        Ok(all)
    }

    /// Sets the states of a sequence to what [`Recurrent::read`] returned.
    pub(crate) fn write(&self, slot: usize, all: &[f32]) -> Result<()> {
        if all.len() != self.saved_len() {
            let found = format!("{} numbers of recurrent states; expected {}", all.len(), self.saved_len());
            return Err(Error::Saved(found.into()));
        }
        let mut rest = all;
        for layer in 0..self.layers.len() {
            for (name, size) in names(layer).iter().zip(self.sizes) {
                let (now, later) = rest.split_at(size);
                self.state.set_2d(name, Self::pieces(slot, size), now)?;
                rest = later;
            }
        }
        Ok(())
    }

    /// The input that says which slots a batch of `n_seqs` sequences has, and what layers need.
    pub(crate) fn tensors<'c>(&'c self, ctx: &'c Context, n_seqs: usize) -> ggml::Result<StateTensors<'c>> {
        let ids = ctx.input("slots", DType::I32, [n_seqs])?;
        Ok(StateTensors { recurrent: self, ids, n_seqs, n_slots: self.n_slots })
    }
}

impl<'c> StateTensors<'c> {
    #[expect(clippy::indexing_slicing, reason = "there are states for each layer of the model")]
    fn at(&self, layer: usize, i: usize) -> Tensor<'c> {
        self.recurrent.state.at(self.recurrent.layers[layer][i])
    }

    /// The last columns of the convolution of the batch's sequences, `[size, sequences]`.
    pub(crate) fn conv(&self, ctx: &'c Context, layer: usize) -> ggml::Result<Tensor<'c>> {
        ctx.get_rows(self.at(layer, 0), self.ids)
    }

    /// All states of the scan, `[size, slots]`.
    pub(crate) fn scan(&self, layer: usize) -> Tensor<'c> {
        self.at(layer, 1)
    }

    pub(crate) fn keep_conv(&self, ctx: &'c Context, layer: usize, new: Tensor<'c>) -> ggml::Result<Tensor<'c>> {
        let [size, _] = self.recurrent.sizes;
        ctx.set_rows(self.at(layer, 0), ctx.reshape(new, [size, self.n_seqs])?, self.ids)
    }

    pub(crate) fn keep_scan(&self, ctx: &'c Context, layer: usize, new: Tensor<'c>) -> ggml::Result<Tensor<'c>> {
        ctx.set_rows(self.at(layer, 1), new, self.ids)
    }
}
