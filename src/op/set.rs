//! The part of a tensor that an operation writes to.

use crate::options::options;

options! {
    /// The part of the first operand that [`Context::set`](crate::Context::set) and
    /// [`Context::acc`](crate::Context::acc) write to. The part has the shape of the second operand.
    ///
    /// ```
    /// use ggml::{ops::SetOptions, prelude::*};
    /// let ctx = Context::new();
    /// let [a, b] = [ctx.input("a", DType::F32, [8, 6])?, ctx.input("b", DType::F32, [8, 2])?];
    /// // Replaces rows 1 and 3.
    /// let [_, row, ..] = a.nb();
    /// assert_eq!(ctx.set(a, b, SetOptions::new(row).with_strides([2 * row, 6 * row, 6 * row]))?.ne(), a.ne());
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SetOptions {
        /// The part that begins `offset` bytes after the start of the first operand.
        new(offset: usize);
        /// Sets the strides in bytes of the second, third and fourth dimension; `None` for those of the first operand.
        with_strides(strides: Option<[usize; 3]> = None, into);
    }
}
