//! A tile of keys and values, and what tokens see of it.

use bytemuck::Zeroable;
use ggml::DType;
use ggml::ops::{Operands, Rows};
use half::f16;

use super::How;
use crate::matmul::set::compiled;
use crate::matmul::{F32, Row, Set, WIDTH, largest, resize, unpack};

/// The keys of a tile.
pub(super) const KEYS: usize = 128;
/// The panels of their scores.
pub(super) const PANELS: usize = KEYS / WIDTH;

/// What a token sees of a tile.
#[derive(Debug, Clone, Copy, Zeroable)]
pub(super) struct Seen {
    /// All keys that it sees are before this one.
    pub(super) end: u16,
    /// Whether it sees all of these, and nothing is added to their scores.
    pub(super) all: bool,
}

/// Which keys of a tile any token of a batch sees.
pub(super) type Used = [bool; KEYS];

/// The bits of what is added to a token's scores of so many keys from one on; of a tile's others, what hides them.
#[inline(always)]
pub(super) fn added(
    mask: Option<Rows<'_, f16>>,
    [token, batch]: [usize; 2],
    (from, keys): (usize, usize),
) -> [u16; KEYS] {
    let mut bits = [f16::NEG_INFINITY.to_bits(); KEYS];
    match mask {
        None => bits[..keys].fill(0),
        Some(mask) => {
            let row = mask.row([token, 0, batch.min(mask.shape()[3] - 1)]);
            bits[..keys].copy_from_slice(bytemuck::cast_slice(&row[from..][..keys]));
        }
    }
    bits
}

/// Says what each token of a batch sees of a tile: of so many keys from one on.
pub(super) fn see<S: Set>(
    s: S,
    mask: Option<Rows<'_, f16>>,
    batch: usize,
    keys: (usize, usize),
    seen: &mut [Seen],
) -> Used {
    compiled!(s, {
        let mut used = [0_u16; KEYS];
        for (token, to) in seen.iter_mut().enumerate() {
            let (mut zeros, mut end) = (0, 0_u16);
            for ((bits, used), number) in added(mask, [token, batch], keys).into_iter().zip(&mut used).zip(1_u16..) {
                zeros += u16::from(bits == 0);
                let sees = u16::from(bits != f16::NEG_INFINITY.to_bits());
                *used |= sees;
                end = end.max(sees * number);
            }
            *to = Seen { end, all: zeros == end };
        }
        used.map(|used| used != 0)
    })
}

/// Keys and values as panels.
#[derive(Default)]
pub(super) struct Tile {
    rows: Vec<f32>,
    /// [`PANELS`] panels of keys: as deep as a key is long.
    pub(super) keys: Vec<Row>,
    /// The panels of values, which are [`KEYS`] deep.
    pub(super) values: Vec<Row>,
    /// Whether all values are finite.
    pub(super) finite: bool,
}

impl Tile {
    /// Unpacks the keys and values that are used; zeros take the place of others.
    pub(super) fn unpack<S: Set>(&mut self, s: S, how: How, operands: &Operands<'_>, at: [usize; 3], used: &[bool]) {
        let Self { rows, keys, values, finite } = self;
        let [k_size, v_size] = how.sizes;
        let padded = v_size.next_multiple_of(WIDTH);
        let rows = resize(rows, used.len() * k_size.max(padded));
        read(s, (operands, 1, how.types[0]), at, used, &mut rows[..used.len() * k_size]);
        let panels = resize(keys, PANELS * k_size).chunks_exact_mut(k_size);
        for (panel, rows) in panels.zip(rows[..used.len() * k_size].chunks_exact(WIDTH * k_size)) {
            let columns: [&[u8]; WIDTH] = std::array::from_fn(|i| bytemuck::cast_slice(&rows[i * k_size..][..k_size]));
            unpack::<S, F32>(s, &columns, 0, panel);
        }
        let rows = &mut rows[..used.len() * padded];
        if padded > v_size {
            rows.fill(0.0); // what is behind the last numbers of values
        }
        read(s, (operands, 2, how.types[1]), at, used, rows);
        *finite = s.run(|| largest(rows.as_chunks::<WIDTH>().0.iter().copied())).is_finite();
        let values = resize(values, padded / WIDTH * KEYS);
        for (i, row) in rows.chunks_exact(padded).enumerate() {
            let panels = values.chunks_exact_mut(KEYS);
            panels.zip(row.as_chunks().0).for_each(|(panel, numbers)| panel[i].0 = *numbers);
        }
    }

    /// Adds values times weights one by one, without those whose weights are 0: of a number that is not finite, something would
    /// be left.
    pub(super) fn add_seen(&self, weights: &[f32], mut add: impl FnMut(usize, usize, f32)) {
        for (p, panel) in self.values.chunks_exact(KEYS).enumerate() {
            for (row, weight) in panel.iter().zip(weights).filter(|(_, weight)| **weight != 0.0) {
                for (column, x) in row.0.iter().enumerate() {
                    add(p, column, x * weight);
                }
            }
        }
    }
}

/// Reads rows of keys or values.
fn read<S: Set>(
    s: S,
    (operands, n, dtype): (&Operands<'_>, usize, DType),
    [first, head, batch]: [usize; 3],
    used: &[bool],
    rows: &mut [f32],
) {
    compiled!(s, {
        let bytes = |i| operands.bytes(n, [first + i, head, batch]);
        for ((i, to), used) in rows.chunks_exact_mut(rows.len() / used.len()).enumerate().zip(used) {
            match dtype {
                _ if !used => to.fill(0.0),
                DType::F16 => halves(s, bytes(i), to),
                DType::Q8_0 => blocks(s, bytes(i), to),
                _ => to.iter_mut().zip(bytes(i).as_chunks().0).for_each(|(to, x)| *to = f32::from_ne_bytes(*x)),
            }
        }
    });
}

/// Numbers from bytes of `f16`.
#[inline(always)]
pub(super) fn halves<S: Set>(s: S, bytes: &[u8], to: &mut [f32]) {
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
