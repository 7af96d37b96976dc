//! The network as a computation of ggml's, the same for training and for inference.

use anyhow::Result;
use ggml::{Context, Conv2d, Pool, Pool2d, Tensor};

use super::model::{Kind, LAYERS, OUTPUT, PADDING, POOL};

/// Writes down the logits (`[10, N]`) of `images` (`[8, 8, 1, N]`).
///
/// `tensor` finds a layer's weight or bias by its name. What a layer gives to its activation and to the next one is named
/// after it, such as `conv1.sum` and `conv1.out`, and the result [`OUTPUT`].
///
/// # Errors
/// Those of `tensor`, and of ggml where the shapes are others than the model's.
pub(crate) fn forward<'c>(
    ctx: &'c Context,
    mut tensor: impl FnMut(&str) -> ggml::Result<Tensor<'c>>,
    images: Tensor<'c>,
) -> Result<Tensor<'c>> {
    let mut x = images;
    for layer in LAYERS {
        let weight = tensor(&layer.weight_name())?;
        let bias = tensor(&layer.bias_name())?;
        x = match layer.kind {
            Kind::Conv => ctx.conv_2d(weight, x, Conv2d::padded(i32::try_from(PADDING)?))?,
            Kind::Dense => ctx.mul_mat(weight, flat(ctx, x, i64::try_from(layer.inputs)?)?)?,
        };
        x = ctx.add(x, bias)?.named(&format!("{}.sum", layer.name))?;
        if layer.relu {
            x = ctx.relu(x)?;
        }
        if layer.kind == Kind::Conv {
            x = ctx.pool_2d(x, Pool::Max, Pool2d::square(i32::try_from(POOL)?))?;
        }
        x = x.named(&format!("{}.out", layer.name))?;
    }
    Ok(x.named(OUTPUT)?)
}

/// Makes one row of each image, where it is none already.
fn flat<'c>(ctx: &'c Context, x: Tensor<'c>, values: i64) -> ggml::Result<Tensor<'c>> {
    let [row, _, _, images] = x.ne();
    if row == values { Ok(x) } else { ctx.reshape(x, [values, images]) }
}
