//! Which operations ggml's Vulkan backend computes correctly. The backend claims more. With other operations it fails
//! an assertion during the computation, cuts strides to 32 bits, or reads the wrong elements. Its shaders know no types
//! or layouts that the CPU kernels don't know, so this table first asks that of the CPU, then adds limits of its own.

use super::table::{Row, row_of};
use super::{Verdict, cpu, need};
use crate::dtype::DType;
use crate::error::Result;
use crate::header::TensorPtr;
use crate::op::Pool2dOptions;

/// The number of groups along one dimension of a dispatch that every Vulkan device supports.
const GROUPS: i64 = 65_535;
/// The most elements for shaders that have one thread per element, in groups of 512 along one dimension.
const FLAT: i64 = 1 << 24;

/// Which operands a shader takes at any offset. C rounds an operand's offset down to the device's alignment, and passes
/// the rest as a number of elements or blocks. For blocks, the rest may not be a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offsets {
    Aligned,
    FirstAny,
    Any,
    /// Any operand, and at any byte, even inside a block.
    AnyByte,
}

/// Another limit of an operation's shader. Most shaders dispatch as many groups along one dimension as an operand has
/// rows or elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    None,
    Copies,
    Contiguous,
    Dimension0,
    Dimension1,
    Dimensions12,
    Dimensions123,
    /// The number of all rows is limited.
    Rows,
    /// The number of all rows is limited if they are long.
    LongRows,
    /// The dimensions of the result are limited.
    Result,
    /// The number of all elements is limited.
    Flat,
    Pool(Pool2dOptions),
    NotOne,
}

/// Whether the Vulkan backend computes the operation correctly if it claims it; else the reason why not. Only some
/// shaders take operands whose offset is no multiple of `alignment`.
pub(super) fn accepts(t: TensorPtr, alignment: usize) -> Verdict {
    if t.is_view_op() {
        return Ok(());
    }
    cpu::accepts(t)?;
    need(t.sources().chain([t]).all(countable), "Vulkan takes less than 2^31 elements, and strides below 2^32")?;
    let Row { offsets, limit, .. } = row_of(t)?;
    let aligned = |t: TensorPtr| t.view_offs().is_multiple_of(alignment);
    let fits = |t: TensorPtr, is_first: bool| match offsets {
        Offsets::Any => !t.dtype().is_quantized() || aligned(t),
        Offsets::FirstAny if is_first => !t.dtype().is_quantized() || aligned(t),
        Offsets::AnyByte => true,
        Offsets::Aligned | Offsets::FirstAny => aligned(t),
    };
    let fine = t.slots().iter().enumerate().all(|(i, src)| src.is_none_or(|s| fits(s, i == 0))) && fits(t, true);
    need(fine, "Vulkan needs operands of this operation to begin at a multiple of the buffer's alignment; use `cont`")?;
    within(limit, t)
}

/// Whether `device`, with its own alignment, computes the operation correctly: see [`accepts`].
pub(super) fn accepts_on(device: crate::device::Device, t: TensorPtr) -> Result<Verdict> {
    Ok(accepts(t, device.buffer_type().alignment()?))
}

