//! The network's description, used by training, inference and the plain Rust reference.
//!
//! ```text
//! image   [8, 8, 1, N]   width, height, channels, images: ggml's order, the innermost dimension first
//! conv1   [8, 8, 16, N]  3x3, padded by 1, bias, ReLU; then 2x2 maximum -> [4, 4, 16, N]
//! conv2   [4, 4, 32, N]  3x3, padded by 1, bias, ReLU; then 2x2 maximum -> [2, 2, 32, N]
//! fc1     [64, N]        128 inputs per image, bias, ReLU
//! fc2     [10, N]        bias; one logit per digit
//! ```

use anyhow::{Result, bail, ensure};

use super::data::{CLASSES, SIDE, SPLIT_SEED};
use crate::Shown;

/// Width and height of a convolution's kernel.
pub const KERNEL: usize = 3;
/// Padding of a convolution; keeps the image's size.
pub const PADDING: usize = KERNEL / 2;
/// Width, height and stride of the max pooling after a convolution.
pub const POOL: usize = 2;

/// The operation of a layer, before its activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A convolution; its output is pooled after the activation.
    Conv,
    /// A matrix product.
    Dense,
}

/// One layer, with tensors `name.weight` and `name.bias`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layer {
    /// The prefix of its tensors' names.
    pub name: &'static str,
    /// Its operation.
    pub kind: Kind,
    /// Input channels (convolution) or features (product).
    pub inputs: usize,
    /// Output channels or features.
    pub outputs: usize,
    /// Whether a `ReLU` follows.
    pub relu: bool,
}

/// Width and height after both poolings.
const LEFT: usize = SIDE / POOL / POOL;
const CHANNELS: usize = 32;

/// All layers, first to last.
pub const LAYERS: [Layer; 4] = [
    Layer { name: "conv1", kind: Kind::Conv, inputs: 1, outputs: 16, relu: true },
    Layer { name: "conv2", kind: Kind::Conv, inputs: 16, outputs: CHANNELS, relu: true },
    Layer { name: "fc1", kind: Kind::Dense, inputs: LEFT * LEFT * CHANNELS, outputs: 64, relu: true },
    Layer { name: "fc2", kind: Kind::Dense, inputs: 64, outputs: CLASSES, relu: false },
];

/// The name of the tensor that takes the images.
pub const INPUT: &str = "images";
/// The name of the tensor that holds the result.
pub const OUTPUT: &str = "logits";

impl Layer {
    /// The name of its kernel or matrix.
    pub fn weight_name(&self) -> String {
        format!("{}.weight", self.name)
    }

    /// The name of its bias.
    pub fn bias_name(&self) -> String {
        format!("{}.bias", self.name)
    }

    /// The shape of its kernel or matrix, innermost dimension first, padded with ones.
    pub fn weight_shape(&self) -> [usize; 4] {
        match self.kind {
            Kind::Conv => [KERNEL, KERNEL, self.inputs, self.outputs],
            Kind::Dense => [self.inputs, self.outputs, 1, 1],
        }
    }

    /// The shape of its bias: one value per output, broadcast over the other dimensions.
    pub fn bias_shape(&self) -> [usize; 4] {
        match self.kind {
            Kind::Conv => [1, 1, self.outputs, 1],
            Kind::Dense => [self.outputs, 1, 1, 1],
        }
    }

    /// The number of inputs per output (fan-in), which scales the initial weights.
    pub fn fan_in(&self) -> usize {
        match self.kind {
            Kind::Conv => KERNEL * KERNEL * self.inputs,
            Kind::Dense => self.inputs,
        }
    }
}

/// Name and shape of each tensor of a model file, in file order.
pub fn tensors() -> impl Iterator<Item = (String, [usize; 4])> {
    LAYERS
        .iter()
        .flat_map(|layer| [(layer.weight_name(), layer.weight_shape()), (layer.bias_name(), layer.bias_shape())])
}

/// The model file in this repository, independent of the working directory.
pub const DEFAULT_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/digits.gguf");

/// Metadata keys of a model file.
pub mod key {
    /// The architecture: [`ARCHITECTURE`](super::ARCHITECTURE).
    pub const ARCHITECTURE: &str = "general.architecture";
    /// The model's name.
    pub const NAME: &str = "general.name";
    /// The licence of the weights.
    pub const LICENSE: &str = "general.license";
    /// The seed that selected the test images, which training never saw (`u64`).
    pub const SPLIT_SEED: &str = "digits-cnn.split_seed";
}

