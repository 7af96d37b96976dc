//! Direct convolutions.

use ggml::ops::{Conv2dOptions, Conv3dOptions};
use ggml::prelude::*;

use super::bad_moves;
use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

/// The work buffer has room for fewer positions than there are: for 8 of `f32`, for 24 of `f16`.
#[test]
fn conv_2d_direct_equals_plain_rust_beyond_its_work_buffer() {
    for (dtype, tolerance) in [(DType::F32, 2e-3), (DType::F16, 2e-2)] {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (k, rk) = lab.operand(&Array::sample(ne([512, 512]), 1, -0.1, 0.1), dtype, Layout::Plain);
        let (x, rx) = lab.plain(&Array::sample(ne([519, 515]), 2, -0.1, 0.1));
        let flat = ctx.conv_2d_direct(k, x, Conv2dOptions::new()).unwrap();
        let deep = ctx.conv_3d_direct(k, x, 1, Conv3dOptions::new()).unwrap();
        let want = Array::of(ne([8, 4]), |[i, j, ..]| {
            let row = |y: usize| -> f64 {
                let (kernel, pixels) = (&rk.data[512 * y..][..512], &rx.data[519 * (y + j) + i..][..512]);
                kernel.iter().zip(pixels).map(|(k, x)| k * x).sum()
            };
            (0..512).map(row).sum()
        });
        for got in lab.run_all(&[flat, deep]).unwrap() {
            assert_close(&got, &want, tolerance, &format!("{dtype}"));
        }
    }
}

/// The inputs and outputs of one position must fit into 16 MiB; those of nine, where floats would be misaligned.
#[test]
fn conv_direct_refuses_kernels_beyond_its_work_buffer() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let accepted = |dtype, inputs: i64| {
        let (k, x) = (ctx.input("k", dtype, [1, 1, inputs, 1]), ctx.input("x", DType::F32, [1, 1, inputs, 1]));
        let (k, x) = (k.unwrap(), x.unwrap());
        let flat = lab.accepted(ctx.conv_2d_direct(k, x, Conv2dOptions::new()).unwrap());
        let (k, x) = (ctx.reshape(k, [1, 1, 1, inputs]).unwrap(), ctx.reshape(x, [1, 1, 1, inputs]).unwrap());
        let deep = ctx.conv_3d_direct(k, x, i32::try_from(inputs).unwrap(), Conv3dOptions::new()).unwrap();
        (flat, lab.accepted(deep))
    };
    for (dtype, inputs, fits) in [
        (DType::F32, (4 << 20) - 1, true),
        (DType::F32, 4 << 20, false),
        (DType::F16, (8 << 20) - 2, true),
        (DType::F16, 8 << 20, false),
        (DType::F16, 932_065, true),
        (DType::F16, 932_066, true),
        (DType::F16, 932_067, false),
    ] {
        let (flat, deep) = accepted(dtype, inputs);
        if fits {
            flat.unwrap();
            deep.unwrap();
        } else {
            refused!(Unsupported, flat, "{dtype} {inputs}");
            refused!(Unsupported, deep, "{dtype} {inputs}");
        }
    }
}

#[test]
fn conv_2d_direct_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let floats = |shape| of(DType::F32, shape);
    let plain = Conv2dOptions::new();
    let (k, x) = (floats([3, 3, 2, 4]), floats([8, 8, 2, 3]));
    for bad in bad_moves() {
        refused!(Param, ctx.conv_2d_direct(k, x, bad), "{bad:?}");
        refused!(Param, ctx.conv_2d_dw_direct(floats([3, 3, 1, 2]), x, bad), "{bad:?}");
    }
    for small in [[2, 8, 2, 3], [8, 2, 2, 3], [8, 8, 3, 3]] {
        refused!(Shape, ctx.conv_2d_direct(k, floats(small), plain), "{small:?}");
    }
    refused!(Shape, ctx.conv_2d_direct(ctx.transpose(k).unwrap(), x, plain));
    for dtype in [DType::BF16, DType::I32, DType::F64] {
        refused!(DType, ctx.conv_2d_direct(of(dtype, [3, 3, 2, 4]), x, plain), "{dtype}");
        refused!(DType, ctx.conv_2d_dw_direct(of(dtype, [3, 3, 1, 2]), x, plain), "{dtype}");
    }
    refused!(DType, ctx.conv_2d_direct(k, of(DType::F16, [8, 8, 2, 3]), plain));
    let wide = super::how([1; 2], [(1 << 30) - 1; 2], [1; 2]);
    refused!(Shape, ctx.conv_2d_direct(k, x, wide));
    refused!(Shape, ctx.conv_2d_dw_direct(floats([3, 3, 1, 2]), x, wide));

    for shape in [[3, 3, 2, 1], [3, 3, 2, 2], [3, 3, 1, 3], [9, 3, 1, 2]] {
        refused!(Shape, ctx.conv_2d_dw_direct(floats(shape), x, plain), "{shape:?}");
    }
}

