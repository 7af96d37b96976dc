//! A small network, whose layers' weights may be on several devices.

use ggml::BufferType;
use ggml::prelude::*;

/// Numbers that go from layer to layer.
pub const WIDTH: usize = 32;

/// The weights of layer `i`, row by row.
pub fn matrix(i: usize) -> Vec<f32> {
    (0..WIDTH * WIDTH).map(|j| ((j * 7 + i * 13) % 23) as f32 / 40.0 - 0.25).collect()
}

/// The weights of as many layers as there are buffer types: `w0`, `w1`, ...
pub fn weights(places: &[BufferType]) -> Weights {
    let mut builder = WeightsBuilder::new();
    for i in 0..places.len() {
        builder.tensor(&format!("w{i}"), DType::F32, [WIDTH as i64, WIDTH as i64]).unwrap();
    }
    let mut weights = builder.place(|leaf: &LeafInfo| places[leaf.name()[1..].parse::<usize>().unwrap()]).unwrap();
    for i in 0..places.len() {
        weights.set(&format!("w{i}"), &matrix(i)).unwrap();
    }
    weights
}

/// `tanh(w x)` for each layer.
pub fn forward<'c>(ctx: &'c Context, weights: &'c Weights, x: Tensor<'c>) -> Tensor<'c> {
    (0..weights.iter().count()).fold(x, |x, i| {
        let w = weights.tensor(&format!("w{i}")).unwrap();
        ctx.tanh(ctx.mul_mat(w, x).unwrap()).unwrap()
    })
}

/// An input of one column, and [`forward`] of it.
pub fn network<'c>(ctx: &'c Context, weights: &'c Weights) -> (Tensor<'c>, Tensor<'c>) {
    let x = ctx.input("x", DType::F32, [WIDTH as i64]).unwrap();
    (x, forward(ctx, weights, x))
}

/// What so many layers compute.
pub fn expected(layers: usize, x: &[f32]) -> Vec<f32> {
    let mut x: Vec<f64> = x.iter().map(|&x| x.into()).collect();
    for i in 0..layers {
        let w = matrix(i);
        let row = |r: &[f32]| r.iter().zip(&x).map(|(&w, &x)| f64::from(w) * x).sum::<f64>().tanh();
        x = w.chunks(WIDTH).map(row).collect();
    }
    x.into_iter().map(|x| x as f32).collect()
}

/// Values for the network.
pub fn input(seed: usize) -> Vec<f32> {
    (0..WIDTH).map(|i| ((i * 3 + seed * 5) % 17) as f32 * 0.25 - 2.0).collect()
}
