//! The builder of weights and states.

use super::destination::{Destination, LeafInfo};
use super::index::LeafIndex;
use super::placed::Leaves;
use super::{Spot, State, Weights, groups};
use crate::buffer::BufferType;
use crate::callback;
use crate::debug::debug;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::header::Owner;
use crate::list;
use crate::shape::Shape;

/// How out-of-memory errors name what the memory was for.
const TYPES: &str = "a list of buffer types";

/// Collects names, types and shapes of tensors, and then allocates them.
///
/// ```
/// use ggml::prelude::*;
/// # fn main() -> ggml::Result<()> {
/// let mut builder = WeightsBuilder::new();
/// builder.tensor("up", DType::F32, [2, 3])?;
/// builder.tensor("down", DType::F32, [3, 2])?;
/// let mut weights = builder.place(Device::cpu()?)?;
/// weights.set("up", &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// assert_eq!(weights.tensor("up")?.read::<f32>()?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// assert_eq!(weights.tensor("down")?.read::<f32>()?, [0.0; 6]);
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
#[must_use = "a builder makes nothing until it is placed"]
pub struct WeightsBuilder(Leaves);

impl WeightsBuilder {
    /// An empty builder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor (`ggml_new_tensor`). Returns its index in the weights or the state that will be placed.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// let mut builder = WeightsBuilder::new();
    /// let layers = [0, 1].map(|i| builder.tensor(&format!("w{i}"), DType::F32, [4, 4]));
    /// let [first, _] = layers;
    /// let first = first?;
    /// let weights = builder.place(Device::cpu()?)?;
    /// assert_eq!(weights.at(first).name(), "w0");
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) if a dimension is below 1, the first is not a whole number of blocks, or
    /// the size overflows; [`Error::Duplicate`](crate::Error::Duplicate) if the name is taken.
    pub fn tensor(&mut self, name: &str, dtype: DType, shape: impl Into<Shape>) -> Result<LeafIndex> {
        callback::check_reentry("WeightsBuilder::tensor")?;
        self.0.add(name, dtype, shape.into())
    }

    /// A builder with the tensors that these descriptions name.
    #[expect(single_use_lifetimes, reason = "`impl Trait` takes no anonymous one")]
    pub(crate) fn of<'a>(leaves: impl IntoIterator<Item = &'a LeafInfo>) -> Result<Self> {
        let mut builder = Self::new();
        for leaf in leaves {
            builder.0.add(leaf.name(), leaf.dtype(), leaf.shape())?;
        }
        Ok(builder)
    }

    /// The bytes that [`WeightsBuilder::place`] would allocate (`ggml_backend_alloc_ctx_tensors_from_buft_size`). For
    /// the buffer type of a [`MetaDevice`](crate::meta::MetaDevice): the bytes on each device if nothing were split.
    ///
    /// # Errors
    ///
    /// Fails if the device fails, such as one of a lost RPC server.
    #[doc(alias = "ggml_backend_alloc_ctx_tensors_from_buft_size")]
    #[doc(alias = "ggml_backend_buft_get_alloc_size_n")]
    pub fn size(&self, buft: impl Into<BufferType>) -> Result<usize> {
        callback::check_reentry("WeightsBuilder::size")?;
        groups::size(buft.into(), &self.0.tensors)
    }

    /// Gives each tensor memory where `to` says, filled with zeros (`ggml_backend_alloc_ctx_tensors_from_buft`): a
    /// device, a buffer type, or a closure that returns one of these for each tensor.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("w", DType::F16, [64, 256])?;
    /// println!("{} bytes", builder.size(Device::best()?)?);
    /// let weights = builder.place(Device::best()?)?;
    /// assert_eq!(weights.tensor("w")?.nbytes(), 2 * 64 * 256);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// Large matrices on a GPU, all else on the CPU:
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// let (cpu, best) = (Device::cpu()?, Device::best()?);
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("matrix", DType::F16, [64, 128])?;
    /// builder.tensor("bias", DType::F32, [128])?;
    /// let weights = builder.place(|leaf: &LeafInfo| {
    ///     let large = leaf.shape().elements() > Some(1000) && leaf.dtype() == DType::F16;
    ///     if large { best } else { cpu }
    /// })?;
    /// # assert_eq!(weights.iter().count(), 2);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), also where a tensor needs a larger buffer than the device can
    /// have; [`Error::Unsupported`](crate::Error::Unsupported) if a repacking buffer type doesn't
    /// [hold](BufferType::holds) a tensor.
    #[doc(alias = "ggml_backend_alloc_ctx_tensors_from_buft")]
    #[doc(alias = "ggml_backend_alloc_ctx_tensors")]
    #[doc(alias = "ggml_backend_buft_alloc_buffer_n")]
    #[doc(alias = "ggml_backend_buft_alloc_buffer")]
    #[doc(alias = "ggml_backend_alloc_buffer")]
    #[doc(alias = "ggml_backend_tensor_alloc")]
    #[doc(alias = "ggml_tallocr_new")]
    #[doc(alias = "ggml_tallocr_alloc")]
    pub fn place(self, to: impl Destination) -> Result<Weights> {
        callback::check_reentry("WeightsBuilder::place")?;
        let types = self.types(to)?;
        self.place_each(types)
    }

    /// Gives each tensor memory that operations may write to, where `to` says as in [`WeightsBuilder::place`]: a
    /// key-value cache, a recurrent state, parameters in training.
    ///
    /// # Errors
    ///
    /// As [`WeightsBuilder::place`]; buffer types that repack are not for states.
    pub fn place_state(self, to: impl Destination) -> Result<State> {
        callback::check_reentry("WeightsBuilder::place_state")?;
        let types = self.types(to)?;
        self.place_state_each(types)
    }

    /// Asks `to` for the buffer type of each tensor, before any tensor has memory.
    fn types(&self, mut to: impl Destination) -> Result<Vec<BufferType>> {
        list::collect(self.0.infos()?.iter().map(|leaf| to.choose(leaf)), TYPES)
    }

    /// Allocates each tensor in the buffer type that `types` has for it. The types are in the order in which the
    /// tensors were added.
    pub(crate) fn place_each(self, types: impl IntoIterator<Item = BufferType>) -> Result<Weights> {
        Ok(Weights(self.0.place(Owner::Weights, types)?))
    }

    /// Allocates the tensors of a state as [`WeightsBuilder::place_each`] allocates those of weights.
    pub(crate) fn place_state_each(self, types: impl IntoIterator<Item = BufferType>) -> Result<State> {
        Ok(State(self.0.place(Owner::State, types)?))
    }

    /// Places all tensors in the user's memory, such as a mapped file, zero-copy: `offset` returns a tensor's byte
    /// offset in that memory (`ggml_backend_dev_buffer_from_host_ptr`, `ggml_backend_cpu_buffer_from_ptr`). The weights
    /// own the memory; they can't be overwritten.
    ///
    /// ```
    /// use ggml::prelude::*;
    /// #[repr(align(32))]
    /// struct Aligned([u8; 64]);
    /// impl AsRef<[u8]> for Aligned {
    ///     fn as_ref(&self) -> &[u8] {
    ///         &self.0
    ///     }
    /// }
    /// # fn main() -> ggml::Result<()> {
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("bytes", DType::I8, [8])?;
    /// let weights = builder.place_over(Device::cpu()?, Aligned([7; 64]), |_| 32)?;
    /// assert_eq!(weights.tensor("bytes")?.read::<i8>()?, [7; 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) if the device can't use host memory, or if the memory doesn't
    /// begin at a multiple of the device's alignment; [`Error::Shape`](crate::Error::Shape) if a tensor is out of
    /// bounds of the memory or not aligned.
    #[doc(alias = "ggml_backend_dev_buffer_from_host_ptr")]
    #[doc(alias = "ggml_backend_cpu_buffer_from_ptr")]
    pub fn place_over(
        self,
        device: Device,
        memory: impl AsRef<[u8]> + Send + Sync + 'static,
        mut offset: impl FnMut(&LeafInfo) -> usize,
    ) -> Result<Weights> {
        callback::check_reentry("WeightsBuilder::place_over")?;
        let leaves = self.0.infos()?;
        self.place_partly_over(memory, leaves.iter().map(|leaf| Spot::Over(device, offset(leaf))))
    }

    /// Places some tensors in the user's memory, as [`WeightsBuilder::place_over`] does, and allocates the others.
    /// `spots` has a place for each tensor, in the order in which the tensors were added.
    pub(crate) fn place_partly_over(
        self,
        memory: impl AsRef<[u8]> + Send + Sync + 'static,
        spots: impl IntoIterator<Item = Spot>,
    ) -> Result<Weights> {
        Ok(Weights(self.0.place_over(Box::new(memory), spots)?))
    }
}

debug!(WeightsBuilder);
