//! Copies, conversions, repetitions and concatenations.

use ggml::prelude::*;
use testkit::encode;

use crate::support::{Array, Lab, Layout, assert_close, ne, precision, refused};

const PLAIN: [DType; 8] =
    [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I8, DType::I16, DType::I32, DType::I64];
const BLOCKS: [DType; 2] = [DType::Q8_0, DType::Q4_0];

#[test]
fn cont_and_dup_keep_the_order_of_elements() {
    for (types, layouts, row) in [(&PLAIN[..], &Layout::ALL[..], 5), (&BLOCKS[..], &Layout::ROWS[..], 64)] {
        for (&dtype, &layout) in types.iter().flat_map(|t| layouts.iter().map(move |l| (t, l))) {
            let ctx = Context::new();
            let lab = Lab::new(&ctx);
            let (x, values) = lab.operand(&Array::sample(ne([row, 4, 3, 2]), 5, -90.0, 90.0), dtype, layout);
            for got in lab.run_all(&[ctx.cont(x).unwrap(), ctx.dup(x).unwrap()]).unwrap() {
                assert_close(&got, &values, 0.0, &format!("{dtype} {layout:?}"));
            }
        }
    }
}

#[test]
fn cont_4d_keeps_the_order_of_elements() {
    for (types, layouts, from, shapes) in [
        (&PLAIN[..], &Layout::ALL[..], ne([5, 4, 3, 2]), [ne([120]), ne([24, 5]), ne([4, 5, 6]), ne([2, 3, 4, 5])]),
        (
            &BLOCKS[..],
            &[Layout::Plain][..],
            ne([64, 3, 2]),
            [ne([384]), ne([32, 12]), ne([96, 2, 2]), ne([32, 3, 2, 2])],
        ),
    ] {
        for (&dtype, &layout) in types.iter().flat_map(|t| layouts.iter().map(move |l| (t, l))) {
            for to in shapes {
                let ctx = Context::new();
                let lab = Lab::new(&ctx);
                let (x, values) = lab.operand(&Array::sample(from, 5, -90.0, 90.0), dtype, layout);
                let y = ctx.cont_4d(x, to.map(|n| n as i64)).unwrap();
                let want = Array { ne: to, data: values.data };
                assert_close(&lab.run(y).unwrap(), &want, 0.0, &format!("{dtype} {layout:?} {to:?}"));
            }
        }
    }
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [6, 4]).unwrap();
    for shape in [[6, 3], [6, 5], [0, 4], [-6, -4], [i64::MAX, 2]] {
        refused!(Param, ctx.cont_4d(x, shape), "{shape:?}");
    }
    let blocks = ctx.input("blocks", DType::Q8_0, [64, 3]).unwrap();
    refused!(Param, ctx.cont_4d(blocks, [48, 4]), "half blocks");
    // With gaps, the kernel would take a block for one element.
    let (gaps, _) = Lab::new(&ctx).operand(&Array::sample(ne([64, 3]), 5, -1.0, 1.0), DType::Q8_0, Layout::Gaps);
    refused!(Unsupported, Lab::new(&ctx).accepted(ctx.cont_4d(gaps, [96, 2]).unwrap()));
}

#[test]
fn cast_converts_between_supported_types() {
    let floats = [DType::F32, DType::F16, DType::BF16];
    let pairs = floats
        .iter()
        .flat_map(|&a| floats.iter().map(move |&b| (a, b)))
        .chain([(DType::I32, DType::F32), (DType::F32, DType::I32)])
        .flat_map(|pair| Layout::ALL.map(|layout| (pair, layout)))
        .chain(BLOCKS.into_iter().flat_map(|b| Layout::ROWS.map(|layout| ((b, DType::F32), layout))));
    for ((from, to), layout) in pairs {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (x, values) = lab.operand(&Array::sample(ne([32, 3, 2, 2]), 5, -50.0, 50.0), from, layout);
        let y = ctx.cast(x, to).unwrap();
        assert_eq!(y.dtype(), to);
        let values = if to == DType::I32 { values.map(f64::trunc) } else { values };
        assert_close(&lab.run(y).unwrap(), &values, precision(to), &format!("{from} to {to} {layout:?}"));
    }
}

