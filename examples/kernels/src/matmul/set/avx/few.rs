//! A few rows of activations times matrices whose scales are small integers: sums of 256 numbers stay integers, because the
//! activations, too, have one scale for so many.

use std::arch::x86_64::__m256i;
use std::cell::RefCell;

use bytemuck::{Pod, Zeroable};

use super::Avx;
use crate::matmul::activations::{self, BLOCK};
use crate::matmul::products::Group;
use crate::matmul::set::{Set, compiled};
use crate::matmul::types::{self, Type, each_block};
use crate::matmul::{DEPTH, Out, Put, WIDTH, ahead, parts, resize};

/// Numbers from -127 to 127, times a scale. No vector of them crosses a cache line, which would take twice as long to read.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Unit {
    numbers: [[i8; BLOCK]; DEPTH / BLOCK],
    /// The sums of the first halves of blocks, and of the second halves.
    sums: [[i16; DEPTH / BLOCK]; 2],
    scale: f32,
    _rest: [u32; 7],
}

thread_local! {
    /// Memory that a thread keeps from one product to the next.
    static SCRATCH: RefCell<Vec<Unit>> = RefCell::default();
}

/// Computes columns of the product.
pub(super) fn multiply<const VNNI: u8, T: Type>(s: Avx<VNNI>, out: &mut Out<'_>, group: &Group<'_>) {
    let n = group.activations(0).len() / DEPTH;
    SCRATCH.with_borrow_mut(|units| {
        let units = resize(units, group.rows.len() * n);
        for (i, to) in units.chunks_exact_mut(n).enumerate() {
            let row = group.activations(i);
            compiled!(s, quantise::<VNNI, T>(s, row, to));
        }
        group.each(out, |columns, put| match group.rows.len() {
            1 => products::<VNNI, T, 1>(s, columns, units, put),
            2 => products::<VNNI, T, 2>(s, columns, units, put),
            3 => products::<VNNI, T, 3>(s, columns, units, put),
            4 => products::<VNNI, T, 4>(s, columns, units, put),
            5 | 6 => products::<VNNI, T, 6>(s, columns, units, put),
            _ => products::<VNNI, T, 8>(s, columns, units, put),
        });
    });
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "sums of 16 bytes")]
fn quantise<const VNNI: u8, T: Type>(s: Avx<VNNI>, row: &[f32], to: &mut [Unit]) {
    for (to, from) in to.iter_mut().zip(row.as_chunks().0.chunks_exact(DEPTH / BLOCK)) {
        let most = activations::most::<Avx<VNNI>, T>(from);
        to.scale = most / 127.0;
        for (b, from) in from.iter().enumerate() {
            to.numbers[b] = s.round(from, activations::factor(most, 127.0));
            let [first, second] = s.sums_of_bytes(bytemuck::cast(to.numbers[b]));
            [to.sums[0][b], to.sums[1][b]] = [first as i16, second as i16];
        }
    }
}

/// The products of up to `N` rows of activations.
fn products<const VNNI: u8, T: Type, const N: usize>(
    s: Avx<VNNI>,
    columns: &[&[T::Unit]; WIDTH],
    units: &[Unit],
    put: Put<'_>,
) {
    let n = columns[0].len();
    let rows: [_; N] = std::array::from_fn(|i| units.chunks_exact(n).nth(i).unwrap_or(&units[..n]));
    let sums = compiled!(s, {
        let mut all = [[0.0; WIDTH]; N];
        for (c, column) in columns.iter().enumerate() {
            let sums = dot::<VNNI, T, N>(s, column, rows);
            for (all, sum) in all.iter_mut().zip(sums) {
                all[c] = sum;
            }
        }
        all
    });
    sums.iter().enumerate().take(units.len() / n).for_each(|(i, sums)| put(i, sums));
}

/// The scales of first halves of blocks, then those of second halves; and what sums of these halves are multiplied by.
#[inline(always)]
fn integers<const VNNI: u8, T: Type>(s: Avx<VNNI>, unit: &T::Unit) -> [__m256i; 2] {
    let [first, second] = T::integers(s, [unit]);
    let scales = [first, if T::HALVES == 2 { second } else { first }];
    let others = if T::OFFSETS { [second; 2] } else { scales };
    let avx2 = s.0.avx2;
    [avx2._mm256_cvtepi8_epi16(bytemuck::cast(scales)), avx2._mm256_cvtepi8_epi16(bytemuck::cast(others))]
}

/// The product of a column, for each row of activations.
#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "offsets have six bits")]
fn dot<const VNNI: u8, T: Type, const N: usize>(s: Avx<VNNI>, column: &[T::Unit], rows: [&[Unit]; N]) -> [f32; N] {
    let avx2 = s.0.avx2;
    let rows = parts(rows, 0..column.len());
    // Where the bytes of a block's scales are. The compiler must not know, or it makes two instructions of one.
    let mut each = [__m256i::zeroed(); DEPTH / BLOCK];
    let mut bytes = 0x0100_0100;
    for each in &mut each {
        *each = s.in_turn(s.ints(bytes));
        bytes += 0x0202_0202;
    }
    let mut all = [s.floats(0.0); N];
    for (u, unit) in column.iter().enumerate() {
        types::fetch(s, unit, ahead(size_of_val(column)));
        let [scales, others] = integers::<VNNI, T>(s, unit);
        let mut sums = [__m256i::zeroed(); N];
        each_block!(T, B => {
            let numbers = types::numbers::<_, T, B>(s, unit);
            let scale = avx2._mm256_shuffle_epi8(scales, each[B]);
            for (sums, row) in sums.iter_mut().zip(rows) {
                let products = avx2._mm256_maddubs_epi16(numbers, bytemuck::cast(row[u].numbers[B]));
                *sums = s.in_turn(avx2._mm256_add_epi32(*sums, avx2._mm256_madd_epi16(products, scale)));
            }
        });
        let [by, factor] = T::factors(s, unit);
        let more = s.floats(if T::OFFSETS { factor } else { -T::OFFSET as f32 * by });
        let by = s.floats(by);
        for ((all, sums), row) in all.iter_mut().zip(sums).zip(rows) {
            let offsets = avx2._mm256_madd_epi16(others, bytemuck::cast(row[u].sums));
            let whole = s.mul_add(s.convert(offsets), more, s.mul(s.convert(sums), by));
            *all = s.mul_add(whole, s.floats(row[u].scale), *all);
        }
    }
    let mut sums = [0.0; N];
    for (to, all) in sums.iter_mut().zip(all) {
        *to = s.sum(all);
    }
    sums
}
