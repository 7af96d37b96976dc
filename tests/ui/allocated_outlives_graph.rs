use ggml::prelude::*;

fn main() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let run = {
        let graph = ctx.graph([ctx.relu(x).unwrap()]).unwrap();
        sched.alloc(&graph).unwrap()
    };
    println!("{run:?}");
}
