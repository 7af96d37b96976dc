//! Shapes: the number of elements in each dimension, in ggml's order.

use std::fmt;

use crate::dtype::DType;

/// The maximum size of a tensor in bytes. Sums and padding of such sizes don't overflow C's `size_t` and `int64_t`.
pub(crate) const MAX_BYTES: usize = isize::MAX as usize / 2;

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
/// # use ggml::prelude::*;
/// # fn main() -> ggml::Result<()> {
/// assert_eq!(Shape::from([3, 2]).ne(), [3, 2, 1, 1]);
/// assert_eq!(Shape::from([3, 2]).elements(), Some(6));
/// let rows = vec![[0.0_f32; 4]; 7];
/// let ctx = Context::new();
/// let x = ctx.input("x", DType::F32, [4, rows.len()])?;
/// assert_eq!(x.ne(), [4, 7, 1, 1]);
/// let dims: Vec<u32> = vec![2, 3, 5];
/// assert_eq!(ctx.input("y", DType::F32, &dims[..])?.ne(), [2, 3, 5, 1]);
/// assert!(ctx.input("z", DType::F32, [usize::MAX]).is_err());
/// # Ok(())
/// # }
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
        if self.0[3] == MORE_DIMENSIONS {
            return Err("a tensor has at most 4 dimensions");
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
        let refused = |shape: Shape| shape.bytes(DType::F32).unwrap_err();
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
