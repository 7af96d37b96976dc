//! The tensors of a model on its devices.

use ggml::gguf::Load as _;
use ggml::ops::FlashAttnOptions;
use ggml::{BufferType, Context, DType, Device, DeviceType, LeafIndex, LeafInfo, Tensor, Weights, WeightsBuilder};

use crate::config::Config;
use crate::declare::{Declared, Role, W};
use crate::error::Result;
use crate::files::Files;
use crate::placing::{ModelOptions, Placing};

/// The tensors of a model, in three places.
#[derive(Debug)]
pub(crate) struct ModelWeights {
    /// Those used as they are in the file, for each of its parts.
    mapped: Vec<Weights>,
    /// Those on other devices, and those repacked.
    loaded: Vec<Weights>,
    /// Those that are longer than in the file.
    filled: Weights,
    tensors: Vec<WeightPlace>,
    /// Whether this project's kernels may be used in the layer of a matrix.
    kernels: Vec<bool>,
    /// Whether they compute products with a tensor.
    own: Vec<bool>,
}

#[derive(Debug, Clone, Copy)]
enum WeightPlace {
    Mapped(usize, LeafIndex),
    Loaded(usize, LeafIndex),
    Filled(LeafIndex),
}

impl ModelWeights {
    #[expect(clippy::indexing_slicing, reason = "`W` and parts are indices into the lists from which these were made")]
    pub(crate) fn at(&self, w: W) -> Tensor<'_> {
        match self.tensors[w.index()] {
            WeightPlace::Mapped(part, index) => self.mapped[part].at(index),
            WeightPlace::Loaded(part, index) => self.loaded[part].at(index),
            WeightPlace::Filled(index) => self.filled.at(index),
        }
    }

    /// The product of a matrix and activations, by the kernels that are fastest.
    pub(crate) fn mul_mat<'c>(&'c self, ctx: &'c Context, w: W, x: Tensor<'c>) -> ggml::Result<Tensor<'c>> {
        let own = self.own.get(w.index()).is_some_and(|own| *own);
        if own { kernels::mul_mat(ctx, self.at(w), x) } else { ctx.mul_mat(self.at(w), x) }
    }

    /// The products of the matrices of experts and the activations that pick them, by the kernels that are fastest.
    pub(crate) fn mul_mat_id<'c>(
        &'c self,
        ctx: &'c Context,
        w: W,
        x: Tensor<'c>,
        ids: Tensor<'c>,
    ) -> ggml::Result<Tensor<'c>> {
        let own = self.own.get(w.index()).is_some_and(|own| *own);
        if own { kernels::mul_mat_id(ctx, self.at(w), x, ids) } else { ctx.mul_mat_id(self.at(w), x, ids) }
    }

    /// The attention of a layer, which `w` is a matrix of, by the kernels that are fastest.
    pub(crate) fn flash_attn_ext<'c>(
        &'c self,
        ctx: &'c Context,
        w: W,
        [q, k, v]: [Tensor<'c>; 3],
        how: FlashAttnOptions<'c>,
    ) -> ggml::Result<Tensor<'c>> {
        let own = self.kernels.get(w.index()).is_some_and(|own| *own);
        if own { kernels::flash_attn_ext(ctx, [q, k, v], how) } else { ctx.flash_attn_ext(q, k, v, how) }
    }
}

/// The buffer type that a tensor is copied to; `None` if it isn't.
pub(crate) type Choose<'a> = dyn Fn(&LeafInfo) -> Option<BufferType> + 'a;

