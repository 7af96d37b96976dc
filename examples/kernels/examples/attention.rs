//! The speed of `flash_attn_ext` beside ggml's: `cargo run --release -p kernels --example attention -- f16 128 16 4 512 512,8192`
//! (type of keys and values, size of a head, heads, heads of keys, tokens, and cells, the last of which the tokens are in).
//! Both are run in turns on one thread; medians of the processor's time are printed.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use ggml::{Backend, Context, DType, Quantize as _, Sched, ops::FlashAttnOptions};
use half::f16;

fn main() -> Result<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let arg = |i: usize, or: &str| args.get(i).map_or(or, |arg| &**arg).to_owned();
    let list = |i, or| arg(i, or).split(',').map(str::parse).collect::<Result<Vec<usize>, _>>();
    let number = |i, or| arg(i, or).parse::<usize>();
    let name = arg(0, "f16");
    let dtype = DType::ALL.iter().copied().find(|t| t.name() == name).context("no type has this name")?;
    let [size, heads, k_heads] = [number(1, "128")?, number(2, "16")?, number(3, "4")?];
    print(&format!("kernels: {}\n", kernels::describe()));
    print(
        "| type | tokens | cells | ours, ms | ggml, ms | ratio | largest difference |\n|---|---|---|---|---|---|---|",
    );
    for &tokens in &list(4, "8,16,32,64,512")? {
        for &cells in &list(5, "512,8192")? {
            compare(dtype, [size, heads, k_heads, tokens, cells])?;
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "what this program is for")]
fn print(line: &str) {
    println!("{line}");
}

/// Prints a line of the table.
fn compare(dtype: DType, [size, heads, k_heads, tokens, cells]: [usize; 5]) -> Result<()> {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut random = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.f32() - 0.5).collect() };
    let q = random(size * tokens * heads);
    let kv = [(); 2].map(|()| dtype.quantize(&random(size * cells * k_heads), size, None));
    let hidden = |token, cell| cell + tokens > cells + token;
    let one = |i: usize| if hidden(i / cells, i % cells) { f16::NEG_INFINITY } else { f16::ZERO };
    let mask: Vec<_> = (0..tokens * cells).map(one).collect();
    let [k, v] = kv;
    let (k, v) = (k?, v?);
    let run = |own| attend(own, dtype, [size, heads, k_heads, tokens, cells], (&q, &k, &v, &mask));
    let (mut times, mut their_times) = (Vec::new(), Vec::new());
    let (mut a, mut b) = (Vec::new(), Vec::new());
    let mut time;
    for _ in 0..if cells * tokens > 1 << 20 { 5 } else { 11 } {
        (time, a) = run(true)?;
        times.push(time);
        (time, b) = run(false)?;
        their_times.push(time);
    }
    let [ours, theirs] = [times, their_times].map(|mut times| {
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
    });
    let difference = a.iter().zip(b).fold(0.0_f32, |most, (a, b)| most.max((a - b).abs()));
    let (ours_ms, theirs_ms) = (ours * 1e3, theirs * 1e3);
    print(&format!(
        "| {dtype} | {tokens} | {cells} | {ours_ms:.2} | {theirs_ms:.2} | {:.2} | {difference:.5} |",
        theirs / ours
    ));
    Ok(())
}

/// The time of attention, and its result.
fn attend(
    own: bool,
    dtype: DType,
    [size, heads, k_heads, tokens, cells]: [usize; 5],
    (q, k, v, mask): (&[f32], &[u8], &[u8], &[f16]),
) -> Result<(f64, Vec<f32>)> {
    let ctx = Context::new();
    let q_in = ctx.input("q", DType::F32, [size, tokens, heads])?;
    let [k_in, v_in] = [ctx.input("k", dtype, [size, k_heads, cells])?, ctx.input("v", dtype, [size, k_heads, cells])?];
    let mask_in = ctx.input("mask", DType::F16, [cells, tokens])?;
    let [k_by_head, v_by_head] = [ctx.permute(k_in, [0, 2, 1, 3])?, ctx.permute(v_in, [0, 2, 1, 3])?];
    let how = FlashAttnOptions::new(0.3).with_mask(mask_in);
    let y = if own {
        kernels::flash_attn_ext_own(&ctx, [q_in, k_by_head, v_by_head], how)?
    } else {
        ctx.flash_attn_ext(q_in, k_by_head, v_by_head, how)?
    };
    let graph = ctx.graph([y])?;
    let mut cpu = Backend::cpu()?;
    cpu.set_threads(1)?;
    let mut sched = Sched::builder().backend(cpu).build()?;
    let mut run = sched.alloc(&graph)?;
    run.set(q_in, q)?;
    run.set_bytes(k_in, k)?;
    run.set_bytes(v_in, v)?;
    run.set(mask_in, mask)?;
    let start = now()?;
    run.compute()?;
    let time = now()?.saturating_sub(start);
    Ok((time.as_secs_f64(), run.get::<f32>(y)?))
}

/// The time that this process had a processor.
fn now() -> Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to `time`, which is large enough.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    ensure!(result == 0, "no clock of this process: {}", std::io::Error::last_os_error());
    Ok(Duration::new(u64::try_from(time.tv_sec)?, u32::try_from(time.tv_nsec)?))
}
