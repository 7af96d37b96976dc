//! Products of few rows of activations: each row of the matrix is read once, and multiplied by all of them.

use std::arch::x86_64::{
    __m512, __m512i, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_fnmadd_ps, _mm512_mul_ps,
    _mm512_reduce_add_ps, _mm512_setzero_ps,
};

use std::cell::RefCell;

use bytemuck::{Pod, Zeroable};
use ggml::{DType, ops::Operands};

use super::fetch;
use super::types::{self, Facts, VECTORS, place};
use crate::matmul::activations::Block;
use crate::matmul::types::Type;
use crate::matmul::{Out, WIDTH, resize, weights};

/// The most rows of activations.
pub(super) const FEW: usize = 2;

/// How far ahead of their use weights are fetched, in bytes: rows are read one by one, and the next rows follow.
const AHEAD: usize = 1024;

thread_local! {
    /// Memory that a thread keeps from one product to the next.
    static ORDERED: RefCell<Vec<Ordered>> = RefCell::default();
}

/// Computes the product of up to [`FEW`] rows of activations; `false` if there is no function for the type.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c")]
pub(super) fn multiply<T: Type>(out: &mut Out<'_>, operands: &Operands<'_>, blocks: &[Block]) -> bool {
    match T::DTYPE {
        DType::Q8_0 => rows::<{ types::Q8_0 }>(out, operands, blocks),
        DType::Q4_0 => rows::<{ types::Q4_0 }>(out, operands, blocks),
        DType::Q4_K => rows::<{ types::Q4_K }>(out, operands, blocks),
        _ => return false,
    }
    true
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c")]
fn rows<const T: u8>(out: &mut Out<'_>, operands: &Operands<'_>, blocks: &[Block]) {
    let [_, rows, ..] = operands.rows::<f32>(1).shape();
    let n = blocks.len() / rows;
    let groups = n / const { Facts::of(T).group };
    ORDERED.with_borrow_mut(|ordered| {
        let ordered = resize(ordered, rows * groups);
        for (from, to) in blocks.chunks_exact(n).zip(ordered.chunks_exact_mut(groups)) {
            order::<T>(from, to);
        }
        let row = |i: usize| &ordered[i.min(rows - 1) * groups..][..groups];
        out.each(|part, put| {
            let columns = &weights(operands, part, 0);
            match rows {
                1 => few::<T, 1>(columns, row, rows, put),
                _ => few::<T, FEW>(columns, row, rows, put),
            }
        });
    });
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
        for (sums, sum) in sums.iter_mut().zip(tile::<T, N>(column, std::array::from_fn(&row))) {
            sums[i] = sum;
        }
    }
    sums.iter().enumerate().take(rows).for_each(|(i, sums)| put(i, sums));
}

/// A group of activations in the order of the weights.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Ordered {
    numbers: [[i8; 64]; VECTORS],
    scales: [[f32; 16]; VECTORS],
    /// What cancels the offset of weights whose offset is a multiple of their scale.
    start: [[i32; 16]; VECTORS],
    /// The sum of each block.
    sums: [f32; 16],
}

/// Puts blocks into the order of weights.
fn order<const T: u8>(blocks: &[Block], to: &mut [Ordered]) {
    let facts = const { Facts::of(T) };
    for (to, from) in to.iter_mut().zip(blocks.chunks_exact(facts.group)) {
        for v in 0..facts.vectors {
            for i in (0..64).step_by(16) {
                let (block, value) = place(T, v, i);
                to.numbers[v][i..i + 16].copy_from_slice(&from[block].numbers[value..value + 16]);
                to.scales[v][i / 4..i / 4 + 4].fill(from[block].scale);
            }
            to.start[v] = [0; 16];
        }
        for (i, block) in from.iter().enumerate() {
            // Any lane that has the scale of the block will do.
            let (v, lane) = if facts.merged { (0, 4 * i) } else { (i / 2, i % 2 * 8) };
            if facts.offset == 0 {
                to.sums[i] = block.total;
            } else {
                [to.start[v][lane], _] = block.starts(facts.offset, 1);
            }
        }
    }
}

/// The products of a row of the matrix and `N` rows of activations.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c")]
#[inline]
fn tile<const T: u8, const N: usize>(row: &[u8], mut with: [&[Ordered]; N]) -> [f32; N] {
    let facts = const { Facts::of(T) };
    let n = with[0].len();
    for with in &mut with {
        *with = &with[..n];
    }
    let mut sums = [_mm512_setzero_ps(); N];
    for (g, bytes) in row.chunks_exact(facts.group_bytes()).enumerate().take(n) {
        for line in (0..facts.group_bytes()).step_by(64) {
            fetch(&bytes[line..], AHEAD);
        }
        let group = types::group::<T>(bytes);
        for (sum, with) in sums.iter_mut().zip(with) {
            let with = &with[g];
            let numbers: [__m512i; VECTORS] = bytemuck::cast(with.numbers);
            let scales: [__m512; VECTORS] = bytemuck::cast(with.scales);
            let start: [__m512i; VECTORS] = bytemuck::cast(with.start);
            let mut whole = start[0];
            for v in 0..facts.vectors {
                if v > 0 && !facts.merged {
                    whole = start[v];
                }
                whole = _mm512_dpbusd_epi32(whole, group.numbers[v], numbers[v]);
                if v + 1 == facts.vectors || !facts.merged {
                    let v = if facts.merged { 0 } else { v };
                    let scale = _mm512_mul_ps(group.scales[v], scales[v]);
                    *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), scale, *sum);
                }
            }
            if facts.offset == 0 {
                *sum = _mm512_fnmadd_ps(group.offsets, bytemuck::cast(with.sums), *sum);
            }
        }
    }
    sums.map(|sum| _mm512_reduce_add_ps(sum))
}
