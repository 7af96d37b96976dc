//! Functions of pairs of elements.

use ggml::Result;
use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, precision, refused};

type Build = for<'c> fn(&'c Context, Tensor<'c>, Tensor<'c>) -> Result<Tensor<'c>>;

/// A method and its definition.
type Case = (&'static str, Build, fn(f64, f64) -> f64);

const CASES: &[Case] = &[
    ("add", |c, a, b| c.add(a, b), |a, b| a + b),
    ("sub", |c, a, b| c.sub(a, b), |a, b| a - b),
    ("mul", |c, a, b| c.mul(a, b), |a, b| a * b),
    ("div", |c, a, b| c.div(a, b), |a, b| a / b),
];

const TYPES: [(DType, DType); 5] = [
    (DType::F32, DType::F32),
    (DType::F16, DType::F16),
    (DType::BF16, DType::BF16),
    (DType::F16, DType::F32),
    (DType::BF16, DType::F32),
];

#[test]
fn functions_of_pairs_are_those_of_plain_rust() {
    let shapes = [
        (ne([5, 4, 3, 2]), ne([5, 4, 3, 2])),
        (ne([6, 4, 3, 2]), ne([6])),
        (ne([6, 4, 3, 2]), ne([3, 1, 3])),
        (ne([6, 4, 3, 2]), ne([1, 4, 1, 2])),
        (ne([33]), ne([1])),
    ];
    for (a_type, b_type) in TYPES {
        for (i, b_layout) in Layout::ALL.into_iter().enumerate() {
            for a_layout in [Layout::ROWS[i % 3], Layout::ROWS[(i + 1) % 3]] {
                for (a_shape, b_shape) in shapes {
                    let ctx = Context::new();
                    let lab = Lab::new(&ctx);
                    let (a, ra) = lab.operand(&Array::sample(a_shape, 1, -2.0, 2.0), a_type, a_layout);
                    let (b, rb) = lab.operand(&Array::sample(b_shape, 2, 0.5, 2.0), b_type, b_layout);
                    let outputs: Vec<_> = CASES.iter().map(|(_, build, _)| build(&ctx, a, b).unwrap()).collect();
                    let results = lab.run_all(&outputs).unwrap();
                    for ((name, _, f), got) in CASES.iter().zip(&results) {
                        let want = Array::of(a_shape, |i| f(ra.at(i), rb.wrapped(i)));
                        let context =
                            format!("{name} {a_type} {a_shape:?} {a_layout:?}, {b_type} {b_shape:?} {b_layout:?}");
                        assert_close(got, &want, precision(a_type), &context);
                    }
                }
            }
        }
    }
}

#[test]
fn the_second_operand_must_repeat_over_the_first() {
    let ctx = Context::new();
    let a = ctx.input("a", DType::F32, [6, 4]).unwrap();
    for shape in [[4, 1], [12, 1], [6, 3], [6, 8]] {
        let b = ctx.input("b", DType::F32, shape).unwrap();
        for (name, build, _) in CASES {
            refused!(Shape, build(&ctx, a, b), "{name} {shape:?}");
        }
    }
}

#[test]
fn types_without_a_kernel_are_refused_before_they_reach_it() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let of = |dtype, shape: [i64; 2]| ctx.input("x", dtype, shape).unwrap();
    for (a, b) in [
        (DType::F32, DType::F16),
        (DType::F32, DType::BF16),
        (DType::F16, DType::BF16),
        (DType::I32, DType::I32),
        (DType::F64, DType::F64),
        (DType::I8, DType::I8),
        (DType::F32, DType::I32),
    ] {
        for (name, build, _) in CASES {
            refused!(Unsupported, lab.accepted(build(&ctx, of(a, [4, 2]), of(b, [4, 1])).unwrap()), "{name} {a} {b}");
        }
    }
    let blocks = of(DType::Q4_0, [32, 2]);
    refused!(Unsupported, lab.accepted(ctx.add(blocks, of(DType::F32, [32, 1])).unwrap()));
    let transposed = ctx.transpose(of(DType::F32, [4, 2])).unwrap();
    refused!(Unsupported, lab.accepted(ctx.add(transposed, of(DType::F32, [2, 4])).unwrap()));
}
