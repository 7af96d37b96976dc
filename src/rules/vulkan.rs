//! What ggml's Vulkan backend can bear of what it claims to support. It asserts while it computes, cuts strides to 32 bits,
//! and of some operations looks at other elements than it should. Its shaders know no more types and layouts than the CPU's
//! kernels, so what those refuse is refused here too; this is what is left.

use ggml_sys as sys;

use super::{Verdict, cpu, need};
use crate::dtype::DType;
use crate::error::Result;
use crate::header::TensorPtr;

/// What any device may count on: Vulkan's least limit for a dimension of a dispatch.
const GROUPS: i64 = 65_535;
/// The most elements of operations that have a thread for each, 512 to a group, in one dimension.
const FLAT: i64 = 1 << 24;

/// Whether the backend computes an operation as it should, if it claims to, or what is wrong. Operands that don't begin at
/// a multiple of `alignment` are understood by some shaders only.
pub(super) fn accepts(t: TensorPtr, alignment: usize) -> Verdict {
    if t.is_view_op() {
        return Ok(());
    }
    cpu::accepts(t)?;
    need(t.sources().chain([t]).all(countable), "Vulkan counts elements and strides in 32 bits")?;
    let aligned = |t: TensorPtr| t.view_offs().is_multiple_of(alignment);
    let srcs = t.slots();
    let exempt = match t.op() {
        op if takes_any_offset(op) => srcs.len(),
        sys::GGML_OP_ROPE | sys::GGML_OP_ROPE_BACK => 1,
        _ => 0,
    };
    let fine = srcs.iter().skip(exempt).flatten().all(|&src| aligned(src)) && (exempt > 0 || aligned(t));
    need(fine, "Vulkan needs operands of this operation to begin at a multiple of the buffer's alignment; use `cont`")?;
    special(t)
}

/// [`accepts`] for a device, whose alignment it asks for.
pub(super) fn accepts_on(device: crate::device::Device, t: TensorPtr) -> Result<Verdict> {
    Ok(accepts(t, device.buffer_type().alignment()?))
}

/// The operations whose shaders are told where in its first bytes an operand begins.
fn takes_any_offset(op: sys::ggml_op) -> bool {
    matches!(
        op,
        sys::GGML_OP_UNARY
            | sys::GGML_OP_SQR
            | sys::GGML_OP_SQRT
            | sys::GGML_OP_SIN
            | sys::GGML_OP_COS
            | sys::GGML_OP_LOG
            | sys::GGML_OP_CLAMP
            | sys::GGML_OP_SCALE
            | sys::GGML_OP_LEAKY_RELU
            | sys::GGML_OP_TRI
            | sys::GGML_OP_DIAG
            | sys::GGML_OP_ROLL
            | sys::GGML_OP_PAD
            | sys::GGML_OP_PAD_REFLECT_1D
            | sys::GGML_OP_REPEAT
            | sys::GGML_OP_REPEAT_BACK
            | sys::GGML_OP_UPSCALE
            | sys::GGML_OP_CPY
            | sys::GGML_OP_CONT
            | sys::GGML_OP_DUP
            | sys::GGML_OP_ADD
            | sys::GGML_OP_SUB
            | sys::GGML_OP_MUL
            | sys::GGML_OP_DIV
            | sys::GGML_OP_ADD1
            | sys::GGML_OP_ACC
            | sys::GGML_OP_SET
            | sys::GGML_OP_OUT_PROD
            | sys::GGML_OP_CONCAT
            | sys::GGML_OP_GLU
            | sys::GGML_OP_GET_ROWS
            | sys::GGML_OP_SET_ROWS
            | sys::GGML_OP_NORM
            | sys::GGML_OP_RMS_NORM
            | sys::GGML_OP_L2_NORM
            | sys::GGML_OP_SUM
            | sys::GGML_OP_SUM_ROWS
            | sys::GGML_OP_MEAN
    )
}

