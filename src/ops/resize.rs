//! Resizing images.

use crate::op::{InterpolateMode, InterpolateOptions};
use crate::ops::prelude::*;
use crate::shape::Shape;

/// The largest dimension of an image. Kernels divide positions by factors in 32-bit floats, GPUs with an error of some
/// units in the last place. Up to this size, the quotient stays below the dimension.
const LARGEST: i64 = 1 << 20;

impl Context {
    /// Resizes the image `a` to `shape` (`ggml_interpolate`). `how` applies to the first two dimensions; the third and
    /// fourth always use [`InterpolateMode::Nearest`].
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`; [`Error::Shape`](crate::Error::Shape) and
    /// [`Error::Param`](crate::Error::Param) where a dimension is above 2²⁰; [`Error::Param`](crate::Error::Param)
    /// unless `antialias` comes with [`InterpolateMode::Bilinear`] and without `align_corners` (ggml would skip pixels).
    #[doc(alias = "ggml_interpolate")]
    #[doc(alias = "ggml_upscale")]
    #[doc(alias = "ggml_upscale_ext")]
    pub fn interpolate<'c>(
        &'c self,
        a: Tensor<'c>,
        shape: impl Into<Shape>,
        how: InterpolateOptions,
    ) -> Result<Tensor<'c>> {
        let (call, ne) = (Call { op: entered!("interpolate"), operands: &[a] }, shape.into().ne());
        call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
        let small = |ne: [i64; 4]| ne.iter().all(|n| (1..=LARGEST).contains(n));
        call.shape(small(a.ne()), "no dimension may be above 2^20")?;
        call.param(small(ne), "shape", ne, "each dimension must lie in 1 to 2^20")?;
        call.result(ne, DType::F32)?;
        let known = !how.antialias || (how.mode == InterpolateMode::Bilinear && !how.align_corners);
        call.param(known, "how", how, "antialias must come with the bilinear mode, and without align_corners")?;
        let [n0, n1, n2, n3] = ne;
        build!(self, sys::ggml_interpolate(a; n0, n1, n2, n3, how.raw()))
    }
}
