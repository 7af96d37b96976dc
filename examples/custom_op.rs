//! A custom operation written in Rust: softsign, `x / (1 + |x|)`, which ggml does not have. The closure runs on the CPU,
//! wherever the other operations run.
#![allow(clippy::print_stdout, reason = "a program for people to read")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ggml::ops::CustomOptions;
use ggml::prelude::*;

fn main() -> ggml::Result<()> {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4, 2])?;

    // The context keeps the closure, so it can't borrow, but may share. Several threads call it at once, each for some rows.
    let filled = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&filled);
    let softsign = ctx.map_custom1::<f32>(x, CustomOptions::new(), move |out, x| {
        for (i, row) in out {
            row.iter_mut().zip(x.row(i)).for_each(|(y, x)| *y = x / (1.0 + x.abs()));
            counter.fetch_add(1, Ordering::Relaxed);
        }
    })?;
    // The result is an ordinary tensor.
    let sums = ctx.sum_rows(softsign)?;
    let graph = ctx.graph([softsign, sums])?;

    let mut sched = Sched::best()?;
    let run = sched.run(&graph, (x, &[-3.0_f32, -1.0, 0.0, 1.0, 3.0, 0.5, 9.0, -0.25]))?;
    println!("softsign: {:.4?}", run.get::<f32>(softsign)?);
    println!("sums of its rows: {:.4?}", run.get::<f32>(sums)?);
    println!("rows filled by the closure: {}", filled.load(Ordering::Relaxed));
    Ok(())
}
