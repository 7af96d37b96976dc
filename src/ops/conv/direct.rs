//! Direct convolutions: one operation, without columns in memory.

use super::{floats, images_of, outputs_of};
use crate::op::{Conv2dOptions, Conv3dOptions};
use crate::ops::prelude::*;

impl Context {
    /// [`Context::conv_2d`] as one operation (`ggml_conv_2d_direct`): `kernel` of ggml shape `[width, height, inputs,
    /// outputs]` over `x` of `[width, height, inputs, batch]`; the result is `[width, height, outputs, batch]`.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::Conv2dOptions;
    /// # let ctx = Context::new();
    /// let kernel = ctx.reshape(ctx.arange(1.0, 5.0, 1.0)?, [2, 2, 1, 1])?; // 1, 2 above 3, 4
    /// let image = ctx.reshape(ctx.arange(0.0, 4.0, 1.0)?, [2, 2])?; // 0, 1 above 2, 3
    /// let y = ctx.conv_2d_direct(kernel, image, Conv2dOptions::new())?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [2.0 + 6.0 + 12.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless the kernel is contiguous, and `x` has the kernel's inputs and is
    /// not smaller; [`Error::DType`](crate::Error::DType) unless the kernel is `f32` or `f16` and `x` `f32`;
    /// [`Error::Param`](crate::Error::Param) unless strides and dilations are positive and paddings lie in 0 to 2³⁰ -
    /// 1.
    #[doc(alias = "ggml_conv_2d_direct")]
    pub fn conv_2d_direct<'c>(&'c self, kernel: Tensor<'c>, x: Tensor<'c>, how: Conv2dOptions) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("conv_2d_direct"), operands: &[kernel, x] };
        floats(call, kernel, x)?;
        let ([_, _, inputs, outputs], [_, _, depth, batch]) = (kernel.ne(), x.ne());
        call.shape(inputs == depth, "the third dimensions (inputs) of kernel and image must be equal")?;
        call.shape(kernel.is_contiguous(), "the kernel must be contiguous; use `cont`")?;
        let [w, h] = how.outputs(call, x.ne(), kernel.ne())?;
        call.result([w, h, outputs, batch], DType::F32)?;
        let Conv2dOptions { stride: [s0, s1], padding: [p0, p1], dilation: [d0, d1] } = how;
        build!(self, sys::ggml_conv_2d_direct(kernel, x; s0, s1, p0, p1, d0, d1))
    }

    /// [`Context::conv_2d_dw`] as one operation (`ggml_conv_2d_dw_direct`): `kernel` of ggml shape `[width, height, 1,
    /// channels]` over `x` of `[width, height, channels, batch]`; the result is `[width, height, channels, batch]`.
    ///
    /// Both may also have their channels innermost in memory: a permuted kernel `[channels, 1, width, height]` and a
    /// permuted image `[channels, width, height, batch]`. The result then has the image's layout.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `x` has the kernel's channels, is not smaller than it, and both
    /// have one of these two layouts; else as [`Context::conv_2d_direct`].
    #[doc(alias = "ggml_conv_2d_dw_direct")]
    pub fn conv_2d_dw_direct<'c>(
        &'c self,
        kernel: Tensor<'c>,
        x: Tensor<'c>,
        how: Conv2dOptions,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("conv_2d_dw_direct"), operands: &[kernel, x] };
        floats(call, kernel, x)?;
        let ([_, _, one, of_kernel], [_, _, channels, batch]) = (kernel.ne(), x.ne());
        let fits = one == 1 && of_kernel == channels;
        call.shape(fits, "the kernel must be [width, height, 1, channels], with the image's channels")?;
        // C checks only some strides and assumes the others. An image of one column may match both layouts: C then
        // allocates the result in one layout, and fills it in the other.
        let plain = x.layout().is_packed() && kernel.is_contiguous();
        let channels_first = channels_innermost(x) && kernel.layout().is_packed_in_order([3, 2, 0, 1]);
        call.shape(
            plain || channels_first,
            "both operands must have the strides of new tensors, or both have their channels innermost (several, in \
             images of several columns)",
        )?;
        let [w, h] = how.outputs(call, x.ne(), kernel.ne())?;
        call.result([w, h, channels, batch], DType::F32)?;
        let Conv2dOptions { stride: [s0, s1], padding: [p0, p1], dilation: [d0, d1] } = how;
        build!(self, sys::ggml_conv_2d_dw_direct(kernel, x; s0, s1, p0, p1, d0, d1))
    }

    /// [`Context::conv_3d`] as one operation (`ggml_conv_3d_direct`): `kernel` of ggml shape `[width, height, depth,
    /// inputs · outputs]` over `x` of `[width, height, depth, inputs · batch]`; the result is `[width, height, depth,
    /// outputs · batch]`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless the kernel is contiguous, `x` not smaller than it, and `inputs`
    /// divides the last dimensions; [`Error::Param`](crate::Error::Param) unless `inputs` is positive; else as
    /// [`Context::conv_2d_direct`].
    #[doc(alias = "ggml_conv_3d_direct")]
    pub fn conv_3d_direct<'c>(
        &'c self,
        kernel: Tensor<'c>,
        x: Tensor<'c>,
        inputs: i32,
        how: Conv3dOptions,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("conv_3d_direct"), operands: &[kernel, x] };
        floats(call, kernel, x)?;
        call.shape(kernel.is_contiguous(), "the kernel must be contiguous; use `cont`")?;
        let [outputs, batch] = [outputs_of(call, kernel, inputs)?, images_of(call, x, inputs)?];
        let [w, h, d] = how.outputs(call, x.ne(), kernel.ne())?;
        call.result([w, h, d, i64::from(outputs) * i64::from(batch)], DType::F32)?;
        let Conv3dOptions { stride: [s0, s1, s2], padding: [p0, p1, p2], dilation: [d0, d1, d2] } = how;
        build!(self, sys::ggml_conv_3d_direct(kernel, x; s0, s1, s2, p0, p1, p2, d0, d1, d2, inputs, batch, outputs))
    }
}

/// Whether C recognises that an image has its channels innermost.
fn channels_innermost(x: Tensor<'_>) -> bool {
    let [w, _, channels, _] = x.ne();
    w > 1 && channels > 1 && x.layout().is_packed_in_order([2, 0, 1, 3])
}