/// The value of [`key::ARCHITECTURE`].
pub const ARCHITECTURE: &str = "digits-cnn";

/// Refuses a model of another architecture, or one trained on the test images.
///
/// # Errors
/// [`key::ARCHITECTURE`] or [`key::SPLIT_SEED`] is missing or has another value.
pub fn check_metadata(architecture: Option<&str>, split_seed: Option<u64>) -> Result<()> {
    ensure!(
        architecture == Some(ARCHITECTURE),
        "`{}` is {}, but only models of the architecture `{ARCHITECTURE}` are understood",
        key::ARCHITECTURE,
        architecture.map_or("missing".to_owned(), |name| format!("`{}`", Shown::name(name)))
    );
    ensure!(
        split_seed == Some(SPLIT_SEED),
        "`{}` is {}, but the images are split with {SPLIT_SEED}: the model may have been trained on the test images; \
         train it again with the example digits_train",
        key::SPLIT_SEED,
        split_seed.map_or("missing".to_owned(), |seed| seed.to_string())
    );
    Ok(())
}

/// Refuses a tensor with another shape than the network's. Trailing ones may be omitted.
///
/// # Errors
/// The shape differs, or the network has no tensor of that name.
pub fn check_shape(name: &str, found: &[i64]) -> Result<()> {
    let expected = tensors().find(|(n, _)| n == name).map(|(_, shape)| shape);
    let Some(expected) = expected else {
        let known: Vec<_> = tensors().map(|(n, _)| n).collect();
        bail!("`{}` is no tensor of a {ARCHITECTURE} model, which has {}", Shown::name(name), known.join(", "))
    };
    let dimensions = found.len().max(expected.len());
    let same = (0..dimensions).all(|i| {
        let expected = expected.get(i).map_or(Ok(1), |&n| i64::try_from(n));
        expected == Ok(found.get(i).copied().unwrap_or(1))
    });
    ensure!(
        same,
        "tensor `{name}` has the shape {found:?}, but {ARCHITECTURE} needs {expected:?}: the file holds another network"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_match_the_model_file() {
        let expected = [
            ("conv1.weight", [3, 3, 1, 16]),
            ("conv1.bias", [1, 1, 16, 1]),
            ("conv2.weight", [3, 3, 16, 32]),
            ("conv2.bias", [1, 1, 32, 1]),
            ("fc1.weight", [128, 64, 1, 1]),
            ("fc1.bias", [64, 1, 1, 1]),
            ("fc2.weight", [64, 10, 1, 1]),
            ("fc2.bias", [10, 1, 1, 1]),
        ];
        let expected: Vec<_> = expected.map(|(n, s)| (n.to_owned(), s)).into();
        assert_eq!(tensors().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn check_metadata_refuses_other_models() {
        check_metadata(Some("digits-cnn"), Some(SPLIT_SEED)).unwrap();
        let text = |architecture, seed| check_metadata(architecture, seed).unwrap_err().to_string();
        assert!(text(Some("llama"), Some(SPLIT_SEED)).starts_with("`general.architecture` is `llama`, but"));
        assert!(text(None, Some(SPLIT_SEED)).starts_with("`general.architecture` is missing, but"));
        assert!(text(Some("digits-cnn"), Some(7)).starts_with("`digits-cnn.split_seed` is 7, but"));
        assert!(text(Some("digits-cnn"), None).starts_with("`digits-cnn.split_seed` is missing, but"));
    }

    #[test]
    fn check_shape_refuses_other_shapes() {
        check_shape("fc2.bias", &[10]).unwrap();
        check_shape("fc2.bias", &[10, 1, 1, 1]).unwrap();
        for wrong in [&[][..], &[9], &[10, 2], &[1, 10], &[10, 1, 1, 1, 2], &[-10]] {
            let text = check_shape("fc2.bias", wrong).unwrap_err().to_string();
            assert!(text.contains("`fc2.bias`") && text.contains("[10, 1, 1, 1]"), "{text}");
        }
        let text = check_shape("fc3.bias", &[10]).unwrap_err().to_string();
        assert!(text.contains("fc2.weight, fc2.bias"), "{text}");
    }
}
