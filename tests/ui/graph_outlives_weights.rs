use ggml::prelude::*;

fn main() {
    let ctx = Context::new();
    let graph = {
        let mut builder = WeightsBuilder::new();
        builder.tensor("w", DType::F32, [4]).unwrap();
        let weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
        let y = ctx.relu(weights.tensor("w").unwrap()).unwrap();
        ctx.graph([y]).unwrap()
    };
    println!("{}", graph.n_nodes());
}
