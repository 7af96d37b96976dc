//! The safe side: the same program on the safe layer.

use std::time::Duration;

use ggml::prelude::*;
use ggml::{
    State, Weights, WeightsBuilder,
    ops::{GluOp, RopeMode, RopeOptions, SoftMaxOptions},
};

use crate::measure::time;
use crate::net::{CONTEXT, EPS, F32, HEAD, HEADS, Inputs, Leaf, MAX_OUTPUTS, Net, PER_LAYER, Size, WIDTH, place};

/// Weights and KV caches on the CPU.
pub(crate) struct Model {
    weights: Weights,
    caches: State,
}

impl Model {
    pub(crate) fn new(net: &Net) -> Self {
        let builder = |leaves: &[Leaf]| {
            let mut builder = WeightsBuilder::new();
            for leaf in leaves {
                builder.tensor(&leaf.name, DType::F32, leaf.ne).unwrap();
            }
            builder
        };
        let cpu = Device::cpu().unwrap().buffer_type();
        let mut weights = builder(&net.weights).place(cpu).unwrap();
        for leaf in &net.weights {
            weights.set(&leaf.name, &leaf.data).unwrap();
        }
        let caches = builder(&net.caches).place_state(cpu).unwrap();
        for leaf in &net.caches {
            caches.set(&leaf.name, &leaf.data).unwrap();
        }
        Self { weights, caches }
    }
}

/// The tensors of a step that are used again after building. The last of `outputs` are the logits.
struct Step<'c> {
    tokens: Tensor<'c>,
    positions: Tensor<'c>,
    mask: Tensor<'c>,
    outputs: [Tensor<'c>; MAX_OUTPUTS],
    n_outputs: usize,
}

impl<'c> Step<'c> {
    fn outputs(&self) -> &[Tensor<'c>] {
        &self.outputs[..self.n_outputs]
    }

    fn result(&self) -> Tensor<'c> {
        self.outputs[self.n_outputs - 1]
    }
}

/// Handles of a model's weights and KV caches.
struct Leaves<'m> {
    layers: usize,
    weights: Vec<Tensor<'m>>,
    caches: Vec<Tensor<'m>>,
}

impl<'m> Leaves<'m> {
    /// Builds step `i`.
    fn write<'c>(&self, c: &'c Context, i: usize, size: Size) -> ggml::Result<Step<'c>>
    where
        'm: 'c,
    {
        let (n, past) = (size.tokens as i64, size.past);
        let tokens = c.input("tokens", DType::F32, [WIDTH, n])?;
        let positions = c.input("positions", DType::I32, [n])?;
        let mask = c.input("mask", DType::F32, [past, n])?;
        let rope = |t| c.rope_ext(t, positions, RopeOptions::new(HEAD as i32, RopeMode::Normal));
        let (row, head, column) = (WIDTH as usize * F32, HEAD as usize * F32, CONTEXT as usize * F32);
        let mut outputs = [tokens; MAX_OUTPUTS];
        let mut x = tokens;
        for l in 0..self.layers {
            let w = &self.weights[l * PER_LAYER..][..PER_LAYER];
            let (k_cache, v_cache) = (self.caches[2 * l], self.caches[2 * l + 1]);
            let h = c.mul(c.rms_norm(x, EPS)?, w[0])?;
            let q = rope(c.reshape(c.mul_mat(w[1], h)?, [HEAD, HEADS, n])?)?;
            let k = rope(c.reshape(c.mul_mat(w[2], h)?, [HEAD, HEADS, n])?)?;
            let v = c.mul_mat(w[3], h)?;
            let to = c.view(k_cache, [HEAD, HEADS, n], [head, row, row * size.tokens], place(i) * row)?;
            outputs[2 * l] = c.cpy(k, to)?;
            let all = column * WIDTH as usize;
            let to = c.view(v_cache, [n, WIDTH], [column, all, all], place(i) * F32)?;
            outputs[2 * l + 1] = c.cpy(c.transpose(v)?, to)?;
            let keys = c.view(k_cache, [HEAD, past, HEADS], [row, head, head * HEADS as usize], 0)?;
            let values = c.view(v_cache, [past, HEAD, HEADS], [column, column * HEAD as usize, all], 0)?;
            let q = c.permute(q, [0, 2, 1, 3])?;
            let how = SoftMaxOptions::new().with_scale(0.2).with_mask(mask);
            let s = c.soft_max_ext(c.mul_mat(keys, q)?, how)?;
            let o = c.permute(c.mul_mat(values, s)?, [0, 2, 1, 3])?;
            let o = c.reshape(c.cont(o)?, [WIDTH, n])?;
            x = c.add(x, c.mul_mat(w[4], o)?)?;
            let h = c.mul(c.rms_norm(x, EPS)?, w[5])?;
            let (gate, up) = (c.mul_mat(w[6], h)?, c.mul_mat(w[7], h)?);
            x = c.add(x, c.mul_mat(w[8], c.glu_split(gate, up, GluOp::Swiglu)?)?)?;
        }
        let w = &self.weights[self.layers * PER_LAYER..];
        outputs[2 * self.layers] = c.mul_mat(w[1], c.mul(c.rms_norm(x, EPS)?, w[0])?)?;
        Ok(Step { tokens, positions, mask, outputs, n_outputs: 2 * self.layers + 1 })
    }
}

