//! Products with matrices of floats. Activations and sums are `f32`.

use bytemuck::{Pod, Zeroable};
use ggml::DType;

use super::panel::HALF;
use super::set::{Set, compiled};
use super::{Put, Row, WIDTH, add_to_rows, ahead, parts, resize};

/// The numbers in a part of all rows of activations, where they are few: they stay in the nearest cache.
pub(super) const NEAR: usize = 4096;

/// The rows of a panel that stay in the nearest cache, with the rows of activations that are multiplied.
pub(super) const DEEP: usize = 256;

/// Up to so many rows of activations, a matrix is not unpacked.
pub(super) const FEW: usize = 8;

/// A type of floats.
pub(crate) trait Float: Send + Sync + 'static {
    const DTYPE: DType;
    /// The bytes of a vector.
    type Bytes<S: Set>: Pod;

    /// A vector from bytes.
    fn load<S: Set>(s: S, bytes: &Self::Bytes<S>) -> S::Floats;
}

pub(crate) struct F32;
pub(super) struct F16;
pub(super) struct Bf16;

impl Float for F32 {
    const DTYPE: DType = DType::F32;
    type Bytes<S: Set> = S::Bytes4;

    #[inline(always)]
    fn load<S: Set>(_: S, bytes: &S::Bytes4) -> S::Floats {
        bytemuck::cast(*bytes)
    }
}

impl Float for F16 {
    const DTYPE: DType = DType::F16;
    type Bytes<S: Set> = S::Bytes2;

    #[inline(always)]
    fn load<S: Set>(s: S, bytes: &S::Bytes2) -> S::Floats {
        s.halves(bytes)
    }
}

impl Float for Bf16 {
    const DTYPE: DType = DType::BF16;
    type Bytes<S: Set> = S::Bytes2;

    /// They are the upper halves of `f32`.
    #[inline(always)]
    fn load<S: Set>(_: S, bytes: &S::Bytes2) -> S::Floats {
        let mut all = [0_u32; 16];
        for (to, bytes) in all.iter_mut().zip(bytemuck::bytes_of(bytes).as_chunks().0) {
            *to = u32::from(u16::from_le_bytes(*bytes)) << 16;
        }
        bytemuck::pod_read_unaligned(bytemuck::cast_slice(&all[..S::LANES]))
    }
}

/// Copies rows in parts of [`DEEP`] numbers: the first part of each row, then the second of each, and so on. What is multiplied at a time
/// lies together then: rows that are a power of two apart would take the same few places of a cache.
pub(super) fn in_parts<'a>(n: usize, row: impl Fn(usize) -> &'a [f32], to: &'a mut Vec<f32>) -> Vec<&'a [f32]> {
    let depth = row(0).len();
    let to = resize(to, n * depth);
    for (part, from) in to.chunks_mut(n * DEEP).zip((0..depth).step_by(DEEP)) {
        let deep = part.len() / n;
        part.chunks_exact_mut(deep).enumerate().for_each(|(i, to)| to.copy_from_slice(&row(i)[from..][..deep]));
    }
    to.chunks(n * DEEP).flat_map(|part| part.chunks_exact(part.len() / n)).collect()
}

/// Copies two to [`FEW`] rows: a vector of each after the other of those that are multiplied at a time. The last one is repeated where there
/// are too few.
pub(super) fn in_turns<'a, S: Set>(n: usize, row: impl Fn(usize) -> &'a [f32], to: &'a mut Vec<Row>) -> Vec<&'a [f32]> {
    let (depth, at_once) = (row(0).len(), if n > 6 { 4 } else { n.next_multiple_of(2) });
    let to: &mut [f32] = bytemuck::cast_slice_mut(resize(to, n.next_multiple_of(at_once) * depth / WIDTH));
    for (to, first) in to.chunks_exact_mut(at_once * depth).zip((0..).step_by(at_once)) {
        for (to, from) in to.chunks_exact_mut(at_once * S::LANES).zip((0..).step_by(S::LANES)) {
            for (to, i) in to.chunks_exact_mut(S::LANES).zip(first..) {
                to.copy_from_slice(&row(i.min(n - 1))[from..][..S::LANES]);
            }
        }
    }
    to.chunks(at_once * depth).collect()
}

/// The products of columns and `n` rows of activations: one as it is, up to [`FEW`] by [`in_turns`], more by [`in_parts`].
/// Matrices stay packed where the rows are few.
pub(super) fn product<S: Set, T: Float>(
    s: S,
    columns: &[&[u8]; WIDTH],
    (n, rows): (usize, &[&[f32]]),
    (panel, sums): (&mut Vec<Row>, &mut Vec<Row>),
    put: Put<'_>,
) {
    // As many sums as registers hold; of one row, columns that leave places in the nearest cache if they are a power of two apart.
    match n {
        1 => return few::<S, T, 4, 1, 1>(s, columns, (n, rows), put),
        2 => return few::<S, T, 4, 2, 1>(s, columns, (n, rows), put),
        3 | 4 => return few::<S, T, 3, 4, 1>(s, columns, (n, rows), put),
        5 | 6 => return few::<S, T, 2, 6, 1>(s, columns, (n, rows), put),
        7 | FEW => return few::<S, T, 3, 4, 2>(s, columns, (n, rows), put),
        _ => {}
    }
    let sums = resize(sums, n);
    sums.fill(Row::zeroed());
    for (rows, from) in rows.chunks_exact(n).zip((0..).step_by(rows[0].len())) {
        let panel = resize(panel, rows[0].len());
        unpack::<S, T>(s, columns, from, panel);
        tiles(s, rows, (panel, 0), sums);
    }
    sums.iter().enumerate().for_each(|(i, sums)| put(i, &sums.0));
}

