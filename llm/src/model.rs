//! A model: its file, and its weights on the devices.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use ggml::gguf::{Reader, TensorInfo};
use ggml::{BufferType, Context, DType, Device, DeviceType, Shape, Tensor, WeightIndex, Weights};
use memmap2::Mmap;

use crate::config::Config;
use crate::declare::{Declare, Declared, Role, Source, W};
use crate::decoder::Decoder;
use crate::error::{Error, Result};
use crate::parallel;
use crate::text::{self, ChatTemplate, Tokenizer};

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

/// A loaded model, which sessions share.
#[derive(Debug)]
pub struct Model {
    config: Config,
    decoder: Decoder,
    weights: ModelWeights,
    placing: Placing,
    file: Reader<Mapped>,
}

/// The tensors of a model, in two places.
#[derive(Debug)]
pub(crate) struct ModelWeights {
    /// Those used as they are in the file.
    mapped: Weights,
    /// Those on other devices, and those repacked.
    loaded: Weights,
    tensors: Vec<Place>,
    /// Whether this project's kernels compute products with a tensor.
    own: Vec<bool>,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    Mapped(WeightIndex),
    Loaded(WeightIndex),
}

impl ModelWeights {
    #[expect(clippy::indexing_slicing, reason = "`W` is an index into the list from which this one was made")]
    pub(crate) fn at(&self, w: W) -> Tensor<'_> {
        match self.tensors[w.index()] {
            Place::Mapped(index) => self.mapped.at(index),
            Place::Loaded(index) => self.loaded.at(index),
        }
    }

    /// The product of a matrix and activations, by the kernels that are fastest.
    pub(crate) fn mul_mat<'c>(&'c self, ctx: &'c Context, w: W, x: Tensor<'c>) -> ggml::Result<Tensor<'c>> {
        let own = self.own.get(w.index()).is_some_and(|own| *own);
        if own { kernels::mul_mat(ctx, self.at(w), x) } else { ctx.mul_mat(self.at(w), x) }
    }
}

