//! Shapes: the number of elements in each dimension, in ggml's order.

use std::fmt;

use crate::dtype::DType;

/// The maximum size of a tensor in bytes. Sums and padding of such sizes don't overflow C's `size_t` and `int64_t`.
pub(crate) const MAX_BYTES: usize = isize::MAX as usize / 2;

/// The number of elements in each dimension, in ggml's order: `[0]` is the innermost, unused dimensions are 1.
///
/// A row-major array of shape `(rows, columns)` has the ggml shape `[columns, rows]`.
///
/// ```
/// use ggml::Shape;
/// assert_eq!(Shape::from([3, 2]).ne(), [3, 2, 1, 1]);
/// assert_eq!(Shape::from([3, 2]).elements(), Some(6));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape([i64; 4]);

impl Shape {
    /// The number of elements in each dimension.
    pub const fn ne(self) -> [i64; 4] {
        self.0
    }

    /// The number of elements, or `None` if a dimension is negative or the number overflows.
    #[doc(alias = "ggml_nelements")]
    pub fn elements(self) -> Option<i64> {
        self.0.iter().try_fold(1_i64, |n, &d| if d < 0 { None } else { n.checked_mul(d) })
    }

    /// The bytes of a contiguous tensor of this shape, or why it is invalid.
    #[inline]
    pub(crate) fn bytes(self, dtype: DType) -> Result<usize, &'static str> {
        const TOO_LARGE: &str = "the tensor's size exceeds the address space";
        let [ne0, rest @ ..] = self.0;
        // The fast path, where nothing can overflow: at most 8 bytes per element, and four times 14 bits are 56.
        if dtype.block_size() == 1 && self.0.iter().all(|n| (1..1 << (usize::BITS / 4 - 2)).contains(n)) {
            let elements = self.0.iter().map(|&n| usize::try_from(n).unwrap_or(0)).product::<usize>();
            return Ok(elements * dtype.type_size());
        }
        if self.0.iter().any(|&d| d < 1) {
            return Err("every dimension must be at least 1");
        }
        if ne0 % dtype.block_size() != 0 {
            return Err("the first dimension must be a multiple of the type's block size");
        }
        // ggml counts elements in an i64, even if a block type needs fewer bytes.
        self.elements().ok_or(TOO_LARGE)?;
        let row = dtype.row_size(ne0).ok_or(TOO_LARGE)?;
        let bytes = rest.iter().try_fold(row, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
        bytes.filter(|&n| n <= MAX_BYTES).ok_or(TOO_LARGE)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

macro_rules! from_arrays {
    ($($n:literal),*) => {
        $(
            impl From<[i64; $n]> for Shape {
                fn from(ne: [i64; $n]) -> Self {
                    let mut full = [1; 4];
                    for (to, from) in full.iter_mut().zip(ne) {
                        *to = from;
                    }
                    Self(full)
                }
            }
        )*
    };
}

from_arrays!(1, 2, 3, 4);
