//! Products with matrices in ggml's formats, read where they are, such as in a mapped file. For few rows of activations,
//! rows of the matrix are multiplied as they lie in memory; for many, some are unpacked at a time, in the order in which
//! the processor sums them fastest.
//!
//! `types` says how a block becomes bytes and scales, `set` what instructions there are. `blocks` and `floats` have the loops
//! for all of them.

mod activations;
mod blocks;
mod floats;
mod out;
mod panel;
mod products;
pub(crate) mod set;
mod several;
#[cfg(test)]
pub(crate) mod tests;
mod types;
mod unpacked;
mod words;

use std::ops::Range;
use std::sync::OnceLock;

use bytemuck::{Pod, Zeroable};
use ggml::ops::{CustomOp, Operands};
use ggml::{Context, DType, Result, Tensor};

pub(crate) use activations::largest;
use floats::{Bf16, F16};
pub(crate) use floats::{F32, pack, tiles, unpack};
use out::{Out, Put};
use products::Operation;
pub use set::describe;
use set::with_set;
pub(crate) use set::{Level, Set, level};
use types::{Iq4Nl, Iq4Xs, MxFp4, Q4_0, Q4_1, Q4K, Q5_0, Q5K, Q6K, Q8_0};
pub(crate) use unpacked::UnpackedPanels;

/// The columns of the product that are computed together; each is a row of ggml's matrix.
pub(crate) const WIDTH: usize = 32;

/// A number of each of these columns: a row of a panel, or of the product.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(128))]
pub(crate) struct Row(pub(crate) [f32; WIDTH]);

/// What a row's length must be a multiple of.
const DEPTH: usize = 256;

/// Whether [`mul_mat`] computes products with matrices of this type and shape by these kernels: on processors with AVX2, FMA
/// and F16C, or where a variable turns them on for NEON, for `f32`, `f16`, `bf16`, `q8_0`, `q4_0`, `q4_1`, `q5_0`, `q4_K`, `q5_K`, `q6_K`, `iq4_nl`, `iq4_xs` and `mxfp4`.
/// [`describe`] says which instructions are used.
pub fn multiplies(dtype: DType, ne: [i64; 4]) -> bool {
    operation_of(level(), dtype).is_some() && has_whole_tiles(ne)
}

/// Whether a row of the tensor lies together in memory.
pub(crate) fn has_dense_rows(t: Tensor<'_>) -> bool {
    t.nb()[0] == t.dtype().type_size() || t.ne()[0] == 1
}

/// Whether a matrix consists of whole tiles.
fn has_whole_tiles([depth, columns, n2, n3]: [i64; 4]) -> bool {
    let whole = |n: i64, of: usize| usize::try_from(n).is_ok_and(|n| n % of == 0);
    whole(depth, DEPTH) && whole(columns, WIDTH) && [n2, n3] == [1, 1]
}

/// `w x`, as [`Context::mul_mat`]: `w` is `[depth, columns]`, and `x` is `[depth, rows]`. Activations are rounded to bytes, as
/// ggml rounds them, with a scale in `f32` for 32, or for 256 with `q4_K`, `q5_K`, `q6_K` and `iq4_xs`. With AVX2 alone, up to 16 rows
/// times `q8_0`, `iq4_nl` or `iq4_xs` have steps that are larger by 17 to 29 % on average. Times matrices of floats they aren't rounded. But with
/// AVX2 and better, more than eight rows times `f16` or `bf16` are products of integers: of the largest of 32 activations, 4095 steps
/// are kept, and of the largest of 256 weights of a row 16383.
///
/// # Errors
/// Those of [`Context::mul_mat`], which computes what these kernels don't: see [`multiplies`]. It also computes what it was
/// measured to compute faster: one or two rows of `q5_0`, and some numbers of rows of floats.
pub fn mul_mat<'c>(ctx: &'c Context, w: Tensor<'c>, x: Tensor<'c>) -> Result<Tensor<'c>> {
    let [_, rows, ..] = x.ne();
    let is_ours = multiplies(w.dtype(), w.ne()) && is_faster(level(), w.dtype(), rows);
    if is_ours { product_at(level(), ctx, [w, x], None) } else { ctx.mul_mat(w, x) }
}

/// [`mul_mat`] by these kernels wherever they have one for the type and shape, also where ggml's was measured to be faster: what
/// compares them calls it.
///
/// # Errors
/// Those of [`Context::mul_mat`].
pub fn mul_mat_own<'c>(ctx: &'c Context, w: Tensor<'c>, x: Tensor<'c>) -> Result<Tensor<'c>> {
    product_at(level(), ctx, [w, x], None)
}

/// Whether the product of so many rows was measured to be faster than ggml's.
fn is_faster(level: Level, dtype: DType, rows: i64) -> bool {
    match dtype {
        // Nothing was measured on ARM: who turns these kernels on gets them.
        _ if level >= Level::Neon => true,
        DType::F16 if level == Level::Avx2 => rows <= 8 || rows >= 32,
        DType::F16 | DType::BF16 => rows <= 8 || rows >= 16,
        DType::F32 => rows <= 8 || rows >= 64,
        DType::Q5_0 => rows > 2,
        _ => true,
    }
}