/// The mapped file, shared by the reader and the weights.
#[derive(Debug, Clone)]
struct Mapped(Arc<Mmap>);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<S> Source for Reader<S> {
    fn find(&self, name: &str, _: Shape) -> Option<(DType, Shape)> {
        self.tensor(name).ok().map(|t| (t.dtype(), t.shape()))
    }
}

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
    fn new(
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

impl Model {
    /// Loads a GGUF file of one of the families.
    ///
    /// # Errors
    ///
    /// [`Error::File`] and [`Error::Ggml`] if it is no GGUF file or can't be loaded; other variants name what is missing or
    /// wrong in it.
    pub fn load(path: impl AsRef<Path>, options: &ModelOptions) -> Result<Arc<Self>> {
        Self::load_with(path, options, &mut |_, _| ())
    }

    /// [`Model::load`] that calls `progress` with the number of bytes copied so far, and in total. What stays in the file
    /// is not counted.
    ///
    /// # Errors
    ///
    /// As [`Model::load`].
    pub fn load_with(
        path: impl AsRef<Path>,
        options: &ModelOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Arc<Self>> {
        let path = path.as_ref();
        let fault = |source| Error::File { path: path.into(), source };
        // Opening a pipe would block, and a device may have no end.
        if !std::fs::metadata(path).map_err(fault)?.is_file() {
            return Err(fault(std::io::Error::other("it is not a regular file")));
        }
        let file = File::open(path).map_err(fault)?;
        // SAFETY: the bytes are read only. That nobody changes the file meanwhile can't be checked; `ModelOptions::map`
        // demands it, as all who map files do.
        let bytes = unsafe { Mmap::map(&file) }.map_err(fault)?;
        let mapped = Reader::from_bytes(Mapped(Arc::new(bytes)))?;
        // What is copied is read, not mapped: pages of a mapping would stay in memory.
        let mut stream = Reader::from_stream(file)?;
        let model = Self::from_readers(mapped, options, |place| stream.stream(place, &mut *progress))?;
        Ok(Arc::new(model))
    }

    fn from_readers(
        file: Reader<Mapped>,
        options: &ModelOptions,
        copy: impl FnMut(&Choose<'_>) -> ggml::Result<Weights>,
    ) -> Result<Self> {
        let (config, decoder, declared) = declare(&file)?;
        let used = |name: &str| declared.iter().any(|d| &*d.name == name);
        let unknown: Vec<_> = file.tensors().map(TensorInfo::name).filter(|name| !used(name)).collect();
        if let Some((first, rest)) = unknown.split_first() {
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more tensors", rest.len()) };
            let names = format!("`{first}`{more}").into();
            return Err(Error::UnknownTensors { architecture: config.architecture.name(), names });
        }
        let block = |name: &str| {
            let block = file.tensor(name)?.dtype().block_size();
            Ok(usize::try_from(block).unwrap_or(usize::MAX))
        };
        let placing = Placing::new(options, config.n_layer, |members, parts| {
            parallel::device(&config, &declared, members, parts, block)
        })?;
        let weights = load(&file, &declared, &config, &placing, options, copy)?;
        Ok(Self { config, decoder, weights, placing, file })
    }

    /// The hyperparameters.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The file's metadata.
    pub fn metadata(&self) -> &dyn crate::Metadata {
        &self.file
    }

    /// The descriptions of all tensors.
    pub fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.file.tensors()
    }

    /// The tokenizer of the file.
    ///
    /// # Errors
    ///
    /// As [`Tokenizer::from_gguf`].
    pub fn tokenizer(&self) -> text::Result<Tokenizer> {
        Tokenizer::from_gguf(&self.file)
    }

    /// The chat template of the file.
    ///
    /// # Errors
    ///
    /// As [`ChatTemplate::from_gguf`].
    pub fn chat_template(&self, tokenizer: &Tokenizer) -> text::Result<ChatTemplate> {
        ChatTemplate::from_gguf(&self.file, tokenizer)
    }

    pub(crate) fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    pub(crate) fn weights(&self) -> &ModelWeights {
        &self.weights
    }

    pub(crate) fn placing(&self) -> &Placing {
        &self.placing
    }
}

/// The hyperparameters of a file, and what it needs to have.
pub(crate) fn declare<S>(file: &Reader<S>) -> Result<(Config, Decoder, Vec<Declared>)> {
    let config = Config::of_file(file)?;
    let mut d = Declare::new(file);
    let decoder = Decoder::declare(&mut d, &config)?;
    Ok((config, decoder, d.into_list()))
}

/// The buffer type that a tensor, by name, is copied to; `None` if it isn't.
type Choose<'a> = dyn Fn(&str) -> Option<BufferType> + 'a;

/// Loads the tensors to where they are best used; `copy` reads those that are copied.
fn load(
    file: &Reader<Mapped>,
    declared: &[Declared],
    config: &Config,
    placing: &Placing,
    options: &ModelOptions,
    mut copy: impl FnMut(&Choose<'_>) -> ggml::Result<Weights>,
) -> Result<ModelWeights> {
    let cpu = Device::cpu()?;
    let extra = if options.repack { cpu.extra_buffer_types()? } else { Vec::new() };
    let mut places = Vec::new();
    let mut own = Vec::new();
    for tensor in declared {
        let there = on_cpu(tensor, config, placing) && options.kernels && tensor.role == Role::Matrix;
        own.push(there && kernels::multiplies(file.tensor(&tensor.name)?.dtype(), tensor.shape.ne()));
        let extra = if own.last() == Some(&true) { &[] } else { &extra[..] };
        places.push(place(tensor, file, config, placing, extra)?);
    }
    // A tensor with two roles may be in both places.
    let find = |name: &str, loaded: bool| {
        let mut all = declared.iter().zip(&places);
        all.find(|(d, place)| &*d.name == name && place.is_some() == loaded).map(|(_, place)| *place)
    };
    let loaded = copy(&|name| find(name, true).flatten())?;
    let mapped = if options.map {
        file.clone().map(cpu, |_| None)?
    } else {
        copy(&|name| find(name, false).map(|_| cpu.buffer_type()))?
    };
    let index = |(d, place): (&Declared, &Option<BufferType>)| {
        Ok(match place {
            None => Place::Mapped(mapped.index(&d.name)?),
            Some(_) => Place::Loaded(loaded.index(&d.name)?),
        })
    };
    let tensors = declared.iter().zip(&places).map(index).collect::<Result<_>>()?;
    Ok(ModelWeights { mapped, loaded, tensors, own })
}

/// Whether a tensor is used by the CPU.
fn on_cpu(tensor: &Declared, config: &Config, placing: &Placing) -> bool {
    placing.device(tensor.layer.unwrap_or(config.n_layer)).device_type() == DeviceType::Cpu
}

/// The buffer type that a tensor is copied to; `None` if it can be used as it is in the file.
fn place(
    tensor: &Declared,
    file: &Reader<Mapped>,
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
    if tensor.role == Role::Matrix {
        let dtype = file.tensor(&tensor.name)?.dtype();
        for buft in extra {
            if buft.holds(dtype, tensor.shape)? {
                return Ok(Some(*buft));
            }
        }
    }
    Ok(None)
}
