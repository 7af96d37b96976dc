//! Converts a tensor to another type, by rows, on several threads.

use std::num::NonZeroUsize;
use std::panic;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use ggml::DType;
use ggml::Quantize as _;

/// The approximate number of values that a thread converts at a time.
const PIECE: usize = 1 << 18;

/// A tensor to convert, with its importance matrix.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The type that it has.
    pub from: DType,
    /// The type that it gets.
    pub to: DType,
    /// Numbers of a row.
    pub columns: usize,
    /// Rows per matrix.
    pub rows: usize,
    /// Column weights of each matrix.
    pub weights: Option<&'a [&'a [f32]]>,
}

/// A converted tensor.
#[derive(Debug)]
pub struct Converted {
    /// The bytes of the new type.
    pub bytes: Vec<u8>,
    /// The sum of the squared errors.
    pub squares: f64,
}

/// A part of the rows of a matrix.
struct Piece<'a> {
    bytes: &'a [u8],
    weights: Option<&'a [f32]>,
    /// The index of its first value.
    first: usize,
}

impl Job<'_> {
    /// Converts the tensor. `progress` gets the number of bytes done.
    ///
    /// # Errors
    /// If a value is NaN or too large for the type.
    pub fn run(&self, bytes: &[u8], threads: NonZeroUsize, progress: impl Fn(usize) + Sync) -> Result<Converted> {
        let pieces = self.pieces(bytes)?;
        let share = pieces.len().div_ceil(threads.get()).max(1);
        let work = |part: &[Piece<'_>]| -> Result<Vec<Converted>> {
            let convert = |piece: &Piece<'_>| {
                let converted = self.convert(piece);
                progress(piece.bytes.len());
                converted
            };
            part.iter().map(convert).collect()
        };
        let work = &work;
        let all: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = pieces.chunks(share).map(|part| scope.spawn(move || work(part))).collect();
            threads.into_iter().map(|t| t.join().unwrap_or_else(|e| panic::resume_unwind(e))).collect()
        });
        let mut result = Converted { bytes: Vec::new(), squares: 0.0 };
        for part in all {
            for converted in part? {
                result.bytes.extend(converted.bytes);
                result.squares += converted.squares;
            }
        }
        Ok(result)
    }

    fn pieces<'a>(&'a self, bytes: &'a [u8]) -> Result<Vec<Piece<'a>>> {
        let row = self.from.row_size(i64::try_from(self.columns)?).context("rows must be whole blocks")?;
        let rows = (PIECE / self.columns).max(1);
        let matrix = |(m, bytes): (usize, &'a [u8])| {
            let weights = self.weights.and_then(|w| w.get(m)).copied();
            bytes.chunks(row * rows).enumerate().map(move |(i, bytes)| {
                let first = (m * self.rows + i * rows) * self.columns;
                Piece { bytes, weights, first }
            })
        };
        Ok(bytes.chunks(row * self.rows).enumerate().flat_map(matrix).collect())
    }

    fn convert(&self, piece: &Piece<'_>) -> Result<Converted> {
        let numbers = self.from.dequantize(piece.bytes)?;
        let bad = |x: &[f32]| x.iter().position(|x| !x.is_finite()).map(|i| piece.first + i);
        if let Some(at) = bad(&numbers) {
            anyhow::bail!("number {at} is {}", numbers.get(at - piece.first).copied().unwrap_or(f32::NAN));
        }
        let bytes = self.to.quantize(&numbers, self.columns, piece.weights)?;
        let back = self.to.dequantize(&bytes)?;
        let overflown = bad(&back);
        ensure!(overflown.is_none(), "number {} is too large for {}", overflown.unwrap_or(0), self.to);
        let squares = numbers.iter().zip(&back).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
        Ok(Converted { bytes, squares })
    }
}