/// The products of `M` times `N` rows of activations, of which [`NEAR`] numbers stay in the nearest cache, `N` rows and `C` columns at a
/// time. The columns are far apart: memory is read faster at several places at once.
fn few<S: Set, T: Float, const C: usize, const N: usize, const M: usize>(
    s: S,
    columns: &[&[u8]; WIDTH],
    (n, rows): (usize, &[&[f32]]),
    put: Put<'_>,
) {
    let sums = compiled!(s, {
        let (apart, deep) = const { (WIDTH.div_ceil(C), NEAR / (N * M * S::LANES)) };
        let ahead = ahead(columns[0].len());
        let columns = columns.map(vectors::<T::Bytes<S>, _>);
        let rows: [&[[S::Bytes4; N]]; M] = std::array::from_fn(|m| vectors(rows[m]).as_chunks().0);
        // Three columns at a time make one more than there are: the last is multiplied twice.
        let mut all = [[[S::Floats::zeroed(); WIDTH + 1]; N]; M];
        for from in (0..rows[0].len()).step_by(deep) {
            let part = from..rows[0].len().min(from + deep);
            for i in 0..apart {
                let columns = std::array::from_fn(|c| &columns[(i + c * apart).min(WIDTH - 1)][part.clone()]);
                for (all, rows) in all.iter_mut().zip(rows) {
                    let sums = dot::<S, T, C, N>(s, columns, &rows[part.clone()], ahead);
                    for (all, sums) in all.iter_mut().zip(sums) {
                        for (c, sum) in sums.into_iter().enumerate() {
                            all[i + c * apart] = s.mul_add(sum, s.floats(1.0), all[i + c * apart]);
                        }
                    }
                }
            }
        }
        let mut sums = [[[0.0; WIDTH]; N]; M];
        for (to, from) in sums.as_flattened_mut().iter_mut().zip(all.as_flattened()) {
            for (to, from) in to.iter_mut().zip(from) {
                *to = s.sum(*from);
            }
        }
        sums
    });
    sums.as_flattened().iter().enumerate().take(n).for_each(|(i, sums)| put(i, sums));
}

/// Numbers, as many at a time as a vector has.
#[inline(always)]
fn vectors<To: Pod, From: Pod>(row: &[From]) -> &[To] {
    let bytes: &[u8] = bytemuck::cast_slice(row);
    bytemuck::cast_slice(&bytes[..bytes.len() / size_of::<To>() * size_of::<To>()])
}

/// The products of some columns, for each row of activations. What lies `ahead` bytes behind the columns is fetched.
#[inline(always)]
fn dot<S: Set, T: Float, const C: usize, const N: usize>(
    s: S,
    columns: [&[T::Bytes<S>]; C],
    rows: &[[S::Bytes4; N]],
    ahead: usize,
) -> [[S::Floats; C]; N] {
    let columns = parts(columns, 0..rows.len());
    let mut sums = [[S::Floats::zeroed(); C]; N];
    for (k, rows) in rows.iter().enumerate() {
        // All registers of AVX2: 12 sums, three columns and a row. The rows that come first would be kept in four of them.
        let mut w = [S::Floats::zeroed(); C];
        for (w, column) in w.iter_mut().zip(columns) {
            s.fetch(&column[k], ahead);
            *w = T::load(s, &column[k]);
        }
        for (sums, row) in sums.iter_mut().zip(rows) {
            let x = bytemuck::cast(*row);
            for (sum, w) in sums.iter_mut().zip(w) {
                *sum = s.mul_add(w, x, *sum);
            }
        }
    }
    sums
}

/// Unpacks as many numbers of each of [`WIDTH`] rows of the matrix, from `from` on, as the panel is deep: they become its columns.
pub(crate) fn unpack<S: Set, T: Float>(s: S, columns: &[&[u8]; WIDTH], from: usize, panel: &mut [Row]) {
    compiled!(s, {
        let deep = panel.len();
        // Strips of two vectors of columns, one after the other: what is multiplied at a time lies together, so that it takes all
        // places of the nearest cache.
        let panel: &mut [[S::Floats; 2]] = bytemuck::cast_slice_mut::<_, S::Floats>(panel).as_chunks_mut().0;
        for (at, rows) in columns.chunks_exact(S::LANES).enumerate() {
            for k in 0..deep / S::LANES {
                let mut square = S::Square::zeroed();
                for (to, row) in bytemuck::cast_slice_mut(std::slice::from_mut(&mut square)).iter_mut().zip(rows) {
                    let bytes = &vectors::<T::Bytes<S>, _>(row)[from / S::LANES + k];
                    s.fetch(bytes, row.len() * HALF); // the rows that come next
                    *to = T::load(s, bytes);
                }
                let square = s.transpose(square);
                let rows: &[S::Floats] = bytemuck::cast_slice(std::slice::from_ref(&square));
                let to = &mut panel[at / 2 * deep + k * S::LANES..][..S::LANES];
                for (to, numbers) in to.iter_mut().zip(rows) {
                    to[at % 2] = *numbers;
                }
            }
        }
    });
}

