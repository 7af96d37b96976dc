//! Attention among the tokens of a sentence.

use anyhow::{Result, ensure};
use bytemuck::Zeroable;
use ggml::ops::{CustomOptions, Operands, RowsMut};
use ggml::{Context, DType, Tensor};
use half::f16;

use super::kernel::{Kernel, dense};
use super::math;
use super::matmul::{Level, Row, Set, WIDTH, level, pack, set_column, set_row, tiles};

/// The queries that are multiplied at a time: a multiple of what registers hold.
const ROWS: usize = 12;

/// The attention of a layer.
#[derive(Debug, Clone, Copy)]
pub struct Attention {
    pub(super) level: Level,
    pub(super) width: usize,
    pub(super) heads: usize,
    pub(super) scale: f32,
}

impl Attention {
    /// Attention over `width` numbers per token, shared by `heads`; scores are multiplied by `scale`.
    ///
    /// # Errors
    /// If the heads don't share the numbers equally, or have none.
    pub fn new(width: usize, heads: usize, scale: f32) -> Result<Self> {
        ensure!(width > 0 && width.is_multiple_of(heads), "{width} numbers can't be shared by {heads} heads");
        Ok(Self { level: level(), width, heads, scale })
    }

    /// From `[3 width, tokens, sentences]` (queries, keys and values) to `[width, tokens, sentences]`. With a mask
    /// `[tokens, 1, 1, sentences]` of f16, a sentence ends where the mask is not 0. The rows of a sentence that is masked
    /// as a whole are zeros.
    ///
    /// # Errors
    /// If `qkv` or the mask has another shape or type, or rows that are not contiguous, and those of [`Context::custom`].
    pub fn apply<'c>(self, ctx: &'c Context, qkv: Tensor<'c>, mask: Option<Tensor<'c>>) -> Result<Tensor<'c>> {
        let operands: Vec<_> = [qkv].into_iter().chain(mask).collect();
        let [n, tokens, sentences, more] = qkv.ne();
        let width = i64::try_from(self.width)?;
        let fits = n % 3 == 0 && n / 3 == width;
        ensure!(fits, "queries, keys and values should have {width} numbers each, but {n} are there");
        ensure!(more == 1, "queries, keys and values should have three dimensions, but have {:?}", qkv.ne());
        dense(qkv, DType::F32)?;
        if let Some(mask) = mask {
            let expected = [tokens, 1, 1, sentences];
            ensure!(mask.ne() == expected, "the mask should have the shape {expected:?}, but has {:?}", mask.ne());
            dense(mask, DType::F16)?;
        }
        self.operation(self.level, CustomOptions::new(), ctx, &operands, [width, tokens, sentences, 1])
    }
}

impl Kernel for Attention {
    #[inline(always)]
    fn rows<S: Set>(&self, s: S, out: RowsMut<'_, f32>, operands: &Operands<'_>) {
        let Self { width, heads, scale, .. } = *self;
        let (size, x) = (width / heads, operands.rows::<f32>(0));
        let [_, tokens, ..] = x.shape();
        let mut all = out.peekable();
        while let Some(&([_, sentence, _], _)) = all.peek() {
            let mut out: Vec<_> = std::iter::from_fn(|| all.next_if(|([_, i, _], _)| *i == sentence)).collect();
            let tokens = match operands.len() {
                2 => operands.rows::<f16>(1).row([0, 0, sentence]).iter().take_while(|x| **x == f16::ZERO).count(),
                _ => tokens,
            };
            if tokens == 0 {
                continue; // they hold zeros
            }
            let queries: Vec<_> = out.iter().map(|&(i, _)| x.row(i)).collect();
            let others: Vec<_> = (0..tokens).map(|i| x.row([i, sentence, 0])).collect();
            let mut keys = vec![Row::zeroed(); size * tokens.div_ceil(WIDTH)];
            let mut values = vec![Row::zeroed(); tokens * size.div_ceil(WIDTH)];
            let padded = tokens.next_multiple_of(WIDTH);
            let (mut scores, mut packed) = (vec![0.0; ROWS * padded], Vec::new());
            for head in (0..width).step_by(size) {
                for (i, row) in others.iter().enumerate() {
                    set_column(&mut keys, size, i, &row[width + head..][..size]);
                    set_row(&mut values, tokens, i, &row[2 * width + head..][..size]);
                }
                for (queries, out) in queries.chunks(ROWS).zip(out.chunks_mut(ROWS)) {
                    let n = queries.len();
                    let rows = pack::<S>((n, size), |i| &queries[i][head..][..size], &mut packed);
                    for (panel, first) in keys.chunks_exact(size).zip((0..).step_by(WIDTH)) {
                        let mut sums = [Row::zeroed(); ROWS];
                        tiles(s, rows, (panel, 0), &mut sums[..n]);
                        for (scores, sums) in scores.chunks_exact_mut(padded).zip(&sums) {
                            scores[first..][..WIDTH].copy_from_slice(&sums.0);
                        }
                    }
                    let weights = scores.chunks_exact_mut(padded).take(n);
                    let shares: Vec<_> = weights.map(|row| 1.0 / math::soft_max(&mut row[..tokens], scale)).collect();
                    let rows = pack::<S>((n, tokens), |i| &scores[i * padded..][..tokens], &mut packed);
                    for (panel, first) in values.chunks_exact(tokens).zip((0..size).step_by(WIDTH)) {
                        let mut sums = [Row::zeroed(); ROWS];
                        tiles(s, rows, (panel, 0), &mut sums[..n]);
                        for (((_, out), sums), share) in out.iter_mut().zip(&sums).zip(&shares) {
                            let out = &mut out[head + first..head + size.min(first + WIDTH)];
                            out.iter_mut().zip(&sums.0).for_each(|(out, x)| *out = x * share);
                        }
                    }
                }
            }
        }
    }
}
