//! The layout of a tensor in memory, and every predicate on strides.
//!
//! Three predicates are used most: whether rows are contiguous ([`Layout::has_dense_rows`]), whether row `i`, counted
//! over all dimensions, lies at `i * nb[1]` ([`Layout::is_contiguous_1`]), and whether all strides are those of a new
//! tensor ([`Layout::is_packed`]). ggml's own predicates skip the strides of dimensions of 1, which kernels use (H37).

use std::ops::Range;

use crate::dtype::DType;

/// A tensor's element type, dimensions (`ne`), and strides in bytes (`nb`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) dtype: DType,
    pub(crate) ne: [i64; 4],
    pub(crate) nb: [usize; 4],
}

impl Layout {
    /// The layout of a new tensor.
    #[inline]
    pub(crate) fn packed(dtype: DType, ne: [i64; 4]) -> Self {
        let [n0, n1, n2, _] = ne;
        let row = dtype.row_size(n0).unwrap_or(0);
        let plane = row.saturating_mul(size(n1));
        Self { dtype, ne, nb: [dtype.type_size(), row, plane, plane.saturating_mul(size(n2))] }
    }

    #[inline]
    pub(crate) fn elements(self) -> usize {
        self.ne.iter().fold(1, |n: usize, &d| n.saturating_mul(usize::try_from(d).unwrap_or(0)))
    }

    /// The number of elements, or `None` where it overflows ggml's 64-bit counter.
    pub(crate) fn count(self) -> Option<i64> {
        self.ne.into_iter().try_fold(1_i64, i64::checked_mul)
    }

    /// The bytes from the start of the first element to the end of the last (`ggml_nbytes`), or `None` on overflow.
    #[inline]
    pub(crate) fn span(self) -> Option<usize> {
        let ([n0, upper @ ..], [nb0, strides @ ..]) = (self.ne, self.nb);
        let (block, size) = (self.dtype.block_size(), self.dtype.type_size());
        let first = if block == 1 {
            size.checked_add(steps(n0, nb0)?)?
        } else {
            usize::try_from(n0 / block).ok()?.checked_mul(nb0)?
        };
        upper.into_iter().zip(strides).try_fold(first, |n, (ne, nb)| n.checked_add(steps(ne, nb)?))
    }

    /// Whether all elements lie within `size` bytes, if the first element lies at byte `offset`.
    #[inline]
    pub(crate) fn fits(self, offset: usize, size: Option<usize>) -> bool {
        let end = self.span().and_then(|n| n.checked_add(offset));
        end.zip(size).is_some_and(|(end, size)| end <= size)
    }

    /// Whether no two elements overlap: with the dimensions sorted by stride, each one steps over all before it.
    pub(crate) fn is_disjoint(self) -> bool {
        let ([n0, n1, n2, n3], [_, nb1, nb2, nb3]) = (self.ne, self.nb);
        let Some(mut below) = self.dtype.row_size(n0) else { return false };
        let mut dims = [(n1, nb1), (n2, nb2), (n3, nb3)];
        dims.sort_unstable_by_key(|(_, stride)| *stride);
        dims.into_iter().filter(|(n, _)| *n > 1).all(|(n, stride)| {
            let clear = stride >= below;
            below = size(n - 1).saturating_mul(stride).saturating_add(below);
            clear
        })
    }

    /// Whether elements lie in order without gaps (`ggml_is_contiguous`). Strides of dimensions of 1 are ignored.
    #[inline]
    pub(crate) fn is_contiguous(self) -> bool {
        self.is_contiguous_above(0)
    }

    /// Whether rows are contiguous and evenly spaced (`ggml_is_contiguous_1`): counted over all dimensions, row `i`
    /// lies at `i * nb[1]`.
    #[inline]
    pub(crate) fn is_contiguous_1(self) -> bool {
        self.is_contiguous_above(1)
    }

    /// Whether rows are contiguous, and strides above dimension `free` are those of a tensor without gaps. Dimensions 1
    /// to `free` may have any stride.
    #[inline]
    fn is_contiguous_above(self, free: usize) -> bool {
        if !self.has_contiguous_rows() {
            return false;
        }
        let ([n0, ..], block) = (self.ne, self.dtype.block_size());
        let blocks = if block == 1 { n0 } else { n0 / block };
        let mut next = self.dtype.type_size().wrapping_mul(size(blocks));
        for (i, (&ne, &nb)) in self.ne.iter().zip(&self.nb).enumerate().skip(1) {
            if i <= free {
                next = nb;
            } else if ne != 1 && nb != next {
                return false;
            }
            next = next.wrapping_mul(size(ne));
        }
        true
    }

