//! The speed of `mul_mat` beside ggml's: `cargo run --release -p kernels --example speed -- q4_K 4096 1024 1 20`
//! (type, depth, columns, rows, runs). `GGML_KERNELS` chooses the instructions. Both are run in turns on one thread; medians are printed.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use ggml::{Backend, Context, DType, Device, Quantize as _, Sched, Weights, WeightsBuilder};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let name = args.next().context("give a type")?;
    let dtype = DType::ALL.iter().copied().find(|t| t.name() == name).context("no type has this name")?;
    let mut number =
        |what: &str| -> Result<usize> { Ok(args.next().with_context(|| format!("give {what}"))?.parse()?) };
    let (depth, columns, rows, runs) =
        (number("the depth")?, number("the columns")?, number("the rows")?, number("the runs")?);
    let only = args.next();
    ensure!(depth > 0 && columns > 0 && rows > 0 && runs > 0, "zero of something");

    // Several matrices, so that none stays in a cache.
    let mut seed = 1_u32;
    let mut random = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from_bits(seed >> 9 | 0x3f80_0000) - 1.5
    };
    let w: Vec<f32> = (0..depth * columns).map(|_| random()).collect();
    let w = dtype.quantize(&w, depth, None)?;
    let x: Vec<f32> = (0..depth * rows).map(|_| random()).collect();
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", dtype, [depth, columns])?;
    let mut weights = builder.place(Device::cpu()?)?;
    weights.set_bytes("w", &w)?;

    let mut medians = Vec::new();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        for (own, times) in [true, false].into_iter().zip(&mut times) {
            if only.as_deref().is_none_or(|only| (only == "own") == own) {
                times.push(seconds(&weights, &x, [depth, rows], own)?);
            }
        }
    }
    for times in &mut times {
        times.sort_by(f64::total_cmp);
        medians.push(times.get(times.len() / 2).copied());
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let (operations, bytes) = ((2 * depth * columns * rows) as f64, w.len() as f64);
    #[expect(clippy::print_stdout, reason = "what this program is for")]
    for (who, median) in ["own", "ggml"].iter().zip(medians) {
        if let Some(s) = median {
            println!("{who} {name} {:.3} ms, {:.1} GOP/s, {:.1} GB/s", s * 1e3, operations / s / 1e9, bytes / s / 1e9);
        }
    }
    Ok(())
}

/// The time of a product.
fn seconds(weights: &Weights, x: &[f32], [depth, rows]: [usize; 2], own: bool) -> Result<f64> {
    let ctx = Context::new();
    let input = ctx.input("x", DType::F32, [i64::try_from(depth)?, i64::try_from(rows)?])?;
    let w = weights.tensor("w")?;
    let y = if own { kernels::mul_mat(&ctx, w, input)? } else { ctx.mul_mat(w, input)? };
    let graph = ctx.graph([y])?;
    let mut cpu = Backend::cpu()?;
    cpu.set_threads(1)?;
    let mut sched = Sched::builder().backend(cpu).build()?;
    let mut run = sched.alloc(&graph)?;
    run.set(input, x)?;
    let start = Instant::now();
    run.compute()?;
    Ok(start.elapsed().as_secs_f64())
}
