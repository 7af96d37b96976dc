//! The options of resizing.

use ggml_sys as sys;

use super::numbered::numbered;
use crate::options::options;

numbered! {
    /// How the pixels of a resized image are interpolated.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::{InterpolateMode, InterpolateOptions};
    /// # let ctx = Context::new();
    /// let row = ctx.arange(0.0, 2.0, 1.0)?;
    /// let y = ctx.interpolate(row, [4], InterpolateOptions::new(InterpolateMode::Nearest))?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [0.0, 0.0, 1.0, 1.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[doc(alias = "ggml_scale_mode")]
    pub enum InterpolateMode: u32 {
        /// The nearest pixel alone.
        Nearest = GGML_SCALE_MODE_NEAREST;
        /// Linear interpolation between the four nearest pixels.
        Bilinear = GGML_SCALE_MODE_BILINEAR;
        /// Cubic convolution of the sixteen nearest pixels, with α = -0.75.
        Bicubic = GGML_SCALE_MODE_BICUBIC;
    }
}

options! {
    /// The options of [`Context::interpolate`](crate::Context::interpolate).
    ///
    /// ```
    /// use ggml::{ops::{InterpolateMode, InterpolateOptions}, prelude::*};
    /// let ctx = Context::new();
    /// let image = ctx.input("image", DType::F32, [8, 8, 3])?;
    /// let how = InterpolateOptions::new(InterpolateMode::Bilinear).with_antialias(true);
    /// assert_eq!(ctx.interpolate(image, [4, 4, 3], how)?.ne(), [4, 4, 3, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[doc(alias = "ggml_scale_flag")]
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct InterpolateOptions {
        /// Interpolates by `mode`.
        new(mode: InterpolateMode);
        /// Sets whether to align the centres of the corner pixels, rather than the borders of the image.
        with_align_corners(align_corners: bool = false);
        /// Sets whether all pixels contribute when the image is made smaller; for [`InterpolateMode::Bilinear`] only.
        with_antialias(antialias: bool = false);
    }
}

impl InterpolateOptions {
    pub(crate) fn raw(self) -> u32 {
        let flag = |set, flag| if set { flag } else { 0 };
        self.mode.raw()
            | flag(self.align_corners, sys::GGML_SCALE_FLAG_ALIGN_CORNERS)
            | flag(self.antialias, sys::GGML_SCALE_FLAG_ANTIALIAS)
    }
}
