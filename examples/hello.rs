//! Adds two vectors on the best device.
#![allow(clippy::print_stdout, reason = "a program for people to read")]

use ggml::prelude::*;

fn main() -> ggml::Result<()> {
    // A context describes the computation.
    let ctx = Context::new();
    let a = ctx.input("a", DType::F32, [3])?;
    let b = ctx.input("b", DType::F32, [3])?;
    let sum = ctx.add(a, b)?;
    let graph = ctx.graph([sum])?;

    // A scheduler allocates memory on the devices, sets the inputs and computes. Then the result is read.
    let mut sched = Sched::best()?;
    let run = sched.run(&graph, ((a, &[1.0_f32, 2.0, 3.0]), (b, &[10.0_f32, 20.0, 30.0])))?;
    let values: Vec<f32> = run.get(sum)?;
    println!("[1, 2, 3] + [10, 20, 30] = {values:?}");
    Ok(())
}