    /// Whether rows are contiguous (`ggml_is_contiguous_rows`). A row of one element (block) may have any stride.
    #[inline]
    pub(crate) fn has_contiguous_rows(self) -> bool {
        self.has_dense_rows() || self.ne[0] == self.dtype.block_size()
    }

    /// Whether the first stride is the size of an element (block), even in rows of one.
    #[inline]
    pub(crate) fn has_dense_rows(self) -> bool {
        self.nb[0] == self.dtype.type_size()
    }

    /// Whether the first two strides are those of a new tensor: each plane is contiguous.
    pub(crate) fn has_dense_planes(self) -> bool {
        self.has_dense_rows() && Some(self.nb[1]) == self.dtype.row_size(self.ne[0])
    }

    /// Whether rows are contiguous and evenly spaced, dimensions of 1 included (`ggml_is_padded_1d`).
    pub(crate) fn has_even_rows(self) -> bool {
        let ([_, n1, n2, _], [_, nb1, nb2, nb3]) = (self.ne, self.nb);
        let times = |nb: usize, n: i64| usize::try_from(n).ok().and_then(|n| nb.checked_mul(n));
        self.has_dense_rows() && times(nb1, n1) == Some(nb2) && times(nb2, n2) == Some(nb3)
    }

    /// Whether all strides are those of a new tensor, even in dimensions of 1.
    #[inline]
    pub(crate) fn is_packed(self) -> bool {
        self == Self::packed(self.dtype, self.ne)
    }

    /// Whether the layout, permuted by `axes`, is that of a new tensor.
    pub(crate) fn is_packed_in_order(self, axes: [usize; 4]) -> bool {
        self.permuted(axes).is_packed()
    }

    /// Whether the first stride is larger than the second (`ggml_is_transposed`).
    #[inline]
    pub(crate) fn is_transposed(self) -> bool {
        self.nb[0] > self.nb[1]
    }

    /// Whether each plane is stored column by column, without gaps.
    pub(crate) fn has_contiguous_columns(self) -> bool {
        let ([n0, n1, ..], [nb0, nb1, ..], unit) = (self.ne, self.nb, self.dtype.type_size());
        let column = usize::try_from(n1).ok().and_then(|n| n.checked_mul(unit));
        (n0 == 1 || Some(nb0) == column) && (n1 == 1 || nb1 == unit)
    }

    /// Calls `f` for each row in order, or for each element if rows have gaps, with the range of its bytes, counted
    /// from the first element.
    pub(crate) fn pieces(self, mut f: impl FnMut(Range<usize>)) {
        let ([_, nb1, nb2, nb3], unit) = (self.nb, self.dtype.type_size());
        let [n0, n1, n2, n3] = self.ne.map(size);
        let row = self.dtype.row_size(self.ne[0]).unwrap_or(0);
        for i3 in 0..n3 {
            for i2 in 0..n2 {
                for i1 in 0..n1 {
                    let start = i1 * nb1 + i2 * nb2 + i3 * nb3;
                    if self.has_dense_rows() {
                        f(start..start + row);
                    } else {
                        (0..n0).map(|i0| start + i0 * self.nb[0]).for_each(|at| f(at..at + unit));
                    }
                }
            }
        }
    }

    /// The layout whose dimension `i` is dimension `axes[i]` of this one.
    pub(crate) fn permuted(self, axes: [usize; 4]) -> Self {
        let unit = self.dtype.type_size();
        Self {
            ne: axes.map(|i| self.ne.get(i).copied().unwrap_or(1)),
            nb: axes.map(|i| self.nb.get(i).copied().unwrap_or(unit)),
            ..self
        }
    }
}

#[inline]
fn size(n: i64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// The bytes from the start of the first to the start of the last of `n` items, `stride` apart.
#[inline]
fn steps(n: i64, stride: usize) -> Option<usize> {
    usize::try_from(n.checked_sub(1)?).ok()?.checked_mul(stride)
}
