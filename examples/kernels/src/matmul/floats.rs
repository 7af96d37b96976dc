//! Products with matrices of floats. Activations and sums are `f32`.

use bytemuck::{Pod, Zeroable};
use ggml::DType;

use super::panel::HALF;
use super::set::{Set, compiled};
use super::{Put, Row, WIDTH, add_to_rows, ahead, parts, resize};

/// The numbers in a part of all rows of activations, where they are few. More leave the nearest cache; of fewer, parts of columns are so short
/// that memory is read slower.
pub(super) const NEAR: usize = 8192;

/// The rows of a panel that stay in the nearest cache, with the rows of activations that are multiplied.
pub(super) const DEEP: usize = 192;

/// Up to so many rows of activations, a matrix is not unpacked.
pub(super) const FEW: usize = 8;

/// The bytes of a line of a cache.
const LINE: usize = 64;

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

/// The rows that are multiplied at a time where `left` are left: what registers hold with the columns of a panel.
const fn at_once<S: Set>(left: usize) -> usize {
    match (S::LANES == HALF, left) {
        (_, 1) => 1,
        (true, 12..) => 12,
        (true, 4..) => 4,
        // Four are two and two: of one, sums are too few for the delay of multiply-adds.
        (false, 3 | 5..) => 3,
        _ => 2,
    }
}

/// Copies `n` rows as [`tiles`] takes them, in parts of `deep` numbers: of the rows that are multiplied at a time, a number of each, then
/// the next of each. (The instruction of AVX-512 that stores numbers apart is slower than one by one: this isn't compiled for a set.)
pub(crate) fn pack<'a, 'b, S: Set>(
    (n, deep): (usize, usize),
    row: impl Fn(usize) -> &'a [f32],
    to: &'b mut Vec<f32>,
) -> &'b [f32] {
    let depth = row(0).len();
    let to = resize(to, n * depth);
    for (part, from) in to.chunks_mut(n * deep).zip((0..depth).step_by(deep)) {
        let (deep, mut first) = (part.len() / n, 0);
        while first < n {
            let width = at_once::<S>(n - first);
            let part = &mut part[first * deep..][..width * deep];
            for i in 0..width {
                let numbers = &row(first + i)[from..];
                part.chunks_exact_mut(width).zip(numbers).for_each(|(to, x)| to[i] = *x);
            }
            first += width;
        }
    }
    to
}

/// Copies two to [`FEW`] rows: a vector of each after the other of those that are multiplied at a time. The last one is repeated where there
/// are too few.
pub(super) fn in_turns<'a, S: Set>(n: usize, row: impl Fn(usize) -> &'a [f32], to: &'a mut Vec<Row>) -> Vec<&'a [f32]> {
    let (depth, some) = (row(0).len(), if n > 6 { 4 } else { n.next_multiple_of(2) });
    let to: &mut [f32] = bytemuck::cast_slice_mut(resize(to, n.next_multiple_of(some) * depth / WIDTH));
    for (to, first) in to.chunks_exact_mut(some * depth).zip((0..).step_by(some)) {
        for (to, from) in to.chunks_exact_mut(some * S::LANES).zip((0..).step_by(S::LANES)) {
            for (to, i) in to.chunks_exact_mut(S::LANES).zip(first..) {
                to.copy_from_slice(&row(i.min(n - 1))[from..][..S::LANES]);
            }
        }
    }
    to.chunks(some * depth).collect()
}

/// The products of columns and `n` rows of activations: one as it is, up to [`FEW`] by [`in_turns`], more by [`pack`] in parts of [`DEEP`].
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
        1 => return few::<S, T, 4, 1, 1, 1>(s, columns, (n, rows), put),
        2 => return few::<S, T, 4, 2, 1, 1>(s, columns, (n, rows), put),
        3 | 4 => return few::<S, T, 3, 4, 1, 1>(s, columns, (n, rows), put),
        5 | 6 => return few::<S, T, 2, 6, 1, 1>(s, columns, (n, rows), put),
        7 | FEW => return few::<S, T, 3, 4, 2, 4>(s, columns, (n, rows), put),
        _ => {}
    }
    let sums = resize(sums, n);
    sums.fill(Row::zeroed());
    for (rows, from) in rows.iter().zip((0..).step_by(DEEP)) {
        let panel = resize(panel, rows.len() / n);
        unpack::<S, T>(s, columns, from, panel);
        tiles(s, rows, (panel, 0), sums);
    }
    sums.iter().enumerate().for_each(|(i, sums)| put(i, &sums.0));
}

