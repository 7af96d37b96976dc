//! Operations: the rows of the table, and those that devices compute together.

use std::rc::Rc;

use ggml::ops::{GluOp, RopeMode, SoftMaxOptions};
use ggml::prelude::*;
use testkit::cases::{FAMILIES, Row};

use crate::{Case, agree, case};

/// A row's cases: as they are, and in another of their layouts.
fn cases(row: Row) -> Vec<Case> {
    let row = Rc::new(row);
    let mut all = Vec::new();
    for (i, of_row) in row.cases.iter().enumerate().filter(|(_, case)| !case.lone) {
        let layings = of_row.layings();
        let other = 1 + i % layings.len();
        for n in [0, other].into_iter().filter(|&n| n < layings.len()) {
            let (row, laying) = (Rc::clone(&row), layings[n].clone());
            let name = format!("{} of {}, laid {laying:?}", row.name, of_row.name());
            let case = case(name, move |bench| row.cases[i].build(bench, &laying));
            let case = if of_row.near < 1e-2 { case } else { case.rough() };
            all.push(if of_row.must && n == 0 { case } else { case.optional() });
        }
    }
    all
}

/// A test for each of the table's families, so that what ends the process in one leaves the others alone.
macro_rules! families {
    ($($test:ident $name:literal;)*) => {
        $(
            #[test]
            fn $test() {
                family($name);
            }
        )*

        #[test]
        fn every_family_has_a_test() {
            let rows = |rows: fn() -> Vec<Row>| rows().iter().any(|row| !row.cases.is_empty());
            let named: Vec<_> = FAMILIES.iter().filter(|family| rows(family.1)).map(|family| family.0).collect();
            assert_eq!(named, [$($name),*]);
        }
    };
}

families! {
    attention_agrees_with_cpu "attention";
    pairs_agree_with_cpu "pairs";
    convolutions_agree_with_cpu "convolutions";
    copies_agree_with_cpu "copies";
    masks_agree_with_cpu "masks";
    gates_agree_with_cpu "gates";
    products_agree_with_cpu "products";
    norms_agree_with_cpu "norms";
    images_agree_with_cpu "images";
    states_agree_with_cpu "states";
    positions_agree_with_cpu "positions";
    rows_agree_with_cpu "rows";
    softmax_agrees_with_cpu "softmax";
    functions_agree_with_cpu "functions";
}

fn family(name: &str) {
    let (name, rows) = FAMILIES.into_iter().find(|family| family.0 == name).unwrap();
    agree(name, rows().into_iter().filter(|row| !row.looks()).flat_map(cases));
}

/// All cases of the table.
#[allow(dead_code, reason = "only for what includes this file")]
pub(crate) fn operations_agree_with_cpu() {
    for (name, rows) in FAMILIES {
        agree(name, rows().into_iter().filter(|row| !row.looks()).flat_map(cases));
    }
}

/// Norms that devices compute with the product and the sum after them.
#[test]
pub(crate) fn norm_mul_add_agrees_with_cpu() {
    let fused = |n| {
        case(format!("rms_norm, mul, add {n}"), move |f| {
            let y = f.ctx.mul(f.ctx.rms_norm(f.f32([n, 5, 3, 1]), 1e-6)?, f.f32([n, 1, 1, 1]))?;
            f.ctx.add(y, f.f32([n, 1, 1, 1]))
        })
    };
    agree("fused", [3, 64, 1025, 4096].map(fused));
}

/// Attention and feed-forward blocks as in models, which devices compute by fused kernels.
#[test]
pub(crate) fn transformer_block_agrees_with_cpu() {
    agree(
        "block",
        [case("block", |f| {
            let (ctx, x) = (f.ctx, f.f32([256, 12, 1, 1]));
            let positions = f.ints([12, 1, 1, 1], 0..);
            let h = ctx.mul(ctx.rms_norm(x, 1e-5)?, f.positive([256, 1, 1, 1]))?;
            let head = |h| ctx.mul_mat(f.of(DType::Q8_0, [256, 256, 1, 1]), h);
            let [q, k, v] = [head(h)?, head(h)?, head(h)?];
            let turn = |t| ctx.rope(ctx.reshape(t, [64, 4, 12])?, positions, 64, RopeMode::NeoX);
            let (q, k) = (ctx.permute(turn(q)?, [0, 2, 1, 3])?, ctx.permute(turn(k)?, [0, 2, 1, 3])?);
            let v = ctx.cont(ctx.permute(ctx.reshape(v, [64, 4, 12])?, [1, 2, 0, 3])?)?;
            let how = SoftMaxOptions::new().with_scale(0.125);
            let scores = ctx.soft_max_ext(ctx.mul_mat(k, q)?, how)?;
            let mixed = ctx.cont(ctx.permute(ctx.mul_mat(v, scores)?, [0, 2, 1, 3])?)?;
            let h = ctx.add(ctx.mul_mat(f.of(DType::Q4_K, [256, 256, 1, 1]), ctx.reshape(mixed, [256, 12])?)?, x)?;
            let up = ctx.mul_mat(f.of(DType::Q4_0, [256, 512, 1, 1]), ctx.rms_norm(h, 1e-5)?)?;
            let gate = ctx.mul_mat(f.of(DType::Q4_0, [256, 512, 1, 1]), h)?;
            let down = ctx.mul_mat(f.of(DType::Q6_K, [512, 256, 1, 1]), ctx.glu_split(gate, up, GluOp::Swiglu)?)?;
            ctx.add(down, h)
        })
        .rough()],
    );
}
