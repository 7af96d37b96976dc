//! A tile of keys and values, and what tokens see of it.

use bytemuck::{Pod, Zeroable};
use ggml::{DType, ops::Operands};
use half::f16;
use pulp::NullaryFnOnce;

use super::{How, QueryPart};
use crate::matmul::{F32, Set, UnpackFloats, resize};
use crate::panels::{Row, WIDTH};

/// The keys of a tile.
pub(super) const KEYS: usize = 128;
/// The panels of their scores.
pub(super) const PANELS: usize = KEYS / WIDTH;

/// What a token sees of a tile.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Seen {
    /// All keys that it sees are before this one.
    pub(super) end: u32,
    /// 1 if it sees all of them, and nothing is added to any score.
    pub(super) all: u32,
    /// What is added to scores.
    pub(super) added: [f32; KEYS],
}

/// Says what each token sees of a tile, and which of its keys any of them sees.
pub(super) struct See<'a, 'o, S> {
    pub(super) s: S,
    pub(super) how: How,
    pub(super) part: QueryPart,
    pub(super) operands: &'a Operands<'o>,
    pub(super) from: usize,
    pub(super) seen: &'a mut [Seen],
}

impl<S: Set> NullaryFnOnce for See<'_, '_, S> {
    type Output = [bool; KEYS];

    #[inline(always)]
    fn call(self) -> [bool; KEYS] {
        let Self { s, how, part, operands, from, seen } = self;
        let keys = KEYS.min(how.cells - from);
        let mut used = [0_u16; KEYS];
        let Some(mask) = how.mask.map(|n| operands.rows::<f16>(n)) else {
            let mut added = [f32::NEG_INFINITY; KEYS];
            added[..keys].fill(0.0);
            let end = u32::try_from(keys).unwrap_or(0);
            seen.fill(Seen { end, all: u32::from(keys == KEYS), added });
            return std::array::from_fn(|i| i < keys);
        };
        let batch = part.batch.min(mask.shape()[3] - 1);
        for (token, to) in seen.iter_mut().enumerate() {
            // Keys that aren't there are hidden.
            let mut bits = [f16::NEG_INFINITY.to_bits(); KEYS];
            let row: &[u16] = bytemuck::cast_slice(mask.row([token, 0, batch]));
            bits[..keys].copy_from_slice(&row[from..][..keys]);
            let (mut any, mut end) = (0, 0_u16);
            for ((bits, used), number) in bits.iter().zip(&mut used).zip(1_u16..) {
                any |= bits;
                let sees = u16::from(*bits != f16::NEG_INFINITY.to_bits());
                *used |= sees;
                end = end.max(sees * number);
            }
            (to.all, to.end) = (u32::from(any == 0), u32::from(end));
            if any != 0 && end != 0 {
                for (to, bits) in to.added.chunks_exact_mut(S::LANES).zip(bits.chunks_exact(S::LANES)) {
                    let numbers = s.halves(&bytemuck::pod_read_unaligned(bytemuck::cast_slice(bits)));
                    to.copy_from_slice(bytemuck::cast_slice(std::slice::from_ref(&numbers)));
                }
            }
        }
        used.map(|used| used != 0)
    }
}

/// Keys and values as panels.
#[derive(Default)]
pub(super) struct Tile {
    rows: Vec<f32>,
    keys: Vec<Row>,
    values: Vec<Row>,
    /// Whether all values are finite.
    pub(super) finite: bool,
}

impl Tile {
    /// The panels of keys: as deep as a key is long.
    pub(super) fn keys(&self, size: usize) -> impl Iterator<Item = &[Row]> {
        self.keys.chunks_exact(size).take(PANELS)
    }

    /// The panels of values, which are [`KEYS`] deep.
    pub(super) fn values(&self, size: usize) -> impl Iterator<Item = &[Row]> {
        self.values.chunks_exact(KEYS).take(size.div_ceil(WIDTH))
    }