/// What single operations need.
fn special(t: TensorPtr) -> Verdict {
    let first = t.source(0).unwrap_or(t);
    let [n0, n1, n2, n3] = first.ne();
    let rows = n1 * n2 * n3;
    match t.op() {
        sys::GGML_OP_CPY | sys::GGML_OP_CONT | sys::GGML_OP_DUP => copies(first, t),
        // One row of all elements, whatever lies between them.
        sys::GGML_OP_SUM => need(first.is_contiguous(), "Vulkan sums up elements without gaps only; use `cont`"),
        // A group for each row.
        sys::GGML_OP_RMS_NORM => need([n1, n2, n3].iter().all(|&n| n <= GROUPS), TOO_MANY),
        sys::GGML_OP_ADD_ID => need([n1, n2].iter().all(|&n| n <= GROUPS), TOO_MANY),
        sys::GGML_OP_DIAG_MASK_INF | sys::GGML_OP_CUMSUM => need(rows <= GROUPS, TOO_MANY),
        sys::GGML_OP_SOFT_MAX => need(n0 <= 16_384 || rows <= GROUPS, TOO_MANY),
        sys::GGML_OP_TIMESTEP_EMBEDDING => need(n0 <= GROUPS, TOO_MANY),
        sys::GGML_OP_CONV_TRANSPOSE_1D => need(n1 <= GROUPS, TOO_MANY),
        sys::GGML_OP_COL2IM_1D | sys::GGML_OP_IM2COL_3D => need(t.ne().iter().all(|&n| n <= GROUPS), TOO_MANY),
        sys::GGML_OP_SILU_BACK
        | sys::GGML_OP_COUNT_EQUAL
        | sys::GGML_OP_POOL_1D
        | sys::GGML_OP_POOL_2D
        | sys::GGML_OP_OPT_STEP_ADAMW
        | sys::GGML_OP_OPT_STEP_SGD
        | sys::GGML_OP_ARANGE => need(n0 * rows <= FLAT && t.layout().count() <= Some(FLAT), TOO_MANY),
        // Numbers are compared as if they were integers, by which -2 is above -1.
        sys::GGML_OP_TOP_K => need(t.ne().first() != Some(&1), "Vulkan finds the wrong one where all are negative"),
        _ => Ok(()),
    }
}

const TOO_MANY: &str = "the operation has more rows or elements than all Vulkan devices take";

/// C asserts that elements which are copied as they are have two or four bytes, and takes blocks for contiguous.
fn copies(from: TensorPtr, to: TensorPtr) -> Verdict {
    let (a, b) = (from.dtype(), to.dtype());
    let blocks = |d: DType| d.block_size() > 1;
    if blocks(a) || blocks(b) {
        return need(from.is_contiguous() && to.is_contiguous(), "Vulkan copies blocks without gaps only");
    }
    need(a != b || matches!(a.type_size(), 2 | 4), "Vulkan copies elements of two or four bytes only")
}

/// Whether shaders can count the elements, and C hand them the strides.
fn countable(t: TensorPtr) -> bool {
    t.layout().count().is_some_and(|n| i32::try_from(n).is_ok()) && t.nb().iter().all(|&n| u32::try_from(n).is_ok())
}

