//! Which operations ggml's Vulkan backend computes correctly. It claims more: it then fails an assertion during the
//! computation, cuts strides to 32 bits, or reads the wrong elements. Its shaders know no more types and layouts than
//! the CPU kernels, so this table first asks that of the CPU, then adds limits of its own.

use ggml_sys as sys;

use super::{Verdict, cpu, need};
use crate::dtype::DType;
use crate::error::Result;
use crate::header::TensorPtr;

/// The limit that every Vulkan device has at least for one dimension of a dispatch.
const GROUPS: i64 = 65_535;
/// The most elements for shaders with one thread per element, in groups of 512 along one dimension.
const FLAT: i64 = 1 << 24;

/// Whether the backend, if it claims the operation, computes it correctly; else the reason. Only some shaders take
/// operands whose offset is no multiple of `alignment`.
pub(super) fn accepts(t: TensorPtr, alignment: usize) -> Verdict {
    if t.is_view_op() {
        return Ok(());
    }
    cpu::accepts(t)?;
    need(t.sources().chain([t]).all(countable), "Vulkan takes less than 2^31 elements, and strides below 2^32")?;
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

/// [`accepts`] with the alignment of `device`.
pub(super) fn accepts_on(device: crate::device::Device, t: TensorPtr) -> Result<Verdict> {
    Ok(accepts(t, device.buffer_type().alignment()?))
}

/// The operations whose shaders get an operand's offset below the alignment.
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

/// Limits of single operations.
fn special(t: TensorPtr) -> Verdict {
    let first = t.source(0).unwrap_or(t);
    let [n0, n1, n2, n3] = first.ne();
    let rows = n1 * n2 * n3;
    match t.op() {
        sys::GGML_OP_CPY | sys::GGML_OP_CONT | sys::GGML_OP_DUP => copies(first, t),
        // The shader sums as many elements as there are, from the first on, and ignores strides.
        sys::GGML_OP_SUM => need(first.is_contiguous(), "Vulkan sums contiguous tensors only; use `cont`"),
        // These dispatch one group per row.
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
        // The shader compares floats as integers, for which -2 is above -1.
        sys::GGML_OP_TOP_K => need(t.ne().first() != Some(&1), "Vulkan's `top_k` of 1 is wrong for negative rows"),
        _ => Ok(()),
    }
}

const TOO_MANY: &str = "the operation has more rows or elements than every Vulkan device takes";

/// C asserts that elements copied without conversion have two or four bytes, and takes block types for contiguous.
fn copies(from: TensorPtr, to: TensorPtr) -> Verdict {
    let (a, b) = (from.dtype(), to.dtype());
    let blocks = |d: DType| d.block_size() > 1;
    if blocks(a) || blocks(b) {
        return need(from.is_contiguous() && to.is_contiguous(), "Vulkan copies blocks without gaps only; use `cont`");
    }
    need(a != b || matches!(a.type_size(), 2 | 4), "Vulkan copies elements of two or four bytes only")
}

/// Whether shaders can count the elements, and C can pass them the strides.
fn countable(t: TensorPtr) -> bool {
    t.layout().count().is_some_and(|n| i32::try_from(n).is_ok()) && t.nb().iter().all(|&n| u32::try_from(n).is_ok())
}

/// These tests need no device.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::ops::{Rope, RopeMode};
    use crate::tensor::Tensor;

    /// An alignment that devices report.
    const ALIGNMENT: usize = 16;

    fn ask(y: Tensor<'_>) -> std::result::Result<(), &'static str> {
        assert!(cpu::accepts(y.ptr()).is_ok(), "the CPU kernels accept it");
        accepts(y.ptr(), ALIGNMENT).map_err(|refusal| refusal.0)
    }

    fn of(ctx: &Context, ne: [i64; 4]) -> Tensor<'_> {
        ctx.input("x", DType::F32, ne).unwrap()
    }

    #[test]
    fn h134_vulkan_refuses_operations_with_too_many_rows() {
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
    fn h136_vulkan_refuses_strides_beyond_32_bits() {
        let ctx = Context::new();
        let wide = of(&ctx, [1 << 20, 1 << 12, 1, 1]);
        let rows = |stride: usize| ctx.view(wide, [4, 2], [stride, 2 * stride, 2 * stride], 0).unwrap();
        assert!(ask(ctx.neg(rows(1 << 32)).unwrap()).is_err(), "it would be 0");
        assert!(ask(ctx.add(of(&ctx, [4, 2, 1, 1]), rows(1 << 32)).unwrap()).is_err(), "the second operand's");
        assert_eq!(ask(ctx.neg(rows(1 << 30)).unwrap()), Ok(()));
        assert!(ask(ctx.neg(of(&ctx, [1 << 16, 1 << 15, 1, 1])).unwrap()).is_err(), "2^31 elements");
    }

    #[test]
    fn h137_vulkan_refuses_operands_that_shaders_would_misread() {
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
        assert_eq!(ask(ctx.sum_rows(gaps).unwrap()), Ok(()), "the shader uses the stride of rows");

        assert!(ask(ctx.top_k(of(&ctx, [9, 4, 1, 1]), 1).unwrap()).is_err());
        assert_eq!(ask(ctx.top_k(of(&ctx, [9, 4, 1, 1]), 2).unwrap()), Ok(()));

        let matrix = |offset| ctx.view(of(&ctx, [9, 4, 1, 1]), [8, 4], [36, 144, 144], offset).unwrap();
        let product = |offset| ask(ctx.mul_mat(of(&ctx, [8, 2, 1, 1]), matrix(offset)).unwrap());
        assert!(product(4).is_err() && product(0).is_ok(), "operands begin at a multiple of the alignment");
    }
}
