//! Tensors in error messages.

use std::fmt;

use super::Shown;

/// A tensor as shown in an error message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// The tensor's name; empty if it has none.
    pub name: Box<str>,
    /// ggml's name of the element type, such as `f32` or `q4_K`.
    pub dtype: &'static str,
    /// Elements per dimension in ggml's order: `ne[0]` is the innermost.
    pub ne: [i64; 4],
}

impl fmt::Display for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            write!(f, "{} {:?}", self.dtype, self.ne)
        } else {
            write!(f, "`{}` {} {:?}", Shown::name(&self.name), self.dtype, self.ne)
        }
    }
}
