//! A multilayer perceptron that owns all it uses, so that it can be returned, stored in any struct and moved to any thread.
#![allow(clippy::print_stdout, clippy::cast_precision_loss, clippy::indexing_slicing, reason = "short, small numbers")]

use ggml::{Result, prelude::*};

/// A network whose layers have these widths, with made-up weights: from rows of values to the class probabilities of each.
fn network(widths: &[usize]) -> Result<impl FnMut(&[f32]) -> Result<Vec<f32>>> {
    let (mut builder, mut layers) = (WeightsBuilder::new(), Vec::new()); // `layers` has indices, which stand for names
    for (i, pair) in widths.windows(2).enumerate() {
        let w = builder.tensor(&format!("w{i}"), DType::F32, pair)?;
        layers.push([w, builder.tensor(&format!("b{i}"), DType::F32, &pair[1..])?]);
    }
    let mut weights = builder.place(Device::best()?)?;
    for &leaf in layers.as_flattened() {
        let n = weights.at(leaf).elements();
        weights.set(leaf, &(0..n).map(|j| ((j * 7) % 11) as f32 / 10.0 - 0.5).collect::<Vec<_>>())?;
    }
    let (mut ctx, mut sched, width) = (Context::new(), Sched::best()?, widths[0]);
    Ok(move |rows: &[f32]| {
        ctx.reset();
        let x = ctx.input("x", DType::F32, [width, rows.len() / width])?;
        let last = layers.iter().try_fold(x, |x, &[w, b]| {
            ctx.add(ctx.mul_mat(weights.at(w), ctx.relu(x)?)?, weights.at(b)) // the weights, then the bias
        })?;
        let classes = ctx.soft_max(last)?;
        let graph = ctx.graph([classes])?;
        sched.run(&graph, (x, rows))?.get(classes)
    })
}

fn main() -> Result<()> {
    let mut classify = network(&[4, 8, 3])?;
    let probabilities = classify(&[1.0, 0.5, 0.25, 0.0, 0.0, 2.0, 0.0, 1.0])?;
    probabilities.chunks(3).enumerate().for_each(|(i, row)| println!("row {i}: {row:.4?}"));
    Ok(())
}
