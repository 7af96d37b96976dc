//! Tensors in error messages.

use std::fmt;

use super::Shown;

/// A tensor as shown in an error message.
///
/// ```
/// # use ggml::prelude::*; let ctx = Context::new();
/// let [a, b] = [ctx.input("a", DType::F32, [4])?, ctx.input("b", DType::F32, [3])?];
/// let Err(Error::Shape { operands, .. }) = ctx.add(a, b) else { panic!("3 doesn't divide 4") };
/// assert_eq!((&*operands[1].name, operands[1].ne), ("b", [3, 1, 1, 1]));
/// assert_eq!(operands[1].to_string(), "`b` f32 [3, 1, 1, 1]");
/// # Ok::<(), ggml::Error>(())
/// ```
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
