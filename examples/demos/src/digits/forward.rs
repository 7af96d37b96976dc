//! The network as a ggml graph, for training and for inference.

use anyhow::Result;
use ggml::{
    Context, Tensor,
    ops::{Conv2dOptions, Pool2dOptions, PoolOp},
};

use super::model::{Kind, LAYERS, OUTPUT, PADDING, POOL};

/// Builds the logits (`[10, N]`) of `images` (`[8, 8, 1, N]`).
///
/// `tensor` looks up a layer's weight or bias by name. The inputs of a layer's activation and of the next layer are
/// named after the layer, such as `conv1.sum` and `conv1.out`, and the result [`OUTPUT`].
///
/// # Errors
/// Those of `tensor`, and of ggml if the shapes are not the model's.
pub fn forward<'c>(
    ctx: &'c Context,
    mut tensor: impl FnMut(&str) -> ggml::Result<Tensor<'c>>,
    images: Tensor<'c>,
) -> Result<Tensor<'c>> {
    let mut x = images;
    for layer in LAYERS {
        let weight = tensor(&layer.weight_name())?;
        let bias = tensor(&layer.bias_name())?;
        x = match layer.kind {
            Kind::Conv => ctx.conv_2d(weight, x, Conv2dOptions::new().with_padding([i32::try_from(PADDING)?; 2]))?,
            Kind::Dense => ctx.mul_mat(weight, flat(ctx, x, i64::try_from(layer.inputs)?)?)?,
        };
        x = ctx.add(x, bias)?.named(&format!("{}.sum", layer.name))?;
        if layer.relu {
            x = ctx.relu(x)?;
        }
        if layer.kind == Kind::Conv {
            x = ctx.pool_2d(x, PoolOp::Max, Pool2dOptions::new([i32::try_from(POOL)?; 2]))?;
        }
        x = x.named(&format!("{}.out", layer.name))?;
    }
    Ok(x.named(OUTPUT)?)
}

/// Reshapes each image to one row, if necessary.
fn flat<'c>(ctx: &'c Context, x: Tensor<'c>, values: i64) -> ggml::Result<Tensor<'c>> {
    let [row, _, _, images] = x.ne();
    if row == values { Ok(x) } else { ctx.reshape(x, [values, images]) }
}
