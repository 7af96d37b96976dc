//! Constants, sequences and embeddings of time steps.

use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

#[test]
fn fill_equals_plain_rust() {
    for dtype in [DType::F32, DType::F16] {
        for (shape, threads) in [(ne([1]), 1), (ne([37]), 2), (ne([5, 3, 2, 2]), 3)] {
            for value in [0.0, -1.5, f32::INFINITY, f32::NAN] {
                let ctx = Context::new();
                let lab = Lab::with_threads(&ctx, threads);
                let (x, before) = lab.operand(&Array::sample(shape, 3, -1.0, 1.0), dtype, Layout::Plain);
                let got = lab.run_all(&[ctx.fill(x, value).unwrap(), x]).unwrap();
                assert_close(&got[0], &before.map(|_| value.into()), 0.0, &format!("{dtype} {shape:?}"));
                assert_close(&got[1], &before, 0.0, "the operand keeps its values");
            }
        }
    }
    let ctx = Context::new();
    refused!(DType, ctx.fill(ctx.input("x", DType::BF16, [4]).unwrap(), 1.0));
    refused!(DType, ctx.fill(ctx.input("x", DType::I32, [4]).unwrap(), 1.0));
    refused!(Shape, ctx.fill(ctx.transpose(ctx.input("x", DType::F32, [4, 2]).unwrap()).unwrap(), 1.0));
}

#[test]
fn arange_equals_plain_rust() {
    for (start, stop, step, count) in [
        (0.0, 5.0, 1.0, 5),
        (-2.0, 3.1, 0.5, 11),
        (1.0, 1.25, 4.0, 1),
        (0.0, 100.0, 0.75, 134),
        (-1e30, 1e30, 1e30, 2),
        (3.0, 3.000_000_2, 1e-7, 3),
    ] {
        for threads in [1, 3] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let y = ctx.arange(start, stop, step).unwrap();
            let want = Array::of(ne([count]), |[i, ..]| f64::from(start) + f64::from(step) * i as f64);
            // It may be the only operation, or an operand of another.
            let got = lab.run_all(&[ctx.neg(y).unwrap(), y]).unwrap();
            assert_close(&got[1], &want, 1e-6, &format!("{start} {stop} {step}"));
            assert_close(&got[0], &want.map(|x| -x), 1e-6, &format!("{start} {stop} {step}"));
            assert_close(&lab.run(y).unwrap(), &want, 1e-6, "alone");
        }
    }
}

#[test]
fn arange_refuses_endless_and_too_long_ranges() {
    let ctx = Context::new();
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for (start, stop, step) in [
        (nan, 1.0, 1.0),
        (-inf, 1.0, 1.0),
        (0.0, nan, 1.0),
        (0.0, inf, 1.0),
        (0.0, 0.0, 1.0),
        (1.0, 0.0, 1.0),
        (1.0, 0.0, -1.0),
        (0.0, 1.0, 0.0),
        (0.0, 1.0, -0.0),
        (0.0, 1.0, -1.0),
        (0.0, 1.0, nan),
        (0.0, 1.0, inf),
        (0.0, 1e-45, 1e30),
    ] {
        refused!(Param, ctx.arange(start, stop, step), "{start} {stop} {step}");
    }
    refused!(Shape, ctx.arange(0.0, 1.0, 1e-45));
    refused!(Shape, ctx.arange(-3e38, 3e38, 1.0), "a range that is infinite in 32 bits");
    refused!(Shape, ctx.arange(0.0, 1e25, 1.0));
    let long = ctx.arange(0.0, 4e9, 1.0).unwrap();
    refused!(Unsupported, Lab::new(&ctx).accepted(long));
}

/// Reference: frequency `j` of `half` is `max_period` to the power of `-j / half`.
#[test]
fn timestep_embedding_equals_plain_rust() {
    for (dim, max_period) in [(1, 10), (2, 10_000), (8, 10_000), (9, 100), (64, 1)] {
        for (n, threads) in [(1, 1), (5, 3)] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let (steps, values) = lab.plain(&Array::sample(ne([n]), 3, 0.0, 20.0));
            let y = ctx.timestep_embedding(steps, dim, max_period).unwrap();
            let half = dim as usize / 2;
            let want = Array::of(ne([dim as usize, n]), |[i, row, ..]| {
                if i == 2 * half {
                    return 0.0;
                }
                let power = (i % half) as f64 / half as f64;
                let angle = values.at([row, 0, 0, 0]) * f64::from(max_period).powf(-power);
                if i < half { angle.cos() } else { angle.sin() }
            });
            assert_close(&lab.run(y).unwrap(), &want, 5e-5, &format!("{dim} {max_period} {n}"));
        }
    }
}

#[test]
fn timestep_embedding_refuses_unsuitable_operands() {
    let ctx = Context::new();
    let steps = ctx.input("steps", DType::F32, [4]).unwrap();
    for n in [0, -1, i32::MIN] {
        refused!(Param, ctx.timestep_embedding(steps, n, 10));
        refused!(Param, ctx.timestep_embedding(steps, 8, n));
    }
    refused!(DType, ctx.timestep_embedding(ctx.input("i", DType::I32, [4]).unwrap(), 8, 10));
    let table = ctx.input("table", DType::F32, [4, 3]).unwrap();
    refused!(Shape, ctx.timestep_embedding(table, 8, 10));
    // A row with gaps, which the kernel would ignore.
    let column = ctx.view(table, [1, 3], [16, 48, 48], 0).unwrap();
    refused!(Shape, ctx.timestep_embedding(ctx.transpose(column).unwrap(), 8, 10));
}
