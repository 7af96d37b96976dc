//! What CUDA's kernels of products and attention take.

use super::{APART, FLOATS, GRID, MANY, WHOLE, aligned, begins, few, near};
use crate::dtype::DType;
use crate::header::TensorPtr;
use crate::op::{FlashAttnOptions, MulMatOptions, Operation as Op, Prec};
use crate::rules::{Verdict, need};

const CUT: &str = "CUDA reads rows of matrices by 512 numbers, which a view may lack; use the weights themselves";
const FAR: &str = "CUDA needs rows that lie behind each other; use `cont`";

pub(super) fn mul_mat(a: TensorPtr, b: TensorPtr, how: MulMatOptions) -> Verdict {
    let ([n0, n1, ..], [_, columns, b2, b3]) = (a.ne(), b.ne());
    let batch = b2.saturating_mul(b3);
    few(&[batch])?;
    need([a, b].iter().all(|x| behind(*x)), FAR)?;
    if a.dtype().block_size() > 1 {
        return of_blocks(a, b, [columns, batch], how);
    }
    if b.dtype() == DType::F32 {
        of_floats(a, b)?;
    }
    let huge = a.elements() > 1 << 27 && columns == 1;
    need(batch == 1 || !huge || a.dtype() == DType::F32, "CUDA multiplies so large a matrix by one batch only")?;
    need(batch == 1 || [a, b].iter().all(|x| x.dtype() != a.dtype() || upper_aligned(*x, n0)), APART)?;
    need(n1 < 1 << 31, MANY)
}

/// Whether the second row lies behind the first one, also where there is only one.
fn behind(x: TensorPtr) -> bool {
    let [_, nb1, ..] = x.nb();
    x.dtype().row_size(x.ne()[0]).is_some_and(|row| nb1 >= row)
}

/// Kernels read pairs of numbers where rows have an even number of them.
fn of_floats(a: TensorPtr, b: TensorPtr) -> Verdict {
    let ([n0, n1, ..], size) = (a.ne(), a.dtype().type_size());
    let ([_, a1, ..], [_, b1, ..]) = (a.nb(), b.nb());
    let vector = a.dtype() != DType::F32 || n1 > 1 || a1.is_multiple_of(8);
    let pairs = begins(a, 2 * size) && aligned(b, 8) && b1.is_multiple_of(8) && vector;
    need(n0 % 2 == 1 || pairs, APART)
}

/// cuBLAS reads vectors of matrices that lie anywhere.
fn upper_aligned(x: TensorPtr, n0: i64) -> bool {
    let bytes = if n0 % 8 == 0 { 16 } else { 4 };
    let ([_, _, n2, n3], [_, _, nb2, nb3]) = (x.ne(), x.nb());
    let fits = |n: i64, nb: usize| n == 1 || nb.is_multiple_of(bytes);
    n0 % 2 == 1 || (begins(x, bytes) && fits(n2, nb2) && fits(n3, nb3))
}

/// Matrices of blocks, times so many columns in so many batches.
fn of_blocks(a: TensorPtr, b: TensorPtr, [columns, batch]: [i64; 2], how: MulMatOptions) -> Verdict {
    need(matches!(how.src, None | Some(Prec::Q8 | Prec::Q4)), "CUDA rounds the second operand to q8 or q4 here")?;
    need(columns == 1 || aligned(b, 16), APART)?;
    let may_have_gaps =
        matches!(a.dtype(), DType::Q4_0 | DType::Q4_1 | DType::Q5_0 | DType::Q5_1 | DType::Q8_0 | DType::Q1_0);
    need(may_have_gaps || a.is_contiguous(), WHOLE)?;
    need(a.dtype() != DType::Q8_0 || begins(a, 4), APART)?;
    need(
        a.dtype() != DType::MXFP4 || a.elements().is_multiple_of(256),
        "CUDA converts 256 numbers of mxfp4 at a time",
    )?;
    need(a.dtype() != DType::Q8_K, "CUDA has no kernel for q8_K")?;
    let ([n0, n1, ..], [depth, b1, b2, b3]) = (a.ne(), b.ne());
    let product = |all: &[i64]| all.iter().try_fold(1_i64, |n, &x| n.checked_mul(x)).unwrap_or(i64::MAX);
    let tiles = [n1 / 64 + 1, columns / 32 + 1, batch, n0 / a.dtype().block_size()];
    let rounded = [depth.saturating_add(511), b1, b2, b3];
    let fits = product(&tiles) < 1 << 30 && product(&rounded) < (1 << 31) - (1 << 16);
    need(fits && n1 <= 1 << 21 && depth <= 1 << 25, MANY)
}

