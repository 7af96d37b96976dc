//! Places the network on devices, and runs it there.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ggml::meta::{MetaDevice, SplitMode};
use ggml::{Context, Device, DeviceType, Run, Sched, TensorInfo, Weights};

use crate::model::{Model, Part, Step};

/// How the network is divided among the devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Each device holds consecutive layers.
    Layers,
    /// Each server holds a part of every layer.
    Tensors,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Layers => "layers",
            Self::Tensors => "tensor-parallel",
        }
    }
}

/// Which device holds which part of the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    /// In the scheduler's order: the CPU comes last.
    devices: Vec<Device>,
    /// The index of each layer's device.
    of_layers: Vec<usize>,
    of_head: usize,
}

impl Placement {
    /// Everything on the CPU.
    ///
    /// # Errors
    /// If there is no CPU.
    pub(crate) fn local(layers: usize) -> Result<Self> {
        Self::new(Mode::Layers, &[], layers)
    }

    /// Distributes the layers over the servers' devices and the CPU, which also holds the head; or splits each layer,
    /// and the head, among the servers' devices.
    ///
    /// # Errors
    /// If there is no CPU, or if the servers' devices can't form a meta device.
    pub(crate) fn new(mode: Mode, remote: &[Device], layers: usize) -> Result<Self> {
        let mut devices = match (mode, remote) {
            (Mode::Tensors, [_, _, ..]) => vec![MetaDevice::new(remote, divide)?.device()],
            _ => remote.to_vec(),
        };
        devices.push(Device::cpu()?);
        let (of_layers, of_head) = match mode {
            Mode::Layers => (runs(devices.len(), layers).collect(), devices.len() - 1),
            Mode::Tensors => (vec![0; layers], 0),
        };
        Ok(Self { devices, of_layers, of_head })
    }

    /// The index of a part's device.
    fn number(&self, part: Part) -> usize {
        let of_layer = match part {
            Part::Layer(i) => self.of_layers.get(i).copied(),
            Part::Head => None,
        };
        of_layer.unwrap_or(self.of_head)
    }
}

/// The splits of weights on a meta device: a layer's first matrices by rows, its last one by the matching columns, so
/// that only the layer's result needs an all-reduce.
fn divide(t: &TensorInfo) -> SplitMode {
    match t.name.rsplit('.').next() {
        Some("gate" | "up" | "head") => SplitMode::Even { axis: 1 },
        Some("down") => SplitMode::Even { axis: 0 },
        _ => SplitMode::Mirrored,
    }
}

/// The device index of each layer, distributed as evenly as possible.
fn runs(devices: usize, layers: usize) -> impl Iterator<Item = usize> {
    (0..layers).map(move |layer| layer * devices / layers)
}

/// The network on its devices.
#[derive(Debug)]
pub(crate) struct Cluster {
    model: Model,
    placement: Placement,
    weights: Weights,
    sched: Sched,
}

/// The results of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The logits of each step.
    pub(crate) logits: Vec<Vec<f32>>,
    /// The time of the fastest step, from setting the tokens to reading the logits.
    pub(crate) best: Duration,
}

impl Cluster {
    /// Uploads the weights and starts the devices.
    ///
    /// # Errors
    /// If a device has not enough memory, does not start, or was lost.
    pub(crate) fn new(model: Model, placement: Placement, threads: NonZeroUsize) -> Result<Self> {
        let cpu = Device::cpu()?;
        let weights = model.place(|part| placement.devices.get(placement.number(part)).copied().unwrap_or(cpu))?;
        // Each operation runs where its weights are.
        let mut builder = Sched::builder().op_offload(false);
        for device in &placement.devices {
            let mut backend = device.init().with_context(|| format!("device {device} does not start"))?;
            if device.device_type() == DeviceType::Cpu {
                backend.set_threads(threads.get())?;
            }
            builder = builder.backend(backend);
        }
        Ok(Self { model, weights, sched: builder.build()?, placement })
    }

    /// Computes a number of steps. `planned` sees the splits of the graph, and `before` is called before each step.
    ///
    /// # Errors
    /// [`ggml::Error::RpcLost`] if a server is lost; those of `before`.
    pub(crate) fn run(
        &mut self,
        steps: usize,
        planned: impl FnOnce(&Run<'_, '_>) -> Result<()>,
        mut before: impl FnMut(usize) -> Result<()>,
    ) -> Result<Outcome> {
        let ctx = Context::new();
        let step = Step::new(&ctx, self.model.size, &self.weights)?;
        // A norm has no weights, so the scheduler leaves it with its operand, and would copy both to the next device.
        let pins: Vec<_> = step.norms.iter().map(|&(norm, part)| (norm, self.placement.number(part))).collect();
        let mut run = self.sched.alloc_pinned(&step.graph, &pins)?;
        planned(&run)?;
        let mut outcome = Outcome { logits: Vec::new(), best: Duration::MAX };
        for i in 0..steps {
            before(i)?;
            let tokens = self.model.tokens(i);
            let start = Instant::now();
            run.set(step.tokens, &tokens)?;
            run.compute()?;
            outcome.logits.push(run.get::<f32>(step.logits)?);
            outcome.best = outcome.best.min(start.elapsed());
        }
        Ok(outcome)
    }
}

impl Outcome {
    /// The maximum difference to the logits of another run; infinite if their numbers differ.
    pub(crate) fn max_abs_diff(&self, other: &Self) -> f32 {
        let (a, b) = (self.logits.concat(), other.logits.concat());
        if a.len() != b.len() || a.is_empty() {
            return f32::INFINITY;
        }
        // `f32::max` ignores NaN.
        let diffs = a.iter().zip(&b).map(|(a, b)| (a - b).abs());
        diffs.fold(0.0, |max, diff| if diff.is_nan() { f32::INFINITY } else { diff.max(max) })
    }

    /// Tokens per second of the fastest step, with `tokens` per step. The fastest is least disturbed by other programs.
    #[expect(clippy::cast_precision_loss, reason = "there are only so many")]
    pub(crate) fn tokens_per_second(&self, tokens: usize) -> f64 {
        tokens as f64 / self.best.as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_distributed_evenly_and_in_order() {
        assert_eq!(runs(3, 6).collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2]);
        assert_eq!(runs(3, 4).collect::<Vec<_>>(), [0, 0, 1, 2]);
        assert_eq!(runs(3, 2).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(runs(1, 3).collect::<Vec<_>>(), [0, 0, 0]);
    }

    #[test]
    fn max_abs_diff_measures_logits() {
        let outcome = |logits: &[f32]| Outcome { logits: vec![logits.to_vec()], best: Duration::ZERO };
        assert_eq!(outcome(&[1.0, 2.0]).max_abs_diff(&outcome(&[1.5, 1.0])).to_bits(), 1.0_f32.to_bits());
        for bad in [&[1.0, f32::NAN][..], &[1.0], &[]] {
            assert!(outcome(&[1.0, 2.0]).max_abs_diff(&outcome(bad)).is_infinite(), "{bad:?}");
        }
    }
}
