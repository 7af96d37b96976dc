//! Tensors with their own memory: weights, which are constant, and states, which computations change.

mod element;
mod index;
mod packed;
mod placed;
mod transfers;

use std::fmt;

use crate::buffer::{Buffer, BufferType};
use crate::debug::debug;
use crate::device::Device;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::header::Owner;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::pieces::Pieces;
use placed::{Leaves, Placed};

pub use index::{StateIndex, WeightIndex};
pub use transfers::{Transfers, Writable};

/// Collects names, types and shapes of tensors, and then allocates them.
///
/// ```
/// use ggml::prelude::*;
/// # fn main() -> ggml::Result<()> {
/// let mut builder = WeightsBuilder::new();
/// builder.tensor("up", DType::F32, [2, 3])?.tensor("down", DType::F32, [3, 2])?;
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

    /// Adds a tensor (`ggml_new_tensor`).
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) if a dimension is below 1, the first is no whole number of blocks, or the
    /// size overflows; [`Error::Duplicate`](crate::Error::Duplicate) if the name is taken.
    pub fn tensor(&mut self, name: &str, dtype: DType, shape: impl Into<Shape>) -> Result<&mut Self> {
        self.0.add(name, dtype, shape.into())?;
        Ok(self)
    }

    /// The bytes that [`WeightsBuilder::place`] would allocate (`ggml_backend_alloc_ctx_tensors_from_buft_size`). For
    /// the buffer type of a [`MetaDevice`](crate::meta::MetaDevice): the bytes on each device if nothing were split.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) if a tensor exceeds the largest buffer of the type.
    #[doc(alias = "ggml_backend_alloc_ctx_tensors_from_buft_size")]
    #[doc(alias = "ggml_backend_buft_get_alloc_size_n")]
    pub fn size(&self, buft: impl Into<BufferType>) -> Result<usize> {
        self.0.size(buft.into())
    }

    /// Gives all tensors memory of one type, all of it zero (`ggml_backend_alloc_ctx_tensors_from_buft`). A device stands
    /// for its own memory ([`Device::buffer_type`]).
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
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory); [`Error::Shape`](crate::Error::Shape) if a tensor exceeds the
    /// largest buffer of the type; [`Error::Unsupported`](crate::Error::Unsupported) if a repacking buffer type doesn't
    /// [hold](BufferType::holds) a tensor.
    #[doc(alias = "ggml_backend_alloc_ctx_tensors_from_buft")]
    #[doc(alias = "ggml_backend_alloc_ctx_tensors")]
    #[doc(alias = "ggml_backend_buft_alloc_buffer_n")]
    #[doc(alias = "ggml_backend_buft_alloc_buffer")]
    #[doc(alias = "ggml_backend_alloc_buffer")]
    #[doc(alias = "ggml_backend_tensor_alloc")]
    #[doc(alias = "ggml_tallocr_new")]
    #[doc(alias = "ggml_tallocr_alloc")]
    pub fn place(self, buft: impl Into<BufferType>) -> Result<Weights> {
        let buft = buft.into();
        self.place_with(|_| buft)
    }

    /// Allocates each tensor in the buffer type that `choose` returns for its name.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("token_embd", DType::F16, [64, 1000])?.tensor("blk.0.up", DType::F16, [64, 256])?;
    /// let (cpu, best) = (Device::cpu()?.buffer_type(), Device::best()?.buffer_type());
    /// let weights = builder.place_with(|name| if name.starts_with("blk.") { best } else { cpu })?;
    /// assert_eq!(weights.iter().count(), 2);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`WeightsBuilder::place`].
    pub fn place_with(self, mut choose: impl FnMut(&str) -> BufferType) -> Result<Weights> {
        self.place_with_info(|name, _, _| choose(name))
    }

    /// [`WeightsBuilder::place_with`] whose closure is told the type and the shape of each tensor as well: large matrices
    /// on a GPU, all else on the CPU.
    ///
    /// ```
    /// use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// let (cpu, best) = (Device::cpu()?, Device::best()?);
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("matrix", DType::F16, [64, 128])?.tensor("bias", DType::F32, [128])?;
    /// let weights = builder.place_with_info(|_name, dtype, shape| {
    ///     let large = shape.elements() > Some(1000) && dtype == DType::F16;
    ///     if large { best.into() } else { cpu.into() }
    /// })?;
    /// # assert_eq!(weights.iter().count(), 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`WeightsBuilder::place`].
    pub fn place_with_info(self, choose: impl FnMut(&str, DType, Shape) -> BufferType) -> Result<Weights> {
        Ok(Weights(self.0.place(Owner::Weights, choose)?))
    }

    /// Allocates each tensor in its own buffer type, in the order in which they were added.
    pub(crate) fn place_each(self, types: impl IntoIterator<Item = BufferType>) -> Result<Weights> {
        Ok(Weights(self.0.place_each(Owner::Weights, types)?))
    }

    /// Places all tensors in the user's memory, such as a mapped file, zero-copy: `offset` returns the byte offset of a
    /// tensor by name (`ggml_backend_dev_buffer_from_host_ptr`, `ggml_backend_cpu_buffer_from_ptr`). The weights own
    /// the memory; they can't be overwritten.
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
        mut offset: impl FnMut(&str) -> usize,
    ) -> Result<Weights> {
        self.place_partly_over(device, memory, |name| Ok(Ok(offset(name))))
    }

    /// [`WeightsBuilder::place_over`] for tensors with an offset; tensors with a buffer type are allocated there.
    pub(crate) fn place_partly_over(
        self,
        device: Device,
        memory: impl AsRef<[u8]> + Send + Sync + 'static,
        choose: impl FnMut(&str) -> Result<Result<usize, BufferType>>,
    ) -> Result<Weights> {
        Ok(Weights(self.0.place_over(device, Box::new(memory), choose)?))
    }

    /// Gives all tensors memory of one type that operations may write to: a key-value cache, a recurrent state,
    /// parameters in training. A device stands for its own memory ([`Device::buffer_type`]).
    ///
    /// # Errors
    ///
    /// As [`WeightsBuilder::place`]; buffer types that repack are not for states.
    pub fn place_state(self, buft: impl Into<BufferType>) -> Result<State> {
        let buft = buft.into();
        self.place_state_with(|_| buft)
    }

    /// [`WeightsBuilder::place_state`] with a buffer type for each tensor.
    ///
    /// # Errors
    ///
    /// As [`WeightsBuilder::place`].
    pub fn place_state_with(self, mut choose: impl FnMut(&str) -> BufferType) -> Result<State> {
        self.place_state_with_info(|name, _, _| choose(name))
    }

    /// [`WeightsBuilder::place_state_with`] whose closure is told the type and the shape of each tensor as well: see
    /// [`WeightsBuilder::place_with_info`].
    ///
    /// # Errors
    ///
    /// As [`WeightsBuilder::place`].
    pub fn place_state_with_info(self, choose: impl FnMut(&str, DType, Shape) -> BufferType) -> Result<State> {
        Ok(State(self.0.place(Owner::State, choose)?))
    }
}