#[test]
fn cast_to_blocks_is_within_half_a_step() {
    for (to, steps) in [(DType::Q8_0, 127.0), (DType::Q4_0, 7.0)] {
        for from in [DType::F32, DType::F16, DType::BF16] {
            for layout in Layout::ROWS {
                let ctx = Context::new();
                let lab = Lab::new(&ctx);
                let (x, values) = lab.operand(&Array::sample(ne([64, 3, 2]), 5, -1.0, 1.0), from, layout);
                let y = ctx.cast(x, to).unwrap();
                // ggml scales q4_0 to -8, so the largest error is up to 1/7 on the positive side.
                assert_close(&lab.run(y).unwrap(), &values, 1.05 / steps, &format!("{from} to {to} {layout:?}"));
            }
        }
    }
}

/// Searches for the best scale must end and find one, for any values.
#[test]
fn cast_to_blocks_ends_for_any_values() {
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 3e38, 1e-38, 0.0] {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        for only_one in [true, false] {
            let values = Array::of(ne([256, 2]), |[i, ..]| if only_one && i != 77 { 1.0 } else { number });
            let (x, _) = lab.plain(&values);
            let others = [
                DType::IQ4_NL,
                DType::IQ4_XS,
                DType::Q1_0,
                DType::Q2_0,
                DType::MXFP4,
                DType::NVFP4,
                DType::TQ1_0,
                DType::TQ2_0,
            ];
            for to in encode::BLOCKS.into_iter().chain(others) {
                let back = ctx.cast(ctx.cast(x, to).unwrap(), DType::F32).unwrap();
                assert_eq!(lab.run(back).unwrap().ne, values.ne, "{to} of {number}");
            }
        }
    }
}

#[test]
fn cast_refuses_types_without_a_kernel() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    for (from, to) in [
        (DType::F16, DType::I32),
        (DType::BF16, DType::I32),
        (DType::F32, DType::I8),
        (DType::F32, DType::F64),
        (DType::I32, DType::F16),
        (DType::I64, DType::I32),
        (DType::Q8_0, DType::F16),
        (DType::Q8_0, DType::Q4_0),
        (DType::Q8_1, DType::F32),
        (DType::F32, DType::Q8_1),
        (DType::F32, DType::IQ3_S),
        (DType::F32, DType::IQ2_XXS),
        (DType::F32, DType::IQ1_S),
        (DType::I32, DType::Q8_0),
    ] {
        let x = ctx.input("x", from, [256, 2]).unwrap();
        refused!(Unsupported, lab.accepted(ctx.cast(x, to).unwrap()), "{from} to {to}");
    }
    let x = ctx.input("x", DType::F32, [48, 64]).unwrap();
    refused!(Shape, ctx.cast(x, DType::Q8_0), "a block and a half");
    let turned = ctx.transpose(x).unwrap();
    refused!(Unsupported, lab.accepted(ctx.cast(turned, DType::Q8_0).unwrap()));
}

fn state(dtype: DType, shape: [i64; 3]) -> State {
    let mut builder = WeightsBuilder::new();
    builder.tensor("s", dtype, shape).unwrap();
    builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap()
}

