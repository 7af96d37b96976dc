//! Convolutions.

use ggml_sys as sys;

use super::check::Call;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// How a 2-d convolution moves over its input; both values of a pair are `[horizontal, vertical]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conv2d {
    /// Steps between neighbouring outputs.
    pub stride: [i32; 2],
    /// Zeros added on each side of the input.
    pub padding: [i32; 2],
    /// Steps between neighbouring elements of the kernel.
    pub dilation: [i32; 2],
}

impl Default for Conv2d {
    /// Stride 1, no padding, dilation 1.
    fn default() -> Self {
        Self { stride: [1; 2], padding: [0; 2], dilation: [1; 2] }
    }
}

impl Conv2d {
    /// Stride 1 and dilation 1, with `n` zeros on each side.
    pub fn padded(n: i32) -> Self {
        Self { padding: [n; 2], ..Self::default() }
    }

    /// The length of an output dimension, if there is one.
    fn output(self, axis: usize, input: i64, kernel: i64) -> Option<i64> {
        let (s, p, d) = (self.stride.get(axis)?, self.padding.get(axis)?, self.dilation.get(axis)?);
        let reach = i64::from(*d).checked_mul(kernel - 1)?.checked_add(1)?;
        let room = input.checked_add(2 * i64::from(*p))?.checked_sub(reach)?;
        if room < 0 { None } else { Some(room / i64::from(*s) + 1) }
    }
}

impl Context {
    /// A 2-d convolution (as `ggml_conv_2d`): `kernel` of ggml shape `[width, height, inputs, outputs]` over `x` of
    /// `[width, height, inputs, batch]`; the result is `[width, height, outputs, batch]`.
    ///
    /// It is made of [`Context::im2col`], [`Context::mul_mat`] and a copy. `ggml_conv_2d` itself rounds the input of an
    /// `f32` kernel to 16 bits; this does not.
    ///
    /// # Errors
    ///
    /// As [`Context::im2col`]; [`Error::Shape`](crate::Error::Shape) unless the kernel is contiguous.
    #[doc(alias = "ggml_conv_2d")]
    pub fn conv_2d<'c>(&'c self, kernel: Tensor<'c>, x: Tensor<'c>, how: Conv2d) -> Result<Tensor<'c>> {
        let call = Call { op: "conv_2d", operands: &[kernel, x] };
        call.shape(kernel.is_contiguous(), "the kernel must be contiguous")?;
        let columns =
            self.im2col(kernel, x, how, if kernel.dtype() == DType::F16 { DType::F16 } else { DType::F32 })?;
        let ([k, w, h, n], [kw, kh, inputs, outputs]) = (columns.ne(), kernel.ne());
        let columns = self.reshape(columns, [k, w * h * n])?;
        let product = self.mul_mat(columns, self.reshape(kernel, [kw * kh * inputs, outputs])?)?;
        let by_output = self.reshape(product, [w, h, n, outputs])?;
        self.cont(self.permute(by_output, [0, 1, 3, 2])?)
    }

    /// The parts of an image that a convolution's kernel sees, one after the other as rows (`ggml_im2col`): the result is
    /// `[kernel width · height · inputs, output width, output height, batch]` in `dtype`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `x` is as deep as the kernel, not smaller than it, and each of its
    /// planes is contiguous; [`Error::DType`](crate::Error::DType) unless `dtype` is `f16`, or `f32` with an `x` of
    /// `f32`; [`Error::Param`](crate::Error::Param) unless strides and dilations are positive and paddings lie in 0 to 2³⁰ - 1.
    #[doc(alias = "ggml_im2col")]
    pub fn im2col<'c>(&'c self, kernel: Tensor<'c>, x: Tensor<'c>, how: Conv2d, dtype: DType) -> Result<Tensor<'c>> {
        let call = Call { op: "im2col", operands: &[kernel, x] };
        let Conv2d { stride: s, padding: p, dilation: d } = how;
        call.param(s.iter().all(|&s| s > 0), "stride", s, "both must be positive")?;
        call.param(d.iter().all(|&d| d > 0), "dilation", d, "both must be positive")?;
        // C doubles it in 32 bits.
        call.param(p.iter().all(|p| (0..1 << 30).contains(p)), "padding", p, "both must lie in 0 to 2^30 - 1")?;
        let types = matches!((dtype, x.dtype()), (DType::F32 | DType::F16, DType::F32) | (DType::F16, DType::F16));
        call.dtype(types, "the image must be f32, or f16 for a result of f16; the result f32 or f16")?;
        let ([kw, kh, inputs, _], [w, h, depth, n]) = (kernel.ne(), x.ne());
        call.shape(inputs == depth, "the image (second) must be as deep as the kernel (third dimensions)")?;
        let (ow, oh) = (how.output(0, w, kw).unwrap_or(0), how.output(1, h, kh).unwrap_or(0));
        call.shape(ow > 0 && oh > 0, "the padded image is smaller than the kernel")?;
        call.result([kw * kh * inputs, ow, oh, n], dtype)?;
        // The kernel finds pixels at y * width + x, and keeps the upper strides in 32 bits.
        let [nb0, nb1, nb2, nb3] = x.nb();
        let plane = nb0 == x.dtype().type_size() && usize::try_from(w).is_ok_and(|w| nb1 == w * nb0);
        call.shape(plane, "each plane of the image must be contiguous; use `cont`")?;
        let near = [nb2, nb3].iter().all(|&nb| i32::try_from(nb).is_ok());
        call.shape(near, "the image's planes and batches must be less than 2 GiB apart")?;
        self.build("ggml_im2col", &[kernel, x], |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above, with
            // which the output dimensions are positive. The result keeps both as sources.
            unsafe {
                sys::ggml_im2col(c, kernel.as_ptr(), x.as_ptr(), s[0], s[1], p[0], p[1], d[0], d[1], true, dtype.raw())
            }
        })
    }
}
