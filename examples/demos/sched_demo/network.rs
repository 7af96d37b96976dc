//! The trained network: its checked file, and its weights on the devices.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use demos::digits::data::SIDE;
use demos::digits::forward::forward;
use demos::digits::model::{self, INPUT, LAYERS, key};
use ggml::gguf::Load as _;
use ggml::gguf::{Reader, Value};
use ggml::{Context, DType, Device, Graph, LeafInfo, Tensor, Weights};

use crate::reference::Reference;

/// A model file that holds the network of these examples.
#[derive(Debug)]
pub(crate) struct Model(Reader<Vec<u8>>);

impl Model {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// If the file can't be read, is not a GGUF file, or contains another network.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        read(path).with_context(|| {
            format!(
                "can't use the model {} (name another with --model FILE, or train one with \
                 `cargo run --release --example digits_train`)",
                path.display()
            )
        })
    }

    /// The forward pass in plain Rust.
    ///
    /// # Errors
    /// If a tensor has the wrong size.
    pub(crate) fn reference(&self) -> Result<Reference> {
        Reference::new(|name| values(&self.0, name))
    }

    /// Places the layers' weights on these devices, one per layer.
    ///
    /// # Errors
    /// If a device has not enough memory.
    pub(crate) fn place(&self, of_layers: &[Device]) -> Result<Weights> {
        let device = |name: &str| {
            let layer =
                LAYERS.iter().position(|layer| [layer.weight_name(), layer.bias_name()].contains(&name.to_owned()));
            layer.and_then(|i| of_layers.get(i)).copied()
        };
        let cpu = Device::cpu()?;
        Ok(self.0.load(|leaf: &LeafInfo| device(leaf.name()).unwrap_or(cpu))?)
    }
}

fn read(path: &Path) -> Result<Model> {
    let reader = Reader::open(path)?.into_memory()?;
    let architecture = reader.metadata(key::ARCHITECTURE).and_then(Value::as_str);
    let split_seed = reader.metadata(key::SPLIT_SEED).and_then(Value::as_u64);
    model::check_metadata(architecture, split_seed)?;
    for tensor in reader.tensors() {
        model::check_shape(tensor.name(), &tensor.shape().ne())?;
        let dtype = tensor.dtype();
        ensure!(dtype == DType::F32, "tensor `{}` holds {dtype}, but only f32 is understood", tensor.name());
    }
    for (name, _) in model::tensors() {
        let finite = values(&reader, &name)?.iter().all(|value| value.is_finite());
        ensure!(finite, "tensor `{name}` holds infinities or NaNs");
    }
    Ok(Model(reader))
}

/// The values of an `f32` tensor.
fn values(reader: &Reader<Vec<u8>>, name: &str) -> Result<Vec<f32>> {
    let bytes = reader.data(name)?;
    Ok(bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect())
}

/// The graph of a batch, with its input images and output logits.
#[derive(Debug)]
pub(crate) struct Batch<'c> {
    pub(crate) graph: Graph<'c>,
    pub(crate) images: Tensor<'c>,
    pub(crate) logits: Tensor<'c>,
}

impl<'c> Batch<'c> {
    /// Builds the graph for `n` images.
    ///
    /// # Errors
    /// If that many images are too many for ggml.
    pub(crate) fn new(ctx: &'c Context, weights: &'c Weights, n: usize) -> Result<Self> {
        let side = i64::try_from(SIDE)?;
        let images = ctx.input(INPUT, DType::F32, [side, side, 1, i64::try_from(n)?])?;
        let logits = forward(ctx, |name| weights.tensor(name), images)?;
        Ok(Self { graph: ctx.graph([logits])?, images, logits })
    }
}