/// The products of `M` times `N` rows of activations, [`NEAR`] numbers in a part of all rows, `N` rows and `C` columns at a
/// time. The columns are far apart: memory is read faster at several places at once.
fn few<S: Set, T: Float, const C: usize, const N: usize, const M: usize, const TURN: usize>(
    s: S,
    columns: &[&[u8]; WIDTH],
    (n, rows): (usize, &[&[f32]]),
    put: Put<'_>,
) {
    let sums = compiled!(s, {
        let (apart, deep) = const { (WIDTH.div_ceil(C), NEAR / (N * M * S::LANES) / TURN * TURN) };
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
                    let sums = dot::<S, T, C, N, TURN>(s, columns, &rows[part.clone()], ahead);
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
fn dot<S: Set, T: Float, const C: usize, const N: usize, const TURN: usize>(
    s: S,
    columns: [&[T::Bytes<S>]; C],
    rows: &[[S::Bytes4; N]],
    ahead: usize,
) -> [[S::Floats; C]; N] {
    let columns = parts(columns, 0..rows.len()).map(|column| column.as_chunks::<TURN>().0);
    let mut sums = [[S::Floats::zeroed(); C]; N];
    for (turn, rows) in rows.as_chunks::<TURN>().0.iter().enumerate() {
        let columns = columns.map(|column| &column[turn]);
        for (k, rows) in rows.iter().enumerate() {
            // All registers of AVX2: 12 sums, three columns and a row. The rows that come first would be kept in four of them.
            let mut w = [S::Floats::zeroed(); C];
            for (w, column) in w.iter_mut().zip(columns) {
                if (k * size_of::<T::Bytes<S>>()).is_multiple_of(LINE) {
                    s.fetch(&column[k], ahead);
                }
                *w = T::load(s, &column[k]);
            }
            for (sums, row) in sums.iter_mut().zip(rows) {
                let x = bytemuck::cast(*row);
                for (sum, w) in sums.iter_mut().zip(w) {
                    *sum = s.mul_add(w, x, *sum);
                }
            }
        }
    }
    sums
}

/// Unpacks as many numbers of each of [`WIDTH`] rows of the matrix, from `from` on, as the panel is deep: they become its columns.
pub(crate) fn unpack<S: Set, T: Float>(s: S, columns: &[&[u8]; WIDTH], from: usize, panel: &mut [Row]) {
    compiled!(s, {
        let (deep, row, number) = (panel.len(), columns[0].len(), size_of::<T::Bytes<S>>() / S::LANES);
        // The part that comes next, or the columns.
        let next = if (from + deep) * number < row { deep * number } else { WIDTH * row - from * number };
        let panel: &mut [S::Floats] = bytemuck::cast_slice_mut(panel);
        for (at, rows) in columns.chunks_exact(S::LANES).enumerate() {
            for k in 0..deep / S::LANES {
                let mut square = S::Square::zeroed();
                for (to, row) in bytemuck::cast_slice_mut(std::slice::from_mut(&mut square)).iter_mut().zip(rows) {
                    let bytes = &vectors::<T::Bytes<S>, _>(row)[from / S::LANES + k];
                    s.fetch(bytes, next);
                    *to = T::load(s, bytes);
                }
                let square = s.transpose(square);
                let rows: &[S::Floats] = bytemuck::cast_slice(std::slice::from_ref(&square));
                let to = panel[(k * WIDTH + at)..].iter_mut().step_by(WIDTH / S::LANES);
                to.zip(rows).for_each(|(to, numbers)| *to = *numbers);
            }
        }
    });
}

/// The numbers of each row that are multiplied without a branch: on Zen 3, one that is taken but for each 16th number took a third of the time.
const STEP: usize = 8;

/// Adds the products of packed rows, or parts of them, and a panel that is as deep, or deeper.
pub(crate) fn tiles<S: Set>(s: S, rows: &[f32], (panel, ahead): (&[Row], usize), sums: &mut [Row]) {
    let deep = rows.len() / sums.len();
    let (panel, ahead) = (&panel[..deep], ahead * size_of::<Row>());
    let turns = sums.len().div_ceil(at_once::<S>(usize::MAX));
    compiled!(s, {
        let (mut rows, mut sums, mut turn) = (rows, sums, if ahead > 0 { 0 } else { usize::MAX });
        while !sums.is_empty() {
            let width = at_once::<S>(sums.len());
            let (some, to) = (&rows[..width * deep], &mut sums[..width]);
            let fetched = (turn, turns, ahead);
            match (S::LANES == HALF, width) {
                (true, 1) => tile::<S, 1, 2>(s, (some, to), panel, fetched),
                (true, 2) => tile::<S, 2, 2>(s, (some, to), panel, fetched),
                (true, 4) => tile::<S, 4, 2>(s, (some, to), panel, fetched),
                (true, _) => tile::<S, 12, 2>(s, (some, to), panel, fetched),
                (_, 1) => tile::<S, 1, 4>(s, (some, to), panel, fetched),
                (_, 2) => tile::<S, 2, 4>(s, (some, to), panel, fetched),
                _ => tile::<S, 3, 4>(s, (some, to), panel, fetched),
            }
            (rows, sums, turn) = (&rows[width * deep..], &mut sums[width..], turn.saturating_add(1));
        }
    });
}

/// Adds the products of `R` rows and a panel of `V` vectors of columns. Fetches the next rows, and its share of what lies behind the
/// panel, such as the next. (Sums that begin with others would be left in memory.)
#[inline(always)]
fn tile<S: Set, const R: usize, const V: usize>(
    s: S,
    (rows, all): (&[f32], &mut [Row]),
    panel: &[Row],
    (mut fetched, turns, ahead): (usize, usize, usize),
) {
    let mut sums = [[S::Floats::zeroed(); V]; R];
    let panel: &[[S::Floats; V]] = bytemuck::cast_slice::<_, S::Floats>(panel).as_chunks().0;
    let ((steps, rest), next) = (panel.as_chunks::<STEP>(), size_of_val(rows));
    let (row_steps, row_rest) = rows.as_chunks::<R>().0.as_chunks::<STEP>();
    for (step, (numbers, rows)) in steps.iter().zip(row_steps).enumerate() {
        if step == fetched {
            for line in bytemuck::cast_slice::<_, [u8; LINE]>(numbers) {
                s.fetch(line, ahead);
            }
            fetched += turns;
        }
        for line in rows.as_flattened().chunks(LINE / size_of::<f32>()) {
            s.fetch(&line[0], next); // the rows that come next
        }
        for (numbers, x) in numbers.iter().zip(rows) {
            add(s, numbers, x, &mut sums);
        }
    }
    for (numbers, x) in rest.iter().zip(row_rest) {
        add(s, numbers, x, &mut sums);
    }
    add_to_rows(s, sums, [s.floats(1.0); V], (all, 0));
}

/// Adds the products of a number of each row and of each column. (In another order, registers are too few; a loop over two vectors would
/// leave the sums in memory, and so would closures.)
#[inline(always)]
fn add<S: Set, const R: usize, const V: usize>(s: S, w: &[S::Floats; V], x: &[f32; R], to: &mut [[S::Floats; V]; R]) {
    if V == 2 {
        for (to, x) in to.iter_mut().zip(x) {
            let x = s.floats(*x);
            (to[0], to[1]) = (s.mul_add(w[0], x, to[0]), s.mul_add(w[1], x, to[1]));
        }
        return;
    }
    let mut rows = [S::Floats::zeroed(); R];
    for (row, x) in rows.iter_mut().zip(x) {
        *row = s.floats(*x);
    }
    for (v, w) in w.iter().enumerate() {
        for (to, x) in to.iter_mut().zip(rows) {
            to[v] = s.mul_add(*w, x, to[v]);
        }
    }
}
