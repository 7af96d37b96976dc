//! A multilayer perceptron that owns its weights, context and scheduler. It borrows nothing, so it can be stored in any
//! struct and moved to any thread.
#![allow(clippy::print_stdout, clippy::cast_precision_loss, reason = "a program for people to read, small numbers")]

use ggml::prelude::*;

struct Mlp {
    weights: Weights,
    layers: Vec<[WeightIndex; 2]>,
    ctx: Context,
    sched: Sched,
}

impl Mlp {
    /// A network whose layers have these widths, with made-up weights.
    fn new(widths: &[usize]) -> ggml::Result<Self> {
        let mut builder = WeightsBuilder::new();
        for (i, pair) in widths.windows(2).enumerate() {
            builder.tensor(&format!("w{i}"), DType::F32, pair)?;
            builder.tensor(&format!("b{i}"), DType::F32, pair.get(1..).unwrap_or_default())?;
        }
        let mut weights = builder.place(Device::best()?)?;
        let mut layers = Vec::new();
        for i in 0..widths.len() - 1 {
            let names = [format!("w{i}"), format!("b{i}")];
            for name in &names {
                let n = weights.tensor(name)?.elements();
                weights.set(name, &(0..n).map(|j| ((j * 7) % 11) as f32 / 10.0 - 0.5).collect::<Vec<_>>())?;
            }
            // Names are looked up once: an index is as cheap as a handle, and borrows nothing.
            layers.push([weights.index(&names[0])?, weights.index(&names[1])?]);
        }
        Ok(Self { weights, layers, ctx: Context::new(), sched: Sched::best()? })
    }

    /// The class probabilities of each row of `width` values.
    fn forward(&mut self, width: usize, rows: &[f32]) -> ggml::Result<Vec<f32>> {
        self.ctx.reset();
        let ctx = &self.ctx;
        let x = ctx.input("x", DType::F32, [width, rows.len() / width])?;
        let last = self
            .layers
            .iter()
            .try_fold(x, |x, &[w, b]| ctx.add(ctx.mul_mat(self.weights.at(w), ctx.relu(x)?)?, self.weights.at(b)))?;
        let classes = ctx.soft_max(last)?;
        let graph = ctx.graph([classes])?;
        let mut run = self.sched.alloc(&graph)?;
        run.set(x, rows)?;
        run.compute()?;
        run.get(classes)
    }
}

fn main() -> ggml::Result<()> {
    let mut mlp = Mlp::new(&[4, 8, 3])?;
    let probabilities = mlp.forward(4, &[1.0, 0.5, 0.25, 0.0, 0.0, 2.0, 0.0, 1.0])?;
    probabilities.chunks(3).enumerate().for_each(|(i, row)| println!("row {i}: {row:.4?}"));
    Ok(())
}
