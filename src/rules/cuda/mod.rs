//! Which operations ggml's CUDA backend computes correctly, on NVIDIA's GPUs, AMD's (HIP) and Moore Threads'. The backend claims
//! more. With others it fails an assertion, which ends the process, reads or writes outside of its operands, or makes wrong numbers.
//! Its kernels know no types or layouts that the CPU kernels don't know, so this table first asks that of the CPU, then adds
//! limits of its own. Some limits are those of kernels that compute several operations at once.

mod elements;
mod products;
mod rows;

use super::{Verdict, cpu, need, operation};
use crate::dtype::DType;
use crate::entries::{Entries, Entry, Kind};
use crate::header::{Layout, TensorPtr};
use crate::op::Operation as Op;

/// The most groups along the second and the third dimension of a grid.
const GRID: i64 = 65_535;
const MANY: &str = "CUDA takes at most 65535 of these rows or matrices";
const WHOLE: &str = "CUDA needs contiguous operands for this operation; use `cont`";
const FLOATS: &str = "CUDA's kernel takes f32 only";
const APART: &str =
    "CUDA's kernel needs operands that begin, and rows that lie, at multiples of its vectors; use `cont`";

/// Whether the CUDA backend computes the operation correctly if it claims it; else the reason why not.
#[expect(clippy::too_many_lines, reason = "an arm for each operation")]
pub(super) fn accepts(t: TensorPtr) -> Verdict {
    if t.is_view_op() {
        return Ok(());
    }
    cpu::accepts(t)?;
    need(
        t.sources().chain([t]).all(countable),
        "CUDA counts less than 2^31 - 2^16 elements or blocks, and bytes between rows",
    )?;
    let dense = |x: TensorPtr| x.ne()[0] > 1 || x.has_dense_rows();
    let op = operation(t)?;
    // These go by all strides, also where there is one element only.
    let any =
        matches!(op, Op::Concat { .. } | Op::Cont | Op::Cpy | Op::Dup | Op::Pad(_) | Op::Repeat | Op::Roll { .. });
    need(any || t.sources().chain([t]).all(dense), WHOLE)?;
    let [a, b, c] = [0, 1, 2].map(|i| t.source(i).unwrap_or(t));
    let [_, _, n2, n3] = a.ne();
    let whole = |of: &[TensorPtr]| need(of.iter().all(|t| t.is_contiguous()), WHOLE);
    match op {
        Op::Acc(how) => {
            whole(&[a, t])?;
            elements::acc(b, how)
        }
        Op::Add | Op::Add1 | Op::Div | Op::Mul | Op::Sub => elements::binary(t, a, b),
        Op::AddId => elements::add_id(a, b, c),
        Op::Argmax | Op::Diag | Op::GetRowsBack | Op::LeakyRelu { .. } | Op::Xielu { .. } => whole(&[a]),
        Op::Argsort(_) | Op::TopK { .. } => {
            need(a.ne()[0] <= 1 << 29, MANY)?;
            whole(&[a])
        }
        Op::Clamp { .. } if cfg!(not(ggml_0_28)) => whole(&[a, t]),
        Op::Concat { .. } => few(&t.ne()[2..]),
        Op::Cont | Op::Cpy | Op::Dup => rows::copy(a, t),
        Op::Cos | Op::Log | Op::Sin | Op::Sqr | Op::Sqrt | Op::Unary(_) => elements::unary(t, a),
        Op::CountEqual => {
            need(a.elements() < 1 << 30, MANY)?;
            whole(&[a, b])
        }
        Op::CrossEntropyLoss | Op::RmsNormBack { .. } | Op::SiluBack => whole(&[a, b]),
        Op::Cumsum => {
            few(&[n2, n3])?;
            whole(&[a])
        }
        Op::DiagMaskInf { .. } => need(false, "CUDA writes the least float instead of an infinity"),
        Op::Fill { .. } => whole(&[t]),
        Op::FlashAttnExt(how) => products::flash_attn(t, how),
        Op::GatedDeltaNet { .. } => rows::gated_delta_net(a, b, c),
        Op::GatedLinearAttn { .. } | Op::RwkvWkv6 | Op::RwkvWkv7 => {
            need(matches!(a.ne()[0], 64 | 128), "CUDA has kernels for heads of 64 and 128 numbers")
        }
        Op::GetRows => need(b.has_dense_rows(), WHOLE),
        Op::Glu { .. } | Op::SwigluClamp { .. } => products::gated(a, b),
        Op::Im2col(_) | Op::Im2col1d(_) => need(b.dtype() == DType::F32, FLOATS),
        Op::Interpolate(_) => need(near(a), MANY),
        Op::L2Norm { eps } => {
            need(eps == 0.0 || eps >= 1e-18, "CUDA squares `eps`, which is too small for that")?;
            rows::norm(t, a)
        }
        Op::LightningIndexer => products::indexer(a, b),
        Op::MulMat(how) => products::mul_mat(a, b, how),
        Op::MulMatId(how) => products::mul_mat_id(a, b, c, how),
        Op::Norm { .. } | Op::RmsNorm { .. } => rows::norm(t, a),
        Op::OutProd => products::out_prod(t, a, b),
        Op::Pad(_) if cfg!(not(ggml_0_28)) => few(&[t.ne()[1], t.ne()[2].saturating_mul(t.ne()[3])]),
        Op::PadReflect1d { .. } | Op::SoftMax(_) | Op::Tri(_) => {
            need(a.ne()[0] <= 1 << 30, MANY)?;
            few(&[n2, n3])
        }
        Op::Pool1d(..) => need(a.dtype() == DType::F32, FLOATS),
        Op::Pool2d(_, how) => rows::pool_2d(t, a, how),
        Op::RepeatBack => few(&[t.ne()[1]]),
        Op::Rope(how) | Op::RopeBack(how) => rows::rope(t, how),
        Op::Set(_) => whole(&[b]),
        Op::SetRows => rows::set_rows(t, a, b, c),
        Op::SolveTri => few(&[n2.saturating_mul(n3)]),
        Op::SsmConv => rows::ssm_conv(t, a, b),
        Op::SsmScan { .. } => rows::ssm_scan(t),
        Op::Sum => {
            need(a.dtype() == DType::F32, FLOATS)?;
            whole(&[a])
        }
        Op::SwigluOai { alpha, limit } => {
            let usual = [alpha, limit].map(f32::to_bits) == [1.702, 7.0].map(f32::to_bits);
            need(usual, "CUDA may compute it with products, by an alpha of 1.702 and a limit of 7")?;
            products::gated(a, b)
        }
        Op::TimestepEmbedding { .. } => few(&[a.ne()[0]]),
        _ => Ok(()),
    }
}