debug!(WeightsBuilder);

/// Tensors that are constant while anything uses them.
///
/// [`Weights::set`] takes `&mut self`, so weights can be written as long as no handle to them exists. Many threads may
/// use them at once: operations that would write to them are refused.
///
/// Repacked weights ([`Device::extra_buffer_types`]) are set as a whole. Reading, filling or copying one is an
/// [`Error::Packed`](crate::Error::Packed).
///
/// ```
/// # use ggml::prelude::*;
/// let mut builder = WeightsBuilder::new();
/// builder.tensor("w", DType::F32, [2, 2])?;
/// let mut weights = builder.place(Device::best()?)?;
/// weights.set("w", &[1.0_f32, 2.0, 3.0, 4.0])?;
/// let w = weights.tensor("w")?; // an operand, in any number of graphs
/// assert_eq!(w.read::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), ggml::Error>(())
/// ```
pub struct Weights(Placed);

// SAFETY: `&Weights` only reads headers and data: writing takes `&mut`, builders refuse to write to frozen tensors
// (Call::writable), and ggml writes neither names nor flags of named leaves (docs/safety.md, "Threads").
unsafe impl Sync for Weights {}

impl Weights {
    /// Overwrites bytes of a tensor of any type, from byte `offset` on.
    pub(crate) fn set_bytes_at(&mut self, name: &str, offset: usize, data: &[u8]) -> Result<()> {
        self.0.set_bytes_at("Weights::set_bytes", name, offset, data)
    }
}

/// Tensors that computations may change, such as a KV cache.
///
/// A state can move between threads, but only one at a time can use it.
///
/// ```
/// # use ggml::prelude::*; let ctx = Context::new();
/// let mut builder = WeightsBuilder::new();
/// builder.tensor("count", DType::F32, [1])?;
/// let state = builder.place_state(Device::cpu()?)?;
/// let count = state.tensor("count")?;
/// let next = ctx.add_inplace(count, ctx.fill(count, 1.0)?)?; // writes to the state
/// # let (graph, mut sched) = (ctx.graph([next])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?;
/// run.compute()?;
/// run.compute()?;
/// assert_eq!(state.tensor("count")?.read::<f32>()?, [2.0]);
/// # Ok::<(), ggml::Error>(())
/// ```
pub struct State(Placed);

