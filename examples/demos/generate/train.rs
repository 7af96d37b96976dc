//! Training with ggml's gradients and optimiser, and the evaluation of a model.

use anyhow::{Result, ensure};
use fastrand::Rng;
use ggml::opt::{AdamW, LossType, OptContext, OptParams};
use ggml::{Context, DType, Device, Sched, State, WeightsBuilder};
use half::f16;

use crate::cache::{looks, mask};
use crate::model::{Config, Inputs, Model};
use crate::text::Text;

/// The number of sequences per step.
const BATCH: usize = 4;
/// The highest learning rate.
const RATE: f32 = 4e-3;
/// The final learning rate, as a fraction of the highest.
const LAST: f32 = 0.05;
/// The number of warm-up steps.
const WARM_UP: f32 = 20.0;

/// The settings of a training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Training {
    pub(crate) steps: u32,
    pub(crate) seed: u64,
}

/// Initialises the weights: vectors with 1, and matrices so that they keep the variance.
fn weights(config: Config, rng: &mut Rng) -> Result<State> {
    let mut builder = WeightsBuilder::new();
    let tensors = config.check()?.tensors();
    for (name, [columns, rows]) in &tensors {
        builder.tensor(name, DType::F32, [i64::try_from(*columns)?, i64::try_from(*rows)?])?;
    }
    let state = builder.place_state(Device::cpu()?.buffer_type())?;
    for (name, [columns, rows]) in &tensors {
        if *rows == 1 {
            state.fill_with(name, 1.0_f32)?;
            continue;
        }
        // A uniform distribution from -bound to bound has the variance bound^2 / 3. Residual branches start small.
        #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
        let bound = match name.rsplit('.').nth(1) {
            Some("attn_output" | "ffn_down") => (3.0 / (2 * config.layers * columns) as f32).sqrt(),
            Some("token_embd" | "output") => 0.05,
            _ => (3.0 / *columns as f32).sqrt(),
        };
        let values: Vec<_> = (0..columns * rows).map(|_| rng.f32().mul_add(2.0 * bound, -bound)).collect();
        state.set(name, &values)?;
    }
    Ok(state)
}

/// The learning rate of a step, counted from 1: linear warm-up, then cosine decay.
fn rate(step: u32, steps: u32) -> f32 {
    #[expect(clippy::cast_precision_loss, reason = "a few thousand steps")]
    let (step, steps) = (step as f32, steps as f32);
    let done = (step / steps).min(1.0);
    let fallen = f32::midpoint(1.0, (std::f32::consts::PI * done).cos());
    RATE * (step / WARM_UP).min(1.0) * LAST.mul_add(1.0 - fallen, fallen)
}

/// Trains a model, and returns its weights. `done` gets the mean loss of each step.
///
/// # Errors
/// The model's sizes are impossible, the text is too short, or the final loss is not finite.
pub(crate) fn train(
    config: Config,
    text: &Text,
    how: Training,
    sched: &mut Sched,
    mut done: impl FnMut(f32),
) -> Result<State> {
    let n = config.window;
    let mut rng = Rng::with_seed(how.seed);
    let state = weights(config, &mut rng)?;
    let model = Model::new(config, |name| state.tensor(name))?;

    let ctx = Context::new();
    let inputs = Inputs::new(&ctx, n, BATCH, n)?;
    let logits = model.forward(&ctx, &inputs, None)?;
    let all: Vec<_> = state.iter().collect();
    let schedule = move |step| AdamW::new().with_alpha(rate(step, how.steps)).with_beta2(0.99).with_wd(0.05);
    let opt = OptContext::new(all, OptParams::new(LossType::CrossEntropy))?;
    let mut opt = opt.with_schedule(move |at| schedule(at.step).into());
    let graphs = opt.graphs(&ctx, None, logits)?;
    let Some(labels) = graphs.labels() else { anyhow::bail!("a cross entropy has labels") };

    let mut run = opt.alloc(sched, &graphs, true)?;
    run.set(inputs.positions, &positions(n)?)?;
    run.set(inputs.mask, &masks(n, n))?;
    let mut tokens = Vec::with_capacity(BATCH * n);
    let mut expected = vec![0.0_f32; BATCH * n * config.vocabulary];
    let mut loss = f32::INFINITY;
    for _ in 0..how.steps {
        tokens.clear();
        expected.fill(0.0);
        let mut columns = expected.chunks_exact_mut(config.vocabulary);
        for _ in 0..BATCH {
            let drawn = text.draw(n + 1, &mut rng);
            ensure!(drawn.len() == n + 1, "the text is too short");
            for ((&token, &next), column) in drawn.iter().zip(drawn.iter().skip(1)).zip(&mut columns) {
                tokens.push(token);
                if let Some(p) = column.get_mut(usize::try_from(next)?) {
                    *p = 1.0;
                }
            }
        }
        run.set(inputs.tokens, &tokens)?;
        run.set(labels, &expected)?;
        loss = run.eval(None)?;
        done(loss);
    }
    drop(run);
    ensure!(loss.is_finite(), "the loss is {loss}: train with another --seed");
    drop((graphs, opt));
    Ok(state)
}

