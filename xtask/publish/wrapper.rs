//! Stands for a crate that depends on these.

use ggml::prelude::*;
use ggml_draw::ToDot as _;

/// Adds two vectors. Returns the sum and a drawing of the graph.
pub fn sum(a: &[f32; 3], b: &[f32; 3]) -> ggml::Result<(Vec<f32>, String)> {
    let ctx = Context::new();
    let (x, y) = (ctx.input("x", DType::F32, [3])?, ctx.input("y", DType::F32, [3])?);
    let z = ctx.add(x, y)?;
    let graph = ctx.graph([z])?;
    let mut sched = Sched::best()?;
    let mut run = sched.alloc(&graph)?;
    run.set(x, a)?;
    run.set(y, b)?;
    run.compute()?;
    Ok((run.get::<f32>(z)?, graph.to_dot()?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn computes_and_draws() {
        let (sum, drawing) = super::sum(&[1.0, 2.0, 3.0], &[10.0, 20.0, 30.0]).unwrap();
        assert_eq!(sum, [11.0, 22.0, 33.0]);
        assert!(drawing.contains("digraph"));
    }

    #[test]
    fn files_are_those_of_the_crate_without_c() {
        let mut writer = ggml_gguf::Writer::new();
        writer.set("general.architecture", "wrapper").unwrap();
        let reader = ggml::gguf::Reader::from_bytes(writer.to_bytes().unwrap()).unwrap();
        assert_eq!(reader.metadata("general.architecture").and_then(|value| value.as_str()), Some("wrapper"));
    }

    #[cfg(feature = "rpc")]
    #[test]
    fn the_feature_is_passed_on() {
        let _options = ggml::rpc::Options::new();
    }
}