fn within(limit: Limit, t: TensorPtr) -> Verdict {
    let first = t.source(0).unwrap_or(t);
    let [n0, n1, n2, n3] = first.ne();
    let rows = n1 * n2 * n3;
    let groups = |dimensions: &[i64]| need(dimensions.iter().all(|&n| n <= GROUPS), TOO_MANY);
    match limit {
        Limit::None => Ok(()),
        Limit::Copies => copies(first, t),
        // The shader of `sum` adds the first elements in memory, as many as the operand has, and ignores strides.
        Limit::Contiguous => need(first.is_contiguous(), "Vulkan sums contiguous tensors only; use `cont`"),
        Limit::Dimension0 => groups(&[n0]),
        Limit::Dimension1 => groups(&[n1]),
        Limit::Dimensions12 => groups(&[n1, n2]),
        Limit::Dimensions123 => groups(&[n1, n2, n3]),
        Limit::Rows => groups(&[rows]),
        Limit::LongRows => need(n0 <= 16_384 || rows <= GROUPS, TOO_MANY),
        Limit::Result => groups(&t.ne()),
        Limit::Flat => flat(first, t),
        Limit::Pool(how) => {
            flat(first, t)?;
            // Before 0.28, if a window ended before the image began, the shader took the whole image for this window.
            let near = how.padding.iter().zip(how.window).all(|(&padding, window)| padding <= window);
            need(cfg!(ggml_0_28) || near, "before ggml 0.28, Vulkan takes no padding that is larger than a window")
        }
        // The shader of `top_k` of 1 compares floats as integers, for which -2 is above -1.
        Limit::NotOne => need(t.ne().first() != Some(&1), "Vulkan's `top_k` of 1 is wrong for negative rows"),
    }
}

fn flat(first: TensorPtr, t: TensorPtr) -> Verdict {
    need([first, t].into_iter().all(|t| t.layout().count() <= Some(FLAT)), TOO_MANY)
}

const TOO_MANY: &str = "the operation has more rows or elements than every Vulkan device takes";

/// For a copy without conversion, C asserts that elements have two or four bytes. It takes blocks for contiguous.
fn copies(from: TensorPtr, to: TensorPtr) -> Verdict {
    let (a, b) = (from.dtype(), to.dtype());
    let blocks = |d: DType| d.block_size() > 1;
    if blocks(a) || blocks(b) {
        return need(from.is_contiguous() && to.is_contiguous(), "Vulkan copies blocks without gaps only; use `cont`");
    }
    need(a != b || matches!(a.type_size(), 2 | 4), "Vulkan copies elements of two or four bytes only")
}

/// Whether shaders can count a tensor's elements, and C can pass them its strides.
fn countable(t: TensorPtr) -> bool {
    t.layout().count().is_some_and(|n| i32::try_from(n).is_ok()) && t.nb().iter().all(|&n| u32::try_from(n).is_ok())
}

/// These tests of the table need no device.
#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::op::{PoolOp, RopeMode, RopeOptions};
    use crate::tensor::Tensor;

    /// An alignment that some devices report.
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
        let turned = |x, positions| ask(ctx.rope_ext(x, positions, RopeOptions::new(8, RopeMode::Normal)).unwrap());
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

        let blocks = ctx.input("blocks", DType::Q8_0, [32, 9]).unwrap();
        let rows = |first: usize| ctx.view(blocks, [32, 1], [34, 34, 34], first * 34).unwrap();
        let picked = |first| ask(ctx.get_rows(rows(first), at(DType::I32, 0)).unwrap());
        assert!(picked(1).is_err() && picked(8).is_ok(), "a block begins between two units of the alignment");
        assert_eq!(ask(ctx.concat(rows(1), rows(2), 1).unwrap()), Ok(()), "the shader takes parts of blocks");

        assert!(ask(ctx.top_k(of(&ctx, [9, 4, 1, 1]), 1).unwrap()).is_err());
        assert_eq!(ask(ctx.top_k(of(&ctx, [9, 4, 1, 1]), 2).unwrap()), Ok(()));

        let window = |padding: i32| Pool2dOptions::new([2, 3]).with_padding([1, padding]);
        let pooled = |padding| ask(ctx.pool_2d(of(&ctx, [8, 6, 1, 1]), PoolOp::Max, window(padding)).unwrap());
        assert_eq!((pooled(3), pooled(4).is_ok()), (Ok(()), cfg!(ggml_0_28)), "a window before the image");

        let matrix = |offset| ctx.view(of(&ctx, [9, 4, 1, 1]), [8, 4], [36, 144, 144], offset).unwrap();
        let product = |offset| ask(ctx.mul_mat(of(&ctx, [8, 2, 1, 1]), matrix(offset)).unwrap());
        assert!(product(4).is_err() && product(0).is_ok(), "operands begin at a multiple of the alignment");
    }
}
