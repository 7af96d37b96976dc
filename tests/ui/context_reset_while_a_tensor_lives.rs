use ggml::prelude::*;

fn main() {
    let mut ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    ctx.reset();
    println!("{}", x.name());
}