/// The logits after each token, of one full pass.
pub(crate) fn full_pass(model: &Model<'_>, sched: &mut Sched, tokens: &[i32]) -> Result<Vec<f32>> {
    let n = tokens.len();
    let ctx = Context::new();
    let inputs = Inputs::new(&ctx, n, 1, n)?;
    let logits = model.forward(&ctx, &inputs, None)?;
    let graph = ctx.graph([logits])?;
    let mut run = sched.alloc(&graph)?;
    run.set(inputs.tokens, tokens)?;
    run.set(inputs.positions, &positions(n)?)?;
    run.set(inputs.mask, &masks(n, model.config().window))?;
    run.compute()?;
    Ok(run.get(logits)?)
}

/// The mean loss over the tokens, in pieces of the window's length; the first token of each piece is not predicted.
pub(crate) fn loss(model: &Model<'_>, sched: &mut Sched, tokens: &[i32]) -> Result<f64> {
    let (mut sum, mut n) = (0.0, 0_u32);
    for piece in tokens.chunks_exact(model.config().window + 1) {
        let Some((_, told)) = piece.split_last() else { continue };
        let logits = full_pass(model, sched, told)?;
        for (logits, &next) in logits.chunks_exact(model.config().vocabulary).zip(piece.iter().skip(1)) {
            let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let total: f64 = logits.iter().map(|&x| f64::from(x - most).exp()).sum();
            let of_next = logits.get(usize::try_from(next)?).copied().unwrap_or(f32::NAN);
            sum += total.ln() - f64::from(of_next - most);
            n += 1;
        }
    }
    ensure!(n > 0, "the text is shorter than the model's window");
    Ok(sum / f64::from(n))
}

fn positions(n: usize) -> Result<Vec<i32>> {
    Ok((0..i32::try_from(n)?).collect())
}

/// A row for each of `n` tokens.
fn masks(n: usize, window: usize) -> Vec<f16> {
    (0..n).flat_map(|from| (0..n).map(move |at| mask(looks(window, from, at)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn learning_rate_warms_up_and_decays() {
        let rates: Vec<_> = (1..=400).map(|step| rate(step, 400)).collect();
        let (up, down) = rates.split_at(19);
        assert!(up.is_sorted_by(|a, b| a < b) && down.is_sorted_by(|a, b| a > b), "{rates:?}");
        assert!(rates.iter().all(|&r| r > 0.0 && r <= RATE) && rates[19] > 0.98 * RATE, "{rates:?}");
        assert!((rates[399] - LAST * RATE).abs() < 1e-8, "{rates:?}");
    }

    #[test]
    fn window_mask_hides_old_tokens() {
        let visible: Vec<_> = masks(4, 2).iter().map(|&x| i32::from(x == f16::ZERO)).collect();
        assert_eq!(visible, [1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1]);
    }
}