fn scheduler() -> Sched {
    let mut backend = Backend::cpu().unwrap();
    backend.set_threads(1).unwrap();
    Sched::builder().backend(backend).build().unwrap()
}

pub(crate) struct Program<'m> {
    leaves: Leaves<'m>,
    ctx: Context,
    sched: Sched,
    inputs: Inputs,
}

impl<'m> Program<'m> {
    pub(crate) fn new(model: &'m Model, net: &Net) -> Self {
        Self {
            leaves: Leaves {
                layers: net.layers,
                weights: model.weights.iter().collect(),
                caches: model.caches.iter().collect(),
            },
            ctx: Context::new(),
            sched: scheduler(),
            inputs: Inputs::new(1),
        }
    }

    /// Begins with a new scheduler.
    pub(crate) fn renew(&mut self) {
        self.sched = scheduler();
    }

    /// Builds a graph and returns its number of nodes.
    pub(crate) fn build(&mut self, i: usize) -> usize {
        self.ctx.reset();
        let step = self.leaves.write(&self.ctx, i, Size::WHOLE).unwrap();
        self.ctx.graph(step.outputs()).unwrap().n_nodes()
    }

    pub(crate) fn nodes(&mut self, i: usize) -> Duration {
        time(|| {
            self.ctx.reset();
            self.leaves.write(&self.ctx, i, Size::WHOLE).unwrap();
        })
    }

    pub(crate) fn time_build(&mut self, i: usize) -> Duration {
        time(|| {
            self.build(i);
        })
    }

    pub(crate) fn time_alloc(&mut self, i: usize, size: Size) -> Duration {
        self.ctx.reset();
        let step = self.leaves.write(&self.ctx, i, size).unwrap();
        let graph = self.ctx.graph(step.outputs()).unwrap();
        time(|| drop(self.sched.alloc(&graph).unwrap()))
    }

    pub(crate) fn step(&mut self, i: usize) -> &[f32] {
        self.ctx.reset();
        let step = self.leaves.write(&self.ctx, i, Size::WHOLE).unwrap();
        let graph = self.ctx.graph(step.outputs()).unwrap();
        let mut run = self.sched.alloc(&graph).unwrap();
        self.inputs.set(i);
        run.set(step.tokens, &self.inputs.tokens).unwrap();
        run.set(step.positions, &self.inputs.positions).unwrap();
        run.set(step.mask, &self.inputs.mask).unwrap();
        run.compute().unwrap();
        run.get_into(step.result(), &mut self.inputs.result).unwrap();
        &self.inputs.result
    }

    pub(crate) fn time_step(&mut self, i: usize) -> Duration {
        time(|| {
            self.step(i);
        })
    }

    /// Calls `f` with a closure that computes one graph each time it is called.
    pub(crate) fn computing<R>(&mut self, f: impl FnOnce(&mut dyn FnMut() -> Duration) -> R) -> R {
        self.ctx.reset();
        let step = self.leaves.write(&self.ctx, 1, Size::WHOLE).unwrap();
        let graph = self.ctx.graph(step.outputs()).unwrap();
        let mut run = self.sched.alloc(&graph).unwrap();
        self.inputs.set(1);
        run.set(step.tokens, &self.inputs.tokens).unwrap();
        run.set(step.positions, &self.inputs.positions).unwrap();
        run.set(step.mask, &self.inputs.mask).unwrap();
        f(&mut || time(|| run.compute().unwrap()))
    }
}
