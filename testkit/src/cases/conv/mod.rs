//! Convolutions.

mod columns;
mod space;
mod transposed;

use ggml::Result;
use ggml::ops::ConvOptions;
use ggml::prelude::*;

use super::case::{Case, Operand, f32, of, sized};
use super::draw::Source;
use super::row::Row;
use super::{BF16, F16, F32, PLAIN};
use crate::array::Array;
use space::{Moves, Volume, convolved};

/// Calls a builder with a kernel, an image, the number of inputs and options.
type Convolve<const N: usize> = for<'c> fn(&'c Context, [Tensor<'c>; 2], i32, ConvOptions<N>) -> Result<Tensor<'c>>;

const FLOATS: [DType; 2] = [F32, F16];
const MOSTLY_F32: [DType; 3] = [F32, F32, F16];

/// How far results may be off by a kernel's type.
fn off(kernel: DType) -> f64 {
    match kernel {
        DType::F32 => 1e-5,
        DType::F16 => 5e-3,
        _ => 2e-2,
    }
}

fn how<const N: usize>(stride: [i32; N], padding: [i32; N], dilation: [i32; N]) -> ConvOptions<N> {
    ConvOptions::new().with_stride(stride).with_padding(padding).with_dilation(dilation)
}

/// All combinations of a few strides, paddings and dilations, for kernels of 3, 2 and 1.
fn some_moves<const N: usize>() -> Vec<ConvOptions<N>> {
    let rotated = |values: [i32; 3], by: usize| std::array::from_fn(|i| values[(i + by) % 3]);
    let mut all = vec![ConvOptions::new(), ConvOptions::new().with_padding([1; N])];
    for by in 0..3 {
        all.push(how(rotated([2, 1, 3], by), rotated([0, 2, 1], by), rotated([1, 1, 2], by)));
        all.push(how(rotated([1, 2, 1], by), rotated([3, 1, 2], by), rotated([2, 1, 1], by)));
    }
    all
}

fn moves<const N: usize>(s: &mut dyn Source) -> ConvOptions<N> {
    how(s.ints(1, 3), s.ints(0, 2), s.ints(1, 2))
}

/// A result: its dimensions of space, then outputs and batch, which three dimensions leave one place.
fn shape<const N: usize>(size: [usize; 3], outputs: usize, batch: usize) -> [usize; 4] {
    let [w, h, d] = size;
    match N {
        1 => [w, outputs, batch, 1],
        2 => [w, h, outputs, batch],
        _ => [w, h, d, outputs * batch],
    }
}

/// The channels of an image, which three dimensions don't tell.
fn channels<const N: usize>(x: &Array, inputs: i32) -> usize {
    if N == 3 { inputs as usize } else { x.ne[N] }
}

/// A convolution of an image with a kernel; `depthwise` is one with a kernel for each channel.
fn convolution<const N: usize>(
    make: Convolve<N>,
    operands: [Operand; 2],
    inputs: i32,
    how: ConvOptions<N>,
    depthwise: bool,
) -> Case {
    let off = off(operands[0].dtype);
    let case = Case::new(operands, move |c, t| make(c, [t[0], t[1]], inputs, how));
    let case = case.with((inputs, how)).is(move |x| {
        let n = channels::<N>(&x[1], inputs);
        let kernel = Volume::new(&x[0], N, if depthwise { 1 } else { n });
        let image = Volume::new(&x[1], N, n);
        let (data, size) = convolved(&kernel, &image, &Moves::of(how), depthwise);
        Array { ne: shape::<N>(size, kernel.batch(), image.batch()), data }
    });
    case.laid(PLAIN).makes(F32).off(off).near(1e-2).sums()
}

/// An image, and a kernel of its depth.
fn image_2d(s: &mut dyn Source) -> [Operand; 2] {
    let x = s.first(&MOSTLY_F32);
    let ne = [s.size(1, 3), s.size(1, 3), x.shape()[2], s.size(1, 3)];
    [sized(s.one(&FLOATS), ne), x]
}

fn image_1d(s: &mut dyn Source) -> [Operand; 2] {
    let x = s.pick(&[F32], &|ne| ne[3] == 1);
    let ne = [s.size(1, 3), x.shape()[1], s.size(1, 3), 1];
    [sized(s.one(&FLOATS), ne), x]
}

/// A volume of so many inputs, and a kernel for them.
fn image_3d(s: &mut dyn Source) -> ([Operand; 2], i32) {
    let (inputs, outputs, batch) = (s.int(1, 3), s.size(1, 2), s.size(1, 2));
    let n = i64::from(inputs.clamp(1, 4));
    let x = sized(F32, [s.size(1, 5), s.size(1, 5), s.size(1, 5), n * batch]);
    // Some last dimensions are no multiples, which only `im2col_3d` takes.
    let odd = s.size(0, 15) / 15;
    ([sized(s.one(&FLOATS), [s.size(1, 2), s.size(1, 2), s.size(1, 2), n * outputs + odd]), x], inputs)
}

/// An image, and a kernel for each of its channels.
fn depthwise(s: &mut dyn Source, make: Convolve<2>, inner: Convolve<2>) -> Case {
    let x = s.first(&[F32]);
    let [n0, n1, n2, n3] = x.shape();
    let (dtype, w, h, how) = (s.one(&FLOATS), s.size(1, 3), s.size(1, 3), moves(s));
    if s.chance(3) {
        let operands = [sized(dtype, [n2, 1, w, h]), sized(F32, [n2, n0, n1, n3])].map(Operand::still);
        return innermost(convolution(inner, operands, 0, how, true));
    }
    convolution(make, [sized(dtype, [w, h, 1, n2]).still(), x], 0, how, true)
}

const INNER_KERNEL: [usize; 4] = [3, 2, 0, 1];
const INNER_IMAGE: [usize; 4] = [2, 0, 1, 3];

/// A case whose operands have their channels innermost.
fn innermost(case: Case) -> Case {
    let Case { reference: Some(reference), .. } = case else { return case };
    let inner = move |x: &[Array]| reference(&[x[0].permuted(INNER_KERNEL), x[1].permuted(INNER_IMAGE)]);
    Case { reference: Some(Box::new(inner)), ..case }
}

fn inside<'c>(c: &'c Context, t: [Tensor<'c>; 2]) -> Result<[Tensor<'c>; 2]> {
    Ok([c.permute(t[0], INNER_KERNEL)?, c.permute(t[1], INNER_IMAGE)?])
}

const CONV_1D: Convolve<1> = |c, t, _, how| c.conv_1d(t[0], t[1], how);
const CONV_2D: Convolve<2> = |c, t, _, how| c.conv_2d(t[0], t[1], how);
const CONV_3D: Convolve<3> = |c, t, n, how| c.conv_3d(t[0], t[1], n, how);
const CONV_1D_DW: Convolve<1> = |c, t, _, how| c.conv_1d_dw(t[0], t[1], how);
const CONV_2D_DW: Convolve<2> = |c, t, _, how| c.conv_2d_dw(t[0], t[1], how);
const CONV_2D_DIRECT: Convolve<2> = |c, t, _, how| c.conv_2d_direct(t[0], t[1], how);
const CONV_3D_DIRECT: Convolve<3> = |c, t, n, how| c.conv_3d_direct(t[0], t[1], n, how);
const CONV_2D_DW_DIRECT: Convolve<2> = |c, t, _, how| c.conv_2d_dw_direct(t[0], t[1], how);
/// Copies of the operands, or of the result, whose channels are innermost.
const CONV_2D_DW_INNER: Convolve<2> = |c, t, _, how| {
    let [k, x] = inside(c, t)?;
    c.conv_2d_dw(c.cont(k)?, c.cont(x)?, how)
};
const CONV_2D_DW_DIRECT_INNER: Convolve<2> = |c, t, _, how| {
    let [k, x] = inside(c, t)?;
    c.cont(c.conv_2d_dw_direct(k, x, how)?)
};

/// A row of these kernels and images, for some moves.
fn row<const N: usize>(
    name: &'static str,
    op: &'static str,
    make: Convolve<N>,
    (types, depthwise): (&'static [DType], bool),
    sizes: &[([usize; 4], [usize; 4], i32)],
) -> Row {
    let all = types.iter().flat_map(|&dtype| sizes.iter().map(move |&size| (dtype, size)));
    Row::new(name, op).all(all, |row, (dtype, (kernel, image, inputs))| {
        row.all(some_moves(), |row, how| {
            row.with(convolution(make, [of(dtype, kernel), f32(image)], inputs, how, depthwise))
        })
    })
}

/// By `im2col` and a matrix product.
fn products() -> Vec<Row> {
    let kernels = &[F32, F16, BF16];
    let sizes = [([3, 2, 4, 1], [9, 2, 3, 1], 0), ([3, 1, 1, 1], [8, 1, 1, 1], 0), ([1, 5, 2, 1], [4, 5, 1, 1], 0)];
    let conv_1d = row("conv_1d", "", CONV_1D, (kernels, false), &sizes)
        .case([f32([3, 8, 6]), f32([40, 8, 2])], |c, t| c.conv_1d(c.cont(t[0])?, t[1], how([1], [1], [1])))
        .near(1e-2)
        .with(convolution(CONV_1D, [of(F16, [3, 8, 6]), f32([40, 8, 2])], 0, how([1], [1], [1]), false))
        .must();
    let sizes = [([3, 3, 2, 4], [8, 7, 2, 2], 0), ([1, 1, 3, 2], [5, 4, 3, 1], 0), ([2, 3, 1, 1], [6, 9, 1, 1], 0)];
    let padded = ConvOptions::new().with_padding([1; 2]);
    let conv_2d = row("conv_2d", "", CONV_2D, (kernels, false), &sizes)
        .all(sizes, |row, (kernel, image, _)| {
            row.all(some_moves(), |row, how| {
                row.with(convolution(CONV_2D, [of(F16, kernel), of(F16, image)], 0, how, false))
            })
        })
        .case([f32([3, 3, 4, 6]), f32([17, 19, 4, 2])], move |c, t| c.conv_2d(c.cont(t[0])?, t[1], padded))
        .near(1e-2)
        .with(convolution(CONV_2D, [of(F16, [3, 3, 4, 6]), f32([17, 19, 4, 2])], 0, padded, false))
        .must();
    let sizes = [([3, 2, 2, 6], [6, 5, 4, 4], 2), ([1, 1, 1, 3], [3, 2, 2, 3], 3), ([2, 3, 1, 2], [5, 4, 3, 1], 1)];
    let conv_3d = row("conv_3d", "", CONV_3D, (kernels, false), &sizes);
    let sizes = [([3, 1, 3, 1], [9, 3, 2, 1], 0), ([3, 1, 1, 1], [9, 1, 1, 1], 0), ([3, 1, 5, 1], [9, 5, 1, 1], 0)];
    let conv_1d_dw = row("conv_1d_dw", "", CONV_1D_DW, (kernels, true), &sizes);
    let sizes = [([3, 2, 1, 3], [7, 6, 3, 2], 0), ([3, 2, 1, 1], [7, 6, 1, 1], 0), ([3, 2, 1, 5], [7, 6, 5, 1], 0)];
    let conv_2d_dw = row("conv_2d_dw", "", CONV_2D_DW, (kernels, true), &sizes);
    vec![
        conv_1d.drawn(|s| convolution(CONV_1D, image_1d(s), 0, moves(s), false)),
        conv_2d.drawn(|s| convolution(CONV_2D, image_2d(s), 0, moves(s), false)),
        conv_3d
            .drawn(|s| {
                let (operands, inputs) = image_3d(s);
                convolution(CONV_3D, operands, inputs, moves(s), false)
            })
            .no_meta(),
        // Meta devices refuse the views that these make of inputs.
        conv_1d_dw.no_meta().drawn(|s| {
            let x = s.pick(&[F32], &|ne| ne[3] == 1);
            let kernel = sized(s.one(&FLOATS), [s.size(1, 3), 1, x.shape()[1], 1]);
            convolution(CONV_1D_DW, [kernel, x], 0, moves(s), true)
        }),
        conv_2d_dw.no_meta().drawn(|s| depthwise(s, CONV_2D_DW, CONV_2D_DW_INNER)),
    ]
}

/// A kernel that lies in order, and an image in any layout.
fn direct<const N: usize>(make: Convolve<N>, [kernel, x]: [Operand; 2], inputs: i32, how: ConvOptions<N>) -> Case {
    convolution(make, [kernel.still(), x], inputs, how, false).laid(&crate::layout::Layout::ALL)
}

fn directly() -> Vec<Row> {
    let conv_2d = Row::new("conv_2d_direct", "CONV_2D").all(FLOATS, |row, dtype| {
        let operands = move || [of(dtype, [3, 2, 3, 4]), f32([7, 6, 3, 2])];
        row.all(some_moves(), |row, how| row.with(direct(CONV_2D_DIRECT, operands(), 0, how)))
    });
    let conv_3d = Row::new("conv_3d_direct", "CONV_3D").all(FLOATS, |row, dtype| {
        let operands = move || [of(dtype, [3, 2, 2, 6]), f32([6, 5, 4, 4])];
        row.all(some_moves(), |row, how| row.with(direct(CONV_3D_DIRECT, operands(), 2, how)))
    });
    // More channels than a vector of floats holds, and a remainder.
    let sizes = FLOATS.into_iter().flat_map(|dtype| [2, 9, 37].map(|channels| (dtype, channels)));
    let conv_2d_dw = Row::new("conv_2d_dw_direct", "CONV_2D_DW").all(sizes, |row, (dtype, n)| {
        row.all(some_moves(), |row, how| {
            let outer = [of(dtype, [3, 2, 1, n]), f32([6, 5, n, 2])].map(Operand::still);
            let inner = [of(dtype, [n, 1, 3, 2]), f32([n, 6, 5, 2])].map(Operand::still);
            row.with(convolution(CONV_2D_DW_DIRECT, outer, 0, how, true))
                .with(innermost(convolution(CONV_2D_DW_DIRECT_INNER, inner, 0, how, true)).lone())
        })
    });
    vec![
        conv_2d.drawn(|s| direct(CONV_2D_DIRECT, image_2d(s), 0, moves(s))).no_meta(),
        conv_3d
            .drawn(|s| {
                let (operands, inputs) = image_3d(s);
                direct(CONV_3D_DIRECT, operands, inputs, moves(s))
            })
            .no_meta(),
        conv_2d_dw.drawn(|s| depthwise(s, CONV_2D_DW_DIRECT, CONV_2D_DW_DIRECT_INNER)).no_meta(),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = columns::rows();
    rows.extend(directly());
    rows.extend(transposed::rows());
    rows.extend(products());
    rows
}
