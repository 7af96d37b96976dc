use ggml::prelude::*;

fn main() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [4]).unwrap();
    let mut weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    let w = weights.tensor("w").unwrap();
    weights.set("w", &[0.0_f32; 4]).unwrap();
    println!("{}", w.name());
}
