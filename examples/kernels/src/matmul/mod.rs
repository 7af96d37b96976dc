//! Products with matrices in ggml's formats, read where they are, such as in a mapped file. For few rows of activations,
//! rows of the matrix are multiplied as they lie in memory; for many, some are unpacked at a time, in the order in which
//! the processor sums them fastest.

#[cfg(not(target_arch = "x86_64"))]
mod none;
#[cfg(target_arch = "x86_64")]
mod x86;

use ggml::{Context, DType, Result, Tensor};

#[cfg(not(target_arch = "x86_64"))]
use none as x86;
pub(crate) use x86::Panels;
use x86::operation;

/// The columns of the product that are computed together; each is a row of ggml's matrix.
const WIDTH: usize = 32;
/// What a row's length must be a multiple of.
const DEPTH: usize = 256;

/// Whether [`mul_mat`] computes products with matrices of this type and shape by these kernels: on processors with AVX-512
/// (VNNI), for `f16`, `q8_0`, `q4_0` and `q4_K`.
pub fn multiplies(dtype: DType, [depth, columns, n2, n3]: [i64; 4]) -> bool {
    let whole = |n: i64, of: usize| usize::try_from(n).is_ok_and(|n| n % of == 0);
    operation(dtype).is_some() && whole(depth, DEPTH) && whole(columns, WIDTH) && [n2, n3] == [1, 1]
}

/// `w x`, as [`Context::mul_mat`]: `w` is `[depth, columns]`, and `x` is `[depth, rows]`. Activations are rounded to blocks
/// of 32 bytes and a scale in `f32`, except for `f16`: there they aren't rounded, or keep 16 bits at least where the processor
/// multiplies tiles (AMX).
///
/// # Errors
///
/// Those of [`Context::mul_mat`], which computes what these kernels don't: see [`multiplies`].
pub fn mul_mat<'c>(ctx: &'c Context, w: Tensor<'c>, x: Tensor<'c>) -> Result<Tensor<'c>> {
    let [depth, columns, ..] = w.ne();
    let [x_depth, rows, n2, n3] = x.ne();
    let fits = x.dtype() == DType::F32 && x_depth == depth && [n2, n3] == [1, 1] && multiplies(w.dtype(), w.ne());
    let Some(op) = operation(w.dtype()).filter(|_| fits) else { return ctx.mul_mat(w, x) };
    let width = i64::try_from(WIDTH).unwrap_or(1);
    ctx.reshape(ctx.custom_op(op, &[w, x], [width, columns / width, rows])?, [columns, rows])
}
