//! Transposed convolutions.

use super::super::PLAIN;
use super::super::case::{Case, Operand, f32, of, sized};
use super::super::row::Row;
use super::{F16, F32, FLOATS, off};
use crate::array::Array;

/// Each pixel of the image adds the kernel, times its value, to the result; kernels are `[width, height, outputs, inputs]`.
fn spread(k: &Array, x: &Array, stride: usize) -> Array {
    let ([w, h, outputs, _], [n0, n1, _, batch]) = (k.ne, x.ne);
    let mut y = Array::of([(n0 - 1) * stride + w, (n1 - 1) * stride + h, outputs, batch], |_| 0.0);
    Array::of(x.ne, |[i, j, input, n]| {
        Array::of([w, h, outputs, 1], |[a, b, output, _]| {
            let at = y.position([i * stride + a, j * stride + b, output, n]);
            y.data[at] += x.at([i, j, input, n]) * k.at([a, b, output, input]);
            0.0
        });
        0.0
    });
    y
}

/// The same values in another shape.
fn as_shape(x: &Array, ne: [usize; 4]) -> Array {
    Array { ne, data: x.data.clone() }
}

fn image(operands: [Operand; 2], stride: i32) -> Case {
    let off = off(operands[0].dtype);
    let case = Case::new(operands, move |c, t| c.conv_transpose_2d_p0(t[0], t[1], stride)).with(stride);
    let case = case.is(move |x| spread(&x[0], &x[1], stride as usize));
    case.laid(PLAIN).makes(F32).off(off).near(1e-2).sums()
}

fn line(operands: [Operand; 2], stride: i32) -> Case {
    let off = off(operands[0].dtype);
    let case = Case::new(operands, move |c, t| c.conv_transpose_1d(t[0], t[1], stride)).with(stride);
    let case = case.is(move |x| {
        let ([w, outputs, inputs, _], [n, ..]) = (x[0].ne, x[1].ne);
        let (k, x) = (as_shape(&x[0], [w, 1, outputs, inputs]), as_shape(&x[1], [n, 1, inputs, 1]));
        let y = spread(&k, &x, stride as usize);
        as_shape(&y, [y.ne[0], outputs, 1, 1])
    });
    case.laid(PLAIN).makes(F32).off(off).near(1e-2).sums()
}

pub(super) fn rows() -> Vec<Row> {
    let all = || {
        let types = FLOATS.into_iter().flat_map(|dtype| [1, 2, 5].map(|stride| (dtype, stride)));
        let sizes = [([3, 2], 4, 3, 2), ([1, 1], 1, 1, 1), ([2, 4], 5, 19, 1)];
        types.flat_map(move |(dtype, stride)| sizes.map(|size| (dtype, stride, size)))
    };
    let lines = Row::new("conv_transpose_1d", "CONV_TRANSPOSE_1D")
        .all(all(), |row, (dtype, stride, ([w, _], outputs, inputs, _))| {
            row.with(line([of(dtype, [w, outputs, inputs]), f32([6, inputs])], stride))
        })
        .with(line([f32([3, 4, 8]), f32([20, 8])], 2))
        .must()
        .drawn(|s| {
            let x = s.pick(&[F32], &|ne| ne[2] == 1 && ne[3] == 1);
            let kernel = sized(s.one(&FLOATS), [s.size(1, 3), s.size(1, 3), x.shape()[1], 1]);
            line([kernel.still(), x], s.int(1, 3))
        });
    let images = Row::new("conv_transpose_2d_p0", "CONV_TRANSPOSE_2D")
        .all(all(), |row, (dtype, stride, ([w, h], outputs, inputs, batch))| {
            row.with(image([of(dtype, [w, h, outputs, inputs]), f32([5, 4, inputs, batch])], stride))
        })
        .with(image([of(F16, [2, 2, 4, 8]), f32([9, 11, 8])], 2))
        .drawn(|s| {
            let x = s.first(&[F32]);
            let kernel = sized(s.one(&FLOATS), [s.size(1, 3), s.size(1, 3), s.size(1, 3), x.shape()[2]]);
            image([kernel.still(), x], s.int(1, 3))
        });
    vec![lines.no_meta(), images.no_meta()]
}