/// Whether each of these is not more than a grid has.
fn few(all: &[i64]) -> Verdict {
    need(all.iter().all(|&n| n <= GRID), MANY)
}

/// Whether kernels can count a tensor's elements (or blocks), also those between its first and its last one, and the bytes between
/// its rows.
fn countable(t: TensorPtr) -> bool {
    const MOST: usize = (1 << 31) - (1 << 16);
    let Layout { dtype, ne, nb } = t.layout();
    let (size, block) = (dtype.type_size(), usize::try_from(dtype.block_size()).unwrap_or(1));
    let close =
        |(&n, &nb): (&i64, &usize)| if n > 1 { i32::try_from(nb).is_ok() } else { u32::try_from(nb / size).is_ok() };
    t.span().is_some_and(|n| n / size < MOST) && t.elements() / block < MOST && ne.iter().zip(&nb).all(close)
}

/// Whether the bytes between a tensor's first element and its last one can be counted.
fn near(t: TensorPtr) -> bool {
    t.span().is_some_and(|n| i32::try_from(n).is_ok())
}

/// Whether an operation that may be computed together with what follows, or one of so many before it, reads this memory.
fn reads(x: TensorPtr, root: TensorPtr, depth: u32, joins: fn(Op) -> bool) -> bool {
    let any = |src: TensorPtr| src.root() == root || (depth > 0 && reads(src, root, depth - 1, joins));
    Op::of(x).is_some_and(joins) && x.sources().any(any)
}

/// Whether a tensor begins, and its rows lie, at a multiple of so many bytes.
fn aligned(t: TensorPtr, bytes: usize) -> bool {
    let ([_, upper @ ..], [_, strides @ ..]) = (t.ne(), t.nb());
    begins(t, bytes) && upper.iter().zip(strides).all(|(&n, nb)| n == 1 || nb.is_multiple_of(bytes))
}

/// Whether a tensor begins at a multiple of so many bytes. All memory does that views are of.
fn begins(t: TensorPtr, bytes: usize) -> bool {
    t.view_src().is_none() || t.view_offs().is_multiple_of(bytes)
}

