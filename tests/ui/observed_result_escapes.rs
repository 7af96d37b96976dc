use std::ops::ControlFlow;

use ggml::prelude::*;

fn main() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let graph = ctx.graph([ctx.relu(x).unwrap()]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    let mut kept = None;
    run.compute_with(
        |_| true,
        |seen| {
            kept = Some(seen.tensor());
            ControlFlow::Continue(())
        },
    )
    .unwrap();
    println!("{}", kept.is_some());
}