/// These need no device.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::ops::{Rope, RopeMode};
    use crate::tensor::Tensor;

    /// What devices say.
    const ALIGNMENT: usize = 16;

    fn ask(y: Tensor<'_>) -> std::result::Result<(), &'static str> {
        assert!(cpu::accepts(y.ptr()).is_ok(), "the CPU's kernels refuse nothing");
        accepts(y.ptr(), ALIGNMENT).map_err(|refusal| refusal.0)
    }

    fn of(ctx: &Context, ne: [i64; 4]) -> Tensor<'_> {
        ctx.input("x", DType::F32, ne).unwrap()
    }

    #[test]
    fn h134_operations_with_too_many_rows_are_refused() {
        let ctx = Context::new();
        let (many, few) = (of(&ctx, [4, 65_536, 1, 1]), of(&ctx, [4, 65_535, 1, 1]));
        for (x, fits) in [(many, false), (few, true)] {
            let verdict = if fits { Ok(()) } else { Err(TOO_MANY) };
            assert_eq!(ask(ctx.rms_norm(x, 1e-5).unwrap()), verdict);
            assert_eq!(ask(ctx.diag_mask_inf(x, 0).unwrap()), verdict);
            assert_eq!(ask(ctx.cumsum(x).unwrap()), verdict);
            assert_eq!(ask(ctx.norm(x, 1e-5).unwrap()), Ok(()), "rows are no limit there");
        }
        assert_eq!(ask(ctx.soft_max(many).unwrap()), Ok(()), "short rows are no limit there");
        assert_eq!(ask(ctx.arange(0.0, 16_777_216.0, 1.0).unwrap()), Ok(()));
        let steps = of(&ctx, [65_536, 1, 1, 1]);
        assert_eq!(ask(ctx.timestep_embedding(steps, 8, 10).unwrap()), Err(TOO_MANY));
        let flat = of(&ctx, [1 << 13, (1 << 11) + 1, 1, 1]);
        assert_eq!(ask(ctx.silu_back(flat, flat).unwrap()), Err(TOO_MANY));
    }

    #[test]
    fn h136_strides_that_32_bits_do_not_hold_are_refused() {
        let ctx = Context::new();
        let wide = of(&ctx, [1 << 20, 1 << 12, 1, 1]);
        let rows = |stride: usize| ctx.view(wide, [4, 2], [stride, 2 * stride, 2 * stride], 0).unwrap();
        assert!(ask(ctx.neg(rows(1 << 32)).unwrap()).is_err(), "it would be 0");
        assert!(ask(ctx.add(of(&ctx, [4, 2, 1, 1]), rows(1 << 32)).unwrap()).is_err(), "the second operand's");
        assert_eq!(ask(ctx.neg(rows(1 << 30)).unwrap()), Ok(()));
        assert!(ask(ctx.neg(of(&ctx, [1 << 16, 1 << 15, 1, 1])).unwrap()).is_err(), "2^31 elements");
    }

    #[test]
    fn h137_what_shaders_would_read_elsewhere_is_refused() {
        let ctx = Context::new();
        let at = |dtype, offset: usize| {
            let whole = ctx.input("x", dtype, [9, 8]).unwrap();
            ctx.view(whole, [8], [32, 32, 32], offset).unwrap()
        };
        let turned = |x, positions| ask(ctx.rope_ext(x, positions, Rope::new(8, RopeMode::Normal)).unwrap());
        let x = of(&ctx, [8, 2, 8, 1]);
        assert_eq!(turned(x, at(DType::I32, 16)), Ok(()));
        for offset in [4, 8, 20] {
            assert!(turned(x, at(DType::I32, offset)).is_err(), "positions from {offset} on");
        }
        let beginning = ctx.view(of(&ctx, [9, 2, 8, 1]), [8, 2, 8], [36, 72, 576], 4).unwrap();
        assert_eq!(turned(beginning, at(DType::I32, 16)), Ok(()), "what is turned may begin anywhere");

        let gaps = ctx.view(of(&ctx, [9, 4, 1, 1]), [8, 4], [36, 144, 144], 0).unwrap();
        assert!(ask(ctx.sum(gaps).unwrap()).is_err());
        assert_eq!(ask(ctx.sum(ctx.cont(gaps).unwrap()).unwrap()), Ok(()));
        assert_eq!(ask(ctx.sum_rows(gaps).unwrap()), Ok(()), "rows are looked for by their stride");

        assert!(ask(ctx.top_k(of(&ctx, [9, 4, 1, 1]), 1).unwrap()).is_err());
        assert_eq!(ask(ctx.top_k(of(&ctx, [9, 4, 1, 1]), 2).unwrap()), Ok(()));

        let matrix = |offset| ctx.view(of(&ctx, [9, 4, 1, 1]), [8, 4], [36, 144, 144], offset).unwrap();
        let product = |offset| ask(ctx.mul_mat(of(&ctx, [8, 2, 1, 1]), matrix(offset)).unwrap());
        assert!(product(4).is_err() && product(0).is_ok(), "operands begin at a multiple of the alignment");
    }
}