/// Whether a gate of two products of floats may be computed together with them: only if what they take was made on the same device. A
/// copy from elsewhere may lie where the gate is written while rows are still multiplied, as CUDA does not ask where such copies are.
pub(super) fn gate(t: TensorPtr, is_here: impl Fn(TensorPtr) -> bool) -> Verdict {
    let gates = matches!(Op::of(t), Some(Op::Glu { .. } | Op::SwigluClamp { .. } | Op::SwigluOai { .. }));
    let copied = |product: TensorPtr| {
        let [Some(w), Some(x), ..] = product.slots() else { return false };
        let multiplies = matches!(Op::of(product), Some(Op::MulMat(_) | Op::MulMatId(_)));
        multiplies && w.dtype().block_size() == 1 && x.ne()[1..] == [1, 1, 1] && !is_here(x.root())
    };
    // A sum may lie between.
    let any = |x: TensorPtr| copied(x) || (matches!(Op::of(x), Some(Op::Add | Op::AddId)) && x.sources().any(copied));
    let why = "CUDA may write the gate over what its products still read: `cont` that first";
    need(!gates || t.source(1).is_none() || !t.sources().any(any), why)
}

/// Whether a node of a graph may be computed together with others. A copy of the states that a recurrent operation leaves behind
/// its result may be written by that operation, which then writes them nowhere else.
pub(super) fn together(graph: &Entries, e: &Entry) -> Verdict {
    let (true, Some(from)) = (matches!(Op::of(e.ptr), Some(Op::Cpy)), e.ptr.source(0)) else { return Ok(()) };
    let made = from.root();
    if !matches!(Op::of(made), Some(Op::GatedDeltaNet { .. } | Op::SsmScan { .. })) {
        return Ok(());
    }
    let reads = |other: &Entry| {
        let shown = other.kept && other.ptr.overlaps(from);
        let read = other.kind == Kind::Node && other.ptr != e.ptr && !other.ptr.is_view_op();
        shown || (read && other.ptr.sources().any(|src| src.root() == made && src.overlaps(from)))
    };
    let why = "CUDA may write these states where they are copied to, and nowhere else: read the copy";
    need(!graph.iter().any(reads), why)?;
    // The operation may still read a state while the copy is written.
    let apart =
        |src: TensorPtr| !src.overlaps(e.ptr) || (src.view_offs() == e.ptr.view_offs() && src.nb() == e.ptr.nb());
    need(made.sources().all(apart), "CUDA may write the copy of the states while it reads the earlier ones")
}

