//! In-place norms: what they write beside the table's cases.

use ggml::Result;
use ggml::prelude::*;
use testkit::cases::norm::{EPS, by_length, by_root_of_mean_square, normalised};

use crate::support::{Array, Lab, assert_close, ne, refused};

type Build = for<'c> fn(&'c Context, Tensor<'c>) -> Result<Tensor<'c>>;

/// A method, and its reference for a row.
type Case = (&'static str, Build, fn(&[f64], f32) -> Vec<f64>);

const IN_PLACE: &[Case] = &[
    ("norm_inplace", |c, a| c.norm_inplace(a, EPS), normalised),
    ("rms_norm_inplace", |c, a| c.rms_norm_inplace(a, EPS), by_root_of_mean_square),
    ("l2_norm_inplace", |c, a| c.l2_norm_inplace(a, EPS), by_length),
];

#[test]
fn norms_inplace_refuse_unsuitable_operands() {
    let ctx = Context::new();
    let a = ctx.dup(ctx.input("x", DType::F32, [4, 3, 6]).unwrap()).unwrap();
    let turned = ctx.transpose(a).unwrap();
    let half = ctx.cast(a, DType::F16).unwrap();
    for (name, build, _) in IN_PLACE {
        if *name == "rms_norm_inplace" {
            refused!(Shape, build(&ctx, turned), "{name}");
        }
        refused!(DType, build(&ctx, half), "{name}");
    }
    refused!(Shape, ctx.group_norm_inplace(turned, 1, EPS));
    refused!(DType, ctx.group_norm_inplace(half, 1, EPS));
    for eps in [-1e-3, f32::NAN, f32::INFINITY] {
        refused!(Param, ctx.norm_inplace(a, eps), "{eps}");
        refused!(Param, ctx.rms_norm_inplace(a, eps), "{eps}");
        refused!(Param, ctx.l2_norm_inplace(a, eps), "{eps}");
        refused!(Param, ctx.group_norm_inplace(a, 1, eps), "{eps}");
    }
    for groups in [0, -1, 4, 7] {
        refused!(Param, ctx.group_norm_inplace(a, groups, EPS), "{groups}");
    }
}

/// Rows with gaps, whose values must not change. The CPU fuses `rms_norm` with a product after it, but must not fuse an
/// in-place one, whose own result is needed.
#[test]
fn norm_inplace_writes_only_its_rows() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("s", DType::F32, [10, 4]).unwrap();
    let state = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
    let values: Vec<f32> = (0..40).map(|i| (i as f32 * 0.7).sin()).collect();
    state.set("s", &values).unwrap();
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let part = ctx.view(state.tensor("s").unwrap(), [8, 2], [80, 160, 160], 4).unwrap();
    let (w, of_w) = lab.plain(&Array::sample(ne([8]), 5, -2.0, 3.0));
    let got = lab.run(ctx.mul(ctx.rms_norm_inplace(part, EPS).unwrap(), w).unwrap()).unwrap();
    let mut want: Vec<f64> = values.iter().map(|&x| x.into()).collect();
    for start in [1, 21] {
        let row = by_root_of_mean_square(&want[start..start + 8], EPS);
        want[start..start + 8].copy_from_slice(&row);
    }
    let product = Array::of(ne([8, 2]), |[i, j, ..]| want[1 + 20 * j + i] * of_w.data[i]);
    assert_close(&got, &product, 1e-5, "the product");
    let left = state.tensor("s").unwrap().read::<f32>().unwrap().into_iter().map(f64::from).collect();
    assert_close(&Array { ne: ne([40]), data: left }, &Array { ne: ne([40]), data: want }, 1e-5, "the state");
}

/// Columns, and nothing beside them.
#[test]
fn norms_inplace_write_columns() {
    for (name, build, f) in [IN_PLACE[0], IN_PLACE[2]] {
        for threads in [1, 3] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let (x, values) = lab.plain(&Array::sample(ne([7, 5, 2]), 4, -2.0, 3.0));
            let whole = ctx.dup(x).unwrap();
            let columns = ctx.view(whole, [4, 5, 2], whole.nb()[1..].try_into().unwrap(), 8).unwrap();
            let y = build(&ctx, ctx.transpose(columns).unwrap()).unwrap();
            let got = lab.run_all(&[ctx.cont(y).unwrap(), whole]).unwrap();
            let picked = Array::of(ne([5, 4, 2]), |[i, j, k, _]| values.at([j + 2, i, k, 0])).rows(|row| f(row, EPS));
            assert_close(&got[0], &picked, 2e-5, name);
            let left = Array::of(values.ne, |[i, j, k, _]| {
                if (2..6).contains(&i) { picked.at([j, i - 2, k, 0]) } else { values.at([i, j, k, 0]) }
            });
            assert_close(&got[1], &left, 2e-5, &format!("{name}: what is written to"));
        }
    }
}
