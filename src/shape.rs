//! Shapes of ggml's tensors. `Shape` itself is plain data of the crate `ggml-gguf`.

pub use ggml_gguf::Shape;
use ggml_gguf::ShapeError;

use crate::dtype::{CType as _, DType};

/// The size in memory that ggml gives to tensors of a shape.
pub(crate) trait CShape {
    /// The bytes that a contiguous tensor of this shape takes, or the reason why ggml can't have such a tensor.
    fn bytes(self, dtype: DType) -> Result<usize, &'static str>;
}

impl CShape for Shape {
    #[inline]
    fn bytes(self, dtype: DType) -> Result<usize, &'static str> {
        if !dtype.is_known() {
            return Err(concat!("ggml ", env!("GGML_VERSION"), " does not have this element type"));
        }
        self.nbytes(dtype).map_err(ShapeError::reason)
    }
}

/// The maximum size of a tensor in bytes.
pub(crate) const MAX_BYTES: usize = Shape::MAX_BYTES;
