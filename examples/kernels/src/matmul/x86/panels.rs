//! Matrices that are unpacked once.

use bytemuck::Zeroable;
use ggml::DType;

use super::activations::{self, BLOCK, Block};
use super::bytes::many;
use super::panel::{self, Panel};
use super::types::{Facts, Q4_0, Q8_0};
use super::{WIDTH, any};

/// A matrix that was unpacked before.
///
/// # Invariants
///
/// Values of this type exist only if [`any`] is true.
#[derive(Debug)]
pub(crate) struct Panels {
    dtype: u8,
    /// Blocks of each column.
    depth: usize,
    list: Vec<Panel>,
}

impl Panels {
    /// Unpacks a matrix in ggml's format; `None` if the type is another, or if the processor lacks the instructions.
    pub(crate) fn new(dtype: DType, bytes: &[u8], columns: usize) -> Option<Self> {
        let dtype = match dtype {
            DType::Q8_0 => Q8_0,
            DType::Q4_0 => Q4_0,
            _ => return None,
        };
        let row = bytes.len() / columns;
        let depth = row / Facts::of(dtype).bytes;
        if !any() || depth == 0 {
            return None;
        }
        let mut list = vec![Panel::zeroed(); depth * columns.div_ceil(WIDTH)];
        for (i, to) in list.chunks_exact_mut(depth).enumerate() {
            // The last columns are repeated where a panel has more.
            let rows: [&[u8]; WIDTH] = std::array::from_fn(|j| &bytes[(i * WIDTH + j).min(columns - 1) * row..][..row]);
            if dtype == Q8_0 {
                // SAFETY: the processor has the target features: `any` is true.
                unsafe { unpack::<Q8_0, { Facts::of(Q8_0).bytes }>(&rows, to) };
            } else {
                // SAFETY: as above.
                unsafe { unpack::<Q4_0, { Facts::of(Q4_0).bytes }>(&rows, to) };
            }
        }
        Some(Self { dtype, depth, list })
    }

    /// Quantises rows, for any panels.
    #[expect(clippy::unused_self, reason = "it shows that the processor has the target features")]
    pub(crate) fn quantise(&self, rows: &[&[f32]]) -> Rows {
        let quantise = |row: &&[f32]| {
            let mut blocks = vec![Block::zeroed(); row.len() / BLOCK];
            // SAFETY: the processor has the target features (the type's invariant).
            unsafe { activations::quantise(row, &mut blocks) };
            blocks
        };
        Rows(rows.iter().map(quantise).collect())
    }

    /// Multiplies rows by the matrix. `done` gets a panel's index, the row, and its products with the columns.
    pub(crate) fn multiply(&self, Rows(rows): &Rows, mut done: impl FnMut(usize, usize, &[f32])) {
        let row = |i: usize| &rows[i][..self.depth];
        for (i, panel) in self.list.chunks_exact(self.depth).enumerate() {
            let put: &mut dyn FnMut(usize, &[f32]) = &mut |row, values| done(i, row, values);
            if self.dtype == Q8_0 {
                // SAFETY: the processor has the target features (the type's invariant).
                unsafe { many::<Q8_0>(panel, row, rows.len(), put) };
            } else {
                // SAFETY: as above.
                unsafe { many::<Q4_0>(panel, row, rows.len(), put) };
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,f16c")]
fn unpack<const T: u8, const BYTES: usize>(rows: &[&[u8]; WIDTH], to: &mut [Panel]) {
    panel::unpack::<T, BYTES>(&rows.map(|row| row.as_chunks().0), 0, 0, to);
}

/// Rows of activations in blocks.
#[derive(Debug)]
pub(crate) struct Rows(Vec<Vec<Block>>);
