//! Layouts of operands.

use ggml::prelude::*;

/// The layout of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Elements in order without gaps.
    Plain,
    /// A view with contiguous rows and gaps between and before them.
    Gaps,
    /// Second and third dimension swapped; rows are contiguous.
    Swapped,
    /// First and second dimension swapped.
    Transposed,
    /// All dimensions reversed.
    Reversed,
}

impl Layout {
    /// All layouts.
    pub const ALL: [Self; 5] = [Self::Plain, Self::Gaps, Self::Swapped, Self::Transposed, Self::Reversed];
    /// The layouts with contiguous rows.
    pub const ROWS: [Self; 3] = [Self::Plain, Self::Gaps, Self::Swapped];

    /// The permutation that makes the layout; each is its own inverse.
    pub fn axes(self) -> [usize; 4] {
        match self {
            Self::Plain | Self::Gaps => [0, 1, 2, 3],
            Self::Swapped => [0, 2, 1, 3],
            Self::Transposed => [1, 0, 2, 3],
            Self::Reversed => [3, 2, 1, 0],
        }
    }
}

/// The elements inside the gaps of `whole`, which has one more block per row, row per plane, and plane than the result.
pub fn inside<'c>(ctx: &'c Context, whole: Tensor<'c>) -> Tensor<'c> {
    let ([n0, n1, n2, n3], [nb0, nb1, nb2, nb3]) = (whole.ne(), whole.nb());
    let ne = [n0 - whole.dtype().block_size(), n1 - 1, n2 - 1, n3];
    ctx.view(whole, ne, [nb1, nb2, nb3], nb0 + nb2).unwrap()
}
