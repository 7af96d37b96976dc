//! Windows of images.

use ggml::prelude::*;

use crate::support::{Array, Lab, assert_close, ne, refused};

#[test]
fn win_part_and_win_unpart_equal_plain_rust() {
    for shape in [ne([3, 6, 4]), ne([2, 5, 7]), ne([1, 1, 1]), ne([4, 9, 2])] {
        for w in [1, 2, 3, 5, 8] {
            let ctx = Context::new();
            let lab = Lab::new(&ctx);
            let (a, values) = lab.plain(&Array::sample(shape, 1, 1.0, 2.0));
            let across = shape[1].div_ceil(w);
            let cut = Array::of([shape[0], w, w, across * shape[2].div_ceil(w)], |[c, i, j, n]| {
                let (x, y) = (n % across * w + i, n / across * w + j);
                if x < shape[1] && y < shape[2] { values.at([c, x, y, 0]) } else { 0.0 }
            });
            let parts = ctx.win_part(a, w as i32).unwrap();
            // From these windows, and from others with values instead of the padding.
            let (other, of_other) = lab.plain(&Array::sample(cut.ne, 2, 1.0, 2.0));
            let together = |t| ctx.win_unpart(t, shape[1] as i32, shape[2] as i32).unwrap();
            let got = lab.run_all(&[parts, together(parts), together(other)]).unwrap();
            assert_close(&got[0], &cut, 0.0, &format!("{shape:?} {w}"));
            assert_close(&got[1], &values, 0.0, &format!("{shape:?} {w}, together again"));
            let want = Array::of(shape, |[c, x, y, _]| of_other.at([c, x % w, y % w, x / w + across * (y / w)]));
            assert_close(&got[2], &want, 0.0, &format!("{shape:?} {w}, others"));
        }
    }
}

#[test]
fn h17_windows_refuse_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let floats = |shape| of(DType::F32, shape);
    let image = floats([3, 6, 5, 1]);
    for bad in [0, -1, i32::MIN, i32::MAX] {
        refused!(Param, ctx.win_part(image, bad), "{bad}");
    }
    refused!(Shape, ctx.win_part(floats([3, 6, 5, 2]), 2));
    refused!(Shape, ctx.win_part(ctx.permute(image, [0, 2, 1, 3]).unwrap(), 2));
    refused!(DType, ctx.win_part(of(DType::F16, [3, 6, 5, 1]), 2));
    refused!(Param, ctx.win_part(floats([1, i64::from(i32::MAX), 1, 1]), 1), "positions of 32 bits");
    refused!(Param, ctx.win_part(floats([1, 1, 1 << 40, 1]), 1), "positions of 32 bits");
    refused!(Shape, ctx.win_part(floats([1, 1 << 20, 1 << 20, 1]), 1), "too many windows");
    refused!(Shape, ctx.win_part(floats([1 << 40, 1, 1, 1]), 1 << 20), "too large");

    let parts = floats([3, 2, 2, 9]);
    assert!(ctx.win_unpart(parts, 6, 5).is_ok());
    for (width, height) in [(0, 5), (6, 0), (-1, 5), (6, i32::MIN), (i32::MAX, 5), (6, i32::MAX)] {
        refused!(Param, ctx.win_unpart(parts, width, height), "{width} {height}");
    }
    for (width, height) in [(7, 5), (6, 7), (4, 5), (1, 1), (20, 1)] {
        refused!(Shape, ctx.win_unpart(parts, width, height), "{width} {height}");
    }
    for shape in [[3, 2, 3, 9], [3, 3, 2, 9], [3, 2, 2, 8], [3, 2, 2, 10]] {
        refused!(Shape, ctx.win_unpart(floats(shape), 6, 5), "{shape:?}");
    }
    refused!(Shape, ctx.win_unpart(ctx.transpose(floats([2, 3, 2, 9])).unwrap(), 6, 5));
    refused!(DType, ctx.win_unpart(of(DType::F16, [3, 2, 2, 9]), 6, 5));
    refused!(Shape, ctx.win_unpart(floats([1, 1, 1, 1]), 1 << 16, 1 << 16), "too many windows");
}