impl State {
    /// Sets each byte of all tensors to `byte` (`ggml_backend_buffer_clear`).
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("cache", DType::F32, [2])?;
    /// let state = builder.place_state(Device::cpu()?)?;
    /// state.set("cache", &[1.0_f32, 2.0])?;
    /// state.clear_bytes(0)?; // a new conversation
    /// assert_eq!(state.tensor("cache")?.read::<f32>()?, [0.0, 0.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`](crate::Error::Ggml) or [`Error::RpcLost`](crate::Error::RpcLost) if a device fails.
    #[doc(alias = "ggml_backend_buffer_clear")]
    pub fn clear_bytes(&self, byte: u8) -> Result<()> {
        self.0.clear_bytes(byte)
    }
}

/// What both have; `Weights` takes `&mut self` to write.
macro_rules! both {
    ($($t:ident, $self:ident, &$($mut:ident)?, $made:literal;)*) => {
        $(
            impl $t {
                /// Overwrites a tensor.
                ///
                /// ```
                /// # use ggml::prelude::*;
                /// let mut builder = WeightsBuilder::new();
                /// builder.tensor("t", DType::F32, [3])?;
                #[doc = $made]
                /// tensors.set("t", &[1.0_f32, 2.0, 3.0])?;
                /// assert!(tensors.set("t", &[1.0_f32]).is_err(), "it has three elements");
                /// assert_eq!(tensors.tensor("t")?.read::<f32>()?, [1.0, 2.0, 3.0]);
                /// # Ok::<(), ggml::Error>(())
                /// ```
                ///
                /// # Errors
                ///
                /// [`Error::NoSuch`](crate::Error::NoSuch), [`Error::ElementType`](crate::Error::ElementType),
                /// [`Error::Length`](crate::Error::Length).
                pub fn set<T: Element>(&$($mut)? $self, name: &str, data: &[T]) -> Result<()> {
                    $self.0.set(concat!(stringify!($t), "::set"), name, data)
                }

                /// Overwrites a tensor of any type with raw bytes, in ggml's block layout.
                ///
                /// # Errors
                ///
                /// [`Error::NoSuch`](crate::Error::NoSuch), [`Error::Length`](crate::Error::Length).
                pub fn set_bytes(&$($mut)? $self, name: &str, data: &[u8]) -> Result<()> {
                    $self.0.set_bytes(concat!(stringify!($t), "::set_bytes"), name, data)
                }

                /// Overwrites equally long pieces of a tensor (`ggml_backend_tensor_set_2d`). [`Pieces`] has an example.
                ///
                /// # Errors
                ///
                /// As [`set`](Self::set); [`Error::Range`](crate::Error::Range) if a piece is out of bounds;
                /// [`Error::Param`](crate::Error::Param) if pieces overlap.
                #[doc(alias = "ggml_backend_tensor_set_2d")]
                pub fn set_2d<T: Element>(&$($mut)? $self, name: &str, pieces: Pieces, data: &[T]) -> Result<()> {
                    $self.0.set_2d(concat!(stringify!($t), "::set_2d"), name, pieces, data)
                }

                /// Sets each byte of a tensor to `byte` (`ggml_backend_tensor_memset`). To set each element, use
                /// [`fill_with`](Self::fill_with).
                ///
                /// # Errors
                ///
                /// [`Error::NoSuch`](crate::Error::NoSuch) lists the existing names.
                #[doc(alias = "ggml_backend_tensor_memset")]
                pub fn fill_bytes(&$($mut)? $self, name: &str, byte: u8) -> Result<()> {
                    $self.0.fill_bytes(concat!(stringify!($t), "::fill_bytes"), name, byte)
                }

                /// Copies another tensor of weights or a state into this one, on any devices
                /// (`ggml_backend_tensor_copy`).
                ///
                /// ```
                /// # use ggml::prelude::*;
                /// let mut builder = WeightsBuilder::new();
                /// builder.tensor("t", DType::F32, [2])?;
                /// let mut best = builder.place(Device::best()?)?;
                /// best.set("t", &[1.0_f32, 2.0])?;
                /// # let mut builder = WeightsBuilder::new();
                /// # builder.tensor("t", DType::F32, [2])?;
                #[doc = $made]
                /// tensors.copy("t", best.tensor("t")?)?;
                /// assert_eq!(tensors.tensor("t")?.read::<f32>()?, [1.0, 2.0]);
                /// # Ok::<(), ggml::Error>(())
                /// ```
                ///
                /// # Errors
                ///
                /// [`Error::NoSuch`](crate::Error::NoSuch); [`Error::NotPart`](crate::Error::NotPart) if `from` is not a
                /// tensor of weights or a state; [`Error::DType`](crate::Error::DType) and
                /// [`Error::Shape`](crate::Error::Shape) unless both have the same type and shape and are contiguous.
                #[doc(alias = "ggml_backend_tensor_copy")]
                #[doc(alias = "ggml_backend_buffer_copy_tensor")]
                pub fn copy(&$($mut)? $self, name: &str, from: Tensor<'_>) -> Result<()> {
                    $self.0.copy(concat!(stringify!($t), "::copy"), name, from)
                }

                /// The tensor with this name, as an operand; [`Tensor::read`] reads it. The handle borrows this alone, and
                /// may be kept across [`Context::reset`](crate::Context::reset). A struct that owns the tensors keeps indices
                /// ([`index`](Self::index)).
                ///
                /// # Errors
                ///
                /// [`Error::NoSuch`](crate::Error::NoSuch) lists the existing names.
                #[doc(alias = "ggml_get_tensor")]
                pub fn tensor(&self, name: &str) -> Result<Tensor<'_>> {
                    self.0.tensor(name)
                }

                /// All tensors in the order in which they were added (`ggml_get_first_tensor`, `ggml_get_next_tensor`).
                ///
                /// ```
                /// # use ggml::prelude::*;
                /// let mut builder = WeightsBuilder::new();
                /// builder.tensor("up", DType::F16, [64, 256])?.tensor("down", DType::F16, [256, 64])?;
                #[doc = $made]
                /// assert_eq!(tensors.iter().map(|t| t.name()).collect::<Vec<_>>(), ["up", "down"]);
                /// assert_eq!(tensors.iter().map(|t| t.nbytes()).sum::<usize>(), 65536);
                /// # Ok::<(), ggml::Error>(())
                /// ```
                #[doc(alias = "ggml_get_first_tensor")]
                #[doc(alias = "ggml_get_next_tensor")]
                pub fn iter(&self) -> impl Iterator<Item = Tensor<'_>> {
                    self.0.iter()
                }

                /// Reads a tensor of any type as raw bytes, in ggml's block layout.
                ///
                /// # Errors
                ///
                /// [`Error::NoSuch`](crate::Error::NoSuch) lists the existing names.
                pub fn read_bytes(&self, name: &str) -> Result<Vec<u8>> {
                    self.0.read_bytes(concat!(stringify!($t), "::read_bytes"), name)
                }

                /// Reads equally long pieces of a tensor (`ggml_backend_tensor_get_2d`).
                ///
                /// ```
                /// # use ggml::prelude::*;
                /// use ggml::Pieces;
                /// # let mut builder = WeightsBuilder::new();
                /// # builder.tensor("grid", DType::F32, [3, 2])?;
                #[doc = concat!("# ", $made)]
                /// tensors.set("grid", &[0.0_f32, 1.0, 2.0, 3.0, 4.0, 5.0])?;
                /// let mut column = [0.0_f32; 2];
                /// tensors.read_2d("grid", Pieces { offset: 1, len: 1, count: 2, step: 3, data_step: 1 }, &mut column)?;
                /// assert_eq!(column, [1.0, 4.0]);
                /// # Ok::<(), ggml::Error>(())
                /// ```
                ///
                /// # Errors
                ///
                /// [`Error::NoSuch`](crate::Error::NoSuch); [`Error::ElementType`](crate::Error::ElementType);
                /// [`Error::Length`](crate::Error::Length) if `to` is too short; [`Error::Range`](crate::Error::Range)
                /// if a piece is out of bounds; [`Error::Param`](crate::Error::Param) if pieces overlap.
                #[doc(alias = "ggml_backend_tensor_get_2d")]
                pub fn read_2d<T: Element>(&self, name: &str, pieces: Pieces, to: &mut [T]) -> Result<()> {
                    self.0.read_2d(concat!(stringify!($t), "::read_2d"), name, pieces, to)
                }

                /// The buffers of all tensors.
                pub fn buffers(&self) -> &[Buffer] {
                    self.0.buffers()
                }
            }

            impl fmt::Debug for $t {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.debug_struct(stringify!($t)).field("tensors", &self.0.len()).finish()
                }
            }
        )*
    };
}

both! {
    Weights, self, &mut, "let mut tensors = builder.place(Device::cpu()?)?;";
    State, self, &, "let tensors = builder.place_state(Device::cpu()?)?;";
}
