use ggml::prelude::*;

fn main() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("cache", DType::F32, [4]).unwrap();
    let state = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| state.set("cache", &[0.0_f32; 4]));
    });
}
