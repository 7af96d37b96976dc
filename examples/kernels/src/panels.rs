//! Matrices stored in the order in which a product reads them.

use bytemuck::{Pod, Zeroable};
use pulp::Simd;

/// The number of columns per panel.
pub(super) const WIDTH: usize = 32;

/// One row of a panel.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(128))]
pub(super) struct Row(pub(super) [f32; WIDTH]);

/// A matrix to multiply by, cut into consecutive panels of [`WIDTH`] columns; the last one is padded with zeros.
#[derive(Debug)]
pub(super) struct Panels {
    /// Rows of each panel.
    depth: usize,
    rows: Vec<Row>,
}

impl Panels {
    /// Zeros.
    pub(super) fn new(depth: usize, columns: usize) -> Self {
        Self { depth, rows: vec![Row::zeroed(); depth * columns.div_ceil(WIDTH)] }
    }

    pub(super) fn set_column(&mut self, i: usize, column: &[f32]) {
        let panel = self.rows[i / WIDTH * self.depth..].iter_mut();
        panel.zip(column).for_each(|(row, &x)| row.0[i % WIDTH] = x);
    }

    pub(super) fn set_row(&mut self, i: usize, row: &[f32]) {
        for (panel, numbers) in self.rows.chunks_exact_mut(self.depth).zip(row.chunks(WIDTH)) {
            panel[i].0[..numbers.len()].copy_from_slice(numbers);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.chunks_exact(self.depth)
    }
}

/// A panel's rows as vectors, V per row.
#[inline(always)]
pub(super) fn vectors<S: Simd, const V: usize>(panel: &[Row]) -> &[[S::f32s; V]] {
    S::as_simd_f32s(bytemuck::cast_slice(panel)).0.as_chunks().0
}

/// The first `R` values, the last one repeated if necessary. (Iterators and `from_fn` are not always inlined.)
#[inline(always)]
pub(super) fn fill<const R: usize, T: Copy>(some: &[T]) -> [T; R] {
    let mut all = [some[0]; R];
    for (i, to) in all.iter_mut().enumerate() {
        *to = some[i.min(some.len() - 1)];
    }
    all
}

/// `R` rows times a panel, plus `start`; all sums stay in registers.
#[inline(always)]
pub(super) fn product<S: Simd, const R: usize, const V: usize>(
    simd: S,
    mut rows: [&[f32]; R],
    panel: &[[S::f32s; V]],
    start: [S::f32s; V],
) -> [[S::f32s; V]; R] {
    // Tells the compiler that all indices are in bounds.
    for row in &mut rows {
        *row = &row[..panel.len()];
    }
    let mut sums = [start; R];
    for (k, numbers) in panel.iter().enumerate() {
        for (sums, row) in sums.iter_mut().zip(rows) {
            let x = simd.splat_f32s(row[k]);
            for (sum, &y) in sums.iter_mut().zip(numbers) {
                *sum = simd.mul_add_e_f32s(x, y, *sum);
            }
        }
    }
    sums
}

/// Calls a function with the number of rows, and of vectors per row, that fit into the processor's registers.
macro_rules! by_width {
    ($simd:ident: $S:ident, $f:ident($($argument:expr),*)) => {
        match $S::F32_LANES {
            16 => $f::<$S, 8, 2>($simd, $($argument),*),
            8 => $f::<$S, 3, 4>($simd, $($argument),*),
            4 => $f::<$S, 3, 8>($simd, $($argument),*),
            _ => $f::<$S, 1, 32>($simd, $($argument),*),
        }
    };
}
pub(super) use by_width;
