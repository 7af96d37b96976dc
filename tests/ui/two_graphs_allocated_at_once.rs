use ggml::prelude::*;

fn main() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let a = ctx.graph([ctx.relu(x).unwrap()]).unwrap();
    let b = ctx.graph([ctx.abs(x).unwrap()]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let first = sched.alloc(&a).unwrap();
    let second = sched.alloc(&b).unwrap();
    println!("{first:?} {second:?}");
}
