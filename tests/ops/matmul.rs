//! Matrix products.

use ggml::ops::{MulMatOptions, Prec};
use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

/// Reference: dot products of rows, and the sums of absolute products, to which errors are relative.
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
    // The second operand is rounded to the type of the first one's dot product.
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
fn mul_mat_equals_plain_rust() {
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

/// Rows of any length, for types without blocks.
#[test]
fn mul_mat_of_odd_rows_equals_plain_rust() {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        for k in [1, 2, 7, 33] {
            check((dtype, Layout::Plain, ne([k, 3])), (DType::F32, Layout::Plain, ne([k, 5])));
            check((dtype, Layout::Gaps, ne([k, 1, 3])), (DType::F32, Layout::Swapped, ne([k, 2, 3])));
        }
    }
}

#[test]
fn mul_mat_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let of = |shape: [i64; 4]| ctx.input("x", DType::F32, shape).unwrap();
    refused!(Shape, ctx.mul_mat(of([4, 3, 1, 1]), of([5, 3, 1, 1])));
    refused!(Shape, ctx.mul_mat(of([4, 3, 2, 1]), of([4, 3, 3, 1])));
    refused!(Shape, ctx.mul_mat(of([4, 3, 2, 1]), of([4, 3, 1, 1])));
    refused!(Shape, ctx.mul_mat(of([4, 3, 1, 2]), of([4, 3, 1, 3])));
    let transposed = ctx.transpose(of([3, 4, 1, 1])).unwrap();
    refused!(Shape, ctx.mul_mat(transposed, of([4, 3, 1, 1])));
    // ggml accepts any layout of the second operand, but its CPU kernels don't.
    let y = ctx.mul_mat(of([4, 3, 1, 1]), transposed).unwrap();
    refused!(Unsupported, Lab::new(&ctx).accepted(y));
}

#[test]
fn h14_mul_mat_refuses_types_without_a_dot_product() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let b = ctx.input("b", DType::F32, [256, 2]).unwrap();
    for dtype in [DType::I8, DType::I16, DType::I32, DType::I64, DType::F64, DType::Q8_1, DType::Q8_K] {
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

/// Every type with a dot product can be multiplied, without a missing table.
#[test]
fn h14_mul_mat_accepts_every_type_with_a_dot_product() {
    let none = [DType::I8, DType::I16, DType::I32, DType::I64, DType::F64, DType::Q8_1, DType::Q8_K];
    for &dtype in DType::ALL.iter().filter(|t| t.is_known() && !none.contains(t)) {
        let mut builder = WeightsBuilder::new();
        builder.tensor("w", dtype, [512, 9]).unwrap();
        let weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        for n in [1, 3, 17] {
            let (b, _) = lab.plain(&Array::sample(ne([512, n]), 1, -1.0, 1.0));
            let got = lab.run(ctx.mul_mat(weights.tensor("w").unwrap(), b).unwrap()).unwrap();
            assert_eq!(got.ne, [9, n, 1, 1]);
            // Blocks of zero bytes have a scale of 0, unless the scale is an exponent.
            assert!(got.data.iter().all(|x| x.abs() < 1e-3), "{dtype}: {:?}", &got.data[..9]);
        }
    }
}

/// A Hadamard matrix in Sylvester's order, divided by the square root of its size.
fn hadamard(n: usize) -> Array {
    let size = (n as f64).sqrt();
    Array::of(ne([n, n]), |[i, j, ..]| if (i & j).count_ones().is_multiple_of(2) { 1.0 / size } else { -1.0 / size })
}

#[test]
fn mul_mat_hadamard_equals_the_product() {
    let how = MulMatOptions::new().with_hadamard(true);
    for n in [1, 2, 4, 8, 16, 128] {
        for dtype in [DType::F32, DType::F16] {
            for (layout, threads) in [(Layout::Plain, 1), (Layout::Gaps, 2), (Layout::Swapped, 3)] {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let (h, of_h) = lab.plain(&hadamard(n));
                let (b, rb) = lab.operand(&Array::sample(ne([n, 2, 2]), 2, -1.0, 1.0), dtype, layout);
                let got = lab.run(ctx.mul_mat_ext(h, b, how).unwrap()).unwrap();
                assert_close(&got, &product(&of_h, &rb).0, 2e-5, &format!("{n} {dtype} {layout:?}"));
            }
        }
    }
}

#[test]
fn h15_mul_mat_hadamard_requires_a_square_power_of_two() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 2]| ctx.input("x", dtype, shape).unwrap();
    let how = MulMatOptions::new().with_hadamard(true);
    for shape in [[8, 4], [8, 16], [6, 6], [8, 1], [8, 7]] {
        let b = of(DType::F32, [shape[0], 3]);
        refused!(Shape, ctx.mul_mat_ext(of(DType::F32, shape), b, how), "{shape:?}");
        assert!(ctx.mul_mat(of(DType::F32, shape), b).is_ok());
    }
    let lab = Lab::new(&ctx);
    let h = of(DType::F32, [32, 32]);
    for dtype in [DType::F16, DType::Q8_0] {
        refused!(DType, ctx.mul_mat_ext(of(dtype, [32, 32]), of(DType::F32, [32, 3]), how), "{dtype}");
    }
    for dtype in [DType::BF16, DType::I32, DType::Q8_0, DType::F64] {
        let y = ctx.mul_mat_ext(h, of(dtype, [32, 3]), how).unwrap();
        refused!(Unsupported, lab.accepted(y), "{dtype}");
    }
    let columns = ctx.transpose(of(DType::F32, [3, 32])).unwrap();
    refused!(Unsupported, lab.accepted(ctx.mul_mat_ext(h, columns, how).unwrap()));
}

