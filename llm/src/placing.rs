//! Where a model's weights go: options, and which device has which layer.

use ggml::Device;

use crate::error::{Error, Result};
use crate::options::setters;

/// Where a model's weights go.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelOptions {
    /// The devices that have the layers, in the order of the layers; empty for the best one.
    pub devices: Vec<Device>,
    /// How many parts of the layers, or of each layer, every device gets; empty for equally many.
    pub split: Vec<u32>,
    /// What is divided among the devices.
    pub split_mode: SplitMode,
    /// Whether this project's kernels compute products with matrices on the CPU, where they are faster than ggml's: see the
    /// crate `kernels`. They round activations otherwise.
    pub kernels: bool,
    /// Whether matrices on the CPU are repacked for ggml's kernels, if that makes products faster.
    pub repack: bool,
    /// Whether weights on the CPU that aren't repacked stay in the file, mapped into memory. While the model lives, the
    /// file must not become shorter: the system would end the process.
    pub map: bool,
}

/// What is divided among devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SplitMode {
    /// The layers.
    #[default]
    Layer,
    /// Each layer (tensor parallelism): heads, with their part of the cache, and rows of the feed-forward network. For dense
    /// models whose matrices are not fused: llama, qwen2, qwen3, gemma3. Devices must be CPUs or GPUs, an RPC server's
    /// among them.
    Tensor,
}

impl Default for ModelOptions {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            split: Vec::new(),
            split_mode: SplitMode::default(),
            kernels: true,
            repack: true,
            map: true,
        }
    }
}

setters!(ModelOptions {
    with_devices(devices: Vec<Device>);
    with_split(split: Vec<u32>);
    with_split_mode(split_mode: SplitMode);
    with_kernels(kernels: bool);
    with_repack(repack: bool);
    with_map(map: bool);
});

/// Which device has which layer.
#[derive(Debug, Clone)]
pub(crate) struct Placing {
    pub(crate) devices: Vec<Device>,
    /// The first layer of each device after the first.
    starts: Vec<usize>,
    /// The devices among which each layer is divided, if that is so; `devices` has their meta device then.
    pub(crate) members: Vec<Device>,
}

impl Placing {
    pub(crate) fn new(
        options: &ModelOptions,
        n_layer: usize,
        parallel: impl FnOnce(&[Device], &[u32]) -> Result<Device>,
    ) -> Result<Self> {
        let devices = if options.devices.is_empty() { vec![Device::best()?] } else { options.devices.clone() };
        let split = if options.split.is_empty() { vec![1; devices.len()] } else { options.split.clone() };
        let total: u64 = split.iter().map(|&n| u64::from(n)).sum();
        if split.len() != devices.len() || total == 0 {
            return Err(Error::Options {
                name: "split",
                value: format!("{split:?}").into(),
                expected: "a number for each device, not all 0",
            });
        }
        if options.split_mode == SplitMode::Tensor {
            let (members, parts): (Vec<_>, Vec<_>) = devices.iter().zip(&split).filter(|(_, part)| **part > 0).unzip();
            if let [only] = members[..] {
                return Ok(Self { devices: vec![only], starts: Vec::new(), members: Vec::new() });
            }
            let devices = vec![parallel(&members, &parts)?];
            return Ok(Self { devices, starts: Vec::new(), members });
        }
        let mut sum = 0;
        let mut starts = Vec::new();
        for &n in split.iter().take(devices.len() - 1) {
            sum += u64::from(n);
            let start = (n_layer as u64).saturating_mul(sum).div_ceil(total);
            starts.push(usize::try_from(start).unwrap_or(usize::MAX));
        }
        Ok(Self { devices, starts, members: Vec::new() })
    }

    /// The device of a layer; of the output for the number of layers.
    #[expect(clippy::indexing_slicing, reason = "there is one start less than there are devices")]
    pub(crate) fn device(&self, layer: usize) -> Device {
        let i = self.starts.iter().filter(|&&start| start <= layer).count();
        self.devices[i]
    }

    /// Whether each layer is divided among devices.
    pub(crate) fn is_parallel(&self) -> bool {
        !self.members.is_empty()
    }
}
