//! Attention of many tokens to a cache of keys and values, in tiles: a tile of keys and values is unpacked once for all tokens
//! and heads that use it, and tokens that see none of its keys leave it out.

mod products;
#[cfg(test)]
mod tests;
mod tile;

use std::cell::RefCell;

use bytemuck::Zeroable;
use ggml::ops::{CustomOptions, FlashAttnOptions, Operands, Rows, RowsMut};
use ggml::{Context, DType, Result, Tensor};
use half::f16;

use crate::matmul::set::with_set;
use crate::matmul::{Level, Row, Set, WIDTH, has_dense_rows, level, resize};
use products::{Products, SeenTile, Sum, finish};
use tile::{KEYS, Seen, Tile, Used, see};

/// From so many tokens on, it was measured to be faster than ggml's. Fewer may be of as many sequences, whose tokens see little of a
/// tile each; ggml leaves out single keys there.
const MANY: i64 = 64;
/// The rows that are multiplied by a tile before the next ones, so that all that is used stays in a cache of 1 MiB.
const ROWS: usize = 128;
/// What sizes of heads must be a multiple of: the lanes of the widest vectors.
const LANES: i64 = 16;

/// Shapes, how scores become weights, and which operands there are.
#[derive(Debug, Clone, Copy)]
struct How {
    scale: f32,
    /// 0 for none.
    cap: f32,
    mask: Option<usize>,
    sinks: Option<usize>,
    /// Those of keys and values.
    types: [DType; 2],
    sizes: [usize; 2],
    cells: usize,
    /// The heads that share keys and values.
    group: usize,
}

/// Attention, as [`Context::flash_attn_ext`]: `q` is `[size, tokens, heads, batches]`, keys and values are `[size, cells, heads,
/// batches]` in `f32`, `f16` or `q8_0`. Keys, values and weights are `f32` on the way, so nothing is rounded but results.
///
/// # Errors
///
/// Those of [`Context::flash_attn_ext`], which computes what was measured to be faster there, few tokens, and what this doesn't:
/// slopes, masks of single heads, and sizes of heads that are no multiple of 16.
pub fn flash_attn_ext<'c>(
    ctx: &'c Context,
    [q, k, v]: [Tensor<'c>; 3],
    options: FlashAttnOptions<'c>,
) -> Result<Tensor<'c>> {
    let [_, tokens, ..] = q.ne();
    let level = if tokens >= MANY { level() } else { Level::None };
    flash_attn_ext_at(level, ctx, [q, k, v], options)
}

/// [`flash_attn_ext`] by these kernels wherever they can compute it, also of few tokens: what compares them calls it.
///
/// # Errors
///
/// Those of [`Context::flash_attn_ext`].
pub fn flash_attn_ext_own<'c>(
    ctx: &'c Context,
    [q, k, v]: [Tensor<'c>; 3],
    options: FlashAttnOptions<'c>,
) -> Result<Tensor<'c>> {
    flash_attn_ext_at(level(), ctx, [q, k, v], options)
}

/// Attention by a set; by ggml without one.
fn flash_attn_ext_at<'c>(
    level: Level,
    ctx: &'c Context,
    [q, k, v]: [Tensor<'c>; 3],
    options: FlashAttnOptions<'c>,
) -> Result<Tensor<'c>> {
    let theirs = || ctx.flash_attn_ext(q, k, v, options);
    if !fits([q, k, v], &options) {
        return theirs();
    }
    let FlashAttnOptions { scale, logit_softcap: cap, mask, sinks, .. } = options;
    let operands: Vec<_> = [q, k, v].into_iter().chain(mask).chain(sinks).collect();
    let number = |n: i64| usize::try_from(n).unwrap_or(0); // none is negative
    let how = How {
        scale: if cap == 0.0 { scale } else { scale / cap },
        cap,
        mask: mask.map(|_| 3),
        sinks: sinks.map(|_| operands.len() - 1),
        types: [k.dtype(), v.dtype()],
        sizes: [number(k.ne()[0]), number(v.ne()[0])],
        cells: number(k.ne()[1]),
        group: number(q.ne()[2] / k.ne()[2]),
    };
    let ([_, tokens, heads, batches], [size, ..]) = (q.ne(), v.ne());
    // Each task has some heads: the same work for all, whatever tokens see. Of many batches it has some, whose numbers are in its cache.
    let split = CustomOptions::new().with_split(if batches < 16 { 1 } else { 3 });
    let made = with_set!(level, s => ctx.custom::<f32>(&operands, [size, heads, tokens, batches], split,
        move |out, operands| SCRATCH.with_borrow_mut(|scratch| attend(s, how, out, &operands, scratch))));
    made.unwrap_or_else(theirs)
}

