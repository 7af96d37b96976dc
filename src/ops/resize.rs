//! Resizing images.

use ggml_sys as sys;

use super::check::Call;
use crate::context::{Context, build};
use crate::dtype::DType;
use crate::error::Result;
use crate::options::options;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// How the pixels of a resized image are interpolated.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::{Interpolate, Scale};
/// # let ctx = Context::new();
/// let row = ctx.arange(0.0, 2.0, 1.0)?;
/// let y = ctx.interpolate(row, [4], Interpolate::new(Scale::Nearest))?;
/// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?; run.compute()?;
/// assert_eq!(run.get::<f32>(y)?, [0.0, 0.0, 1.0, 1.0]);
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_scale_mode")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// The nearest pixel.
    Nearest,
    /// Linear, between the four nearest pixels.
    Bilinear,
    /// Cubic convolution of the sixteen nearest pixels, with α = -0.75.
    Bicubic,
}

options! {
    /// The options of [`Context::interpolate`].
    ///
    /// ```
    /// use ggml::{Interpolate, Scale, prelude::*};
    /// let ctx = Context::new();
    /// let image = ctx.input("image", DType::F32, [8, 8, 3])?;
    /// let how = Interpolate::new(Scale::Bilinear).with_antialias(true);
    /// assert_eq!(ctx.interpolate(image, [4, 4, 3], how)?.ne(), [4, 4, 3, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[doc(alias = "ggml_scale_flag")]
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Interpolate {
        /// Interpolates by `mode`.
        new(mode: Scale);
        /// Sets whether to align the centres of the corner pixels, rather than the borders of the image.
        with_align_corners(align_corners: bool = false);
        /// Sets whether all pixels contribute when the image is made smaller; for [`Scale::Bilinear`] only.
        with_antialias(antialias: bool = false);
    }
}

impl Interpolate {
    pub(crate) fn raw(self) -> u32 {
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

/// The largest dimension. Kernels divide positions by factors in 32-bit floats, GPUs with an error of some units in the
/// last place. Up to this size, the quotient stays below the dimension.
const LARGEST: i64 = 1 << 20;

impl Context {
    /// Resizes the image `a` to `shape` (`ggml_interpolate`). `how` applies to the first two dimensions; the third and
    /// fourth always use [`Scale::Nearest`].
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`; [`Error::Shape`](crate::Error::Shape) and
    /// [`Error::Param`](crate::Error::Param) where a dimension is above 2²⁰; [`Error::Param`](crate::Error::Param)
    /// unless `antialias` comes with [`Scale::Bilinear`] and without `align_corners` (ggml would skip pixels).
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
        // SAFETY: the context is live and has room; `a` is live for 'c and `f32`, the dimensions are positive (both
        // checked above), the mode and its flags are ggml's own. The result keeps `a`.
        unsafe { build!(self, &[a], sys::ggml_interpolate(c, a.as_ptr(), n0, n1, n2, n3, how.raw())) }
    }
}
