//! The model in plain Rust and f64, token by token.

use std::collections::HashMap;

use crate::model::Config;

/// A model's weights by name, row by row.
pub(crate) struct Reference {
    pub(crate) config: Config,
    pub(crate) tensors: HashMap<String, Vec<f64>>,
}

impl Reference {
    /// The logits after each token.
    pub(crate) fn logits(&self, tokens: &[i32]) -> Vec<Vec<f64>> {
        let Config { layers, heads, width, window, .. } = self.config;
        let table = &self.tensors["token_embd.weight"];
        let mut all: Vec<Vec<f64>> =
            tokens.iter().map(|&t| table[usize::try_from(t).unwrap() * width..][..width].to_vec()).collect();
        for layer in 0..layers {
            let name = |part: &str| format!("blk.{layer}.{part}.weight");
            let h: Vec<_> = all.iter().map(|x| self.norm(x, &name("attn_norm"))).collect();
            let each = |part: &str| h.iter().map(|h| self.times(h, &name(part))).collect::<Vec<_>>();
            let turn = |each: Vec<Vec<f64>>| -> Vec<_> {
                each.into_iter().enumerate().map(|(at, x)| turned(&x, at, width / heads)).collect()
            };
            let (q, k, v) = (turn(each("attn_q")), turn(each("attn_k")), each("attn_v"));
            for at in 0..all.len() {
                let seen = (at + 1).saturating_sub(window)..at + 1;
                let attended = attend(&q[at], &k[seen.clone()], &v[seen], width / heads);
                all[at] = add(&all[at], &self.times(&attended, &name("attn_output")));
                let h = self.norm(&all[at], &name("ffn_norm"));
                let (gate, up) = (self.times(&h, &name("ffn_gate")), self.times(&h, &name("ffn_up")));
                let gated: Vec<_> = gate.iter().zip(up).map(|(g, up)| g / (1.0 + (-g).exp()) * up).collect();
                all[at] = add(&all[at], &self.times(&gated, &name("ffn_down")));
            }
        }
        all.iter().map(|x| self.times(&self.norm(x, "output_norm.weight"), "output.weight")).collect()
    }

    fn times(&self, x: &[f64], name: &str) -> Vec<f64> {
        self.tensors[name].chunks(x.len()).map(|row| dot(row, x)).collect()
    }

    fn norm(&self, x: &[f64], name: &str) -> Vec<f64> {
        let root = (dot(x, x) / float(x.len()) + 1e-5).sqrt();
        x.iter().zip(&self.tensors[name]).map(|(x, w)| x / root * w).collect()
    }
}

/// Rotary position embedding: rotates each pair of values of each head by an angle proportional to the position.
fn turned(x: &[f64], at: usize, size: usize) -> Vec<f64> {
    let pair = |(i, pair): (usize, &[f64])| {
        let (sin, cos) = (float(at) * 10_000_f64.powf(-float(2 * i) / float(size))).sin_cos();
        [pair[0] * cos - pair[1] * sin, pair[0] * sin + pair[1] * cos]
    };
    x.chunks(size).flat_map(|head| head.chunks(2).enumerate().flat_map(pair)).collect()
}

/// Attention: for each head, the mean of the values weighted by the softmax of the scores.
fn attend(q: &[f64], keys: &[Vec<f64>], values: &[Vec<f64>], size: usize) -> Vec<f64> {
    let mut result = Vec::new();
    for (head, q) in q.chunks(size).enumerate() {
        let part = |x: &[f64]| x[head * size..][..size].to_vec();
        let weights: Vec<_> = keys.iter().map(|k| (dot(q, &part(k)) / float(size).sqrt()).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let weighted = weights.iter().zip(values).map(|(w, v)| part(v).iter().map(|v| w / sum * v).collect::<Vec<_>>());
        result.extend(weighted.fold(vec![0.0; size], |sum, v| add(&sum, &v)));
    }
    result
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

fn float(n: usize) -> f64 {
    f64::from(u32::try_from(n).unwrap())
}