#[test]
fn cpy_writes_only_its_target() {
    let parts: [([i64; 3], [usize; 3], usize); 4] = [
        ([6, 4, 3], [24, 96, 288], 0),
        ([6, 2, 3], [24, 96, 288], 48),
        ([3, 4, 2], [24, 96, 192], 96),
        ([2, 2, 2], [48, 96, 192], 8),
    ];
    for layout in Layout::ALL {
        for (shape, strides, offset) in parts {
            let state = state(DType::F32, [6, 4, 3]);
            let ctx = Context::new();
            let lab = Lab::new(&ctx);
            let whole = state.tensor("s").unwrap();
            let (x, values) =
                lab.operand(&Array::sample(ne(shape.map(|n| n as usize)), 3, 1.0, 2.0), DType::F32, layout);
            let into = ctx.view(whole, shape, strides, offset).unwrap();
            let y = ctx.cpy(x, into).unwrap();
            let got = lab.run(ctx.cont(y).unwrap()).unwrap();
            assert_close(&got, &values, 0.0, "through the result");
            let mut want = vec![0.0; 72];
            let mut from = values.data.iter();
            for i2 in 0..values.ne[2] {
                for i1 in 0..values.ne[1] {
                    for i0 in 0..values.ne[0] {
                        want[(offset + i0 * 4 + i1 * strides[0] + i2 * strides[1]) / 4] = *from.next().unwrap();
                    }
                }
            }
            let left: Vec<f64> = whole.read::<f32>().unwrap().into_iter().map(f64::from).collect();
            assert_eq!(left, want, "{shape:?} {layout:?}");
        }
    }
}

/// Different shapes and types, into a target with gaps.
#[test]
fn cpy_converts_between_shapes_and_types() {
    for (from, to) in [
        (DType::F32, DType::F16),
        (DType::F16, DType::F32),
        (DType::BF16, DType::F16),
        (DType::F32, DType::F32),
        (DType::F32, DType::I32),
        (DType::I8, DType::I8),
        (DType::I64, DType::I64),
    ] {
        for layout in Layout::ALL {
            let size = to.type_size();
            let state = state(to, [5, 4, 6]);
            let ctx = Context::new();
            let lab = Lab::new(&ctx);
            let (x, values) = lab.operand(&Array::sample(ne([6, 2, 4]), 3, -40.0, 40.0), from, layout);
            let whole = state.tensor("s").unwrap();
            let into = ctx.view(whole, [4, 3, 4], [5 * size, 20 * size, 120 * size], 21 * size).unwrap();
            let y = ctx.cont(ctx.cpy(x, into).unwrap()).unwrap();
            let whole = |x: &f64| if to == DType::I32 { x.trunc() } else { *x };
            let want = Array { ne: ne([4, 3, 4]), data: values.data.iter().map(whole).collect() };
            assert_close(&lab.run(y).unwrap(), &want, precision(to), &format!("{from} to {to} {layout:?}"));
        }
    }
}

#[test]
fn cpy_refuses_to_write_weights_and_inputs() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [8]).unwrap();
    let weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8]).unwrap();
    let w = weights.tensor("w").unwrap();
    refused!(Frozen, ctx.cpy(x, w));
    refused!(Frozen, ctx.cpy(x, ctx.reshape(w, [2, 4]).unwrap()));
    refused!(Frozen, ctx.cpy(x, ctx.permute(ctx.reshape(w, [2, 4]).unwrap(), [1, 0, 2, 3]).unwrap()));
    let other = ctx.input("other", DType::F32, [8]).unwrap();
    refused!(Shape, ctx.cpy(x, other));
    refused!(Shape, ctx.cpy(x, ctx.reshape(other, [4, 2]).unwrap()));
    // A view of a copy's result is as writable as its target.
    let state = state(DType::F32, [8, 1, 1]);
    let y = ctx.cpy(x, state.tensor("s").unwrap()).unwrap();
    assert!(ctx.cpy(x, ctx.reshape(y, [4, 2]).unwrap()).is_ok());
}

