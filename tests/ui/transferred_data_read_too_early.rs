use ggml::prelude::*;

fn main() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [4]).unwrap();
    let mut backend = Backend::cpu().unwrap();
    let state = builder.place_state(backend.device().buffer_type()).unwrap();
    let mut out = [0.0_f32; 4];
    let _ = backend.transfers(|queue| {
        queue.get(state.tensor("w")?, &mut out)?;
        println!("{}", out[0]);
        Ok(())
    });
}