/// The CPU accumulates in 32 bits regardless of options.
#[test]
fn mul_mat_precision_is_passed_on() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (a, ra) = lab.plain(&Array::sample(ne([32, 5]), 1, -1.0, 1.0));
    let (b, rb) = lab.plain(&Array::sample(ne([32, 3]), 2, -1.0, 1.0));
    let (want, _) = product(&ra, &rb);
    for prec in [Prec::F32, Prec::BF16, Prec::F16, Prec::Q8, Prec::Q4] {
        let how = MulMatOptions::new().with_src(prec);
        assert_close(&lab.run(ctx.mul_mat_ext(a, b, how).unwrap()).unwrap(), &want, 1e-5, &format!("{prec:?}"));
        let how = how.with_acc(prec);
        if matches!(prec, Prec::Q8 | Prec::Q4) {
            refused!(Param, ctx.mul_mat_ext(a, b, how), "{prec:?}");
        } else {
            assert_close(&lab.run(ctx.mul_mat_ext(a, b, how).unwrap()).unwrap(), &want, 1e-5, &format!("{prec:?}"));
        }
    }
}

/// Reference: sums of the outer products of rows, and of their absolute values.
pub(crate) fn outer(a: &Array, b: &Array) -> (Array, Array) {
    let shape = [a.ne[0], b.ne[0], b.ne[2], b.ne[3]];
    let terms = |[m, n, i2, i3]: [usize; 4]| {
        let (a2, a3) = (i2 * a.ne[2] / b.ne[2], i3 * a.ne[3] / b.ne[3]);
        (0..a.ne[1]).map(move |k| a.at([m, k, a2, a3]) * b.at([n, k, i2, i3]))
    };
    (Array::of(shape, |i| terms(i).sum()), Array::of(shape, |i| terms(i).map(f64::abs).sum()))
}

#[test]
fn out_prod_equals_plain_rust() {
    let repeated = [(ne([5, 3, 1, 2]), ne([4, 3, 3, 2])), (ne([32, 65, 2]), ne([7, 65, 4]))];
    let equal =
        [(ne([32, 1]), ne([1, 1])), (ne([64, 40, 2, 2]), ne([3, 40, 2, 2])), (ne([32, 33, 1, 3]), ne([17, 33, 1, 3]))];
    for dtype in [DType::F32, DType::F16, DType::Q8_0, DType::Q4_0] {
        for (a_of, b_of) in equal.into_iter().chain(repeated) {
            if a_of[0] % dtype.block_size() as usize != 0 {
                continue;
            }
            for (a_layout, b_layout, threads) in [
                (Layout::Plain, Layout::Plain, 1),
                (Layout::Gaps, Layout::Transposed, 2),
                (Layout::Swapped, Layout::Gaps, 3),
                (Layout::Plain, Layout::Reversed, 2),
            ] {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let (a, ra) = lab.operand(&Array::sample(a_of, 1, -1.0, 1.0), dtype, a_layout);
                let (b, rb) = lab.operand(&Array::sample(b_of, 2, -1.0, 1.0), DType::F32, b_layout);
                let y = ctx.out_prod(a, b).unwrap();
                assert_eq!(y.dtype(), DType::F32);
                if dtype != DType::F32 && a_of[2..] != b_of[2..] {
                    refused!(Unsupported, lab.accepted(y), "{dtype} repeated");
                    continue;
                }
                let (got, (want, size)) = (lab.run(y).unwrap(), outer(&ra, &rb));
                assert_eq!(got.ne, want.ne);
                for ((g, w), s) in got.data.iter().zip(&want.data).zip(&size.data) {
                    let context = format!("{dtype} {a_layout:?} {b_layout:?} {a_of:?} {b_of:?}");
                    assert!((g - w).abs() <= 1e-5 * s + 1e-6, "{context}: {g}, should be {w}");
                }
            }
        }
    }
}

