//! Transposed convolutions: each element of the input adds the kernel, times itself, to the output.

use super::floats;
use crate::ops::prelude::*;

impl Context {
    /// A transposed 1-d convolution (`ggml_conv_transpose_1d`): `kernel` of ggml shape `[length, outputs, inputs]`, `x`
    /// of `[length, inputs]`; the result is `[(length - 1) · stride + kernel length, outputs]`. ggml supports neither
    /// padding nor dilation here.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let kernel = ctx.reshape(ctx.arange(1.0, 3.0, 1.0)?, [2, 1, 1])?; // 1, 2
    /// let x = ctx.reshape(ctx.arange(1.0, 3.0, 1.0)?, [2, 1])?; // 1, 2
    /// let y = ctx.conv_transpose_1d(kernel, x, 2)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [1.0, 2.0, 2.0, 4.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `x` has the kernel's inputs and both have the strides of new
    /// tensors; [`Error::DType`](crate::Error::DType) unless the kernel is `f32` or `f16` and `x` `f32`;
    /// [`Error::Param`](crate::Error::Param) unless `stride` is positive.
    #[doc(alias = "ggml_conv_transpose_1d")]
    pub fn conv_transpose_1d<'c>(&'c self, kernel: Tensor<'c>, x: Tensor<'c>, stride: i32) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("conv_transpose_1d"), operands: &[kernel, x] };
        check(call, kernel, x, stride)?;
        let ([k, outputs, inputs, last], [w, depth, n2, n3]) = (kernel.ne(), x.ne());
        let fits = inputs == depth && [last, n2, n3] == [1; 3];
        call.shape(fits, "the kernel must be [length, outputs, inputs], the image [length, inputs]")?;
        call.result([length(w, k, stride), outputs, 1, 1], DType::F32)?;
        build!(self, sys::ggml_conv_transpose_1d(kernel, x; stride, 0, 1))
    }

    /// A transposed 2-d convolution without padding (`ggml_conv_transpose_2d_p0`): `kernel` of ggml shape `[width, height,
    /// outputs, inputs]`, `x` of `[width, height, inputs, batch]`; the result is `[(width - 1) · stride + kernel width,
    /// (height - 1) · stride + kernel height, outputs, batch]`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let kernel = ctx.input("kernel", DType::F16, [2, 2, 8, 16])?; // 16 inputs, 8 outputs
    /// let x = ctx.input("x", DType::F32, [10, 10, 16])?;
    /// assert_eq!(ctx.conv_transpose_2d_p0(kernel, x, 2)?.ne(), [20, 20, 8, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::conv_transpose_1d`].
    #[doc(alias = "ggml_conv_transpose_2d_p0")]
    pub fn conv_transpose_2d_p0<'c>(&'c self, kernel: Tensor<'c>, x: Tensor<'c>, stride: i32) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("conv_transpose_2d_p0"), operands: &[kernel, x] };
        check(call, kernel, x, stride)?;
        let ([kw, kh, outputs, inputs], [w, h, depth, batch]) = (kernel.ne(), x.ne());
        call.shape(inputs == depth, "the kernel's fourth dimension must be the image's third")?;
        call.result([length(w, kw, stride), length(h, kh, stride), outputs, batch], DType::F32)?;
        build!(self, sys::ggml_conv_transpose_2d_p0(kernel, x; stride))
    }
}

fn check(call: Call<'_, '_>, kernel: Tensor<'_>, x: Tensor<'_>, stride: i32) -> Result<()> {
    floats(call, kernel, x)?;
    call.param(stride > 0, "stride", stride, "it must be positive")?;
    let packed = kernel.layout().is_packed() && x.layout().is_packed();
    call.shape(packed, "both operands must have the strides of new tensors; use `cont`")
}

/// The length of the output in one dimension. If it overflows, it saturates, and `Call::result` refuses it.
fn length(input: i64, kernel: i64, stride: i32) -> i64 {
    (input - 1).saturating_mul(stride.into()).saturating_add(kernel)
}
