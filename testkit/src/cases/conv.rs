//! Convolutions. Their references are in `tests/ops/conv/`.

use ggml::ops::{Conv1dOptions, Conv2dOptions, Conv3dOptions, ConvOptions};

use super::case::{Operand, f32, of};
use super::row::Row;
use super::{F16, F32};

fn padded<const N: usize>() -> ConvOptions<N> {
    ConvOptions::new().with_padding([1; N])
}

/// A kernel of 3 by 3, and images.
fn images(kernel: Operand) -> [Operand; 2] {
    [kernel, f32([17, 19, 4, 2])]
}

fn columns() -> Vec<Row> {
    let kernel = || of(F16, [3, 3, 4, 5]);
    vec![
        Row::new("im2col", "IM2COL")
            .case(images(kernel()), |c, t| c.im2col(t[0], t[1], padded(), F32))
            .case(images(kernel()), |c, t| c.im2col(t[0], t[1], Conv2dOptions::new(), F16))
            .near(2e-3)
            .learns(),
        Row::new("im2col_1d", "IM2COL")
            .case([of(F16, [3, 8, 6]), f32([40, 8, 2])], |c, t| c.im2col_1d(t[0], t[1], padded(), F32))
            .near(2e-3),
        Row::new("im2col_3d", "IM2COL_3D")
            .case([of(F16, [3, 3, 2, 6]), f32([9, 8, 5, 4])], |c, t| c.im2col_3d(t[0], t[1], 2, padded(), F32))
            .near(2e-3)
            .no_meta(),
        Row::new("im2col_back", "IM2COL_BACK")
            .case([f32([36, 7, 6, 2]), kernel()], |c, t| c.im2col_back(t[0], t[1], [9, 8, 4, 2], Conv2dOptions::new()))
            .no_vulkan()
            .no_meta(),
        Row::new("im2col_1d_back", "IM2COL_BACK")
            .call(|c, t| c.im2col_1d_back(t[0], t[1], [1], Conv1dOptions::new()))
            .no_vulkan(),
        Row::new("col2im_1d", "COL2IM_1D").case([f32([12, 7])], |c, t| c.col2im_1d(t[0], 4, 2, 1)).no_meta(),
    ]
}

fn direct() -> Vec<Row> {
    vec![
        Row::new("conv_2d_direct", "CONV_2D")
            .case(images(f32([3, 3, 4, 6])), |c, t| c.conv_2d_direct(t[0], t[1], padded()))
            .near(1e-2)
            .no_meta(),
        Row::new("conv_3d_direct", "CONV_3D")
            .case([f32([3, 3, 2, 6]), f32([9, 8, 5, 4])], |c, t| c.conv_3d_direct(t[0], t[1], 2, padded()))
            .near(1e-2)
            .no_meta(),
        Row::new("conv_2d_dw_direct", "CONV_2D_DW")
            .all([F32, F16], |row, dtype| {
                row.case(images(of(dtype, [3, 3, 1, 4])), |c, t| c.conv_2d_dw_direct(t[0], t[1], padded()))
            })
            .no_meta(),
        Row::new("conv_transpose_1d", "CONV_TRANSPOSE_1D")
            .case([f32([3, 4, 8]), f32([20, 8])], |c, t| c.conv_transpose_1d(t[0], t[1], 2))
            .must()
            .no_meta(),
        Row::new("conv_transpose_2d_p0", "CONV_TRANSPOSE_2D")
            .case([of(F16, [2, 2, 4, 8]), f32([9, 11, 8])], |c, t| c.conv_transpose_2d_p0(t[0], t[1], 2))
            .near(1e-2)
            .no_meta(),
    ]
}

fn products() -> Vec<Row> {
    let kernels = || of(F16, [3, 8, 6]);
    vec![
        Row::new("conv_1d", "")
            .call(|c, t| c.conv_1d(t[0], t[1], padded()))
            .case([f32([3, 8, 6]), f32([40, 8, 2])], |c, t| c.conv_1d(c.cont(t[0])?, t[1], padded()))
            .near(1e-2)
            .case([kernels(), f32([40, 8, 2])], |c, t| c.conv_1d(t[0], t[1], padded()))
            .near(1e-2)
            .must(),
        Row::new("conv_2d", "")
            .call(|c, t| c.conv_2d(t[0], t[1], padded()))
            .case(images(f32([3, 3, 4, 6])), |c, t| c.conv_2d(c.cont(t[0])?, t[1], padded()))
            .near(1e-2)
            .case(images(of(F16, [3, 3, 4, 6])), |c, t| c.conv_2d(t[0], t[1], padded()))
            .near(1e-2)
            .must(),
        Row::new("conv_3d", "").call(|c, t| c.conv_3d(t[0], t[1], 1, Conv3dOptions::new())),
        Row::new("conv_1d_dw", "").call(|c, t| c.conv_1d_dw(t[0], t[1], Conv1dOptions::new())),
        Row::new("conv_2d_dw", "").call(|c, t| c.conv_2d_dw(t[0], t[1], Conv2dOptions::new())),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = columns();
    rows.extend(direct());
    rows.extend(products());
    rows
}
