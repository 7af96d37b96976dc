use ggml::opt::{LossType, OptContext, OptParams};
use ggml::prelude::*;

fn main() {
    let ctx = Context::new();
    let graphs = {
        let mut builder = WeightsBuilder::new();
        builder.tensor("p", DType::F32, [4]).unwrap();
        let state = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
        let p = state.tensor("p").unwrap();
        let opt = OptContext::new([p], OptParams::new(LossType::Sum)).unwrap();
        opt.graphs(&ctx, None, ctx.sqr(p).unwrap()).unwrap()
    };
    println!("{}", graphs.ndata());
}
