//! Convolutions.

use ggml_sys as sys;

use super::{ROWS, Verdict, countable_whole, need, sources};
use crate::dtype::DType;
use crate::header::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    Some(match t.op() {
        sys::GGML_OP_IM2COL => sources(t).and_then(|[_, image]| im2col(image, t)),
        sys::GGML_OP_IM2COL_3D => sources(t).and_then(|[_, image]| need(image.has_dense_rows(), ROWS)),
        sys::GGML_OP_CONV_2D => sources(t).and_then(|[kernel, _]| {
            let [.., outputs] = kernel.ne();
            patches(kernel, outputs)
        }),
        sys::GGML_OP_CONV_3D => sources(t).and_then(|[kernel, _]| {
            let [.., outputs, _, _, _, _] = t.op_params();
            patches(kernel, outputs.into())
        }),
        // The CPU counts the elements of the kernel and of each image in 32 bits.
        sys::GGML_OP_CONV_TRANSPOSE_1D | sys::GGML_OP_CONV_TRANSPOSE_2D => sources(t).and_then(|[kernel, image]| {
            let [n0, n1, n2, _] = image.ne();
            let image = [n1, n2].into_iter().try_fold(n0, i64::checked_mul);
            let counted = countable_whole(kernel) && image.is_some_and(|n| i32::try_from(n).is_ok());
            need(counted, "the CPU kernel takes less than 2^31 elements in a kernel or an image")
        }),
        // Their builders check all that the CPU kernels need.
        sys::GGML_OP_CONV_2D_DW | sys::GGML_OP_COL2IM_1D => Ok(()),
        _ => return None,
    })
}

fn im2col(image: TensorPtr, t: TensorPtr) -> Verdict {
    let types = matches!((image.dtype(), t.dtype()), (DType::F32, DType::F32 | DType::F16) | (DType::F16, DType::F16));
    need(types, "the CPU kernel takes an image of f32, or f16 for a result of f16")?;
    need(image.has_dense_rows(), ROWS)
}

/// The work buffer of the direct kernels, in bytes.
const WORK: usize = 16 << 20;

/// The work buffer holds a batch of patches, each with the kernel's input and all outputs at one position, outputs
/// after inputs. With an odd number of 16-bit floats, up to eight patches may leave outputs misaligned: nine must fit.
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
