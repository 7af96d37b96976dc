//! The network, as a description that training, inference and the plain Rust reference all follow.
//!
//! ```text
//! image   [8, 8, 1, N]   width, height, channels, images: ggml's order, the innermost dimension first
//! conv1   [8, 8, 16, N]  3x3, padded by 1, bias, ReLU; then 2x2 maximum -> [4, 4, 16, N]
//! conv2   [4, 4, 32, N]  3x3, padded by 1, bias, ReLU; then 2x2 maximum -> [2, 2, 32, N]
//! fc1     [64, N]        of the 128 values that are left of each image; bias, ReLU
//! fc2     [10, N]        bias; one logit for each digit
//! ```

use anyhow::{Result, bail, ensure};

use super::data::{CLASSES, SIDE, SPLIT_SEED};
use crate::support::shown::Shown;

/// Width and height of a convolution's kernel.
pub(crate) const KERNEL: usize = 3;
/// What a convolution puts round its image, so that the size stays.
pub(crate) const PADDING: usize = KERNEL / 2;
/// Width, height and step of the maximum after a convolution.
pub(crate) const POOL: usize = 2;

/// What a layer computes before its activation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A convolution; its output is pooled after the activation.
    Conv,
    /// A product with a matrix.
    Dense,
}

/// One layer: `name.weight`, `name.bias` and what is done with them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layer {
    /// What its tensors' names begin with.
    pub(crate) name: &'static str,
    /// What it computes.
    pub(crate) kind: Kind,
    /// Channels (convolution) or values (product) of its input.
    pub(crate) inputs: usize,
    /// Channels or values of its output.
    pub(crate) outputs: usize,
    /// Whether negative results become zero.
    pub(crate) relu: bool,
}

/// What is left of the width and height after both pools.
const LEFT: usize = SIDE / POOL / POOL;
const CHANNELS: usize = 32;

/// All layers, first to last.
pub(crate) const LAYERS: [Layer; 4] = [
    Layer { name: "conv1", kind: Kind::Conv, inputs: 1, outputs: 16, relu: true },
    Layer { name: "conv2", kind: Kind::Conv, inputs: 16, outputs: CHANNELS, relu: true },
    Layer { name: "fc1", kind: Kind::Dense, inputs: LEFT * LEFT * CHANNELS, outputs: 64, relu: true },
    Layer { name: "fc2", kind: Kind::Dense, inputs: 64, outputs: CLASSES, relu: false },
];

/// The name of the tensor that takes the images.
pub(crate) const INPUT: &str = "images";
/// The name of the tensor that holds the result.
pub(crate) const OUTPUT: &str = "logits";

impl Layer {
    /// The name of its kernel or matrix.
    pub(crate) fn weight_name(&self) -> String {
        format!("{}.weight", self.name)
    }

    /// The name of what is added to each output.
    pub(crate) fn bias_name(&self) -> String {
        format!("{}.bias", self.name)
    }

    /// The shape of its kernel or matrix, the innermost dimension first, filled up with ones.
    pub(crate) fn weight_shape(&self) -> [usize; 4] {
        match self.kind {
            Kind::Conv => [KERNEL, KERNEL, self.inputs, self.outputs],
            Kind::Dense => [self.inputs, self.outputs, 1, 1],
        }
    }

    /// The shape of its bias: one value for each output, laid out so that it repeats over all else.
    pub(crate) fn bias_shape(&self) -> [usize; 4] {
        match self.kind {
            Kind::Conv => [1, 1, self.outputs, 1],
            Kind::Dense => [self.outputs, 1, 1, 1],
        }
    }

    /// How many inputs each output depends on, which is what its first weights are scaled by.
    pub(crate) fn fan_in(&self) -> usize {
        match self.kind {
            Kind::Conv => KERNEL * KERNEL * self.inputs,
            Kind::Dense => self.inputs,
        }
    }
}

/// Name and shape of each tensor of a model file, in its order.
pub(crate) fn tensors() -> impl Iterator<Item = (String, [usize; 4])> {
    LAYERS
        .iter()
        .flat_map(|layer| [(layer.weight_name(), layer.weight_shape()), (layer.bias_name(), layer.bias_shape())])
}

/// What a model file says of itself.
pub(crate) mod key {
    /// Which network it holds: [`ARCHITECTURE`](super::ARCHITECTURE).
    pub(crate) const ARCHITECTURE: &str = "general.architecture";
    /// A name for people.
    pub(crate) const NAME: &str = "general.name";
    /// The licence of the weights.
    pub(crate) const LICENSE: &str = "general.license";
    /// The seed that picked the images that it was *not* trained on (`u64`).
    pub(crate) const SPLIT_SEED: &str = "digits-cnn.split_seed";
}

/// The value of [`key::ARCHITECTURE`].
pub(crate) const ARCHITECTURE: &str = "digits-cnn";

/// Refuses a model file that holds another network, or one that was trained on the test images.
///
/// # Errors
/// Where the values of [`key::ARCHITECTURE`] and [`key::SPLIT_SEED`] are missing or others than this program's.
pub(crate) fn check_metadata(architecture: Option<&str>, split_seed: Option<u64>) -> Result<()> {
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

/// Refuses a tensor whose shape is not the one that the network needs. Trailing ones may be left out.
///
/// # Errors
/// Where the shape differs, or where no tensor of the network has that name.
pub(crate) fn check_shape(name: &str, found: &[i64]) -> Result<()> {
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
