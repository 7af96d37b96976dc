//! Images in another size.

use ggml_sys as sys;

use super::check::Call;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// How pixels between those of an image are found.
#[doc(alias = "ggml_scale_mode")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// The pixel that they lie in.
    #[default]
    Nearest,
    /// Linearly between the four around them.
    Bilinear,
    /// By cubic convolution of the sixteen around them, with α = -0.75.
    Bicubic,
}

/// How an image is brought to another size.
#[doc(alias = "ggml_scale_flag")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Interpolate {
    /// How pixels between those of the image are found.
    pub mode: Scale,
    /// Whether the centres of the corners' pixels stay where they are, rather than the image's borders.
    pub align_corners: bool,
    /// Whether a smaller image is made of all pixels of the larger one; for [`Scale::Bilinear`] only.
    pub antialias: bool,
}

impl Interpolate {
    /// This mode, without flags.
    pub fn by(mode: Scale) -> Self {
        Self { mode, ..Self::default() }
    }

    fn raw(self) -> u32 {
        let mode = match self.mode {
            Scale::Nearest => sys::GGML_SCALE_MODE_NEAREST,
            Scale::Bilinear => sys::GGML_SCALE_MODE_BILINEAR,
            Scale::Bicubic => sys::GGML_SCALE_MODE_BICUBIC,
        };
        let flag = |set, flag| if set { flag } else { 0 };
        mode | flag(self.align_corners, sys::GGML_SCALE_FLAG_ALIGN_CORNERS)
            | flag(self.antialias, sys::GGML_SCALE_FLAG_ANTIALIAS)
    }
}

/// Kernels divide positions by factors in 32-bit floats, those of GPUs with an error of some units in the last place. Up
/// to here, what is less than a dimension stays less.
const LARGEST: i64 = 1 << 20;

impl Context {
    /// The image `a` in the size `shape` (`ggml_interpolate`). The upper two dimensions are always brought to their size by
    /// [`Scale::Nearest`].
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`; [`Error::Shape`](crate::Error::Shape) and
    /// [`Error::Param`](crate::Error::Param) where a dimension is above 2²⁰; [`Error::Param`](crate::Error::Param) unless
    /// `antialias` comes with [`Scale::Bilinear`] and without `align_corners`, with which ggml leaves pixels out.
    #[doc(alias = "ggml_interpolate")]
    #[doc(alias = "ggml_upscale")]
    #[doc(alias = "ggml_upscale_ext")]
    pub fn interpolate<'c>(&'c self, a: Tensor<'c>, shape: impl Into<Shape>, how: Interpolate) -> Result<Tensor<'c>> {
        let (call, ne) = (Call { op: "interpolate", operands: &[a] }, shape.into().ne());
        call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
        let small = |ne: [i64; 4]| ne.iter().all(|n| (1..=LARGEST).contains(n));
        call.shape(small(a.ne()), "no dimension may be above 2^20")?;
        call.param(small(ne), "shape", ne, "each dimension must lie in 1 to 2^20")?;
        call.result(ne, DType::F32)?;
        let known = !how.antialias || (how.mode == Scale::Bilinear && !how.align_corners);
        call.param(known, "how", how, "antialias must come with the bilinear mode, and without align_corners")?;
        let [n0, n1, n2, n3] = ne;
        self.build("ggml_interpolate", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c and `f32`, the dimensions positive, the mode and
            // its flags ggml's own. The result keeps it as source.
            unsafe { sys::ggml_interpolate(c, a.as_ptr(), n0, n1, n2, n3, how.raw()) }
        })
    }
}
