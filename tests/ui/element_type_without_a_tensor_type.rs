use ggml::prelude::*;

fn main() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [4]).unwrap();
    let weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    weights.tensor("w").unwrap().read::<bool>().unwrap();
}