/// Sets a column of panels that are `deep` numbers deep. (The instruction of AVX-512 that stores numbers apart is slower than one
/// by one: this isn't compiled for a set.)
#[inline(never)]
pub(crate) fn set_column<S: Set>(panels: &mut [Row], deep: usize, i: usize, column: &[f32]) {
    let width = 2 * S::LANES;
    let numbers: &mut [f32] = bytemuck::cast_slice_mut(panels);
    let to = numbers[i / width * width * deep + i % width..].iter_mut().step_by(width);
    to.zip(column).for_each(|(to, x)| *to = *x);
}

/// Sets a row of panels that are `deep` numbers deep.
#[inline(always)]
pub(crate) fn set_row<S: Set>(panels: &mut [Row], deep: usize, i: usize, row: &[f32]) {
    let width = 2 * S::LANES;
    let strips = bytemuck::cast_slice_mut::<_, f32>(panels).chunks_exact_mut(width * deep);
    for (strip, numbers) in strips.zip(row.chunks(width)) {
        strip[i * width..][..numbers.len()].copy_from_slice(numbers);
    }
}

/// The numbers of each row that are multiplied without a branch: on Zen 3, one that is taken but for each 16th number took a third of the time.
const STEP: usize = 8;

/// Adds the products of rows, or parts of them, and a panel that is as deep, or deeper.
pub(crate) fn tiles<S: Set>(s: S, all_rows: &[&[f32]], (panel, ahead): (&[Row], usize), sums: &mut [Row]) {
    // As many rows as registers hold; of the last ones, as few as there are.
    let most = if S::LANES == HALF { 12 } else { 6 };
    let turns = sums.len().div_ceil(most);
    compiled!(s, {
        let numbers: &[[S::Floats; 2]] = bytemuck::cast_slice::<_, S::Floats>(panel).as_chunks().0;
        for (at, strip) in numbers.chunks_exact(panel.len()).enumerate() {
            let strip = &strip[..all_rows[0].len()];
            for (turn, both) in all_rows.chunks(most).zip(sums.chunks_mut(most)).enumerate() {
                let fetched = (if ahead > 0 { turn } else { usize::MAX }, turns, ahead * size_of::<[S::Floats; 2]>());
                match both.0.len() {
                    1 | 2 => tile::<S, 2>(s, both, (strip, at), fetched),
                    3 | 4 => tile::<S, 4>(s, both, (strip, at), fetched),
                    _ if S::LANES == HALF => tile::<S, 12>(s, both, (strip, at), fetched),
                    _ => tile::<S, 6>(s, both, (strip, at), fetched),
                }
            }
        }
    });
}

/// Adds the products of `R` rows and a strip. Fetches the next rows, and its share of what lies behind the strip, such as the next.
/// (Sums that begin with others would be left in memory.)
#[inline(always)]
fn tile<S: Set, const R: usize>(
    s: S,
    (all_rows, all): (&[&[f32]], &mut [Row]),
    (strip, at): (&[[S::Floats; 2]], usize),
    (mut fetched, turns, ahead): (usize, usize, usize),
) {
    let rows: [&[f32]; R] = std::array::from_fn(|i| &all_rows[i.min(all_rows.len() - 1)][..strip.len()]);
    let mut sums = [[S::Floats::zeroed(); 2]; R];
    let (steps, rest) = strip.as_chunks::<STEP>();
    for (step, numbers) in steps.iter().enumerate() {
        if step == fetched {
            for numbers in numbers {
                s.fetch(numbers, ahead);
            }
            fetched += turns;
        }
        let mut x = [&[0.0; STEP]; R];
        for (x, row) in x.iter_mut().zip(rows) {
            *x = &row.as_chunks().0[step];
            s.fetch(*x, R * size_of_val(row)); // those that come next lie together, too
        }
        for (k, numbers) in numbers.iter().enumerate() {
            for (sums, x) in sums.iter_mut().zip(x) {
                // A loop here would leave the sums in memory where there are many.
                let x = s.floats(x[k]);
                *sums = [s.mul_add(numbers[0], x, sums[0]), s.mul_add(numbers[1], x, sums[1])];
            }
        }
    }
    for (k, numbers) in (steps.len() * STEP..).zip(rest) {
        for (sums, row) in sums.iter_mut().zip(rows) {
            let x = s.floats(row[k]);
            *sums = [s.mul_add(numbers[0], x, sums[0]), s.mul_add(numbers[1], x, sums[1])];
        }
    }
    add_to_rows(s, sums, all, at);
}
