//! Convolutions.

mod columns;
mod direct;
mod product;
mod transposed;

use super::check::Call;
use crate::dtype::DType;
use crate::error::Result;
use crate::options::options;
use crate::tensor::Tensor;

options! {
    /// The options of a convolution. Each has a value per dimension, the innermost first: `[horizontal]`, `[horizontal,
    /// vertical]` or `[horizontal, vertical, depth]`.
    ///
    /// ```
    /// use ggml::{Conv2d, prelude::*};
    /// let ctx = Context::new();
    /// let kernel = ctx.input("kernel", DType::F16, [3, 3, 1, 4])?;
    /// let image = ctx.input("image", DType::F32, [8, 6, 1])?;
    /// assert_eq!(ctx.conv_2d(kernel, image, Conv2d::half(kernel))?.ne(), [8, 6, 4, 1]);
    /// assert_eq!(ctx.conv_2d(kernel, image, Conv2d::new().with_stride([1, 2]))?.ne(), [6, 2, 4, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Conv<const N: usize> {
        /// Stride 1, no padding, dilation 1.
        new();
        /// Sets the distance between neighbouring outputs, in elements of the input.
        with_stride(stride: [i32; N] = [1; N]);
        /// Sets the number of zeros added on each side of the input.
        with_padding(padding: [i32; N] = [0; N]);
        /// Sets the distance between neighbouring elements of the kernel, in elements of the input.
        with_dilation(dilation: [i32; N] = [1; N]);
    }
}

/// The options of a 1-d convolution.
pub type Conv1d = Conv<1>;
/// The options of a 2-d convolution.
pub type Conv2d = Conv<2>;
/// The options of a 3-d convolution.
pub type Conv3d = Conv<3>;

impl<const N: usize> Conv<N> {
    /// Stride 1, dilation 1, and padding of half the kernel's size, so that a kernel of odd size keeps the size of the
    /// input (as `ggml_conv_2d_s1_ph`, `ggml_conv_1d_ph`).
    #[doc(alias = "ggml_conv_1d_ph")]
    #[doc(alias = "ggml_conv_1d_dw_ph")]
    #[doc(alias = "ggml_conv_2d_s1_ph")]
    pub fn half(kernel: Tensor<'_>) -> Self {
        Self::new().with_padding(first(kernel.ne().map(|n| n / 2)))
    }

    /// The kernel's size as stride and no padding, so that outputs come from adjacent patches that don't overlap (as
    /// `ggml_conv_2d_sk_p0`).
    #[doc(alias = "ggml_conv_2d_sk_p0")]
    pub fn patches(kernel: Tensor<'_>) -> Self {
        Self::new().with_stride(first(kernel.ne()))
    }

    /// The output sizes in the first `N` dimensions of `input`, which the kernel moves over.
    fn outputs(self, call: Call<'_, '_>, input: [i64; 4], kernel: [i64; 4]) -> Result<[i64; N]> {
        let Self { stride: s, padding: p, dilation: d } = self;
        call.param(s.iter().all(|&s| s > 0), "stride", s, "each must be positive")?;
        call.param(d.iter().all(|&d| d > 0), "dilation", d, "each must be positive")?;
        // C computes twice the padding in 32 bits.
        call.param(p.iter().all(|p| (0..1 << 30).contains(p)), "padding", p, "each must lie in 0 to 2^30 - 1")?;
        let mut outputs = [0; N];
        for (axis, (output, (input, kernel))) in outputs.iter_mut().zip(input.into_iter().zip(kernel)).enumerate() {
            *output = self.output(axis, input, kernel).unwrap_or(0);
        }
        call.shape(outputs.iter().all(|&n| n > 0), "the padded image is smaller than the kernel")?;
        Ok(outputs)
    }

    /// The output size in one dimension, or `None` if the kernel doesn't fit.
    fn output(self, axis: usize, input: i64, kernel: i64) -> Option<i64> {
        let (s, p, d) = (self.stride.get(axis)?, self.padding.get(axis)?, self.dilation.get(axis)?);
        let reach = i64::from(*d).checked_mul(kernel - 1)?.checked_add(1)?;
        let room = input.checked_add(2 * i64::from(*p))?.checked_sub(reach)?;
        if room < 0 { None } else { Some(room / i64::from(*s) + 1) }
    }
}

/// The first of these numbers, as far as C's parameters can hold them.
fn first<const N: usize>(numbers: [i64; 4]) -> [i32; N] {
    let mut held = [i32::MAX; N];
    for (held, n) in held.iter_mut().zip(numbers) {
        *held = i32::try_from(n).unwrap_or(i32::MAX);
    }
    held
}

/// The numbers of outputs and images in 3-d, which kernel and image hold in the last dimension, times `inputs`.
fn volumes(call: Call<'_, '_>, kernel: Tensor<'_>, x: Tensor<'_>, inputs: i32) -> Result<[i32; 2]> {
    call.param(inputs > 0, "inputs", inputs, "it must be positive")?;
    let ([.., of_kernel], [.., of_image]) = (kernel.ne(), x.ne());
    let n = i64::from(inputs);
    let whole = of_kernel % n == 0 && of_image % n == 0;
    call.shape(whole, "the last dimensions of kernel and image must be multiples of the number of inputs")?;
    // C keeps the quotients in 32 bits.
    let [outputs, batch] = [of_kernel / n, of_image / n].map(|n| i32::try_from(n).unwrap_or(0));
    call.shape(outputs > 0 && batch > 0, "there must be less than 2^31 outputs and images")?;
    Ok([outputs, batch])
}

/// Checks the types that the direct kernels take.
fn floats(call: Call<'_, '_>, kernel: Tensor<'_>, x: Tensor<'_>) -> Result<()> {
    let types = matches!(kernel.dtype(), DType::F32 | DType::F16) && x.dtype() == DType::F32;
    call.dtype(types, "the kernel must be f32 or f16, the image (second) f32")
}
