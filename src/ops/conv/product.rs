//! Convolutions as matrix products: of the input's columns (`im2col`) and the kernel.
//!
//! ggml's own functions are not used: they round the input of an `f32` kernel to 16 bits, and `ggml_conv_1d` mixes up
//! outputs and batch where there are several of both.

use super::{images_of, outputs_of};
use crate::op::{Conv1dOptions, Conv2dOptions, Conv3dOptions};
use crate::ops::prelude::*;

impl Context {
    /// A 1-d convolution (as `ggml_conv_1d`): `kernel` of ggml shape `[length, inputs, outputs]` over `x` of `[length,
    /// inputs, batch]`; the result is `[length, outputs, batch]`.
    ///
    /// It consists of [`Context::im2col_1d`] and [`Context::mul_mat`], and of a copy for a batch above 1.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::Conv1dOptions;
    /// # let ctx = Context::new();
    /// let kernel = ctx.reshape(ctx.arange(1.0, 3.0, 1.0)?, [2, 1, 1])?; // 1, 2
    /// let signal = ctx.arange(0.0, 4.0, 1.0)?;
    /// let y = ctx.conv_1d(kernel, signal, Conv1dOptions::new())?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [2.0, 5.0, 8.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::im2col_1d`]; [`Error::Shape`](crate::Error::Shape) unless the kernel is contiguous and 3-d at most.
    #[doc(alias = "ggml_conv_1d")]
    pub fn conv_1d<'c>(&'c self, kernel: Tensor<'c>, x: Tensor<'c>, how: Conv1dOptions) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("conv_1d"), operands: &[kernel, x] };
        let [_, _, outputs, last] = kernel.ne();
        whole(call, kernel)?;
        call.shape(last == 1, "the kernel must have three dimensions at most")?;
        let columns = self.im2col_1d(kernel, x, how, columns_of(kernel))?;
        let [_, w, batch, _] = columns.ne();
        let product = self.columns_times(kernel, columns, outputs, batch)?;
        self.reshape(product, [w, outputs, batch])
    }

    /// A 2-d convolution (as `ggml_conv_2d`): `kernel` of ggml shape `[width, height, inputs, outputs]` over `x` of
    /// `[width, height, inputs, batch]`; the result is `[width, height, outputs, batch]`.
    ///
    /// It consists of [`Context::im2col`] and [`Context::mul_mat`], and of a copy for a batch above 1.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::Conv2dOptions;
    /// # let ctx = Context::new();
    /// let kernel = ctx.input("kernel", DType::F16, [3, 3, 3, 16])?; // 3 colours to 16 channels
    /// let images = ctx.input("images", DType::F32, [32, 32, 3, 8])?;
    /// let same = Conv2dOptions::half(kernel); // padded, so that the size stays
    /// assert_eq!(ctx.conv_2d(kernel, images, same)?.ne(), [32, 32, 16, 8]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::im2col`]; [`Error::Shape`](crate::Error::Shape) unless the kernel is contiguous.
    #[doc(alias = "ggml_conv_2d")]
    pub fn conv_2d<'c>(&'c self, kernel: Tensor<'c>, x: Tensor<'c>, how: Conv2dOptions) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("conv_2d"), operands: &[kernel, x] };
        whole(call, kernel)?;
        let columns = self.im2col(kernel, x, how, columns_of(kernel))?;
        let ([_, w, h, batch], [.., outputs]) = (columns.ne(), kernel.ne());
        let product = self.columns_times(kernel, columns, outputs, batch)?;
        self.reshape(product, [w, h, outputs, batch])
    }

    /// A 3-d convolution (as `ggml_conv_3d`): `kernel` of ggml shape `[width, height, depth, inputs · outputs]` over `x` of
    /// `[width, height, depth, inputs · batch]`; the result is `[width, height, depth, outputs · batch]`.
    ///
    /// It consists of [`Context::im2col_3d`] and [`Context::mul_mat`], and of a copy for a batch above 1.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::Conv3dOptions;
    /// # let ctx = Context::new();
    /// let kernel = ctx.input("kernel", DType::F16, [3, 3, 3, 3 * 16])?; // 3 inputs, 16 outputs
    /// let film = ctx.input("film", DType::F32, [32, 32, 9, 3])?;
    /// assert_eq!(ctx.conv_3d(kernel, film, 3, Conv3dOptions::new())?.ne(), [30, 30, 7, 16]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::im2col_3d`]; [`Error::Shape`](crate::Error::Shape) unless the kernel is contiguous, and `inputs` divides
    /// its last dimension, too.
    #[doc(alias = "ggml_conv_3d")]
    pub fn conv_3d<'c>(
        &'c self,
        kernel: Tensor<'c>,
        x: Tensor<'c>,
        inputs: i32,
        how: Conv3dOptions,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("conv_3d"), operands: &[kernel, x] };
        whole(call, kernel)?;
        let [outputs, batch] = [outputs_of(call, kernel, inputs)?, images_of(call, x, inputs)?].map(i64::from);
        let columns = self.im2col_3d(kernel, x, inputs, how, columns_of(kernel))?;
        let [_, w, h, slices] = columns.ne();
        let product = self.columns_times(kernel, columns, outputs, batch)?;
        self.reshape(product, [w, h, slices / batch, outputs * batch])
    }

    /// A 1-d convolution of each channel with a kernel of its own (as `ggml_conv_1d_dw`): `kernel` of ggml shape
    /// `[length, 1, channels]` over `x` of `[length, channels, batch]`; the result is `[length, channels, batch]`.
    ///
    /// It consists of [`Context::im2col_1d`] and [`Context::mul_mat`]. Unlike `ggml_conv_1d_dw`, it supports batches.
    ///
    /// # Errors
    ///
    /// As [`Context::im2col_1d`]; [`Error::Shape`](crate::Error::Shape) unless both operands are contiguous and have
    /// the same number of channels.
    #[doc(alias = "ggml_conv_1d_dw")]
    pub fn conv_1d_dw<'c>(&'c self, kernel: Tensor<'c>, x: Tensor<'c>, how: Conv1dOptions) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("conv_1d_dw"), operands: &[kernel, x] };
        let ([_, one, of_kernel, last], [w, channels, batch, n3]) = (kernel.ne(), x.ne());
        let fits = one == 1 && of_kernel == channels && last == 1 && n3 == 1;
        call.shape(fits, "the kernel must be [length, 1, channels], the image [length, channels, batch]")?;
        whole(call, kernel)?;
        call.shape(x.is_contiguous(), "the image must be contiguous; use `cont`")?;
        let planes = self.reshape(x, [w, 1, channels * batch])?;
        let columns = self.im2col_1d(kernel, planes, how, columns_of(kernel))?;
        let [_, w, ..] = columns.ne();
        let product = self.columns_of_each(kernel, columns, [w, channels, batch])?;
        self.reshape(product, [w, channels, batch])
    }

    /// A 2-d convolution of each channel with a kernel of its own (as `ggml_conv_2d_dw`): `kernel` of ggml shape `[width,
    /// height, 1, channels]` over `x` of `[width, height, channels, batch]`; the result is `[width, height, channels,
    /// batch]`.
    ///
    /// It consists of [`Context::im2col`] and [`Context::mul_mat`]; [`Context::conv_2d_dw_direct`] needs less memory.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::Conv2dOptions;
    /// # let ctx = Context::new();
    /// let kernel = ctx.input("kernel", DType::F16, [3, 3, 1, 16])?; // one for each channel
    /// let image = ctx.input("image", DType::F32, [32, 32, 16])?;
    /// assert_eq!(ctx.conv_2d_dw(kernel, image, Conv2dOptions::half(kernel))?.ne(), [32, 32, 16, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::im2col`]; [`Error::Shape`](crate::Error::Shape) unless both operands are contiguous and have the
    /// same number of channels.
    #[doc(alias = "ggml_conv_2d_dw")]
    pub fn conv_2d_dw<'c>(&'c self, kernel: Tensor<'c>, x: Tensor<'c>, how: Conv2dOptions) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("conv_2d_dw"), operands: &[kernel, x] };
        let ([_, _, one, of_kernel], [w, h, channels, batch]) = (kernel.ne(), x.ne());
        let fits = one == 1 && of_kernel == channels;
        call.shape(fits, "the kernel must be [width, height, 1, channels], with the image's channels")?;
        whole(call, kernel)?;
        call.shape(x.is_contiguous(), "the image must be contiguous; use `cont`")?;
        let planes = self.reshape(x, [w, h, 1, channels * batch])?;
        let columns = self.im2col(kernel, planes, how, columns_of(kernel))?;
        let [_, w, h, _] = columns.ne();
        let product = self.columns_of_each(kernel, columns, [w * h, channels, batch])?;
        self.reshape(product, [w, h, channels, batch])
    }

    /// The contiguous product of columns and kernel, of the shape `[positions, outputs, batch]`.
    fn columns_times<'c>(
        &'c self,
        kernel: Tensor<'c>,
        columns: Tensor<'c>,
        outputs: i64,
        batch: i64,
    ) -> Result<Tensor<'c>> {
        let [k, n1, n2, n3] = columns.ne();
        let rows = n1 * n2 * n3;
        let product = self.mul_mat(self.reshape(columns, [k, rows])?, self.reshape(kernel, [k, outputs])?)?;
        if batch == 1 {
            return Ok(product);
        }
        let by_output = self.reshape(product, [rows / batch, batch, outputs])?;
        self.cont(self.permute(by_output, [0, 2, 1, 3])?)
    }

    /// The contiguous product of each channel's columns and its own kernel, of the shape `[positions, channels,
    /// batch]`.
    fn columns_of_each<'c>(
        &'c self,
        kernel: Tensor<'c>,
        columns: Tensor<'c>,
        [places, channels, batch]: [i64; 3],
    ) -> Result<Tensor<'c>> {
        let [k, ..] = columns.ne();
        let columns = self.reshape(columns, [k, places, channels, batch])?;
        self.mul_mat(self.reshape(kernel, [k, 1, channels])?, columns)
    }
}

fn whole(call: Call<'_, '_>, kernel: Tensor<'_>) -> Result<()> {
    call.shape(kernel.is_contiguous(), "the kernel must be contiguous; use `cont`")
}

/// The element type that the columns for a kernel have.
fn columns_of(kernel: Tensor<'_>) -> DType {
    if kernel.dtype() == DType::F16 { DType::F16 } else { DType::F32 }
}