pub(super) fn mul_mat_id(a: TensorPtr, b: TensorPtr, ids: TensorPtr, how: MulMatOptions) -> Verdict {
    need(b.dtype() == DType::F32, "CUDA takes a second operand of f32 here")?;
    let ([n0, rows, experts, _], [_, several, tokens, _], [used, ..]) = (a.ne(), b.ne(), ids.ne());
    need(
        tokens <= 12_288 && used < 1024 && experts <= 4095,
        "CUDA takes at most 12288 tokens, 1023 picks and 4095 experts",
    )?;
    need(ids.has_dense_rows() && (several == 1 || several == used), WHOLE)?;
    need([a, b].iter().all(|x| behind(*x)) && b.layout().has_even_rows(), FAR)?;
    if a.dtype().block_size() > 1 {
        // A group writes up to eight rows of a product, and compares with those of all experts of a token.
        need(rows % 8 == 0, "CUDA needs experts with a multiple of eight rows")?;
        need(padded(a), CUT)?;
        need(tokens <= 4 || aligned(b, 16), APART)?;
        return of_blocks(a, b, [tokens.min(2), experts], how);
    }
    need(aligned(a, 2 * a.dtype().type_size()) || n0 % 2 == 1, APART)?;
    of_floats(a, b)
}

/// Whether rows of blocks can be read by 512 numbers.
fn padded(w: TensorPtr) -> bool {
    w.view_src().is_none() || w.ne()[0] % 512 == 0
}

/// Gates of two products may be computed together with them.
pub(super) fn gated(a: TensorPtr, b: TensorPtr) -> Verdict {
    let cut = |product: &TensorPtr| {
        let multiplies = matches!(Op::of(*product), Some(Op::MulMat(_) | Op::MulMatId(_)));
        let of = product.source(0).filter(|w| multiplies && w.dtype().block_size() > 1);
        of.is_some_and(|w| !padded(w))
    };
    need(![a, b].iter().any(cut), CUT)
}

pub(super) fn out_prod(t: TensorPtr, a: TensorPtr, b: TensorPtr) -> Verdict {
    let ([_, _, n2, n3], [b0, b1, ..], [nb0, nb1, ..]) = (t.ne(), b.ne(), b.nb());
    let bytes = |n: i64| usize::try_from(n).unwrap_or(usize::MAX).saturating_mul(4);
    let rows = nb0 == 4 && nb1 >= bytes(b0);
    let columns = nb0 > nb1 && nb1 == 4 && nb0 >= bytes(b1);
    need((rows || columns) && behind(a), FAR)?;
    need([a, b].iter().all(|x| x.dtype() == DType::F32), FLOATS)?;
    let batch = n2.saturating_mul(n3);
    few(&[batch])?;
    need(batch == 1 || [a, b].iter().all(|x| upper_aligned(*x, 8)), APART)
}

pub(super) fn flash_attn(t: TensorPtr, how: FlashAttnOptions<'_>) -> Verdict {
    let [Some(q), Some(k), Some(v), mask, ..] = t.slots() else { return need(false, "it lacks an operand") };
    let whole = |x: &TensorPtr| x.dtype().block_size() > 1 || aligned(*x, 16);
    let blocks = |x: &TensorPtr| x.dtype() != DType::Q8_0 || begins(*x, 4);
    let fits = [q, k, v].iter().all(|x| whole(x) && blocks(x)) && mask.is_none_or(|mask| begins(mask, 16));
    need(fits, APART)?;
    let ([size, keys, kv_heads, _], [_, n, heads, sequences]) = (k.ne(), q.ne());
    need(
        how.logit_softcap == 0.0 || matches!(size, 128 | 256 | 512),
        "CUDA caps scores of heads of 128, 256 and 512 numbers only",
    )?;
    let alike = |x: TensorPtr, y: TensorPtr| x.view_offs() == y.view_offs() && x.nb()[1..] == y.nb()[1..];
    let shared = k.root() == v.root() && alike(k, v);
    need(size != 576 || shared, "CUDA reads keys of 576 numbers as values, too")?;
    let one = k.root() == v.root() && k.dtype() != DType::F16;
    need(!one || alike(k, v), "CUDA takes values in the memory of the keys for the keys")?;
    let ratio = heads / kv_heads.max(1);
    need(!matches!(size, 512 | 576) || ratio % 4 == 0, "CUDA needs four query heads for each of keys, or a multiple")?;
    if let Some(mask) = mask.filter(|_| keys % 256 == 0 && (n >= 1024 || sequences > 1)) {
        let [_, rows, _, of] = mask.ne();
        let padded = n.saturating_add(63) / 64 * 64;
        need(
            of == sequences && rows >= padded,
            "CUDA reads a row of the mask for each 64 queries begun, of each sequence",
        )?;
    }
    need(how.n_kv_max == 0 || keys < 4096, "CUDA drops keys beyond `n_kv_max`")?;
    need([q, k, v].iter().all(|x| sequence(*x)) && mask.is_none_or(near), MANY)?;
    need(heads.saturating_mul(sequences) <= GRID && t.elements() <= 1 << 26, MANY)
}

/// Whether the bytes of each sequence can be counted.
fn sequence(x: TensorPtr) -> bool {
    let ([_, n1, n2, _], [_, nb1, nb2, _]) = (x.ne(), x.nb());
    let bytes = |n: i64, nb: usize| usize::try_from(n).ok().and_then(|n| n.checked_mul(nb));
    [bytes(n1, nb1), bytes(n2, nb2)].iter().all(|n| n.is_some_and(|n| i32::try_from(n).is_ok()))
}

pub(super) fn indexer(q: TensorPtr, k: TensorPtr) -> Verdict {
    let [_, _, n2, n3] = q.ne();
    few(&[n2, n3])?;
    need(begins(q, 16) && (k.dtype().block_size() > 1 || begins(k, 16)), APART)
}
