//! The network's parameters, their training and evaluation.

use std::path::Path;

use anyhow::{Context as _, Result};
use demos::digits::data::{CLASSES, Images, PIXELS, SIDE, SPLIT_SEED};
use demos::digits::forward::forward;
use demos::digits::model::{ARCHITECTURE, INPUT, LAYERS, check_metadata, check_shape, key, tensors};
use fastrand::Rng;
use ggml::gguf::{Reader, Value, Writer};
use ggml::opt::{self, AdamW, BuildType, Dataset, LossType, OptContext, OptGraphs, OptParams, OptResult, Progress};
use ggml::{BufferType, Context, DType, Sched, State, Tensor, WeightsBuilder};

/// Images per batch.
pub(crate) const BATCH: usize = 32;
/// The maximum shift of an image in pixels (augmentation).
const MAX_SHIFT: isize = 1;

/// Initialises the parameters: biases are 0, weights follow He et al. (2015).
pub(crate) fn parameters(memory: BufferType, rng: &mut Rng) -> Result<State> {
    let mut builder = WeightsBuilder::new();
    for (name, shape) in tensors() {
        builder.tensor(&name, DType::F32, ggml_shape(shape)?)?;
    }
    let state = builder.place_state(memory)?;
    for layer in LAYERS {
        let n: usize = layer.weight_shape().iter().product();
        #[expect(clippy::cast_precision_loss, reason = "a layer has a few hundred inputs")]
        let bound = (6.0 / layer.fan_in() as f32).sqrt();
        let values: Vec<_> = (0..n).map(|_| rng.f32().mul_add(2.0 * bound, -bound)).collect();
        state.set(&layer.weight_name(), &values)?;
    }
    Ok(state)
}

/// Trains the parameters with batches of [`BATCH`] images.
pub(crate) struct Trainer<'c> {
    opt: OptContext<'c>,
    graphs: OptGraphs<'c>,
    images: &'c Images,
    /// The augmented images of an epoch.
    dataset: Dataset,
    order: opt::Rng,
}

impl<'c> Trainer<'c> {
    /// Builds the graphs of the network, its gradients and steps. `schedule` returns the optimiser of each epoch; `seed`
    /// orders the images.
    pub(crate) fn new(
        ctx: &'c Context,
        parameters: &'c State,
        images: &'c Images,
        schedule: impl Fn(usize) -> AdamW + 'c,
        seed: u64,
    ) -> Result<Self> {
        let inputs = input(ctx, BATCH)?;
        let logits = forward(ctx, |name| parameters.tensor(name), inputs)?;
        let all: Vec<_> = parameters.iter().collect();
        let opt = OptContext::new(all, OptParams::new(LossType::CrossEntropy))?;
        let opt = opt.with_schedule(move |at| schedule(at.epoch).into());
        let graphs = opt.graphs(ctx, inputs, logits)?;
        Ok(Self { opt, graphs, images, dataset: dataset(images)?, order: opt::Rng::new(seed) })
    }

    /// Trains for one epoch on shuffled and shifted images, and returns its result. Images that don't fill a batch are left
    /// out, different ones in each epoch.
    pub(crate) fn epoch(
        &mut self,
        sched: &mut Sched,
        rng: &mut Rng,
        seen: impl FnMut(&Progress<'_>),
    ) -> Result<OptResult> {
        let shown = self.dataset.data_mut().chunks_exact_mut(PIXELS);
        for (to, image) in shown.zip(self.images.pixels.chunks_exact(PIXELS)) {
            to.copy_from_slice(&moved(image, rng));
        }
        let n = self.dataset.ndata();
        self.dataset.shuffle(&mut self.order, n)?;
        Ok(self.opt.epoch(sched, &self.graphs, &self.dataset, n, seen)?.train)
    }
}

/// The images with their one-hot labels.
fn dataset(images: &Images) -> Result<Dataset> {
    let labels: Vec<_> = images.labels.iter().flat_map(|&label| one_hot(label)).collect();
    Ok(Dataset::new(PIXELS, images.pixels.as_slice())?.with_labels(CLASSES, labels)?)
}

/// Evaluates the network on these images in one batch.
pub(crate) fn evaluate(sched: &mut Sched, parameters: &State, images: &Images) -> Result<OptResult> {
    let ctx = Context::new();
    let inputs = input(&ctx, images.len())?;
    let logits = forward(&ctx, |name| parameters.tensor(name), inputs)?;
    let params = OptParams::new(LossType::CrossEntropy).with_build_type(BuildType::Forward);
    let mut opt = OptContext::new([], params)?;
    let graphs = opt.graphs(&ctx, inputs, logits)?;
    Ok(opt.evaluate(sched, &graphs, &dataset(images)?, 0..images.len(), |_| {})?)
}

/// The accuracy.
pub(crate) fn accuracy(result: &OptResult) -> Result<f64> {
    Ok(result.accuracy().context("no image was looked at")?.value)
}

/// Writes the model file after reading its bytes back as `sched_demo` does.
pub(crate) fn save(parameters: &State, seed: u64, path: &Path) -> Result<()> {
    let mut file = Writer::new();
    file.set(key::ARCHITECTURE, ARCHITECTURE)?
        .set(key::NAME, "Handwritten digits, 8x8 pixels")?
        .set(key::LICENSE, "MIT OR Apache-2.0")?
        .set(key::SPLIT_SEED, SPLIT_SEED)?
        .set("digits-cnn.training_seed", seed)?;
    for (name, shape) in tensors() {
        file.tensor(&name, DType::F32, ggml_shape(shape)?, &parameters.read_bytes(&name)?)?;
    }
    let again = Reader::from_bytes(file.to_bytes()?)?;
    let text = |key| again.metadata(key).and_then(Value::as_str);
    check_metadata(text(key::ARCHITECTURE), again.metadata(key::SPLIT_SEED).and_then(Value::as_u64))?;
    for (name, _) in tensors() {
        check_shape(&name, &again.tensor(&name)?.shape().ne())?;
    }
    file.write(path).context("can't write the model (name another place with --output FILE)")
}

fn input(ctx: &Context, images: usize) -> Result<Tensor<'_>> {
    let side = i64::try_from(SIDE)?;
    Ok(ctx.input(INPUT, DType::F32, [side, side, 1, i64::try_from(images)?])?)
}

