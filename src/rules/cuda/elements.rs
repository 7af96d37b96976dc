//! What CUDA's kernels of operations by elements take.

use super::{APART, FLOATS, GRID, WHOLE, reads};
use crate::dtype::DType;
use crate::header::{Layout, TensorPtr};
use crate::op::{Operation as Op, SetOptions};
use crate::rules::{Verdict, need};

/// The kernel divides by the strides of the part, the largest first, to find an element.
pub(super) fn acc(b: TensorPtr, how: SetOptions) -> Verdict {
    let Layout { ne, nb, .. } = b.layout();
    let [s1, s2, s3] = how.strides.unwrap_or([nb[1], nb[2], nb[3]]);
    let [e0, e1, e2] = [ne[0], ne[1], ne[2]].map(i64::unsigned_abs);
    let rows = u64::try_from(s1).ok().zip(u64::try_from(s2).ok()).zip(u64::try_from(s3).ok());
    let nested = rows.is_some_and(|((s1, s2), s3)| {
        let row = e0.saturating_mul(4);
        let plane = (e1 - 1).saturating_mul(s1).saturating_add(row);
        s1 >= row && s2 >= plane && s3 >= (e2 - 1).saturating_mul(s2).saturating_add(plane)
    });
    need(nested, "CUDA adds to a part whose strides are those of rows, then of matrices, then of what lies above")
}

pub(super) fn unary(t: TensorPtr, a: TensorPtr) -> Verdict {
    need(t.is_contiguous() && (cfg!(ggml_0_28) || a.is_contiguous()), WHOLE)?;
    let (Some(Op::Sin), Some(Op::Mul)) = (Op::of(t), Op::of(a)) else { return Ok(()) };
    // A sine of a product may be computed with a square and a sum, over the product's operands.
    let [n0, ..] = t.ne();
    let steady = a.sources().all(|src| src.root().is_leaf() || src.ne()[0] > 1);
    need(n0 > 1 && steady, "CUDA may compute a sine of a product too early; use `cont`")
}

/// Sums, products and so on, which repeat the second operand.
pub(super) fn binary(t: TensorPtr, a: TensorPtr, b: TensorPtr) -> Verdict {
    let op = Op::of(t);
    need(!matches!(op, Some(Op::Add1)) || a.dtype().block_size() == 1, "CUDA adds a number to floats only")?;
    if a.is_contiguous() && b.is_contiguous() && a.ne() != b.ne() {
        // Dimensions are merged by strides, those of one element, too.
        need(packed(a) && packed(b), WHOLE)?;
    }
    if !matches!(op, Some(Op::Add | Op::Mul)) {
        return Ok(());
    }
    // What follows is for kernels that compute the operation with those before it.
    need(t.is_contiguous(), WHOLE)?;
    need(t.ne()[0] <= GRID * 256 || t.ne()[1] > 15, super::MANY)?;
    // Together with at most three operations before it.
    let alone = t.view_src().is_none() || !reads(b, t.root(), 3, joins);
    need(alone, "CUDA may write the result while it still reads it for the second operand; don't compute in place")?;
    if matches!(op, Some(Op::Add)) { sum(t, a, b) } else { Ok(()) }
}

/// What may be computed together with the sum or the product after it.
fn joins(op: Op) -> bool {
    matches!(
        op,
        Op::Add
            | Op::Glu { .. }
            | Op::Mul
            | Op::MulMat(_)
            | Op::MulMatId(_)
            | Op::RmsNorm { .. }
            | Op::Scale { .. }
            | Op::Unary(_)
    )
}

/// Sums may be computed with the product before them.
fn sum(t: TensorPtr, a: TensorPtr, b: TensorPtr) -> Verdict {
    let casts = t.dtype() != a.dtype() && matches!(Op::of(a), Some(Op::Add));
    need(!casts, "CUDA may convert no earlier sum")?;
    for (product, other) in [(a, b), (b, a)] {
        let of_product = match Op::of(product) {
            Some(Op::MulMat(_) | Op::MulMatId(_)) => Some(product),
            Some(Op::Mul) => {
                product.sources().find(|src| matches!(Op::of(*src), Some(Op::MulMat(_) | Op::MulMatId(_))))
            }
            _ => None,
        };
        let Some(product) = of_product else { continue };
        let [w, y] = [0, 1].map(|i| product.source(i).unwrap_or(product));
        let plain = |x: &TensorPtr| x.dtype() == DType::F32 && x.is_contiguous();
        need([t, a, b].iter().all(plain), "CUDA adds contiguous f32 to a product; use `cont` or `cast`")?;
        // Matrices of blocks convert the activations first.
        let [_, columns @ ..] = y.ne();
        let one = columns == [1, 1, 1] && w.dtype().block_size() == 1;
        need(!one || other.root() != y.root(), "CUDA may write the sum over what the product still reads; use `cont`")?;
    }
    Ok(())
}

pub(super) fn add_id(a: TensorPtr, b: TensorPtr, ids: TensorPtr) -> Verdict {
    let [_, _, n2, n3] = a.ne();
    need(n2 <= GRID && n3 == 1, super::MANY)?;
    need([a, b].iter().all(|x| x.dtype() == DType::F32), FLOATS)?;
    need(ids.has_dense_rows() && b.has_dense_rows() && a.has_dense_rows(), APART)?;
    let Some(Op::MulMatId(_)) = Op::of(a) else { return Ok(()) };
    let experts = a.source(0).map_or(0, |w| w.ne()[2]);
    need(b.is_contiguous() && b.ne()[1] == experts, "CUDA needs contiguous biases, one for each expert")
}

/// Whether strides are those of a new tensor, up to the last dimension of more than one element.
fn packed(t: TensorPtr) -> bool {
    let Layout { dtype, ne, nb } = t.layout();
    let last = ne.iter().rposition(|&n| n > 1).unwrap_or(0);
    nb.iter().zip(Layout::packed(dtype, ne).nb).take(last + 1).all(|(nb, packed)| *nb == packed)
}
