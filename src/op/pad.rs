//! The options of padding.

use crate::options::options;

options! {
    /// The padding of a tensor, one value per dimension.
    ///
    /// ```
    /// use ggml::{ops::PadOptions, prelude::*};
    /// let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [3, 2])?;
    /// assert_eq!(ctx.pad(x, PadOptions::new().with_left([1, 0, 0, 0]).with_right([1, 2, 0, 0]))?.ne(), [5, 4, 1, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct PadOptions {
        /// No padding on any side.
        new();
        /// Sets the number of elements added before the first.
        with_left(left: [i32; 4] = [0; 4]);
        /// Sets the number of elements added after the last (as `ggml_pad`).
        with_right(right: [i32; 4] = [0; 4]);
        /// Sets whether the padding repeats the tensor cyclically, instead of zeros.
        with_circular(circular: bool = false);
    }
}
