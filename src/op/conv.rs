//! The options of convolutions.

use crate::options::options;

options! {
    /// The options of a convolution. Each has a value per dimension, the innermost first: `[horizontal]`, `[horizontal,
    /// vertical]` or `[horizontal, vertical, depth]`.
    ///
    /// ```
    /// use ggml::{ops::Conv2dOptions, prelude::*};
    /// let ctx = Context::new();
    /// let kernel = ctx.input("kernel", DType::F16, [3, 3, 1, 4])?;
    /// let image = ctx.input("image", DType::F32, [8, 6, 1])?;
    /// assert_eq!(ctx.conv_2d(kernel, image, Conv2dOptions::half(kernel))?.ne(), [8, 6, 4, 1]);
    /// assert_eq!(ctx.conv_2d(kernel, image, Conv2dOptions::new().with_stride([1, 2]))?.ne(), [6, 2, 4, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ConvOptions<const N: usize> {
        /// Stride 1, no padding and dilation 1.
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
pub type Conv1dOptions = ConvOptions<1>;

/// The options of a 2-d convolution.
pub type Conv2dOptions = ConvOptions<2>;

/// The options of a 3-d convolution.
pub type Conv3dOptions = ConvOptions<3>;