#[test]
fn out_prod_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let a = of(DType::F32, [4, 3, 2, 1]);
    for shape in [[4, 4, 2, 1], [5, 3, 3, 1], [5, 3, 1, 1]] {
        refused!(Shape, ctx.out_prod(a, of(DType::F32, shape)), "{shape:?}");
    }
    refused!(Shape, ctx.out_prod(ctx.transpose(of(DType::F32, [3, 4, 2, 1])).unwrap(), a));
    refused!(Shape, ctx.out_prod(of(DType::F32, [1 << 40, 1, 1, 1]), of(DType::F32, [1 << 40, 1, 1, 1])));
    for dtype in [DType::BF16, DType::I32, DType::I8, DType::F64, DType::Q8_1, DType::Q8_K] {
        let y = ctx.out_prod(of(dtype, [256, 3, 1, 1]), of(DType::F32, [4, 3, 1, 1])).unwrap();
        refused!(Unsupported, lab.accepted(y), "{dtype}");
    }
    let y = ctx.out_prod(of(DType::F32, [4, 3, 1, 1]), of(DType::F16, [4, 3, 1, 1])).unwrap();
    refused!(Unsupported, lab.accepted(y));
    // The kernel computes the offset of 32 rows in 32 bits.
    let wide = of(DType::F32, [1 << 25, 64, 1, 1]);
    let nb1 = wide.nb()[1];
    let part = |rows| ctx.view(wide, [4, rows], [nb1, nb1 * 64, nb1 * 64], 0).unwrap();
    let narrow = |rows| of(DType::F32, [2, rows, 1, 1]);
    refused!(Unsupported, lab.accepted(ctx.out_prod(part(32), narrow(32)).unwrap()));
    refused!(Unsupported, lab.accepted(ctx.out_prod(narrow(32), part(32)).unwrap()));
}

#[test]
fn solve_tri_solves_triangular_systems() {
    for (n, columns, upper) in [(1, 1, [1, 1]), (7, 3, [1, 1]), (16, 5, [2, 3]), (40, 1, [3, 1])] {
        for threads in [1, 3] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            // Elements above the diagonal are not read.
            let sample = Array::sample([n, n, upper[0], upper[1]], 1, -0.5, 0.5);
            let square = Array::of(sample.ne, |[column, row, i2, i3]| match column.cmp(&row) {
                std::cmp::Ordering::Less => sample.at([column, row, i2, i3]),
                std::cmp::Ordering::Equal => 1.5 + sample.at([column, row, i2, i3]),
                std::cmp::Ordering::Greater => f64::NAN,
            });
            let (a, ra) = lab.plain(&square);
            let (b, rb) = lab.plain(&Array::sample([columns, n, upper[0], upper[1]], 2, -1.0, 1.0));
            let x = lab.run(ctx.solve_tri(a, b).unwrap()).unwrap();
            // `a · x` must equal `b`.
            let product = Array::of(rb.ne, |[column, row, i2, i3]| {
                (0..=row).map(|k| ra.at([k, row, i2, i3]) * x.at([column, k, i2, i3])).sum()
            });
            assert_close(&product, &rb, 2e-5, &format!("{n} {columns} {upper:?}"));
        }
    }
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let (a, b) = (of(DType::F32, [4, 4, 2, 1]), of(DType::F32, [3, 4, 2, 1]));
    refused!(Shape, ctx.solve_tri(of(DType::F32, [4, 3, 2, 1]), b));
    for shape in [[3, 3, 2, 1], [3, 4, 1, 1], [3, 4, 2, 2]] {
        refused!(Shape, ctx.solve_tri(a, of(DType::F32, shape)), "{shape:?}");
    }
    refused!(Shape, ctx.solve_tri(ctx.transpose(a).unwrap(), b));
    refused!(Shape, ctx.solve_tri(a, ctx.transpose(of(DType::F32, [4, 3, 2, 1])).unwrap()));
    refused!(DType, ctx.solve_tri(of(DType::F16, [4, 4, 2, 1]), b));
    refused!(DType, ctx.solve_tri(a, of(DType::F16, [3, 4, 2, 1])));
}