#[test]
fn cpy_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of_state = state(DType::F32, [8, 4, 2]);
    let s = of_state.tensor("s").unwrap();
    let x = ctx.input("x", DType::F32, [8, 4]).unwrap();
    refused!(Shape, ctx.cpy(x, s), "fewer elements");
    let blocks = state(DType::Q8_0, [32, 2, 2]);
    let flat = ctx.input("flat", DType::F32, [64, 2]).unwrap();
    refused!(Shape, ctx.cpy(flat, blocks.tensor("s").unwrap()), "another row length");
    // Threads copy rows in any order, on which overlapping operands would depend.
    let first = ctx.view(s, [8, 3], [32, 96, 96], 0).unwrap();
    let second = ctx.view(s, [8, 3], [32, 96, 96], 32).unwrap();
    let apart = ctx.view(s, [8, 3], [32, 96, 96], 96).unwrap();
    refused!(Shape, ctx.cpy(first, second));
    refused!(Shape, ctx.cpy(second, first));
    refused!(Shape, ctx.cpy(s, s));
    assert!(ctx.cpy(first, apart).is_ok());
    assert!(ctx.cpy(ctx.dup(first).unwrap(), second).is_ok());
}

/// Blocks are dequantised by rows to contiguous rows, and quantised only to contiguous tensors.
#[test]
fn cpy_of_blocks_requires_contiguous_rows() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (blocks, values) = lab.operand(&Array::sample(ne([32, 4]), 3, -1.0, 1.0), DType::Q8_0, Layout::Gaps);
    let columns = state(DType::F32, [4, 32, 1]);
    let turned = ctx.transpose(columns.tensor("s").unwrap()).unwrap();
    refused!(Unsupported, lab.accepted(ctx.cpy(blocks, turned).unwrap()));
    let wide = state(DType::F32, [40, 4, 1]);
    let rows = ctx.view(wide.tensor("s").unwrap(), [32, 4], [160, 640, 640], 16).unwrap();
    let y = ctx.cont(ctx.cpy(blocks, rows).unwrap()).unwrap();
    assert_close(&lab.run(y).unwrap(), &values, 1e-6, "into rows with gaps");
    let of_blocks = state(DType::Q8_0, [64, 4, 1]);
    let (floats, _) = lab.plain(&values);
    let apart = ctx.view(of_blocks.tensor("s").unwrap(), [32, 4], [68, 272, 272], 0).unwrap();
    refused!(Unsupported, lab.accepted(ctx.cpy(floats, apart).unwrap()));
    let y = ctx.cpy(blocks, apart).unwrap();
    assert_close(&lab.run(ctx.cont(y).unwrap()).unwrap(), &values, 0.0, "blocks into blocks");
}

#[test]
fn repeat_and_repeat_back_equal_plain_rust() {
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I32, DType::I16] {
        for (small, large) in [
            (ne([3, 2]), ne([6, 4, 2, 3])),
            (ne([1]), ne([5])),
            (ne([4, 1, 2]), ne([4, 3, 2])),
            (ne([1, 3]), ne([7, 3])),
        ] {
            for layout in Layout::ROWS {
                let ctx = Context::new();
                let lab = Lab::new(&ctx);
                let (x, values) = lab.operand(&Array::sample(small, 5, -9.0, 9.0), dtype, layout);
                let (like, of_like) = lab.operand(&Array::sample(large, 6, -9.0, 9.0), dtype, layout);
                let got = lab.run(ctx.repeat(x, like).unwrap()).unwrap();
                let context = format!("{dtype} {small:?} {large:?} {layout:?}");
                assert_close(&got, &Array::of(large, |i| values.wrapped(i)), 0.0, &context);
                let y = ctx.repeat_4d(x, large.map(|n| n as i64)).unwrap();
                assert_close(&lab.run(y).unwrap(), &got, 0.0, &context);
                let back = ctx.repeat_back(like, x).unwrap();
                if dtype != DType::F32 {
                    refused!(Unsupported, lab.accepted(back), "{dtype}");
                    continue;
                }
                let mut sums = Array::of(small, |_| 0.0);
                Array::of(large, |i| {
                    let to = sums.position([0, 1, 2, 3].map(|d| i[d] % small[d]));
                    sums.data[to] += of_like.at(i);
                    0.0
                });
                assert_close(&lab.run(back).unwrap(), &sums, 1e-5, &context);
            }
        }
    }
}

