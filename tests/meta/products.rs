//! One product, split in every way.

use ggml::prelude::*;

use crate::support::{Matrix, assert_close, meta, noise, place, run, wide};

const K: usize = 192;
const ROWS: usize = 96;

/// Multiplies columns of `x` by the matrix, and compares with the definition.
fn check(device: Device, name: &'static str, dtype: DType, columns: usize, tolerance: f64) {
    let matrices =
        [Matrix::new(name, dtype, [K as i64, ROWS as i64]), Matrix::new("cut.1", DType::F32, [K as i64, K as i64])];
    let weights = place(device, &matrices);
    let x = noise(K * columns, 7);
    let ctx = Context::new();
    let got = run(device, &ctx, (&x, &[K as i64, columns as i64]), |x| {
        let mut x = x;
        // For partial sums the other operand must be split as well, such as the result of a row-split product.
        if name.ends_with(".0") {
            x = ctx.mul_mat(weights.tensor("cut.1")?, x)?;
        }
        ctx.scale(ctx.mul_mat(weights.tensor(name)?, x)?, 1.0)
    });
    let want: Vec<f64> = x
        .chunks(K)
        .flat_map(|x| {
            let x = wide(x);
            matrices[0].times(&if name.ends_with(".0") { matrices[1].times(&x) } else { x })
        })
        .collect();
    assert_close(&got.unwrap(), &want, tolerance, &format!("{name} {dtype:?} {columns} on {device}"));
}

#[test]
fn meta_mul_mat_equals_one_device_for_any_split() {
    for n in [2, 3, 4, 6] {
        for name in ["w", "w.1", "w.0"] {
            for columns in [1, 5] {
                check(meta(n), name, DType::F32, columns, 1e-5);
            }
        }
    }
}

#[test]
fn meta_quantised_mul_mat_splits_whole_blocks() {
    for n in [2, 3] {
        for name in ["w", "w.1", "w.0"] {
            for (dtype, tolerance) in [(DType::F16, 1e-3), (DType::Q8_0, 0.01), (DType::Q4_0, 0.01)] {
                if name.ends_with(".0") && dtype != DType::F16 {
                    continue; // below: the parts are whole blocks
                }
                check(meta(n), name, dtype, 3, tolerance);
            }
        }
    }
    // 192 are six blocks of 32: 64 each for three devices, 96 each for two.
    for n in [2, 3] {
        for dtype in [DType::Q8_0, DType::Q4_0] {
            check(meta(n), "w.0", dtype, 3, 0.02);
        }
    }
}
