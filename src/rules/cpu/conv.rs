//! Rules of the CPU for convolutions and pooling.

use super::prelude::*;

pub(super) fn im2col(t: TensorPtr) -> Verdict {
    let [_, image] = sources(t)?;
    let types = matches!((image.dtype(), t.dtype()), (DType::F32, DType::F32 | DType::F16) | (DType::F16, DType::F16));
    need(types, "the CPU kernel takes an image of f32, or f16 for a result of f16")?;
    need(image.has_dense_rows(), ROWS)
}

pub(super) fn im2col_3d(t: TensorPtr) -> Verdict {
    let [_, image] = sources(t)?;
    need(image.has_dense_rows(), ROWS)
}

pub(super) fn conv_2d(t: TensorPtr) -> Verdict {
    let [kernel, _] = sources(t)?;
    let [.., outputs] = kernel.ne();
    patches(kernel, outputs)
}

pub(super) fn conv_3d(t: TensorPtr, inputs: i32) -> Verdict {
    let [kernel, _] = sources(t)?;
    let [.., planes] = kernel.ne();
    patches(kernel, planes / i64::from(inputs.max(1)))
}

/// The CPU kernels of transposed convolutions count the elements of the kernel and of each image in 32 bits.
pub(super) fn conv_transpose(t: TensorPtr) -> Verdict {
    let [kernel, image] = sources(t)?;
    let [n0, n1, n2, _] = image.ne();
    let image = [n1, n2].into_iter().try_fold(n0, i64::checked_mul);
    let counted = countable_whole(kernel) && image.is_some_and(|n| i32::try_from(n).is_ok());
    need(counted, "the CPU kernel takes less than 2^31 elements in a kernel or an image")
}

/// The size of the direct convolutions' work buffer, in bytes.
const WORK: usize = 16 << 20;

/// Checks that the work buffer of a direct convolution has room for a batch of patches. A patch is the part of the
/// input that the kernel covers at one position; the outputs at that position follow the patches. With an odd number of
/// 16-bit floats, up to eight patches may leave the outputs misaligned, so nine must fit.
fn patches(kernel: TensorPtr, outputs: i64) -> Verdict {
    let (elements, unit) = (kernel.elements(), kernel.dtype().type_size());
    let space = usize::try_from(outputs).ok().filter(|&n| n > 0).and_then(|outputs| {
        let seen = elements / outputs * unit;
        let least = if seen % size_of::<f32>() == 0 { 1 } else { 9 };
        (outputs * size_of::<f32>()).checked_add(seen)?.checked_mul(least)
    });
    need(
        space.is_some_and(|n| n <= WORK),
        "the CPU kernel's work buffer, 16 MiB, is too small for this kernel; use `conv_2d` or `conv_3d`",
    )
}

/// The kernels of pooling find row `i` at `i * nb[1]` (H10), or step by `nb[2]` to the end of the memory (H11).
pub(super) fn pool(t: TensorPtr) -> Verdict {
    let [a] = sources(t)?;
    rows_of(a, &[DType::F32, DType::F16], "the CPU kernel takes f32 or f16")?;
    need(a.is_packed(), PACKED)
}