/// `w x` for the experts that rows pick, as [`Context::mul_mat_id`]: `w` is `[depth, columns, experts]`, `x`
/// `[depth, used, tokens]` or `[depth, 1, tokens]`, and `ids`, indices of experts, `[used, tokens]`. Only the experts that are
/// picked are read.
///
/// # Errors
/// Those of [`Context::mul_mat_id`], which computes what these kernels don't, or what it was measured to compute faster: see
/// [`multiplies_experts`]. Computing panics if an index is not below the number of experts.
pub fn mul_mat_id<'c>(ctx: &'c Context, w: Tensor<'c>, x: Tensor<'c>, ids: Tensor<'c>) -> Result<Tensor<'c>> {
    let ([_, _, experts, _], [used, tokens, ..]) = (w.ne(), ids.ne());
    // The rows that pick an expert, if all are picked as often.
    let rows = used.saturating_mul(tokens) / experts.max(1);
    let is_ours = multiplies_experts(w.dtype(), w.ne()) && is_faster(level(), w.dtype(), rows.max(1));
    if is_ours { product_at(level(), ctx, [w, x], Some(ids)) } else { ctx.mul_mat_id(w, x, ids) }
}

/// Whether [`mul_mat_id`] computes products with matrices of this type and shape by these kernels, at least where rows are many.
pub fn multiplies_experts(dtype: DType, [depth, columns, _, n3]: [i64; 4]) -> bool {
    multiplies(dtype, [depth, columns, 1, n3]) && is_faster(level(), dtype, 64)
}

/// The product by a set, with one matrix or with those of experts.
fn product_at<'c>(
    level: Level,
    ctx: &'c Context,
    [w, x]: [Tensor<'c>; 2],
    ids: Option<Tensor<'c>>,
) -> Result<Tensor<'c>> {
    let [depth, columns, experts, w3] = w.ne();
    let [x_depth, several, x_tokens, x3] = x.ne();
    let [used, tokens, i2, i3] = ids.map_or([several, 1, 1, 1], Tensor::ne);
    let types = x.dtype() == DType::F32 && ids.is_none_or(|ids| ids.dtype() == DType::I32);
    let whole = has_whole_tiles([depth, columns, if ids.is_some() { 1 } else { experts }, w3]);
    let same = [x_depth, x_tokens, x3, i2, i3] == [depth, tokens, 1, 1, 1] && [1, used].contains(&several);
    let fits = types && whole && same && has_dense_rows(w) && has_dense_rows(x);
    let Some(op) = operation_of(level, w.dtype()).filter(|_| fits) else {
        return ids.map_or_else(|| ctx.mul_mat(w, x), |ids| ctx.mul_mat_id(w, x, ids));
    };
    let width = i64::try_from(WIDTH).unwrap_or(1);
    let operands: Vec<_> = [w, x].into_iter().chain(ids).collect();
    ctx.reshape(ctx.custom_op(op, &operands, [width, columns / width, used, tokens])?, [columns, used, tokens])
}

/// The operation for matrices of a type, or for one of each expert, if the processor has the instructions.
fn operation_of(level: Level, dtype: DType) -> Option<&'static CustomOp<f32>> {
    static ALL: [OnceLock<Vec<Operation>>; Level::ALL.len()] = [const { OnceLock::new() }; Level::ALL.len()];
    let list = ALL[level as usize].get_or_init(|| with_set!(level, s => operations(s)).unwrap_or_default());
    list.iter().find(|of| of.0 == dtype).map(|of| &of.1)
}

/// The operations of a set.
fn operations<S: Set>(s: S) -> Vec<Operation> {
    vec![
        products::floats::<S, F16>(s),
        products::floats::<S, F32>(s),
        products::floats::<S, Bf16>(s),
        products::blocks::<S, Q8_0>(s),
        products::blocks::<S, Q4_0>(s),
        products::blocks::<S, Q4_1>(s),
        products::blocks::<S, Q5_0>(s),
        products::blocks::<S, Q4K>(s),
        products::blocks::<S, Q5K>(s),
        products::blocks::<S, Q6K>(s),
        products::blocks::<S, Iq4Nl>(s),
        products::blocks::<S, Iq4Xs>(s),
        products::blocks::<S, MxFp4>(s),
    ]
}

/// A list of this length, which may have old values.
pub(crate) fn resize<T: Zeroable + Clone>(list: &mut Vec<T>, n: usize) -> &mut [T] {
    list.resize(n, T::zeroed());
    list
}

/// A part of each row. (A loop tells the compiler that all indices into the parts are in bounds.)
#[inline(always)]
fn parts<T, const N: usize>(mut rows: [&[T]; N], part: Range<usize>) -> [&[T]; N] {
    for row in &mut rows {
        *row = &row[part.clone()];
    }
    rows
}

/// Adds sums times factors to rows, from vector `V * at` of each on.
#[inline(always)]
fn add_to_rows<S: Set, const R: usize, const V: usize>(
    s: S,
    sums: [[S::Floats; V]; R],
    by: [S::Floats; V],
    (to, at): (&mut [Row], usize),
) {
    for (to, sums) in to.iter_mut().zip(sums) {
        let to: &mut [S::Floats] = bytemuck::cast_slice_mut(&mut to.0);
        for ((to, sum), by) in to[V * at..].iter_mut().zip(sums).zip(by) {
            *to = s.mul_add(sum, by, *to);
        }
    }
}

/// How many bytes ahead of its use a matrix that is read as it lies is fetched to the second cache: from the next panel, or from the same
/// rows where panels are too large for that cache.
fn ahead(row: usize) -> usize {
    const LARGE: usize = 256 << 10;
    if WIDTH * row > LARGE { 2048 } else { WIDTH * row }
}

/// Rows of the matrix, or of an expert's, for [`WIDTH`] columns of the product.
fn weights<'a, T: Pod>(operands: &Operands<'a>, part: usize, expert: usize) -> [&'a [T]; WIDTH] {
    let mut rows: [&[T]; WIDTH] = [&[]; WIDTH];
    for (i, row) in rows.iter_mut().enumerate() {
        *row = bytemuck::cast_slice(operands.bytes(0, [part * WIDTH + i, expert, 0]));
    }
    rows
}