/// Loads the tensors to where they are best used; `copy` reads those that are copied.
pub(crate) fn load(
    files: &Files,
    declared: &[Declared],
    config: &Config,
    placing: &Placing,
    options: &ModelOptions,
    mut copy: impl FnMut(usize, &Choose<'_>) -> ggml::Result<Weights>,
) -> Result<ModelWeights> {
    let cpu = Device::cpu()?;
    let extra = if options.repack { cpu.extra_buffer_types()? } else { Vec::new() };
    let mut places = Vec::new();
    let (mut kernels, mut own) = (Vec::new(), Vec::new());
    for tensor in declared {
        let there = on_cpu(tensor, config, placing) && options.kernels && tensor.role == Role::Matrix;
        let (dtype, ne) = (files.tensor(&tensor.name)?.dtype(), tensor.shape.ne());
        let is_faster =
            if ne[2] == 1 { kernels::multiplies(dtype, ne) } else { kernels::multiplies_experts(dtype, ne) };
        kernels.push(there);
        own.push(there && is_faster);
        let extra = if own.last() == Some(&true) { &[] } else { &extra[..] };
        places.push(place(tensor, files, config, placing, extra)?);
    }
    // A tensor with two roles may be in both places.
    let find = |name: &str, loaded: bool| {
        let mut all = declared.iter().zip(&places);
        all.find(|(d, place)| &*d.name == name && place.is_some() == loaded).map(|(_, place)| *place)
    };
    let (mut loaded, mut mapped) = (Vec::new(), Vec::new());
    for (i, file) in files.parts().enumerate() {
        loaded.push(copy(i, &|leaf| find(leaf.name(), true).flatten())?);
        mapped.push(if options.map {
            file.clone().map(cpu)?
        } else {
            copy(i, &|leaf| find(leaf.name(), false).map(|_| cpu.buffer_type()))?
        });
    }
    let filled = fill(files, declared, config, placing)?;
    let index = |(d, place): (&Declared, &Option<BufferType>)| {
        let (part, _) = files.part(&d.name);
        let of = |all: &[Weights]| all.get(part).map_or_else(|| filled.index(&d.name), |all| all.index(&d.name));
        Ok(match place {
            _ if d.filled_to.is_some() => WeightPlace::Filled(filled.index(&d.name)?),
            None => WeightPlace::Mapped(part, of(&mapped)?),
            Some(_) => WeightPlace::Loaded(part, of(&loaded)?),
        })
    };
    let tensors = declared.iter().zip(&places).map(index).collect::<Result<_>>()?;
    Ok(ModelWeights { mapped, loaded, filled, tensors, kernels, own })
}

/// The tensors of floats that have more elements than in the file: ones follow.
fn fill(files: &Files, declared: &[Declared], config: &Config, placing: &Placing) -> Result<Weights> {
    let mut builder = WeightsBuilder::new();
    let all = || declared.iter().filter_map(|d| Some((d, d.filled_to?)));
    for (tensor, n) in all() {
        builder.tensor(&tensor.name, DType::F32, [n])?;
    }
    let mut filled = builder.place(placing.device(config.n_layer))?;
    for (tensor, n) in all() {
        let (floats, _) = files.data(&tensor.name)?.as_chunks::<4>();
        let mut values: Vec<f32> = floats.iter().map(|x| f32::from_le_bytes(*x)).collect();
        values.resize(n, 1.0);
        filled.set(&tensor.name, &values)?;
    }
    Ok(filled)
}

/// Whether a tensor is used by the CPU.
fn on_cpu(tensor: &Declared, config: &Config, placing: &Placing) -> bool {
    placing.device(tensor.layer.unwrap_or(config.n_layer)).device_type() == DeviceType::Cpu
}

/// The buffer type that a tensor is copied to; `None` if it can be used as it is in the file.
fn place(
    tensor: &Declared,
    files: &Files,
    config: &Config,
    placing: &Placing,
    extra: &[BufferType],
) -> Result<Option<BufferType>> {
    if tensor.role == Role::Embedding {
        return Ok(None); // rows are picked on the CPU
    }
    let device = placing.device(tensor.layer.unwrap_or(config.n_layer));
    if device.device_type() != DeviceType::Cpu {
        return Ok(Some(device.buffer_type()));
    }
    // Kernels of repacked experts take several of them.
    let only_expert = tensor.name.contains("_exps.") && tensor.shape.ne()[2] == 1;
    if tensor.role == Role::Matrix && !only_expert {
        let dtype = files.tensor(&tensor.name)?.dtype();
        for buft in extra {
            if buft.holds(dtype, tensor.shape)? {
                return Ok(Some(*buft));
            }
        }
    }
    Ok(None)
}