fn ggml_shape(shape: [usize; 4]) -> Result<[i64; 4]> {
    let mut ne = [1; 4];
    for (to, n) in ne.iter_mut().zip(shape) {
        *to = i64::try_from(n)?;
    }
    Ok(ne)
}

/// The one-hot vector of a digit.
fn one_hot(label: u8) -> [f32; CLASSES] {
    std::array::from_fn(|digit| if digit == usize::from(label) { 1.0 } else { 0.0 })
}

/// The image shifted by up to [`MAX_SHIFT`] pixels; uncovered pixels are white.
fn moved(image: &[f32], rng: &mut Rng) -> [f32; PIXELS] {
    let mut step = || rng.isize(-MAX_SHIFT..=MAX_SHIFT);
    shifted(image, step(), step())
}

fn shifted(image: &[f32], right: isize, down: isize) -> [f32; PIXELS] {
    std::array::from_fn(|i| {
        let from = |at: usize, by: isize| at.checked_add_signed(-by).filter(|&at| at < SIDE);
        let at = from(i % SIDE, right).zip(from(i / SIDE, down)).map(|(x, y)| y * SIDE + x);
        at.and_then(|at| image.get(at)).copied().unwrap_or(0.0)
    })
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "values are moved, not computed")]
mod tests {
    use super::*;
    use demos::digits::data;

    /// The bytes of all parameters after a few batches.
    fn trained(seed: u64, threads: usize) -> Vec<Vec<u8>> {
        let mut rng = Rng::with_seed(seed);
        let mut cpu = ggml::Backend::cpu().unwrap();
        cpu.set_threads(threads).unwrap();
        let state = parameters(cpu.device().buffer_type(), &mut rng).unwrap();
        let mut sched = Sched::builder().backend(cpu).build().unwrap();
        let ctx = Context::new();
        let few = data::load(Path::new(data::DEFAULT_PATH)).unwrap().train.split_at(5 * BATCH).0;
        let mut trainer = Trainer::new(&ctx, &state, &few, |_| AdamW::new(), seed).unwrap();
        let mut batches = 0;
        let result = trainer.epoch(&mut sched, &mut rng, |_| batches += 1).unwrap();
        assert!(batches == 5 && result.ndata() == 5 * BATCH, "{batches} {result:?}");
        tensors().map(|(name, _)| state.read_bytes(&name).unwrap()).collect()
    }

    #[test]
    fn training_is_deterministic_on_any_number_of_threads() {
        testkit::assert_seed_decides(trained);
    }

    #[test]
    fn shifted_moves_the_whole_image() {
        let image: [f32; PIXELS] = std::array::from_fn(|i| f32::from(u8::try_from(i).unwrap()) + 1.0);
        assert_eq!(shifted(&image, 0, 0), image);
        let at = |image: &[f32], x: usize, y: usize| image[y * SIDE + x];
        let moved = shifted(&image, 1, -1);
        for (x, y) in (0..SIDE).flat_map(|x| (0..SIDE).map(move |y| (x, y))) {
            let expected = if x == 0 || y == SIDE - 1 { 0.0 } else { at(&image, x - 1, y + 1) };
            assert_eq!(at(&moved, x, y), expected, "{x} {y}");
        }
    }

    #[test]
    fn one_hot_marks_the_label() {
        assert_eq!(one_hot(3), [0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }
}
