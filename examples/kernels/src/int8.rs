//! Products with integer blocks, for processors that sum four byte products in one instruction (AVX-512 VNNI).
//! Activations are quantised to such blocks too, as in ggml.

#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there are no such panels elsewhere"))]

use bytemuck::{Pod, Zeroable};
use ggml::DType;
use half::f16;

use super::math;
use super::panels::{Row, WIDTH};

/// The number of values that share a scale.
const BLOCK: usize = 32;
/// The number of values per instruction lane.
const FOUR: usize = 4;
/// Added to the activations: the instruction's first factors are unsigned.
const SHIFT: u8 = 128;

/// [`BLOCK`] values of each of a panel's columns.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(128))]
struct Block {
    numbers: [[[i8; FOUR]; WIDTH]; BLOCK / FOUR],
    scales: [f32; WIDTH],
    /// The initial value of each sum, which cancels the effect of [`SHIFT`].
    start: [i32; WIDTH],
}

/// A matrix to multiply by, as [`super::panels::Panels`], in blocks.
///
/// # Invariants
///
/// Values of this type exist only if [`any`] is true.
#[derive(Debug)]
pub(super) struct BlockPanels {
    /// Blocks per column.
    depth: usize,
    blocks: Vec<Block>,
}

impl BlockPanels {
    /// Converts a matrix in ggml's format; `None` if the type is another, or if the processor lacks the instructions.
    pub(super) fn new(dtype: DType, bytes: &[u8], columns: usize) -> Option<Self> {
        let unpack = unpack(dtype).filter(|_| any())?;
        let size = dtype.type_size();
        let depth = bytes.len() / size / columns;
        let mut blocks = vec![Block::zeroed(); depth * columns.div_ceil(WIDTH)];
        for (i, column) in bytes.chunks_exact(depth * size).enumerate() {
            let (first, i) = (i / WIDTH * depth, i % WIDTH);
            for (to, from) in blocks[first..].iter_mut().zip(column.chunks_exact(size)) {
                let (scale, numbers) = unpack(from);
                to.scales[i] = scale;
                to.start[i] = -i32::from(SHIFT) * numbers.iter().map(|&x| i32::from(x)).sum::<i32>();
                to.numbers.iter_mut().zip(numbers.as_chunks().0).for_each(|(to, from)| to[i] = *from);
            }
        }
        Some(Self { depth, blocks })
    }

    /// Multiplies rows by this matrix and adds the bias, panel by panel. `done` gets a panel's first column, the index of
    /// the first row, and the results.
    pub(super) fn multiply(
        &self,
        bias: impl Iterator<Item = Row>,
        rows: &[&[Part]],
        done: impl FnMut(usize, usize, &[Row]),
    ) {
        // SAFETY: the processor has the target features: `new` returns a value only if `any` is true (see Invariants).
        #[cfg(target_arch = "x86_64")]
        unsafe {
            x86::multiply(self, bias, rows, done);
        }
        #[cfg(not(target_arch = "x86_64"))]
        drop((bias, rows, done));
    }
}

/// The scale and the values of a block.
pub(super) type Unpack = fn(&[u8]) -> (f32, [i8; BLOCK]);

/// The decoder for blocks of a type of scaled integers; `None` for other types.
pub(super) fn unpack(dtype: DType) -> Option<Unpack> {
    fn scale(block: &[u8]) -> f32 {
        f16::from_le_bytes([block[0], block[1]]).to_f32()
    }
    match dtype {
        DType::Q8_0 => Some(|block| (scale(block), std::array::from_fn(|i| block[2 + i].cast_signed()))),
        // A byte holds two values, half a block apart.
        DType::Q4_0 => Some(|block| {
            let number = |i: usize| (block[2 + i % 16] >> (4 * (i / 16)) & 0xf).cast_signed() - 8;
            (scale(block), std::array::from_fn(number))
        }),
        _ => None,
    }
}

/// A block of activations: four shifted values in each `i32`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    numbers: [i32; BLOCK / FOUR],
    scale: f32,
}

/// Quantises a row to blocks.
#[inline(always)]
pub(super) fn quantise(row: &[f32]) -> Vec<Part> {
    const WHOLE: f32 = math::WHOLE + SHIFT as f32;
    let (parts, _) = row.as_chunks::<BLOCK>();
    let mut quantised = Vec::with_capacity(parts.len());
    // No closures: code that is not inlined here is not compiled for these target features.
    for block in parts {
        let largest = math::largest(block);
        let by = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        let mut bytes = [0; BLOCK];
        for (byte, x) in bytes.iter_mut().zip(block) {
            *byte = (x * by + WHOLE).to_bits().to_le_bytes()[0];
        }
        quantised.push(Part { numbers: bytemuck::cast(bytes), scale: largest / 127.0 });
    }
    quantised
}

/// Whether the processor has the instructions.
pub(super) fn any() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni");
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

#[cfg(target_arch = "x86_64")]
#[expect(clippy::incompatible_msrv, reason = "the library needs Rust 1.88, this example 1.89")]
mod x86 {
    use std::arch::x86_64::{
        __m512, __m512i, _mm512_cvtepi32_ps, _mm512_dpbusd_epi32, _mm512_fmadd_ps, _mm512_mul_ps, _mm512_set1_epi32,
        _mm512_set1_ps,
    };

    use super::{Block, BlockPanels, Part};
    use crate::panels::{Row, WIDTH, fill};

    /// The number of rows and vectors whose sums fit into the registers.
    const ROWS: usize = 4;
    const VECTORS: usize = 2;

    #[target_feature(enable = "avx512f,avx512vnni")]
    pub(super) fn multiply(
        panels: &BlockPanels,
        bias: impl Iterator<Item = Row>,
        rows: &[&[Part]],
        mut done: impl FnMut(usize, usize, &[Row]),
    ) {
        let panels = panels.blocks.chunks_exact(panels.depth);
        for ((panel, bias), column) in panels.zip(bias).zip((0..).step_by(WIDTH)) {
            for (rows, first) in rows.chunks(ROWS).zip((0..).step_by(ROWS)) {
                let sums: [Row; ROWS] = bytemuck::cast(product(fill(rows), panel, bytemuck::cast(bias)));
                done(column, first, &sums[..rows.len()]);
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512vnni")]
    #[inline]
    fn product(mut rows: [&[Part]; ROWS], panel: &[Block], start: [__m512; VECTORS]) -> [[__m512; VECTORS]; ROWS] {
        // Tells the compiler that all indices are in bounds.
        for row in &mut rows {
            *row = &row[..panel.len()];
        }
        let mut sums = [start; ROWS];
        for (i, block) in panel.iter().enumerate() {
            let mut whole = [bytemuck::cast::<_, [__m512i; VECTORS]>(block.start); ROWS];
            for (k, numbers) in block.numbers.iter().enumerate() {
                let numbers: [__m512i; VECTORS] = bytemuck::cast(*numbers);
                for (whole, row) in whole.iter_mut().zip(rows) {
                    let x = _mm512_set1_epi32(row[i].numbers[k]);
                    for (sum, y) in whole.iter_mut().zip(numbers) {
                        *sum = _mm512_dpbusd_epi32(*sum, x, y);
                    }
                }
            }
            let scales: [__m512; VECTORS] = bytemuck::cast(block.scales);
            for ((sums, whole), row) in sums.iter_mut().zip(whole).zip(rows) {
                let scale = _mm512_set1_ps(row[i].scale);
                for ((sum, whole), scales) in sums.iter_mut().zip(whole).zip(scales) {
                    *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), _mm512_mul_ps(scales, scale), *sum);
                }
            }
        }
        sums
    }
}