/// These tests of the table need no device. A GPU ended the process, or computed something else, where they refuse.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::op::{Conv2dOptions, FlashAttnOptions, Pool1dOptions, PoolOp, RopeMode, RopeOptions, SetOptions};
    use crate::ops::GatedLinearAttnOperands;
    use crate::tensor::Tensor;

    fn ask(y: Tensor<'_>) -> bool {
        assert!(cpu::accepts(y.ptr()).is_ok(), "the CPU kernels accept it");
        accepts(y.ptr()).is_ok()
    }

    fn of(ctx: &Context, dtype: DType, ne: [i64; 4]) -> Tensor<'_> {
        ctx.input("x", dtype, ne).unwrap()
    }

    /// A matrix whose rows are an element longer.
    fn gaps(ctx: &Context, dtype: DType, [n, rows]: [i64; 2]) -> Tensor<'_> {
        let whole = of(ctx, dtype, [n + 1, rows, 1, 1]);
        let nb = whole.nb()[1];
        ctx.view(whole, [n, rows], [nb, nb * usize::try_from(rows).unwrap(), nb * usize::try_from(rows).unwrap()], 0)
            .unwrap()
    }

    #[test]
    fn h179_cuda_refuses_what_its_kernels_assert() {
        let ctx = Context::new();
        let (f32s, f16s) = (DType::F32, DType::F16);
        let image =
            |dtype| ctx.im2col(of(&ctx, f16s, [3, 3, 2, 4]), of(&ctx, dtype, [9, 8, 2, 1]), Conv2dOptions::new(), f16s);
        assert!(ask(image(f32s).unwrap()) && !ask(image(f16s).unwrap()), "images of f32");
        let pool = |dtype| ctx.pool_1d(of(&ctx, dtype, [8, 6, 1, 1]), PoolOp::Max, Pool1dOptions::new([2])).unwrap();
        assert!(ask(pool(f32s)) && !ask(pool(f16s)));
        assert!(
            ask(ctx.sum(of(&ctx, f32s, [8, 6, 1, 1])).unwrap()) && !ask(ctx.sum(of(&ctx, f16s, [8, 6, 1, 1])).unwrap())
        );
        for (whole, fits) in [(of(&ctx, f32s, [64, 9, 1, 1]), true), (gaps(&ctx, f32s, [64, 9]), false)] {
            assert_eq!(ask(ctx.argmax(whole).unwrap()), fits);
            assert_eq!(ask(ctx.mul_mat(of(&ctx, f32s, [64, 5, 1, 1]), whole).unwrap()), fits, "rows by pairs");
        }
        let heads = |size: i64| {
            let row = || of(&ctx, f32s, [size, 2, 3, 1]);
            let state = of(&ctx, f32s, [size * size * 2, 1, 1, 1]);
            let on = GatedLinearAttnOperands { k: row(), v: row(), q: row(), g: row(), state };
            ask(ctx.gated_linear_attn(on, 1.0).unwrap())
        };
        assert!(heads(64) && !heads(32), "there are two kernels");
    }

    #[test]
    fn h180_cuda_refuses_what_its_kernels_would_misread() {
        let ctx = Context::new();
        let floats = |ne| of(&ctx, DType::F32, ne);
        let experts = |rows| {
            ctx.mul_mat_id(
                of(&ctx, DType::Q4_0, [512, rows, 4, 1]),
                floats([512, 1, 1, 1]),
                of(&ctx, DType::I32, [2, 1, 1, 1]),
            )
            .unwrap()
        };
        assert!(ask(experts(8)) && !ask(experts(2)), "a group would write rows of the next expert");
        let head =
            |x| ctx.permute(ctx.view(x, [64, 4, 2], [65 * 4, 65 * 16, 65 * 32], 0).unwrap(), [0, 2, 1, 3]).unwrap();
        let attend = |q| {
            ctx.flash_attn_ext(
                q,
                of(&ctx, DType::F16, [64, 32, 4, 1]),
                of(&ctx, DType::F16, [64, 32, 4, 1]),
                FlashAttnOptions::new(1.0),
            )
            .unwrap()
        };
        assert!(ask(attend(floats([64, 2, 4, 1]))) && !ask(attend(head(floats([65, 4, 2, 1])))), "vectors of queries");
        let [w, x] = [floats([64, 64, 1, 1]), floats([64, 1, 1, 1])];
        let product = ctx.mul_mat(w, x).unwrap();
        assert!(
            !ask(ctx.add(x, product).unwrap()) && ask(ctx.add(floats([64, 1, 1, 1]), product).unwrap()),
            "the sum lies over `x`"
        );
        let strides = |all| {
            ask(ctx.acc(floats([8, 8, 2, 1]), floats([2, 3, 1, 1]), SetOptions::new(0).with_strides(all)).unwrap())
        };
        assert!(strides([32, 256, 512]) && !strides([32, 64, 512]), "parts are found by division");
        let rope = |n| {
            ctx.rope_ext(
                floats([64, 2, n, 1]),
                of(&ctx, DType::I32, [n, 1, 1, 1]),
                RopeOptions::new(64, RopeMode::Normal),
            )
            .unwrap()
        };
        let write = |rows: i64| {
            let turned = ctx.view(rope(4), [128, rows], [512, 2048, 2048], 0).unwrap();
            ask(ctx
                .set_rows(ctx.dup(floats([128, 9, 1, 1])).unwrap(), turned, of(&ctx, DType::I64, [rows, 1, 1, 1]))
                .unwrap())
        };
        assert!(write(4) && !write(3), "all rows that were rotated, or none");
        let state = ctx.dup(floats([128, 4, 1, 1])).unwrap();
        let positions = of(&ctx, DType::I32, [4, 1, 1, 1]);
        let own = ctx.rope(ctx.reshape(state, [64, 2, 4]).unwrap(), positions, 64, RopeMode::Normal).unwrap();
        let turned = ctx.view(own, [128, 4], [512, 2048, 2048], 0).unwrap();
        let written = ctx.set_rows(state, turned, of(&ctx, DType::I64, [4, 1, 1, 1])).unwrap();
        assert!(!ask(written), "rows of what is still rotated");
        let narrow = |nb1| ctx.view(floats([64, 1, 1, 1]), [1, 4], [nb1, 4 * nb1, 4 * nb1], 0).unwrap();
        let one = ctx.permute(narrow(16), [1, 0, 2, 3]).unwrap();
        assert!(ask(ctx.concat(one, one, 0).unwrap()), "states of one token beside others");
        let gate = |here: bool| {
            let x = floats([64, 1, 1, 1]);
            let [up, down] = [ctx.mul_mat(w, x).unwrap(), ctx.mul_mat(w, x).unwrap()];
            gate(ctx.glu_split(up, down, crate::op::GluOp::Swiglu).unwrap().ptr(), |_| here).is_ok()
        };
        assert!(gate(true) && !gate(false), "the gate may lie over a copy of `x`");
        assert!(!ask(ctx.diag_mask_inf(floats([8, 8, 1, 1]), 0).unwrap()));
    }
}
