//! Matrix products.

use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, ne, refused};

/// Products of rows, and the sums of the products' sizes: what rounding errors are relative to.
pub(crate) fn product(a: &Array, b: &Array) -> (Array, Array) {
    let shape = [a.ne[1], b.ne[1], b.ne[2], b.ne[3]];
    let terms = |[m, n, i2, i3]: [usize; 4]| {
        let (a2, a3) = (i2 * a.ne[2] / b.ne[2], i3 * a.ne[3] / b.ne[3]);
        (0..a.ne[0]).map(move |k| a.at([k, m, a2, a3]) * b.at([k, n, i2, i3]))
    };
    (Array::of(shape, |i| terms(i).sum()), Array::of(shape, |i| terms(i).map(f64::abs).sum()))
}

fn check(a_of: (DType, Layout, [usize; 4]), b_of: (DType, Layout, [usize; 4])) {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (a, ra) = lab.operand(&Array::sample(a_of.2, 1, -1.0, 1.0), a_of.0, a_of.1);
    let (b, rb) = lab.operand(&Array::sample(b_of.2, 2, -1.0, 1.0), b_of.0, b_of.1);
    let y = ctx.mul_mat(a, b).unwrap();
    assert_eq!(y.dtype(), DType::F32);
    let got = lab.run(y).unwrap();
    let (want, size) = product(&ra, &rb);
    assert_eq!(got.ne, want.ne);
    // The second operand is rounded to the type that the first one is multiplied in.
    let rounding = match a_of.0 {
        DType::F32 => 1e-6,
        DType::F16 => 1e-3,
        DType::BF16 => 6e-3,
        _ => 2e-2,
    };
    for (i, ((g, w), s)) in got.data.iter().zip(&want.data).zip(&size.data).enumerate() {
        assert!((g - w).abs() <= rounding * s + 1e-6, "{a_of:?} {b_of:?}: element {i} is {g}, should be {w}");
    }
}

#[test]
fn products_are_those_of_plain_rust() {
    let shapes = [
        (ne([64, 5]), ne([64, 3])),
        (ne([32, 1]), ne([32, 1])),
        (ne([64, 17]), ne([64, 16])),
        (ne([32, 3, 2]), ne([32, 4, 4, 3])),
        (ne([96, 16, 1, 2]), ne([96, 9, 3, 2])),
    ];
    for a_type in [DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0] {
        let b_types = [DType::F32, a_type, DType::BF16];
        let taken = b_types.into_iter().enumerate().filter(|&(i, _)| match i {
            0 => true,
            1 => matches!(a_type, DType::F16 | DType::BF16),
            _ => a_type == DType::F32,
        });
        for (_, b_type) in taken {
            let layouts =
                [(Layout::Plain, Layout::Plain), (Layout::Gaps, Layout::Swapped), (Layout::Swapped, Layout::Gaps)];
            for (a_layout, b_layout) in layouts {
                for (a, b) in shapes {
                    check((a_type, a_layout, a), (b_type, b_layout, b));
                }
            }
        }
    }
}

/// Rows of any length where no blocks are in the way.
#[test]
fn products_of_odd_rows_are_those_of_plain_rust() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for k in [1, 2, 7, 33] {
            check((dtype, Layout::Plain, ne([k, 3])), (DType::F32, Layout::Plain, ne([k, 5])));
            check((dtype, Layout::Gaps, ne([k, 1, 3])), (DType::F32, Layout::Swapped, ne([k, 2, 3])));
        }
    }
}

#[test]
fn products_refuse_what_does_not_fit() {
    let ctx = Context::new();
    let of = |shape: [i64; 4]| ctx.input("x", DType::F32, shape).unwrap();
    refused!(Shape, ctx.mul_mat(of([4, 3, 1, 1]), of([5, 3, 1, 1])));
    refused!(Shape, ctx.mul_mat(of([4, 3, 2, 1]), of([4, 3, 3, 1])));
    refused!(Shape, ctx.mul_mat(of([4, 3, 2, 1]), of([4, 3, 1, 1])));
    refused!(Shape, ctx.mul_mat(of([4, 3, 1, 2]), of([4, 3, 1, 3])));
    let transposed = ctx.transpose(of([3, 4, 1, 1])).unwrap();
    refused!(Shape, ctx.mul_mat(transposed, of([4, 3, 1, 1])));
    // ggml takes the second operand in any layout, its CPU kernels don't.
    let y = ctx.mul_mat(of([4, 3, 1, 1]), transposed).unwrap();
    refused!(Unsupported, Lab::new(&ctx).accepted(y));
}

#[test]
fn h14_types_without_a_dot_product_are_refused() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let b = ctx.input("b", DType::F32, [256, 2]).unwrap();
    for dtype in [DType::I8, DType::I16, DType::I32, DType::I64, DType::F64, DType::Q8_1, DType::Q8K] {
        let a = ctx.input("a", dtype, [256, 2]).unwrap();
        refused!(Unsupported, lab.accepted(ctx.mul_mat(a, b).unwrap()), "{dtype}");
    }
    for (a, b) in [
        (DType::F32, DType::F16),
        (DType::F16, DType::BF16),
        (DType::Q8_0, DType::Q8_0),
        (DType::Q4_0, DType::F16),
        (DType::F32, DType::I32),
        (DType::F32, DType::F64),
    ] {
        let (ta, tb) = (ctx.input("a", a, [256, 2]).unwrap(), ctx.input("b", b, [256, 2]).unwrap());
        refused!(Unsupported, lab.accepted(ctx.mul_mat(ta, tb).unwrap()), "{a} {b}");
    }
}

/// Every type with a dot product has one: none of these runs into a missing table.
#[test]
fn h14_every_other_type_can_be_multiplied() {
    let none = [DType::I8, DType::I16, DType::I32, DType::I64, DType::F64, DType::Q8_1, DType::Q8K];
    for &dtype in DType::ALL.iter().filter(|t| !none.contains(t)) {
        let mut builder = WeightsBuilder::new();
        builder.tensor("w", dtype, [512, 9]).unwrap();
        let weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        for n in [1, 3, 17] {
            let (b, _) = lab.plain(&Array::sample(ne([512, n]), 1, -1.0, 1.0));
            let got = lab.run(ctx.mul_mat(weights.get("w").unwrap(), b).unwrap()).unwrap();
            assert_eq!(got.ne, [9, n, 1, 1]);
            // Blocks of zero bytes have a scale of zero, unless the scale is an exponent.
            assert!(got.data.iter().all(|x| x.abs() < 1e-3), "{dtype}: {:?}", &got.data[..9]);
        }
    }
}
