//! `im2col` (the patches of an image as rows of a matrix), its gradient, and `col2im`.

use ggml_sys as sys;

use super::images_of;
use crate::dtype::CType as _;
use crate::op::{Conv1dOptions, Conv2dOptions, Conv3dOptions};
use crate::ops::prelude::*;
use crate::shape::{CShape as _, Shape};

impl Context {
    /// The patches of an image that a convolution's kernel sees, as rows (`ggml_im2col`). The result is `[kernel width
    /// · height · inputs, output width, output height, batch]`, of `dtype`.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::Conv2dOptions;
    /// # let ctx = Context::new();
    /// let kernel = ctx.input("kernel", DType::F32, [2, 2, 1, 1])?;
    /// let image = ctx.reshape(ctx.arange(0.0, 9.0, 1.0)?, [3, 3])?;
    /// let patches = ctx.im2col(kernel, image, Conv2dOptions::new(), DType::F32)?;
    /// # let (graph, mut sched) = (ctx.graph([patches])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?;
    /// # run.set_at(kernel, 0, &[0.0_f32])?;
    /// # run.compute()?;
    /// assert_eq!(patches.ne(), [4, 2, 2, 1]); // 4 pixels in each of 2 times 2 patches
    /// assert_eq!(run.get::<f32>(patches)?[..4], [0.0, 1.0, 3.0, 4.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `x` has the kernel's inputs, is not smaller, and has contiguous
    /// planes; [`Error::DType`](crate::Error::DType) unless `dtype` is `f16`, or `f32` with an `x` of `f32`;
    /// [`Error::Param`](crate::Error::Param) unless strides and dilations are positive and paddings lie in 0 to 2³⁰ -
    /// 1.
    #[doc(alias = "ggml_im2col")]
    pub fn im2col<'c>(
        &'c self,
        kernel: Tensor<'c>,
        x: Tensor<'c>,
        how: Conv2dOptions,
        dtype: DType,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("im2col"), operands: &[kernel, x] };
        types(call, x, dtype)?;
        call.result(columns_2d(call, kernel, x.ne(), how)?, dtype)?;
        // The CPU kernel finds pixel `x, y` at `y * width + x`, and keeps the upper strides in 32 bits.
        let [.., nb2, nb3] = x.nb();
        call.shape(x.layout().has_dense_planes(), "each plane of the image must be contiguous; use `cont`")?;
        near(call, [nb2, nb3])?;
        let Conv2dOptions { stride: [s0, s1], padding: [p0, p1], dilation: [d0, d1] } = how;
        build!(self, sys::ggml_im2col(kernel, x; s0, s1, p0, p1, d0, d1, true, dtype.raw()))
    }

    /// [`Context::im2col`] in one dimension (`ggml_im2col`): with `kernel` of `[length, inputs, outputs]` and `x` of
    /// `[length, inputs, batch]`, the result is `[kernel length · inputs, output length, batch]`.
    ///
    /// # Errors
    ///
    /// As [`Context::im2col`], but only the rows of `x` must be contiguous.
    #[doc(alias = "ggml_im2col")]
    pub fn im2col_1d<'c>(
        &'c self,
        kernel: Tensor<'c>,
        x: Tensor<'c>,
        how: Conv1dOptions,
        dtype: DType,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("im2col_1d"), operands: &[kernel, x] };
        types(call, x, dtype)?;
        call.result(columns_1d(call, kernel, x.ne(), how)?, dtype)?;
        let [_, nb1, nb2, _] = x.nb();
        call.shape(x.layout().has_dense_rows(), "the rows of the image must be contiguous; use `cont`")?;
        near(call, [nb1, nb2])?;
        let Conv1dOptions { stride: [s], padding: [p], dilation: [d] } = how;
        build!(self, sys::ggml_im2col(kernel, x; s, 0, p, 0, d, 0, false, dtype.raw()))
    }

    /// [`Context::im2col`] in three dimensions (`ggml_im2col_3d`): with `kernel` of `[width, height, depth, inputs ·
    /// outputs]` and `x` of `[width, height, depth, inputs · batch]`, the result is `[kernel width · height · depth ·
    /// inputs, output width, output height, output depth · batch]`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `x` is not smaller than the kernel, and `inputs` divides the last
    /// dimension of `x` (the kernel's last dimension isn't read); [`Error::DType`](crate::Error::DType) unless `x` is
    /// `f32` and `dtype` `f32` or `f16`; [`Error::Param`](crate::Error::Param) unless `inputs`, strides and dilations
    /// are positive and paddings lie in 0 to 2³⁰ - 1.
    #[doc(alias = "ggml_im2col_3d")]
    pub fn im2col_3d<'c>(
        &'c self,
        kernel: Tensor<'c>,
        x: Tensor<'c>,
        inputs: i32,
        how: Conv3dOptions,
        dtype: DType,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("im2col_3d"), operands: &[kernel, x] };
        let types = x.dtype() == DType::F32 && matches!(dtype, DType::F32 | DType::F16);
        call.dtype(types, "the image must be f32, the result f32 or f16")?;
        let batch = images_of(call, x, inputs)?;
        let [w, h, d] = how.outputs(call, x.ne(), kernel.ne())?;
        let ([kw, kh, kd, _], inputs) = (kernel.ne(), i64::from(inputs));
        // The kernel's last dimension isn't read, so it may be less than `inputs`. Then this product may overflow.
        let column = (kw * kh * kd).saturating_mul(inputs);
        call.result([column, w, h, d.saturating_mul(batch.into())], dtype)?;
        let Conv3dOptions { stride: [s0, s1, s2], padding: [p0, p1, p2], dilation: [d0, d1, d2] } = how;
        build!(self, sys::ggml_im2col_3d(kernel, x; inputs, s0, s1, s2, p0, p1, p2, d0, d1, d2, dtype.raw()))
    }

    /// The gradient of [`Context::im2col`] with respect to an image of `shape`, from that of the columns, `grad`
    /// (`ggml_im2col_back`). Each pixel gets the sum over all columns that contain it.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `grad` is contiguous and has the shape of the columns of such an
    /// image with `kernel`; [`Error::DType`](crate::Error::DType) unless it is `f32`; otherwise as [`Context::im2col`].
    #[doc(alias = "ggml_im2col_back")]
    pub fn im2col_back<'c>(
        &'c self,
        grad: Tensor<'c>,
        kernel: Tensor<'c>,
        shape: impl Into<Shape>,
        how: Conv2dOptions,
    ) -> Result<Tensor<'c>> {
        let (call, ne) = (Call { op: entered!("im2col_back"), operands: &[grad, kernel] }, shape.into().ne());
        gradient(call, grad, ne)?;
        self.image_gradient(call, [grad, kernel], ne, columns_2d(call, kernel, ne, how)?, how, true)
    }

    /// [`Context::im2col_back`] in one dimension: the gradient of [`Context::im2col_1d`] (`ggml_im2col_back`).
    ///
    /// # Errors
    ///
    /// As [`Context::im2col_back`].
    #[doc(alias = "ggml_im2col_back")]
    pub fn im2col_1d_back<'c>(
        &'c self,
        grad: Tensor<'c>,
        kernel: Tensor<'c>,
        shape: impl Into<Shape>,
        how: Conv1dOptions,
    ) -> Result<Tensor<'c>> {
        let (call, ne) = (Call { op: entered!("im2col_1d_back"), operands: &[grad, kernel] }, shape.into().ne());
        gradient(call, grad, ne)?;
        let columns = columns_1d(call, kernel, ne, how)?;
        let Conv1dOptions { stride: [s], padding: [p], dilation: [d] } = how;
        let how = Conv2dOptions { stride: [s, 0], padding: [p, 0], dilation: [d, 0] };
        self.image_gradient(call, [grad, kernel], ne, columns, how, false)
    }

    /// The gradient of an image whose patches are `columns`. Without `two`, there is one dimension, and C ignores the
    /// options of the second.
    fn image_gradient<'c>(
        &'c self,
        call: Call<'_, 'c>,
        [grad, kernel]: [Tensor<'c>; 2],
        mut image: [i64; 4],
        columns: [i64; 4],
        how: Conv2dOptions,
        two: bool,
    ) -> Result<Tensor<'c>> {
        call.shape(grad.ne() == columns, "the gradient must have the shape of the columns of an image of this shape")?;
        let Conv2dOptions { stride: [s0, s1], padding: [p0, p1], dilation: [d0, d1] } = how;
        self.build("ggml_im2col_back", call.operands, |c| {
            let (grad, kernel, ne) = (grad.as_ptr(), kernel.as_ptr(), image.as_mut_ptr());
            // SAFETY: the context and the operands are live, as for `build!`; `ne` is four positive numbers, which C
            // copies; `grad` has the shape of the columns (checked above, H12).
            unsafe { sys::ggml_im2col_back(c, grad, kernel, ne, s0, s1, p0, p1, d0, d1, two) }
        })
    }

    /// Sums columns into a signal (`ggml_col2im_1d`), the last step of a transposed convolution. `a` is `[length ·
    /// outputs, columns]`; element `k` of an output in column `i` is added to element `i · stride + k - padding` of
    /// that output. The result is `[(columns - 1) · stride + length - 2 · padding, outputs]`, of the type of `a`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let columns = ctx.reshape(ctx.arange(1.0, 7.0, 1.0)?, [3, 2])?; // 1, 2, 3 and 4, 5, 6
    /// let signal = ctx.col2im_1d(columns, 1, 2, 0)?; // the second begins 2 elements later
    /// # let (graph, mut sched) = (ctx.graph([signal])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(signal)?, [1.0, 2.0, 3.0 + 4.0, 5.0, 6.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `a` is a contiguous matrix with rows of whole `outputs`, and the
    /// result not empty; [`Error::DType`](crate::Error::DType) unless it is `f32`, `f16` or `bf16`;
    /// [`Error::Param`](crate::Error::Param) unless `outputs` and `stride` are positive and `padding` lies in 0 to 2³⁰
    /// - 1.
    #[doc(alias = "ggml_col2im_1d")]
    pub fn col2im_1d<'c>(&'c self, a: Tensor<'c>, outputs: i32, stride: i32, padding: i32) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("col2im_1d"), operands: &[a] };
        call.dtype(a.dtype().is_float(), "the operand must be f32, f16 or bf16")?;
        call.param(outputs > 0, "outputs", outputs, "it must be positive")?;
        call.param(stride > 0, "stride", stride, "it must be positive")?;
        // C computes twice the padding in 32 bits, so the padding must be less than 2^30.
        call.param((0..1 << 30).contains(&padding), "padding", padding, "it must lie in 0 to 2^30 - 1")?;
        let [rows, columns, n2, n3] = a.ne();
        call.shape(a.is_contiguous() && n2 == 1 && n3 == 1, "the operand must be a contiguous matrix")?;
        call.shape(rows % i64::from(outputs) == 0, "the number of outputs must divide the first dimension")?;
        let steps = (columns - 1).saturating_mul(stride.into());
        let length = steps.saturating_add(rows / i64::from(outputs) - 2 * i64::from(padding));
        call.shape(length > 0, "the result would be empty; use less padding")?;
        call.result([length, outputs.into(), 1, 1], a.dtype())?;
        build!(self, sys::ggml_col2im_1d(a; stride, outputs, padding))
    }
}

