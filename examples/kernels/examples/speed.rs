//! The speed of `mul_mat` beside ggml's: `cargo run --release -p kernels --example speed -- f16,q4_K 1,8,512`
//! (types, rows, and maybe depth, columns and rounds). `GGML_KERNELS` chooses the instructions. A product by these kernels, by
//! ggml's, and by ggml's of a repacked matrix are computed in turns on one thread. Times are those of the processor, so that
//! other programs matter less; the table has medians, in 10^9 operations a second, and ratios to the better of ggml's two.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ggml::{Backend, BufferType, Context, DType, Device, Quantize as _, Sched, Weights, WeightsBuilder};

/// The bytes of a matrix that no cache holds.
const FAR: usize = 96 << 20;

fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let arg = |i: usize, or: &str| args.get(i).map_or(or, |arg| &**arg).to_owned();
    let number = |i, or| arg(i, or).parse::<usize>();
    let types = arg(0, "f32,f16,bf16,q8_0,q4_0,q4_1,q5_0,q4_K,q5_K,q6_K,iq4_nl,iq4_xs,mxfp4");
    let rows: Vec<usize> = arg(1, "1,2,4,8,32,512").split(',').map(str::parse).collect::<Result<_, _>>()?;
    let (depth, columns, rounds) = (number(2, "2048")?, number(3, "0")?, number(4, "15")?);
    ensure!(depth > 0 && rounds > 0 && !rows.contains(&0), "zero of something");

    print(&format!("kernels: {}; multiply-adds of AVX2 alone: {:.1} GFLOP/s\n", kernels::describe(), peak(rounds)?));
    print("| type | rows | ours | ggml | ggml, repacked | GB/s of ours | ratio |\n|---|---|---|---|---|---|---|");
    for name in types.split(',') {
        let dtype = DType::ALL.iter().copied().find(|t| t.name() == name).context("no type has this name")?;
        for &rows in &rows {
            compare(dtype, [depth, columns, rows], rounds)?;
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "what this program is for")]
fn print(line: &str) {
    println!("{line}");
}

/// Prints a line of the table. Without a number of columns, matrices of few rows of activations are too large for caches.
fn compare(dtype: DType, [depth, columns, rows]: [usize; 3], rounds: usize) -> Result<()> {
    let row = dtype.row_size(i64::try_from(depth)?).context("rows of the matrix are no whole blocks")?;
    let columns = match columns {
        0 if rows <= 8 => (FAR / row).next_multiple_of(256),
        0 => 2048,
        some => some,
    };
    let mut rng = fastrand::Rng::with_seed(1);
    let mut random = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.f32() - 0.5).collect() };
    let few = columns.min(256);
    let w = dtype.quantize(&random(depth * few), depth, None)?.repeat(columns.div_ceil(few));
    let w = w.get(..row * columns).context("a matrix of whole rows")?;
    let x = random(depth * rows);

    let cpu = Device::cpu()?;
    let repacks = |buft: &BufferType| buft.holds(dtype, [depth, columns]).unwrap_or(false);
    let repacked = cpu.extra_buffer_types()?.into_iter().find(repacks);
    let usual = place(cpu.buffer_type(), dtype, [depth, columns], w)?;
    let repacked = repacked.map(|buft| place(buft, dtype, [depth, columns], w)).transpose()?;
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (i, times) in times.iter_mut().enumerate() {
            let weights = if i == 2 { repacked.as_ref() } else { Some(&usual) };
            let Some(weights) = weights else { continue };
            times.push(seconds(weights, &x, [depth, rows], i == 0)?);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let (operations, bytes) = ((2 * depth * columns * rows) as f64 / 1e9, w.len() as f64 / 1e9);
    let [ours, theirs, repacked] = times.map(median);
    let speed = |time: f64| if time.is_finite() { format!("{:.1}", operations / time) } else { String::new() };
    print(&format!(
        "| {dtype} | {rows} | {} | {} | {} | {:.1} | {:.2} |",
        speed(ours),
        speed(theirs),
        speed(repacked),
        bytes / ours,
        theirs.min(repacked) / ours
    ));
    Ok(())
}

/// The median; infinite if there is none.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY)
}

fn place(buft: BufferType, dtype: DType, shape: [usize; 2], w: &[u8]) -> Result<Weights> {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", dtype, shape)?;
    let mut weights = builder.place(buft)?;
    weights.set_bytes("w", w)?;
    Ok(weights)
}

/// The time of a product.
fn seconds(weights: &Weights, x: &[f32], [depth, rows]: [usize; 2], own: bool) -> Result<f64> {
    let ctx = Context::new();
    let input = ctx.input("x", DType::F32, [i64::try_from(depth)?, i64::try_from(rows)?])?;
    let w = weights.tensor("w")?;
    let y = if own { kernels::mul_mat_own(&ctx, w, input)? } else { ctx.mul_mat(w, input)? };
    let graph = ctx.graph([y])?;
    let mut cpu = Backend::cpu()?;
    cpu.set_threads(1)?;
    let mut sched = Sched::builder().backend(cpu).build()?;
    let mut run = sched.alloc(&graph)?;
    run.set(input, x)?;
    let start = now()?;
    run.compute()?;
    Ok(now()?.saturating_sub(start).as_secs_f64())
}

/// The time that this process had a processor.
fn now() -> Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to `time`, which is large enough.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    ensure!(result == 0, "no clock of this process: {}", std::io::Error::last_os_error());
    Ok(Duration::new(u64::try_from(time.tv_sec)?, u32::try_from(time.tv_nsec)?))
}

/// What a loop of multiply-adds reaches alone, in 10^9 operations a second; 0 without AVX2 or NEON.
fn peak(rounds: usize) -> Result<f64> {
    let (mut times, mut operations) = (Vec::new(), 0.0);
    for _ in 0..rounds {
        let start = now()?;
        operations = peak::multiply_adds().unwrap_or_default();
        times.push(now()?.saturating_sub(start).as_secs_f64());
    }
    Ok(operations / median(times))
}
