use ggml::opt::{Sgd, Training};
use ggml::prelude::*;

fn main() {
    let ctx = Context::new();
    let training = {
        let mut builder = WeightsBuilder::new();
        builder.tensor("p", DType::F32, [4]).unwrap();
        let state = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
        let p = state.get("p").unwrap();
        let loss = ctx.sum(p).unwrap();
        Training::new(&ctx, loss, [], [p], Sgd::default()).unwrap()
    };
    println!("{}", training.steps());
}
