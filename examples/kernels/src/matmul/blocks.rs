//! Products with matrices in blocks of integers.

use bytemuck::Zeroable;

use super::activations::Block;
use super::panel::{self, Panel};
use super::set::{Set, compiled};
use super::several::{self, SEVERAL};
use super::types::{self, EIGHT, Eight, Type, each_block};
use super::{Put, Row, WIDTH, ahead, parts, resize};

/// Of the columns that a few rows of activations are multiplied by at a time, the pairs whose halves share vectors.
const PAIRS: usize = EIGHT / 2;

/// The products of columns and rows of activations. Matrices stay packed where the rows are few.
pub(super) fn product<S: Set, T: Type>(
    s: S,
    columns: &[&[T::Unit]; WIDTH],
    blocks: &[Block],
    (panel, sums): (&mut Vec<Panel>, &mut Vec<Row>),
    put: Put<'_>,
) {
    let n = columns[0].len() * T::BLOCKS;
    let rows = blocks.len() / n;
    if rows <= SEVERAL {
        return match rows {
            1 => few::<_, T, 1>(s.short(), columns, blocks, put),
            2 => few::<_, T, 2>(s.short(), columns, blocks, put),
            _ => several::product::<_, T>(s.short(), columns, blocks, put),
        };
    }
    let deep = S::DEEP.min(n);
    let (panel, sums) = (resize(panel, deep), resize(sums, rows));
    sums.fill(Row::zeroed());
    for from in (0..n).step_by(deep) {
        let panel = &mut panel[..deep.min(n - from)];
        panel::unpack::<S, T>(s, columns, from / T::BLOCKS, panel);
        panel::multiply::<S, T>(s, (blocks, n, from), (panel, 0), sums);
    }
    sums.iter().enumerate().for_each(|(i, sums)| put(i, &sums.0));
}

/// The products of up to `N` rows of activations. Eight rows of the matrix are read at a time, once, and multiplied by all rows of
/// activations. They are far apart: memory is read faster at several places at once.
fn few<S: Set, T: Type, const N: usize>(s: S, columns: &[&[T::Unit]; WIDTH], blocks: &[Block], put: Put<'_>) {
    let n = columns[0].len() * T::BLOCKS;
    let rows: [_; N] = std::array::from_fn(|i| blocks.chunks_exact(n).nth(i).unwrap_or(&blocks[..n]));
    let sums = compiled!(s, {
        const TIMES: usize = WIDTH / EIGHT;
        let ahead = ahead(size_of_val(columns[0]));
        let mut all = [[0.0; WIDTH]; N];
        for i in 0..TIMES {
            let eight = std::array::from_fn(|c| columns[i + c * TIMES]);
            let sums = dot::<S, T, N>(s, eight, rows, ahead);
            for (all, sums) in all.iter_mut().zip(&sums) {
                for (c, sum) in bytemuck::cast_slice(std::slice::from_ref(sums)).iter().enumerate() {
                    all[i + c * TIMES] = *sum;
                }
            }
        }
        all
    });
    sums.iter().enumerate().take(blocks.len() / n).for_each(|(i, sums)| put(i, sums));
}

/// The products of eight columns, for each row of activations.
#[inline(always)]
fn dot<S: Set, T: Type, const N: usize>(
    s: S,
    columns: [&[T::Unit]; EIGHT],
    rows: [&[Block]; N],
    ahead: usize,
) -> [S::Floats; N] {
    const { assert!(S::LANES == EIGHT, "a lane for each column") };
    let n = columns[0].len();
    let columns = parts(columns, 0..n);
    let mut sums = [S::Floats::zeroed(); N];
    for u in 0..n {
        let blocks = parts(rows, u * T::BLOCKS..(u + 1) * T::BLOCKS);
        let units = types::units::<S, T>(s, columns, u, ahead);
        let facts = T::facts(s, units);
        each_block!(T, B => { add::<S, T, B, N>(s, units, T::scales::<B>(&facts), blocks, &mut sums); });
    }
    sums
}

/// Adds the products of a block of each column, and their offsets.
#[inline(always)]
fn add<S: Set, T: Type, const B: usize, const N: usize>(
    s: S,
    units: [&T::Unit; EIGHT],
    scales: [Eight; 2],
    rows: [&[Block]; N],
    sums: &mut [S::Floats; N],
) {
    let [scales, others]: [S::Floats; 2] = scales.map(|x| bytemuck::pod_read_unaligned(bytemuck::bytes_of(&x)));
    let mut numbers = [[s.ints(0); PAIRS]; 2];
    for p in 0..PAIRS {
        [numbers[0][p], numbers[1][p]] = types::pair::<S, T, B>(s, [units[p], units[p + PAIRS]]);
    }
    for (sum, row) in sums.iter_mut().zip(rows) {
        let x = &row[B];
        let numbers_of_x = bytemuck::pod_read_unaligned(bytemuck::bytes_of(&x.numbers));
        let halves = s.pair(numbers_of_x, numbers_of_x);
        let scale = s.floats(x.scale);
        let together = 2 / T::HALVES;
        for (h, scales) in [scales, others].into_iter().enumerate().take(T::HALVES) {
            let mut whole = [s.ints(0); PAIRS];
            for (p, whole) in whole.iter_mut().enumerate() {
                let mut products = s.begin(*whole);
                for half in h * together..(h + 1) * together {
                    if half > h && S::most(T::BITS) == 1 {
                        *whole = s.end(*whole, products, s.ones());
                        products = s.begin(*whole);
                    }
                    products = s.dot(products, numbers[half][p], halves[half]);
                }
                *whole = s.end(*whole, products, s.ones());
            }
            let whole = s.convert(s.eight(s.ints(x.starts::<S, T>()[h]), whole));
            *sum = s.mul_add(whole, s.mul(scales, scale), *sum);
        }
        if T::OFFSETS {
            *sum = s.mul_add(others, s.floats(x.total), *sum);
        }
    }
}
