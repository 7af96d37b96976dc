//! Products of several rows of activations: numbers of eight columns are brought together, four of each, and stay in registers
//! until all rows are multiplied by them.

use bytemuck::Zeroable;

use super::activations::{BLOCK, Block};
use super::panel::FOUR;
use super::set::{Set, compiled};
use super::types::{self, EIGHT, Eight, Type, each_block};
use super::{Put, WIDTH, ahead, parts};

/// The most rows.
pub(super) const SEVERAL: usize = 16;
/// The rows that are multiplied at a time.
const TWO: usize = 2;

/// The products of up to [`SEVERAL`] rows of activations, which lie one after the other.
pub(super) fn product<S: Set, T: Type>(s: S, columns: &[&[T::Unit]; WIDTH], rows: &[Block], put: Put<'_>) {
    let n = columns[0].len() * T::BLOCKS;
    let mut sums = [[0.0; WIDTH]; SEVERAL];
    let all = &mut sums;
    compiled!(s, {
        for (i, eight) in columns.as_chunks().0.iter().enumerate() {
            let sums = dot::<S, T>(s, eight, rows, n);
            for (all, sums) in all.iter_mut().zip(&sums) {
                all[i * EIGHT..][..EIGHT].copy_from_slice(bytemuck::cast_slice(std::slice::from_ref(sums)));
            }
        }
    });
    sums.iter().enumerate().take(rows.len() / n).for_each(|(i, sums)| put(i, sums));
}

/// The products of eight columns and all rows, of `n` blocks each.
#[inline(always)]
fn dot<S: Set, T: Type>(s: S, eight: &[&[T::Unit]; EIGHT], rows: &[Block], n: usize) -> [S::Floats; SEVERAL] {
    const { assert!(S::LANES == EIGHT, "a lane for each column") };
    let columns = parts(*eight, 0..n / T::BLOCKS);
    let ahead = ahead(size_of_val(columns[0]));
    let mut sums = [S::Floats::zeroed(); SEVERAL];
    for u in 0..n / T::BLOCKS {
        let units = types::units::<S, T>(s, columns, u, ahead);
        let facts = T::facts(s, units);
        each_block!(T, B => {
            let (scales, blocks) = (T::scales::<B>(&facts), &rows[u * T::BLOCKS + B..]);
            add::<S, T, B>(s, units, scales, blocks, n, &mut sums);
        });
    }
    sums
}

/// Adds the products of a block of each column and row; that of the next row lies `n` blocks behind.
#[inline(always)]
fn add<S: Set, T: Type, const B: usize>(
    s: S,
    units: [&T::Unit; EIGHT],
    scales: [Eight; 2],
    blocks: &[Block],
    n: usize,
    sums: &mut [S::Floats; SEVERAL],
) {
    let scales: [S::Floats; 2] = scales.map(|x| bytemuck::pod_read_unaligned(bytemuck::bytes_of(&x)));
    let quads = types::quads::<S, T, B>(s, units);
    let half = quads.len() / T::HALVES;
    let most = S::most(T::BITS).min(half);
    for (r, sums) in sums.as_chunks_mut::<TWO>().0.iter_mut().enumerate() {
        let Some(first) = blocks.get(r * TWO * n) else { break };
        let x = [first, blocks.get((r * TWO + 1) * n).unwrap_or(first)];
        let bytes: [&[[u8; FOUR]; BLOCK / FOUR]; TWO] =
            [bytemuck::cast_ref(&x[0].numbers), bytemuck::cast_ref(&x[1].numbers)];
        for (h, &by) in scales.iter().enumerate().take(T::HALVES) {
            let mut whole = [s.ints(x[0].starts::<S, T>()[h]), s.ints(x[1].starts::<S, T>()[h])];
            for from in (h * half..(h + 1) * half).step_by(most) {
                let mut products = [s.begin(whole[0]), s.begin(whole[1])];
                for k in from..from + most {
                    for (products, bytes) in products.iter_mut().zip(bytes) {
                        let x = s.ints(i32::from_ne_bytes(bytes[k]));
                        *products = s.in_turn(s.dot(*products, quads[k], x));
                    }
                }
                for (whole, products) in whole.iter_mut().zip(products) {
                    *whole = s.end(*whole, products, s.ones());
                }
            }
            for r in 0..TWO {
                sums[r] = s.mul_add(s.convert(whole[r]), s.mul(by, s.floats(x[r].scale)), sums[r]);
            }
        }
        if T::OFFSETS {
            for (sums, x) in sums.iter_mut().zip(x) {
                *sums = s.mul_add(scales[1], s.floats(x.total), *sums);
            }
        }
    }
}
