//! `im2col`, its gradient, and `col2im`.

use ggml::Result;
use ggml::ops::ConvOptions;
use ggml::prelude::*;

use super::super::case::{Case, Operand, f32, of, sized};
use super::super::draw::Source;
use super::super::row::Row;
use super::super::{PLAIN, ROWS};
use super::space::{Moves, Volume, columns, given_back};
use super::{BF16, F16, F32, FLOATS, channels, image_1d, image_2d, image_3d, moves, some_moves};
use crate::array::Array;

/// Calls a builder with a kernel, an image, the number of inputs, options and the type of the result.
type MakeColumns<const N: usize> =
    for<'c> fn(&'c Context, [Tensor<'c>; 2], i32, ConvOptions<N>, DType) -> Result<Tensor<'c>>;

const LINE: MakeColumns<1> = |c, t, _, how, dtype| c.im2col_1d(t[0], t[1], how, dtype);
const IMAGE: MakeColumns<2> = |c, t, _, how, dtype| c.im2col(t[0], t[1], how, dtype);
const VOLUME: MakeColumns<3> = |c, t, n, how, dtype| c.im2col_3d(t[0], t[1], n, how, dtype);
/// An image whose channels and batches are exchanged, so that planes are apart.
const APART: MakeColumns<2> = |c, t, _, how, dtype| c.im2col(t[0], c.permute(t[1], [0, 1, 3, 2])?, how, dtype);

/// The first dimensions of a kernel, which are space.
fn size<const N: usize>(ne: [usize; 4]) -> [usize; 3] {
    std::array::from_fn(|i| if i < N { ne[i] } else { 1 })
}

/// Columns, for each position and image.
fn shape<const N: usize>(column: usize, [w, h, d]: [usize; 3], batch: usize) -> [usize; 4] {
    match N {
        1 => [column, w, batch, 1],
        2 => [column, w, h, batch],
        _ => [column, w, h, d * batch],
    }
}

fn cut<const N: usize>(
    make: MakeColumns<N>,
    [kernel, x]: [Operand; 2],
    inputs: i32,
    how: ConvOptions<N>,
    dtype: DType,
) -> Case {
    // At most half of the last bit is lost.
    let off = if x.dtype == dtype { 0.0 } else { 5e-4 };
    let case = Case::new([kernel.still(), x], move |c, t| make(c, [t[0], t[1]], inputs, how, dtype));
    let case = case.with((inputs, how, dtype)).is(move |x| {
        let (kernel, moves) = (size::<N>(x[0].ne), Moves::of(how));
        let image = Volume::new(&x[1], N, channels::<N>(&x[1], inputs));
        let column = kernel.iter().product::<usize>() * image.channels;
        let places = moves.outputs(image.size, kernel);
        Array { ne: shape::<N>(column, places, image.batch()), data: columns(kernel, &image, &moves) }
    });
    case.laid(if N == 2 { PLAIN } else { ROWS }).makes(dtype).off(off).near(2e-3).moves()
}

/// Calls a builder with columns, a kernel, the image's shape and options.
type Back<const N: usize> = for<'c> fn(&'c Context, [Tensor<'c>; 2], [i64; 4], ConvOptions<N>) -> Result<Tensor<'c>>;

const LINE_BACK: Back<1> = |c, t, ne, how| c.im2col_1d_back(t[0], t[1], ne, how);
const IMAGE_BACK: Back<2> = |c, t, ne, how| c.im2col_back(t[0], t[1], ne, how);

fn back<const N: usize>(make: Back<N>, kernel: Operand, ne: [i64; 4], how: ConvOptions<N>) -> Case {
    let image = ne.map(|n| n as usize);
    let (of_kernel, of_image) = (size::<N>(kernel.ne), size::<N>(image));
    let sane = image.iter().chain(&kernel.ne).all(|n| (1..1 << 20).contains(n))
        && how.stride.iter().all(|&n| n > 0)
        && how.padding.iter().chain(&how.dilation).all(|n| (0..1 << 20).contains(n));
    // The gradient has the shape of the columns, if there are any.
    let columns = sane.then(|| {
        let column = of_kernel.iter().product::<usize>() * image[N];
        shape::<N>(column, Moves::of(how).outputs(of_image, of_kernel), image[N + 1])
    });
    let columns = columns.filter(|ne| !ne.contains(&0)).unwrap_or([2, 3, 4, 1]);
    let case = Case::new([of(F32, columns), kernel.still()], move |c, t| make(c, [t[0], t[1]], ne, how));
    let case = case.with((ne, how)).is(move |x| {
        let data = given_back(of_kernel, of_image, [image[N], image[N + 1]], &Moves::of(how), &x[0].data);
        Array { ne: image, data }
    });
    case.laid(PLAIN).off(1e-5).sums()
}

/// Columns of `outputs` rows, which overlap in the result.
fn joined(x: Operand, outputs: i32, stride: i32, padding: i32) -> Case {
    let case = Case::new([x], move |c, t| c.col2im_1d(t[0], outputs, stride, padding));
    let case = case.with((outputs, stride, padding)).is(move |x| {
        let ([all, count, ..], n) = (x[0].ne, outputs as usize);
        let (length, step, cut) = (all / n, i64::from(stride), i64::from(padding));
        let size = (count as i64 - 1) * step + length as i64 - 2 * cut;
        let mut y = Array::of([size as usize, n, 1, 1], |_| 0.0);
        for (i, &v) in x[0].data.iter().enumerate() {
            let (k, output, column) = (i % length, i / length % n, i / length / n);
            let at = column as i64 * step + k as i64 - cut;
            if (0..size).contains(&at) {
                y.data[at as usize + size as usize * output] += v;
            }
        }
        y
    });
    case.laid(PLAIN).sums()
}

fn columns_again(s: &mut dyn Source) -> Case {
    let (k, outputs, columns) = (s.size(1, 4), s.int(1, 4), s.dim());
    let x = sized(s.one(&[F32, F32, F32, F16, BF16]), [k * i64::from(outputs.clamp(1, 4)), columns, 1, 1]);
    joined(x, outputs, s.int(1, 3), s.int(0, 1))
}

pub(super) fn rows() -> Vec<Row> {
    let types = [(F32, F32), (F32, F16), (F16, F16)];
    let kernel = || of(F16, [3, 3, 4, 5]);
    let images = Row::new("im2col", "IM2COL")
        .with(cut(IMAGE, [kernel(), f32([17, 19, 4, 2])], 0, ConvOptions::new().with_padding([1; 2]), F32))
        .with(cut(IMAGE, [kernel(), f32([17, 19, 4, 2])], 0, ConvOptions::new(), F16))
        .all(types, |row, (from, to)| {
            row.all(some_moves(), |row, how| {
                let case = cut(IMAGE, [f32([2, 2, 3, 1]), of(from, [5, 4, 3, 2])], 0, how, to);
                // Channels and images may have any strides as long as planes are contiguous.
                let apart = cut(APART, [f32([2, 2, 3, 1]), of(from, [5, 4, 2, 3])], 0, how, to);
                row.with(case).with(exchanged(apart))
            })
        });
    let lines = Row::new("im2col_1d", "IM2COL").all(types, |row, (from, to)| {
        row.all(some_moves(), |row, how| row.with(cut(LINE, [f32([3, 2, 4]), of(from, [7, 2, 3])], 0, how, to)))
    });
    let volumes = Row::new("im2col_3d", "IM2COL_3D").all([F32, F16], |row, to| {
        // The kernel's last dimension isn't read.
        row.all(some_moves().into_iter().zip([6, 1, 5].into_iter().cycle()), |row, (how, last)| {
            row.with(cut(VOLUME, [f32([3, 2, 2, last]), f32([5, 4, 3, 4])], 2, how, to))
        })
    });
    let images_back = Row::new("im2col_back", "IM2COL_BACK").all(FLOATS, |row, dtype| {
        row.all(some_moves(), |row, how| row.with(back(IMAGE_BACK, of(dtype, [3, 2, 3, 1]), [6, 5, 3, 2], how)))
    });
    let lines_back = Row::new("im2col_1d_back", "IM2COL_BACK").all(FLOATS, |row, dtype| {
        row.all(some_moves(), |row, how| row.with(back(LINE_BACK, of(dtype, [3, 2, 4]), [7, 2, 3, 1], how)))
    });
    let sizes = [(3, 4, 5), (1, 1, 1), (2, 5, 3)];
    let again = Row::new("col2im_1d", "COL2IM_1D").all([F32, F16, BF16], |row, dtype| {
        row.all(sizes, |row, (outputs, length, count)| {
            let moves = [(1, 0), (2, 0), (3, 1), (6, 0), (2, 2)];
            // Without padding that leaves nothing.
            let some = moves.into_iter().filter(|(stride, padding)| (count - 1) * stride + length > 2 * padding);
            row.all(some, |row, (stride, padding)| {
                let ne = [(length * outputs) as usize, count as usize];
                row.with(joined(of(dtype, ne), outputs, stride, padding))
            })
        })
    });
    vec![
        images
            .drawn(|s| {
                let (operands, how, dtype) = (image_2d(s), moves(s), s.dtype(&FLOATS));
                cut(IMAGE, operands, 0, how, dtype)
            })
            .learns(),
        lines.drawn(|s| {
            let (operands, how, dtype) = (image_1d(s), moves(s), s.dtype(&FLOATS));
            cut(LINE, operands, 0, how, dtype)
        }),
        volumes
            .drawn(|s| {
                let ((operands, inputs), how, dtype) = (image_3d(s), moves(s), s.dtype(&FLOATS));
                cut(VOLUME, operands, inputs, how, dtype)
            })
            .no_meta(),
        images_back
            .drawn(|s| {
                let [kernel, x] = image_2d(s);
                back(IMAGE_BACK, kernel, x.shape(), moves(s))
            })
            .no_vulkan()
            .no_meta(),
        lines_back
            .drawn(|s| {
                let [kernel, x] = image_1d(s);
                back(LINE_BACK, kernel, x.shape(), moves(s))
            })
            .no_vulkan()
            .no_meta(),
        again.drawn(columns_again).no_meta(),
    ]
}

/// A case whose image has its channels and batches exchanged.
fn exchanged(case: Case) -> Case {
    let Case { reference: Some(reference), .. } = case else { return case };
    let apart = move |x: &[Array]| reference(&[x[0].clone(), x[1].permuted([0, 1, 3, 2])]);
    Case { reference: Some(Box::new(apart)), ..case }
}