fn types(call: Call<'_, '_>, x: Tensor<'_>, dtype: DType) -> Result<()> {
    let types = matches!((dtype, x.dtype()), (DType::F32 | DType::F16, DType::F32) | (DType::F16, DType::F16));
    call.dtype(types, "the image must be f32, or f16 for a result of f16; the result f32 or f16")
}

fn near(call: Call<'_, '_>, strides: [usize; 2]) -> Result<()> {
    let near = strides.iter().all(|&nb| i32::try_from(nb).is_ok());
    call.shape(near, "the image's planes and batches must be less than 2 GiB apart")
}

/// Checks `grad` and the shape of the image, for the gradients of `im2col` and `im2col_1d`.
fn gradient(call: Call<'_, '_>, grad: Tensor<'_>, image: [i64; 4]) -> Result<()> {
    call.dtype(grad.dtype() == DType::F32, "the gradient must be f32")?;
    call.shape(grad.is_contiguous(), "the gradient must be contiguous; use `cont`")?;
    call.param(Shape::from(image).bytes(DType::F32).is_ok(), "shape", image, "it must be that of a tensor")
}

/// The shape of the columns of a 2-d image.
fn columns_2d(call: Call<'_, '_>, kernel: Tensor<'_>, image: [i64; 4], how: Conv2dOptions) -> Result<[i64; 4]> {
    let ([kw, kh, inputs, _], [_, _, depth, batch]) = (kernel.ne(), image);
    call.shape(inputs == depth, "the third dimensions (inputs) of kernel and image must be equal")?;
    let [w, h] = how.outputs(call, image, kernel.ne())?;
    Ok([kw * kh * inputs, w, h, batch])
}

/// The shape of the columns of a 1-d image.
fn columns_1d(call: Call<'_, '_>, kernel: Tensor<'_>, image: [i64; 4], how: Conv1dOptions) -> Result<[i64; 4]> {
    let ([k, inputs, ..], [_, depth, batch, last]) = (kernel.ne(), image);
    call.shape(
        inputs == depth && last == 1,
        "the second dimensions (inputs) of kernel and image must be equal, and the image 3-d at most",
    )?;
    let [w] = how.outputs(call, image, kernel.ne())?;
    Ok([k * inputs, w, batch, 1])
}
