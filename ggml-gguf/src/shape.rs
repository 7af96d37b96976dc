//! Shapes: the number of elements in each dimension, in ggml's order.

use std::fmt;

use crate::dtype::DType;

/// The fourth dimension of a shape that was given more than four.
const MORE_DIMENSIONS: i64 = i64::MIN;

/// Elements per dimension in ggml's order: `[0]` is the innermost, unused dimensions are 1.
///
/// A row-major array of shape `(rows, columns)` has the ggml shape `[columns, rows]`.
///
/// Arrays of one to four numbers are shapes, and slices of at most four, of `usize`, `i64`, `u32` or `i32`. Numbers that
/// can't be a dimension, and slices of more than four, make a shape that every call refuses with an error. Numbers without a
/// type are `i32`: one of 2^31 or more needs a type, as in `[1_i64 << 31]`.
///
/// ```
/// use ggml_gguf::{DType, Shape};
/// assert_eq!(Shape::from([3, 2]).ne(), [3, 2, 1, 1]);
/// assert_eq!(Shape::from([3, 2]).elements(), Some(6));
/// let dims: Vec<u32> = vec![2, 3, 5];
/// assert_eq!(Shape::from(&dims[..]).ne(), [2, 3, 5, 1]);
/// assert_eq!(Shape::from([64, 3]).nbytes(DType::Q8_0), Ok(6 * 34));
/// assert!(Shape::from([usize::MAX]).nbytes(DType::F32).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape([i64; 4]);

/// Why no tensor of a type can have a shape. `Display` says it.
///
/// ```
/// use ggml_gguf::{DType, Shape, ShapeError};
/// let odd = Shape::from([33, 2]).nbytes(DType::Q4_0);
/// assert_eq!(odd, Err(ShapeError::Blocks));
/// assert!(ShapeError::Blocks.reason().contains("block size"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShapeError {
    /// It has more than four dimensions.
    Dimensions,
    /// A dimension is below 1.
    Empty,
    /// The first dimension is not a whole number of the type's blocks.
    Blocks,
    /// It has too many elements or bytes.
    TooLarge,
}

impl ShapeError {
    /// The reason as a sentence.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Dimensions => "a tensor has at most 4 dimensions",
            Self::Empty => "every dimension must be at least 1",
            Self::Blocks => "the first dimension must be a multiple of the type's block size",
            Self::TooLarge => "the tensor's size exceeds the address space",
        }
    }
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for ShapeError {}

impl Shape {
    /// The maximum size of a tensor in bytes. Sums and padding of such sizes don't overflow C's `size_t` and `int64_t`.
    pub const MAX_BYTES: usize = isize::MAX as usize / 2;

    /// The number of elements in each dimension.
    #[inline]
    pub const fn ne(self) -> [i64; 4] {
        self.0
    }

    /// The number of elements, or `None` if a dimension is negative or the number overflows.
    ///
    /// ```
    /// use ggml_gguf::Shape;
    /// assert_eq!(Shape::from([4, 3]).elements(), Some(12));
    /// assert_eq!(Shape::from([i64::MAX, 2]).elements(), None);
    /// ```
    #[doc(alias = "ggml_nelements")]
    #[inline]
    pub fn elements(self) -> Option<usize> {
        let n = self.0.iter().try_fold(1_i64, |n, &d| if d < 0 { None } else { n.checked_mul(d) })?;
        usize::try_from(n).ok()
    }

