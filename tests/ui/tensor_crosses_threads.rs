use ggml::prelude::*;

fn main() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    std::thread::scope(|s| {
        s.spawn(move || println!("{}", x.name()));
    });
}