/// Whether [`attend`] computes it. The operands also fit each other then.
fn fits([q, k, v]: [Tensor<'_>; 3], options: &FlashAttnOptions<'_>) -> bool {
    let [q_size, tokens, heads, batches] = q.ne();
    let [k_size, cells, k_heads, k_batches] = k.ne();
    let [v_size, v_cells, v_heads, v_batches] = v.ne();
    let types =
        q.dtype() == DType::F32 && [k, v].iter().all(|t| matches!(t.dtype(), DType::F32 | DType::F16 | DType::Q8_0));
    let dense = [q, k, v].into_iter().all(has_dense_rows);
    let sizes = q_size == k_size && k_size % LANES == 0 && v_size % LANES == 0;
    let same = [cells, k_heads, k_batches] == [v_cells, v_heads, v_batches] && k_batches == batches;
    let whole = [q_size, v_size, tokens, heads, k_heads, cells].iter().all(|&n| n > 0) && heads % k_heads == 0;
    let mask = options.mask.is_none_or(|mask| {
        let [n, rows, n2, n3] = mask.ne();
        let fits = [n, n2] == [cells, 1] && rows >= tokens && [1, batches].contains(&n3);
        mask.dtype() == DType::F16 && has_dense_rows(mask) && fits
    });
    let sinks = options.sinks.is_none_or(|sinks| sinks.dtype() == DType::F32 && sinks.ne() == [heads, 1, 1, 1]);
    types && dense && sizes && same && whole && mask && sinks && options.max_bias == 0.0
}

/// Memory for what is computed on the way.
#[derive(Default)]
struct Scratch {
    /// What each token of a batch sees of the first tile, then of the next.
    seen: Vec<Seen>,
    /// Which keys of each tile any of them sees.
    used: Vec<Used>,
    /// The largest score of each row, and the sum of its weights.
    sums: Vec<Sum>,
    /// The results so far: rows of the first [`WIDTH`] numbers, then of the next, and so on.
    all: Vec<Row>,
    tile: Tile,
    products: Products,
}

thread_local! {
    /// Memory that a thread keeps from one layer to the next.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Heads that share keys and values, in a batch, and what masks their scores.
#[derive(Debug, Clone, Copy)]
struct QueryPart<'a> {
    first: usize,
    heads: usize,
    tokens: usize,
    batch: usize,
    mask: Option<Rows<'a, f16>>,
}

/// Computes the results of some heads.
fn attend<S: Set>(s: S, how: How, mut out: RowsMut<'_, f32>, operands: &Operands<'_>, scratch: &mut Scratch) {
    let [size, _, tokens, _] = out.shape();
    let mask = how.mask.map(|n| operands.rows::<f16>(n));
    // The heads of each token.
    for (b, runs) in out.runs().chunks_exact(tokens).enumerate() {
        let ([first, _, batch], n) = runs[0];
        let end = first + n / size;
        scratch.seen.resize(tokens * how.cells.div_ceil(KEYS), Seen::zeroed());
        let tiles = scratch.seen.chunks_exact_mut(tokens).zip((0..).step_by(KEYS));
        scratch.used.clear();
        scratch.used.extend(tiles.map(|(seen, from)| see(s, mask, batch, (from, KEYS.min(how.cells - from)), seen)));
        for kv_head in first / how.group..end.div_ceil(how.group) {
            let from = first.max(kv_head * how.group);
            let heads = end.min((kv_head + 1) * how.group) - from;
            share(s, how, QueryPart { first: from, heads, tokens, batch, mask }, operands, scratch);
            for i in 0..heads * tokens {
                let (head, token) = (from + i % heads, i / heads);
                let sink = how.sinks.map(|n| operands.rows::<f32>(n).at([head, 0, 0, 0]));
                let put = |numbers: &[f32]| out.append(b * tokens + token, numbers);
                finish(scratch, heads * tokens, i, sink, size, put);
            }
        }
    }
}

/// Sums values times weights, for all tokens of heads that share them.
fn share<S: Set>(s: S, how: How, part: QueryPart<'_>, operands: &Operands<'_>, scratch: &mut Scratch) {
    let Scratch { seen, used, sums, all, tile, products } = scratch;
    let n = part.heads * part.tokens;
    let sums = resize(sums, n);
    sums.fill(Sum { most: f32::NEG_INFINITY, weights: 0.0 });
    let all = resize(all, n * how.sizes[1].div_ceil(WIDTH));
    all.fill(Row::zeroed());
    let q = operands.rows::<f32>(0);
    let query = |i: usize| q.row([i / part.heads, part.first + i % part.heads, part.batch]);
    let queries: Vec<_> = (0..n).map(query).collect();
    for ((seen, used), from) in seen.chunks_exact(part.tokens).zip(used).zip((0..).step_by(KEYS)) {
        // The tokens that see something, and those between them: of many sequences, a tile may be one's.
        let sees = |seen: &Seen| seen.end > 0;
        let (Some(first), Some(last)) = (seen.iter().position(sees), seen.iter().rposition(sees)) else { continue };
        let keys = KEYS.min(how.cells - from);
        let used = &used[..keys.next_multiple_of(WIDTH)];
        tile.unpack(s, how, operands, [from, part.first / how.group, part.batch], used);
        let (seen_tile, end) = (SeenTile { tile, seen, keys: (from, keys) }, (last + 1) * part.heads);
        for from in (first * part.heads..end).step_by(ROWS) {
            products.add(s, (how, part), seen_tile, (from..end.min(from + ROWS), &queries), (sums, all));
        }
    }
}