    /// The bytes of a contiguous tensor of this shape (`ggml_nbytes`).
    ///
    /// # Errors
    ///
    /// Says why no tensor of this type can have the shape.
    #[doc(alias = "ggml_nbytes")]
    #[inline]
    pub fn nbytes(self, dtype: DType) -> Result<usize, ShapeError> {
        let [ne0, rest @ ..] = self.0;
        // The fast path, where nothing can overflow: at most 8 bytes per element, and four times 14 bits are 56.
        if dtype.block_size() == 1 && self.0.iter().all(|n| (1..1 << (usize::BITS / 4 - 2)).contains(n)) {
            let elements = self.0.iter().map(|&n| usize::try_from(n).unwrap_or(0)).product::<usize>();
            return Ok(elements * dtype.type_size());
        }
        if self.0[3] == MORE_DIMENSIONS {
            return Err(ShapeError::Dimensions);
        }
        if self.0.iter().any(|&d| d < 1) {
            return Err(ShapeError::Empty);
        }
        if ne0 % dtype.block_size() != 0 {
            return Err(ShapeError::Blocks);
        }
        // ggml counts elements in an i64, even if a block type needs fewer bytes.
        self.elements().ok_or(ShapeError::TooLarge)?;
        let row = dtype.row_size(ne0).ok_or(ShapeError::TooLarge)?;
        let bytes = rest.iter().try_fold(row, |n, &d| n.checked_mul(usize::try_from(d).ok()?));
        bytes.filter(|&n| n <= Self::MAX_BYTES).ok_or(ShapeError::TooLarge)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:?}", self.0))
    }
}

/// A number as a dimension. What doesn't fit is too large for any tensor, and so is `i64::MAX`.
macro_rules! from_numbers {
    ($($t:ty: $dim:expr;)*) => {
        $(
            from_arrays!($t, $dim, [1, 2, 3, 4]);

            impl From<&[$t]> for Shape {
                fn from(ne: &[$t]) -> Self {
                    let mut full = [1; 4];
                    for (to, &from) in full.iter_mut().zip(ne) {
                        *to = $dim(from);
                    }
                    if ne.len() > full.len() {
                        full[3] = MORE_DIMENSIONS;
                    }
                    Self(full)
                }
            }

            impl From<Vec<$t>> for Shape {
                fn from(ne: Vec<$t>) -> Self {
                    ne.as_slice().into()
                }
            }
        )*
    };
}

macro_rules! from_arrays {
    ($t:ty, $dim:expr, [$($n:literal),*]) => {
        $(
            impl From<[$t; $n]> for Shape {
                #[inline]
                fn from(ne: [$t; $n]) -> Self {
                    let mut full = [1; 4];
                    for (to, from) in full.iter_mut().zip(ne) {
                        *to = $dim(from);
                    }
                    Self(full)
                }
            }
        )*
    };
}

from_numbers! {
    i64: std::convert::identity;
    usize: |n| i64::try_from(n).unwrap_or(i64::MAX);
    u32: i64::from;
    i32: i64::from;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_accepts_integers_of_all_types() {
        let want = Shape([3, 2, 1, 1]);
        assert_eq!([Shape::from([3_usize, 2]), [3_u32, 2].into(), [3_i64, 2].into(), [3, 2].into()], [want; 4]);
        assert_eq!([Shape::from(&[3_usize, 2][..]), (&[3_u32, 2][..]).into(), (&[3_i64, 2][..]).into()], [want; 3]);
        assert_eq!(Shape::from(<&[usize]>::default()), Shape([1; 4]), "a scalar");
        assert_eq!(Shape::from(&[2_usize, 3, 4, 5][..]), Shape([2, 3, 4, 5]));
    }

    #[test]
    fn shape_refuses_values_that_are_no_dimension() {
        let refused = |shape: Shape| shape.nbytes(DType::F32).unwrap_err().reason();
        for shape in [Shape::from([usize::MAX]), [1, usize::MAX].into(), (&[usize::MAX, 1][..]).into()] {
            assert!(refused(shape).contains("exceeds the address space"), "{shape}");
        }
        assert!(refused([0_usize, 1].into()).contains("at least 1"));
        assert!(refused([-1, 1].into()).contains("at least 1"));
        let five = Shape::from(&[1_usize; 5][..]);
        assert!(refused(five).contains("at most 4 dimensions"), "{}", refused(five));
        assert_eq!(five.elements(), None);
    }
}