#[test]
fn conv_3d_direct_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let floats = |shape| of(DType::F32, shape);
    let (k, x) = (floats([3, 2, 2, 6]), floats([6, 5, 4, 4]));
    for dtype in [DType::BF16, DType::I32, DType::F64] {
        refused!(DType, ctx.conv_3d_direct(of(dtype, [3, 2, 2, 6]), x, 2, Conv3dOptions::new()), "{dtype}");
    }
    refused!(DType, ctx.conv_3d_direct(k, of(DType::F16, [6, 5, 4, 4]), 2, Conv3dOptions::new()));
    for bad in bad_moves() {
        refused!(Param, ctx.conv_3d_direct(k, x, 2, bad), "{bad:?}");
    }
    for bad in [0, -1, i32::MIN] {
        refused!(Param, ctx.conv_3d_direct(k, x, bad, Conv3dOptions::new()), "{bad}");
    }
    for bad in [3, 4, i32::MAX] {
        refused!(Shape, ctx.conv_3d_direct(k, x, bad, Conv3dOptions::new()), "{bad}");
    }
    refused!(Shape, ctx.conv_3d_direct(k, floats([6, 5, 1, 4]), 2, Conv3dOptions::new()));
    refused!(Shape, ctx.conv_3d_direct(ctx.transpose(floats([2, 3, 2, 6])).unwrap(), x, 2, Conv3dOptions::new()));
    refused!(Shape, ctx.conv_3d_direct(k, x, 2, super::how([1; 3], [(1 << 30) - 1; 3], [1; 3])));
    let many = floats([1, 1, 1, 1 << 31]);
    refused!(Shape, ctx.conv_3d_direct(many, floats([1, 1, 1, 1]), 1, Conv3dOptions::new()));
    refused!(Shape, ctx.conv_3d_direct(floats([1, 1, 1, 1]), many, 1, Conv3dOptions::new()));
}

/// C tells the two layouts apart by some strides only, and its kernels then assume all.
#[test]
fn h10_conv_2d_dw_direct_checks_strides() {
    let ctx = Context::new();
    let of = |shape: [i64; 4]| ctx.input("x", DType::F32, shape).unwrap();
    let call = |k, x| ctx.conv_2d_dw_direct(k, x, Conv2dOptions::new().with_padding([2; 2]));
    let (outer_k, outer) = (of([3, 3, 1, 4]), of([8, 6, 4, 2]));
    let inner_k = ctx.permute(of([4, 1, 3, 3]), [3, 2, 0, 1]).unwrap();
    let inner = ctx.permute(of([4, 8, 6, 2]), [2, 0, 1, 3]).unwrap();
    assert!(call(outer_k, outer).is_ok());
    assert_eq!(call(inner_k, inner).unwrap().nb()[2], 4, "channels are innermost in the result, too");
    refused!(Shape, call(outer_k, inner), "two orders");
    refused!(Shape, call(inner_k, outer), "two orders");
    for axes in [[1, 0, 2, 3], [0, 1, 3, 2], [2, 1, 0, 3]] {
        let mut from = [0; 4];
        for (i, to) in axes.into_iter().enumerate() {
            from[i] = [8, 6, 4, 2][to];
        }
        let x = ctx.permute(of(from), axes).unwrap();
        assert_eq!(x.ne(), [8, 6, 4, 2]);
        refused!(Shape, call(outer_k, x), "{axes:?}");
        refused!(Shape, call(inner_k, x), "{axes:?}");
    }
    // Channels innermost, with gaps between pixels or rows, which the kernel ignores.
    for gaps in [[6, 8, 6, 2], [4, 9, 6, 2], [4, 8, 7, 2]] {
        let whole = of(gaps);
        let [_, nb1, nb2, nb3] = whole.nb();
        let part = ctx.view(whole, [4, 8, 6, 2], [nb1, nb2, nb3], 0).unwrap();
        refused!(Shape, call(inner_k, ctx.permute(part, [2, 0, 1, 3]).unwrap()), "{gaps:?}");
    }
    // Kernels with channels outermost, where the CPU kernel expects them innermost.
    for (shape, axes) in [([4, 3, 3, 1], [3, 0, 1, 2]), ([4, 3, 1, 3], [3, 0, 2, 1]), ([4, 1, 3, 3], [3, 2, 1, 0])] {
        refused!(Shape, call(ctx.permute(of(shape), axes).unwrap(), inner), "{axes:?}");
    }
    // One column matches both layouts: C allocates the result in one and fills it in the other.
    let column = ctx.permute(of([4, 1, 6, 2]), [2, 0, 1, 3]).unwrap();
    refused!(Shape, call(inner_k, column));
    refused!(Shape, call(outer_k, column));
    let pixel = ctx.permute(of([4, 1, 1, 2]), [2, 0, 1, 3]).unwrap();
    assert!(pixel.is_contiguous(), "to C");
    refused!(Shape, call(outer_k, pixel));
}
