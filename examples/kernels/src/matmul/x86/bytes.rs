//! Products with matrices in blocks of integers.

use std::arch::x86_64::_mm512_setzero_ps;

use ggml::Operands;

use super::activations::{self, BLOCK, Block};
use super::dot::{self, Ordered};
use super::panel::{self, HALF, Panel};
use super::types::Facts;
use super::{Out, WIDTH, resize, weights};

/// Up to so many rows of activations, the matrix is not unpacked.
const FEW: usize = 2;
/// Up to so many, the matrix is unpacked by parts.
const SEVERAL: usize = 16;
/// The blocks of a part, of which depths are multiples.
const PART: usize = 8;
/// The rows of activations whose sums, for a panel's columns, fit into the registers.
const ROWS: usize = 4;

/// Memory for what is computed on the way.
#[derive(Default)]
pub(super) struct Scratch {
    blocks: Vec<Block>,
    ordered: Vec<Ordered>,
    panel: Vec<Panel>,
}

/// Computes columns of the product.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c")]
pub(super) fn multiply<const T: u8, const BYTES: usize>(
    mut out: Out<'_>,
    operands: &Operands<'_>,
    scratch: &mut Scratch,
) {
    let Scratch { blocks, ordered, panel } = scratch;
    let x = operands.rows::<f32>(1);
    let [depth, rows, ..] = x.shape();
    let n = depth / BLOCK;
    let blocks = resize(blocks, rows * n);
    for (i, to) in blocks.chunks_exact_mut(n).enumerate() {
        activations::quantise(x.row([i, 0, 0]), to);
    }
    if rows > FEW {
        let panel = resize(panel, n);
        let row = |i: usize| &blocks[i * n..][..n];
        out.each(|part, put| {
            let columns = &weights(operands, part).map(|column| column.as_chunks::<BYTES>().0);
            if rows <= SEVERAL {
                several::<T, BYTES>(columns, panel, row, rows, put);
            } else {
                panel::unpack::<T, BYTES>(columns, 0, columns[0].len() * BYTES * HALF, panel);
                many::<T>(panel, row, rows, put);
            }
        });
        return;
    }
    let groups = n / const { Facts::of(T).group };
    let ordered = resize(ordered, rows * groups);
    for (from, to) in blocks.chunks_exact(n).zip(ordered.chunks_exact_mut(groups)) {
        dot::order::<T>(from, to);
    }
    let row = |i: usize| &ordered[i.min(rows - 1) * groups..][..groups];
    out.each(|part, put| {
        let columns = &weights(operands, part);
        match rows {
            1 => few::<T, 1>(columns, row, rows, put),
            _ => few::<T, FEW>(columns, row, rows, put),
        }
    });
}

/// The products of a panel.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub(super) fn many<'a, const T: u8>(
    panel: &[Panel],
    row: impl Fn(usize) -> &'a [Block],
    rows: usize,
    put: &mut dyn FnMut(usize, &[f32]),
) {
    for first in (0..rows).step_by(ROWS) {
        let zeros = [[_mm512_setzero_ps(); 2]; ROWS];
        let sums = panel::tile::<T, ROWS>(std::array::from_fn(|i| row((first + i).min(rows - 1))), panel, zeros);
        for (i, sums) in sums.into_iter().enumerate().take(rows - first) {
            put(first + i, bytemuck::cast_slice(&sums));
        }
    }
}

/// The products of up to [`SEVERAL`] rows of activations: a part of the panel at a time, which stays in the nearest cache.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,f16c")]
fn several<'a, const T: u8, const BYTES: usize>(
    columns: &[&[[u8; BYTES]]; WIDTH],
    panel: &mut [Panel],
    row: impl Fn(usize) -> &'a [Block],
    rows: usize,
    put: &mut dyn FnMut(usize, &[f32]),
) {
    let blocks = const { Facts::of(T).blocks };
    let ahead = columns[0].len() * BYTES * HALF;
    let mut sums = [[[_mm512_setzero_ps(); 2]; ROWS]; SEVERAL / ROWS];
    for from in (0..panel.len()).step_by(PART) {
        let panel = &mut panel[..PART];
        panel::unpack::<T, BYTES>(columns, from / blocks, ahead, panel);
        for (sums, first) in sums.iter_mut().zip((0..rows).step_by(ROWS)) {
            let rows = std::array::from_fn(|i| &row((first + i).min(rows - 1))[from..from + PART]);
            *sums = panel::tile::<T, ROWS>(rows, panel, *sums);
        }
    }
    for (i, sums) in sums.iter().flatten().enumerate().take(rows) {
        put(i, bytemuck::cast_slice(sums));
    }
}

/// The products of up to `N` rows of activations.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c")]
fn few<'a, const T: u8, const N: usize>(
    columns: &[&[u8]; WIDTH],
    row: impl Fn(usize) -> &'a [Ordered],
    rows: usize,
    put: &mut dyn FnMut(usize, &[f32]),
) {
    let mut sums = [[0.0; WIDTH]; N];
    for (i, column) in columns.iter().enumerate() {
        for (sums, sum) in sums.iter_mut().zip(dot::tile::<T, N>(column, std::array::from_fn(&row))) {
            sums[i] = sum;
        }
    }
    sums.iter().enumerate().take(rows).for_each(|(i, sums)| put(i, sums));
}
