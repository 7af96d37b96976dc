//! Views: reshape, view, permute, transpose.

use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

/// Numbers that identify their position.
fn counted(shape: [usize; 4]) -> Array {
    let mut n = 0.0;
    Array::of(shape, |_| {
        n += 1.0;
        n
    })
}

#[test]
fn permute_and_transpose_reorder_dimensions() {
    let orders = [[0, 1, 2, 3], [1, 0, 2, 3], [0, 2, 1, 3], [2, 0, 1, 3], [3, 2, 1, 0], [1, 2, 3, 0], [0, 3, 1, 2]];
    for dtype in [DType::F32, DType::F16, DType::I8, DType::I64] {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (x, values) = lab.operand(&counted(ne([5, 4, 3, 2])), dtype, Layout::Plain);
        let outputs = orders.map(|axes| ctx.cont(ctx.permute(x, axes).unwrap()).unwrap());
        for (axes, got) in orders.iter().zip(lab.run_all(&outputs).unwrap()) {
            assert_close(&got, &values.permuted(*axes), 0.0, &format!("{dtype} {axes:?}"));
        }
        let turned = ctx.cont(ctx.transpose(x).unwrap()).unwrap();
        assert_close(&lab.run(turned).unwrap(), &values.permuted([1, 0, 2, 3]), 0.0, "transposed");
    }
}

#[test]
fn reshape_keeps_the_order_of_elements() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (x, values) = lab.plain(&counted(ne([6, 4])));
    for shape in [[24, 1, 1, 1], [2, 3, 4, 1], [1, 1, 1, 24], [3, 2, 2, 2]] {
        let y = ctx.neg(ctx.reshape(x, shape).unwrap()).unwrap();
        let want = Array { ne: shape.map(|n| n as usize), data: values.data.iter().map(|x| -x).collect() };
        assert_close(&lab.run(y).unwrap(), &want, 0.0, &format!("{shape:?}"));
    }
    let blocks = ctx.input("blocks", DType::Q4_0, [64, 2]).unwrap();
    assert_eq!(ctx.reshape(blocks, [32, 4]).unwrap().ne(), [32, 4, 1, 1]);
    refused!(Param, ctx.reshape(blocks, [16, 8]));
    for shape in [[23, 1], [25, 1], [0, 24], [-6, -4], [i64::MAX, i64::MAX], [1 << 32, 1 << 32]] {
        refused!(Param, ctx.reshape(x, shape), "{shape:?}");
    }
    refused!(Shape, ctx.reshape(ctx.transpose(x).unwrap(), [24]));
}

#[test]
fn view_of_a_view_finds_its_elements() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (x, values) = lab.plain(&counted(ne([8, 6, 4])));
    let [nb0, nb1, nb2, _] = x.nb();
    // Every second row of the upper planes, from the second column on; and a view inside that.
    let outer = ctx.view(x, [6, 3, 3], [2 * nb1, nb2, 3 * nb2], nb2 + nb0).unwrap();
    let inner = ctx.view(outer, [2, 2, 2], [2 * nb1, nb2, 2 * nb2], 2 * nb1 + 3 * nb0).unwrap();
    // A view of a permuted tensor.
    let reordered = ctx.permute(inner, [1, 2, 0, 3]).unwrap();
    let column = ctx.view(reordered, [1, 2], [nb2, 4 * nb2, 4 * nb2], 0).unwrap();
    let outputs = [outer, inner, reordered, column].map(|t| ctx.cont(t).unwrap());
    let got = lab.run_all(&outputs).unwrap();
    let of_outer = |[i0, i1, i2, _]: [usize; 4]| values.at([i0 + 1, 2 * i1, i2 + 1, 0]);
    let want_outer = Array::of(ne([6, 3, 3]), of_outer);
    let want_inner = Array::of(ne([2, 2, 2]), |[i0, i1, i2, _]| want_outer.at([i0 + 3, i1 + 1, i2, 0]));
    assert_close(&got[0], &want_outer, 0.0, "outer");
    assert_close(&got[1], &want_inner, 0.0, "inner");
    assert_close(&got[2], &want_inner.permuted([1, 2, 0, 3]), 0.0, "reordered");
    assert_close(&got[3], &Array::of(ne([1, 2]), |[_, i, ..]| want_inner.at([0, 0, i, 0])), 0.0, "column");
}

#[test]
fn h01_view_refuses_elements_out_of_bounds() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [16, 4]).unwrap();
    assert!(ctx.view(x, [16, 4], [64, 256, 256], 0).is_ok());
    for (shape, strides, offset) in [
        ([16, 4], [64, 256, 256], 4),
        ([16, 4], [68, 256, 256], 0),
        ([16, 5], [64, 320, 320], 0),
        ([1, 2], [256, 512, 512], 0),
        ([2, 2], [1 << 40, 1 << 41, 1 << 41], 0),
        ([1, 2], [usize::MAX - 3, 0, 0], 0),
        ([1, 1], [64, 64, 64], 256),
        ([1, 1], [64, 64, 64], usize::MAX - 3),
        ([i64::MAX, 1], [64, 64, 64], 0),
        ([1, i64::MAX], [4, 64, 64], 0),
        ([0, 1], [64, 64, 64], 0),
        ([-1, 1], [64, 64, 64], 0),
    ] {
        refused!(Param, ctx.view(x, shape, strides, offset), "{shape:?} {strides:?} {offset}");
    }
    // Offsets count from the start of the view, in the memory of its root.
    let second = ctx.view(x, [16], [64, 64, 64], 64).unwrap();
    assert!(ctx.view(second, [16, 3], [64, 192, 192], 0).is_ok());
    refused!(Param, ctx.view(second, [16, 4], [64, 256, 256], 0));
}

#[test]
fn h01_view_refuses_overlapping_and_unaligned_elements() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [16, 4]).unwrap();
    for (strides, offset) in
        [([0, 64, 64], 0), ([8, 64, 64], 0), ([62, 64, 64], 0), ([64, 64, 64], 2), ([16, 16, 16], 0)]
    {
        refused!(Param, ctx.view(x, [4, 2, 2], strides, offset), "{strides:?} {offset}");
    }
    // Strides of dimensions of 1 are never used.
    assert!(ctx.view(x, [4, 2], [64, 0, 0], 0).is_ok());
    let blocks = ctx.input("blocks", DType::Q4_0, [64, 4]).unwrap();
    refused!(Param, ctx.view(blocks, [32, 2], [18, 36, 36], 9), "half a block");
    refused!(Param, ctx.view(blocks, [16, 2], [18, 36, 36], 0), "half a row");
    assert!(ctx.view(blocks, [32, 2], [36, 72, 72], 18).is_ok());
}

#[test]
fn h03_permute_of_blocks_keeps_the_first_dimension() {
    let ctx = Context::new();
    let blocks = ctx.input("blocks", DType::Q4_0, [32, 1000]).unwrap();
    refused!(DType, ctx.transpose(blocks));
    for axes in [[1, 0, 2, 3], [3, 1, 2, 0], [2, 1, 0, 3]] {
        refused!(Param, ctx.permute(blocks, axes), "{axes:?}");
    }
    assert_eq!(ctx.permute(blocks, [0, 2, 1, 3]).unwrap().nbytes(), blocks.nbytes());
}

#[test]
fn permute_requires_each_axis_once() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 3]).unwrap();
    for axes in [[0, 0, 1, 2], [0, 1, 2, 4], [1, 2, 3, 4], [3, 3, 3, 3], [0, 1, 2, usize::MAX]] {
        refused!(Param, ctx.permute(x, axes), "{axes:?}");
    }
}
