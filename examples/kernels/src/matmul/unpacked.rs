//! Matrices that are unpacked once.

use std::fmt::{self, Debug};
use std::ops::Range;

use anyhow::{Context as _, Result};
use bytemuck::Zeroable;
use ggml::{DType, Quantize as _};

use super::activations::{self, BLOCK, Block};
use super::floats;
use super::panel::{self, Panel};
use super::set::{Level, Set, with_set};
use super::types::{Q4_0, Q8_0, TwoQ8_0, Type};
use super::{Row, WIDTH};

/// The blocks of a panel that are multiplied at a time: half of the panel, and three rows of them, stay in the nearest cache.
const DEEP: usize = 12;

/// A matrix that was unpacked before, for a set.
pub(crate) struct UnpackedPanels {
    level: Level,
    /// `f32` for panels of floats.
    pub(crate) dtype: DType,
    /// Numbers of each column.
    pub(crate) depth: usize,
    floats: Vec<Row>,
    blocks: Vec<Panel>,
}

/// Rows of activations, and which panels they are multiplied by.
type Factors<'a> = (&'a [&'a [f32]], Range<usize>);

/// Rows of activations in blocks, for a type.
type Quantised = Option<(DType, Vec<Block>)>;

/// What gets a panel's index, the index of a row, and the products of the row with the panel's columns.
type Done<'a> = &'a mut dyn FnMut(usize, usize, &[f32; WIDTH]);

impl Debug for UnpackedPanels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnpackedPanels({:?}, {}, {} deep)", self.level, self.dtype, self.depth)
    }
}

impl UnpackedPanels {
    /// Unpacks a matrix in ggml's format. Types that [`Set`]s don't multiply as blocks become `f32`.
    ///
    /// # Errors
    /// Those of the conversion.
    pub(crate) fn new(level: Level, dtype: DType, bytes: &[u8], columns: usize) -> Result<Self> {
        let blocks = match dtype {
            DType::Q8_0 => with_set!(level, s => of_blocks::<_, Q8_0>(s, bytes, columns)),
            DType::Q4_0 => with_set!(level, s => of_blocks::<_, Q4_0>(s, bytes, columns)),
            _ => None,
        };
        if let Some(mut blocks) = blocks {
            let depth = blocks.len() / columns.div_ceil(WIDTH) * BLOCK;
            if is_joined(level, dtype, depth) {
                blocks.chunks_mut(TwoQ8_0::BLOCKS).for_each(panel::join_scales);
            }
            return Ok(Self { level, dtype, depth, floats: Vec::new(), blocks });
        }
        let (level, x) = (level.max(Level::Plain), dtype.dequantize(bytes)?);
        let floats = with_set!(level, _s => of_floats(&x, columns)).context("the processor lacks the instructions")?;
        Ok(Self { level, dtype: DType::F32, depth: x.len() / columns, floats, blocks: Vec::new() })
    }

    /// Multiplies rows by some panels. What was quantised for one matrix of blocks serves others of its type.
    pub(crate) fn multiply(&self, what: Factors<'_>, quantised: &mut Quantised, done: Done<'_>) {
        with_set!(self.level, s => match self.dtype {
            of if is_joined(self.level, of, self.depth) => self.multiply_blocks::<_, TwoQ8_0>(s, what, quantised, done),
            DType::Q8_0 => self.multiply_blocks::<_, Q8_0>(s, what, quantised, done),
            DType::Q4_0 => self.multiply_blocks::<_, Q4_0>(s, what, quantised, done),
            _ => self.multiply_floats(s, what, done),
        });
    }

    fn multiply_floats<S: Set>(&self, s: S, (rows, panels): Factors<'_>, done: Done<'_>) {
        let (mut numbers, n) = (Vec::new(), rows.len());
        let rows = floats::pack::<S>((n, floats::DEEP), |i| &rows[i][..self.depth], &mut numbers);
        each_panel((panels, n), done, |i, sums| {
            let panel = &self.floats[i * self.depth..][..self.depth];
            for (part, rows) in panel.chunks(floats::DEEP).zip(rows.chunks(n * floats::DEEP)) {
                floats::tiles(s, rows, (part, floats::DEEP), sums);
            }
        });
    }

    fn multiply_blocks<S: Set, T: Type>(&self, s: S, what: Factors<'_>, quantised: &mut Quantised, done: Done<'_>) {
        let (rows, panels) = what;
        let n = self.depth / BLOCK;
        quantised.take_if(|of| of.0 != T::DTYPE);
        let (_, blocks) = quantised.get_or_insert_with(|| {
            let mut blocks = vec![Block::zeroed(); rows.len() * n];
            for (row, to) in rows.iter().zip(blocks.chunks_exact_mut(n)) {
                activations::quantise::<S, T>(s, &row[..self.depth], to);
            }
            (T::DTYPE, blocks)
        });
        let deep = n.min(DEEP);
        each_panel((panels, rows.len()), done, |i, sums| {
            for (part, from) in self.blocks[i * n..][..n].chunks(deep).zip((0..).step_by(deep)) {
                panel::multiply::<S, T>(s, (blocks, n, from), (part, deep), sums);
            }
        });
    }
}

/// Hands on the products of `n` rows with each panel, which `add` adds up.
fn each_panel((panels, n): (Range<usize>, usize), done: Done<'_>, mut add: impl FnMut(usize, &mut [Row])) {
    let mut sums = vec![Row::zeroed(); n];
    for i in panels {
        sums.fill(Row::zeroed());
        add(i, &mut sums);
        sums.iter().enumerate().for_each(|(row, sums)| done(i, row, &sums.0));
    }
}

/// Whether scales become small integers ([`panel::join_scales`]): without VNNI, their products are as fast as those of ones, and two blocks
/// take the floats of one.
fn is_joined(level: Level, dtype: DType, depth: usize) -> bool {
    (level, dtype) == (Level::Avx2, DType::Q8_0) && depth.is_multiple_of(TwoQ8_0::BLOCKS * BLOCK)
}

/// Panels of a matrix of floats.
fn of_floats(values: &[f32], columns: usize) -> Vec<Row> {
    let depth = values.len() / columns;
    let mut list = vec![Row::zeroed(); depth * columns.div_ceil(WIDTH)];
    for (i, column) in values.chunks_exact(depth).enumerate() {
        list[i / WIDTH * depth..].iter_mut().zip(column).for_each(|(to, x)| to.0[i % WIDTH] = *x);
    }
    list
}

/// Panels of a matrix of blocks.
fn of_blocks<S: Set, T: Type>(s: S, bytes: &[u8], columns: usize) -> Vec<Panel> {
    let row = bytes.len() / columns;
    let depth = row / size_of::<T::Unit>() * T::BLOCKS;
    let mut list = vec![Panel::zeroed(); depth * columns.div_ceil(WIDTH)];
    for (i, to) in list.chunks_exact_mut(depth).enumerate() {
        // The last columns are repeated where a panel has more.
        let columns: [&[T::Unit]; WIDTH] =
            std::array::from_fn(|j| bytemuck::cast_slice(&bytes[(i * WIDTH + j).min(columns - 1) * row..][..row]));
        panel::unpack::<S, T>(s, &columns, 0, to);
    }
    list
}