#[test]
fn repeat_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let of = |dtype, shape: [i64; 2]| ctx.input("x", dtype, shape).unwrap();
    refused!(Shape, ctx.repeat(of(DType::F32, [3, 2]), of(DType::F32, [4, 2])));
    refused!(Shape, ctx.repeat(of(DType::F32, [3, 4]), of(DType::F32, [3, 2])));
    refused!(Shape, ctx.repeat_back(of(DType::F32, [3, 2]), of(DType::F32, [6, 2])));
    for shape in [[4, 2], [3, 3], [2, 2], [0, 2], [3, 0], [-3, -2], [i64::MAX - 1, 2]] {
        refused!(Param, ctx.repeat_4d(of(DType::F32, [3, 2]), shape), "{shape:?}");
    }
    refused!(DType, ctx.repeat_4d(of(DType::Q8_0, [32, 2]), [64, 2]));
    refused!(DType, ctx.repeat(of(DType::Q8_0, [32, 2]), of(DType::Q8_0, [64, 2])));
    refused!(DType, ctx.repeat_back(of(DType::Q8_0, [64, 2]), of(DType::Q8_0, [32, 2])));
    for dtype in [DType::F64, DType::I8, DType::I64] {
        refused!(Unsupported, lab.accepted(ctx.repeat(of(dtype, [1, 2]), of(dtype, [4, 2])).unwrap()), "{dtype}");
    }
    let turned = ctx.transpose(of(DType::F32, [2, 3])).unwrap();
    refused!(Unsupported, lab.accepted(ctx.repeat(turned, of(DType::F32, [6, 4])).unwrap()));
}

#[test]
fn concat_joins_in_each_dimension() {
    for dtype in PLAIN {
        for layout in Layout::ALL {
            for dim in 0..4 {
                let (mut a_shape, mut b_shape) = (ne([4, 3, 2, 2]), ne([4, 3, 2, 2]));
                (a_shape[dim], b_shape[dim]) = (2, 3);
                let ctx = Context::new();
                let lab = Lab::new(&ctx);
                let (a, ra) = lab.operand(&Array::sample(a_shape, 5, -9.0, 9.0), dtype, layout);
                let (b, rb) = lab.operand(&Array::sample(b_shape, 6, -9.0, 9.0), dtype, Layout::Plain);
                let y = ctx.concat(a, b, dim).unwrap();
                let rows = Layout::ROWS.contains(&layout);
                if !rows && matches!(dtype, DType::F64 | DType::I64) && cfg!(not(ggml_0_28)) {
                    refused!(Unsupported, lab.accepted(y), "{dtype} {layout:?}");
                    continue;
                }
                let mut shape = a_shape;
                shape[dim] = 5;
                let want = Array::of(shape, |mut i| {
                    if i[dim] < 2 {
                        return ra.at(i);
                    }
                    i[dim] -= 2;
                    rb.at(i)
                });
                assert_close(&lab.run(y).unwrap(), &want, 0.0, &format!("{dtype} {layout:?} {dim}"));
            }
        }
    }
}

#[test]
fn concat_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 2]| ctx.input("x", dtype, shape).unwrap();
    let a = of(DType::F32, [4, 3]);
    refused!(Param, ctx.concat(a, a, 4));
    refused!(Param, ctx.concat(a, a, usize::MAX));
    refused!(Shape, ctx.concat(a, of(DType::F32, [4, 2]), 0));
    refused!(Shape, ctx.concat(a, of(DType::F32, [5, 3]), 1));
    refused!(DType, ctx.concat(a, of(DType::F16, [4, 3]), 0));
}
