use ggml::prelude::*;

fn main() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [4]).unwrap();
    let mut backend = Backend::cpu().unwrap();
    let state = builder.place_state(backend.device().buffer_type()).unwrap();
    let _ = backend.transfers(|queue| {
        let data = [0.0_f32; 4];
        queue.set(&state, "w", &data)
    });
}