    /// Unpacks the keys and values that are used; zeros take the place of others.
    pub(super) fn unpack<S: Set>(
        &mut self,
        s: S,
        how: How,
        operands: &Operands<'_>,
        at: [usize; 3],
        used: &[bool; KEYS],
    ) {
        let Self { rows, keys, values, finite } = self;
        let [k_size, v_size] = how.sizes;
        let padded = v_size.next_multiple_of(WIDTH);
        let rows = resize(rows, KEYS * k_size.max(padded));
        s.run(Read { s, from: (operands, 1, how.types[0]), at, used, width: k_size, rows });
        for (panel, rows) in
            resize(keys, PANELS * k_size).chunks_exact_mut(k_size).zip(rows.chunks_exact(WIDTH * k_size))
        {
            let columns: [&[u8]; WIDTH] = std::array::from_fn(|i| bytemuck::cast_slice(&rows[i * k_size..][..k_size]));
            s.run(UnpackFloats::<S, F32>::new(s, &columns, 0, panel));
        }
        if padded > v_size {
            rows.fill(0.0); // what is behind the last numbers of values
        }
        let rows = &mut rows[..KEYS * padded];
        *finite = s.run(Read { s, from: (operands, 2, how.types[1]), at, used, width: padded, rows });
        let strip = 2 * S::LANES;
        for (p, panel) in resize(values, padded / WIDTH * KEYS).chunks_exact_mut(KEYS).enumerate() {
            let numbers: &mut [f32] = bytemuck::cast_slice_mut(panel);
            for (at, to) in numbers.chunks_exact_mut(strip * KEYS).enumerate() {
                for (to, row) in to.chunks_exact_mut(strip).zip(rows.chunks_exact(padded)) {
                    to.copy_from_slice(&row[p * WIDTH + at * strip..][..strip]);
                }
            }
        }
    }

    /// Adds values times weights one by one, without those whose weights are 0: of a number that is not finite, something would
    /// be left.
    pub(super) fn add_seen<S: Set>(&self, weights: &[f32], mut add: impl FnMut(usize, usize, f32)) {
        let (deep, strip) = (KEYS, 2 * S::LANES);
        for (p, panel) in self.values.chunks_exact(KEYS).enumerate() {
            let numbers: &[f32] = bytemuck::cast_slice(panel);
            for (k, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 0.0) {
                for column in 0..WIDTH {
                    let x = numbers[(column / strip * deep + k) * strip + column % strip];
                    add(p, column, x * weight);
                }
            }
        }
    }
}

/// Reads rows of keys or values, and tells whether all numbers are finite.
struct Read<'a, S> {
    s: S,
    from: (&'a Operands<'a>, usize, DType),
    at: [usize; 3],
    used: &'a [bool; KEYS],
    width: usize,
    rows: &'a mut [f32],
}

impl<S: Set> NullaryFnOnce for Read<'_, S> {
    type Output = bool;

    #[inline(always)]
    fn call(self) -> bool {
        let Self { s, from: (operands, n, dtype), at: [first, head, batch], used, width, rows } = self;
        let mut largest = 0;
        for ((i, to), used) in rows.chunks_exact_mut(width).enumerate().zip(used) {
            if *used {
                let bytes = operands.bytes(n, [first + i, head, batch]);
                match dtype {
                    DType::F16 => halves(s, bytes, to),
                    DType::Q8_0 => blocks(s, bytes, to),
                    _ => to.iter_mut().zip(bytes.as_chunks().0).for_each(|(to, x)| *to = f32::from_ne_bytes(*x)),
                }
            } else {
                to.fill(0.0);
            }
            // The order of sizes is that of their bits.
            largest = to.iter().fold(largest, |largest: u32, x| largest.max(x.to_bits() & 0x7fff_ffff));
        }
        largest < f32::INFINITY.to_bits()
    }
}

#[inline(always)]
fn halves<S: Set>(s: S, bytes: &[u8], to: &mut [f32]) {
    for (to, bytes) in to.chunks_exact_mut(S::LANES).zip(bytes.chunks_exact(2 * S::LANES)) {
        let numbers = s.halves(&bytemuck::pod_read_unaligned(bytes));
        to.copy_from_slice(bytemuck::cast_slice(std::slice::from_ref(&numbers)));
    }
}

/// Those of `q8_0`: 32 numbers, and their scale before them.
#[inline(always)]
fn blocks<S: Set>(s: S, bytes: &[u8], to: &mut [f32]) {
    for (to, block) in to.chunks_mut(32).zip(bytes.as_chunks::<34>().0) {
        let scale = s.half(u16::from_le_bytes([block[0], block[1]]));
        for (to, x) in to.iter_mut().zip(&block[2..]) {
            *to = f32::from(x.cast_signed()) * scale;
        }
    }
}
