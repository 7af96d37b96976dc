use ggml::prelude::*;

fn main() {
    let x = {
        let ctx = Context::new();
        ctx.input("x", DType::F32, [4]).unwrap()
    };
    println!("{}", x.name());
}
