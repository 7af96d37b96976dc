//! Convolutions.

mod columns;
mod direct;
mod product;
mod transposed;

use crate::op::ConvOptions;
use crate::ops::prelude::*;

impl<const N: usize> ConvOptions<N> {
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

    /// The output sizes in the first `N` dimensions of `input`, over which the kernel moves.
    fn outputs(self, call: Call<'_, '_>, input: [i64; 4], kernel: [i64; 4]) -> Result<[i64; N]> {
        let Self { stride: s, padding: p, dilation: d } = self;
        call.param(s.iter().all(|&s| s > 0), "stride", s, "each must be positive")?;
        call.param(d.iter().all(|&d| d > 0), "dilation", d, "each must be positive")?;
        // C computes twice the padding in 32 bits, so the padding must be less than 2^30.
        call.param(p.iter().all(|p| (0..1 << 30).contains(p)), "padding", p, "each must lie in 0 to 2^30 - 1")?;
        let mut outputs = [0; N];
        for (axis, (output, (input, kernel))) in outputs.iter_mut().zip(input.into_iter().zip(kernel)).enumerate() {
            *output = self.output(axis, input, kernel).unwrap_or(0);
        }
        call.shape(outputs.iter().all(|&n| n > 0), "the padded image is smaller than the kernel")?;
        Ok(outputs)
    }

    /// The output size in dimension `axis`, or `None` if the kernel doesn't fit into the input.
    fn output(self, axis: usize, input: i64, kernel: i64) -> Option<i64> {
        let (s, p, d) = (self.stride.get(axis)?, self.padding.get(axis)?, self.dilation.get(axis)?);
        let reach = i64::from(*d).checked_mul(kernel - 1)?.checked_add(1)?;
        let room = input.checked_add(2 * i64::from(*p))?.checked_sub(reach)?;
        if room < 0 { None } else { Some(room / i64::from(*s) + 1) }
    }
}

/// The first `N` of these numbers, each limited to what C's parameters can hold.
fn first<const N: usize>(numbers: [i64; 4]) -> [i32; N] {
    let mut held = [i32::MAX; N];
    for (held, n) in held.iter_mut().zip(numbers) {
        *held = i32::try_from(n).unwrap_or(i32::MAX);
    }
    held
}

/// The number of outputs of a 3-d kernel. Times `inputs`, this is the kernel's last dimension.
fn outputs_of(call: Call<'_, '_>, kernel: Tensor<'_>, inputs: i32) -> Result<i32> {
    quotient(call, kernel, inputs, "the kernel's last dimension must be a multiple of the number of inputs")
}

/// The number of images in a 3-d convolution. Times `inputs`, this is the last dimension of `x`.
fn images_of(call: Call<'_, '_>, x: Tensor<'_>, inputs: i32) -> Result<i32> {
    quotient(call, x, inputs, "the image's last dimension must be a multiple of the number of inputs")
}

fn quotient(call: Call<'_, '_>, t: Tensor<'_>, inputs: i32, must: &'static str) -> Result<i32> {
    call.param(inputs > 0, "inputs", inputs, "it must be positive")?;
    let ([.., last], n) = (t.ne(), i64::from(inputs));
    call.shape(last % n == 0, must)?;
    // C's direct kernel keeps the number of outputs, and that of images, in 32 bits.
    let quotient = i32::try_from(last / n).unwrap_or(0);
    call.shape(quotient > 0, "there must be less than 2^31 outputs and images")?;
    Ok(quotient)
}

/// Checks that kernel and image have types that the direct convolutions take.
fn floats(call: Call<'_, '_>, kernel: Tensor<'_>, x: Tensor<'_>) -> Result<()> {
    let types = matches!(kernel.dtype(), DType::F32 | DType::F16) && x.dtype() == DType::F32;
    call.dtype(types, "the kernel must be f32 or f16, the image (second) f32")
}
