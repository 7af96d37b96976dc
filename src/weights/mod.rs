//! Tensors with their own memory: weights, which are constant, and states, which computations change.

mod builder;
mod destination;
mod element;
mod groups;
mod index;
mod packed;
mod placed;
mod transfers;

use crate::buffer::Buffer;
use crate::callback;
use crate::debug::debug;
use crate::dtype::Element;
use crate::error::Result;
use crate::tensor::pieces::{self, Pieces};
use crate::tensor::{Tensor, transfer};
use placed::{Placed, whole};

pub use builder::WeightsBuilder;
pub use destination::{Destination, LeafInfo};
pub use index::{LeafIndex, LeafKey};
pub(crate) use placed::Spot;
pub use transfers::{Transfers, Writable};

/// Tensors that are constant while anything uses them.
///
/// [`Weights::set`] takes `&mut self`, so weights can be written as long as no handle to them exists. Many threads may
/// use them at once: operations that would write to them are refused.
///
/// Repacked weights ([`Device::extra_buffer_types`](crate::Device::extra_buffer_types)) are set as a whole. Reading,
/// filling or copying one is an [`Error::Packed`](crate::Error::Packed).
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
        self.0.write("Weights::set_bytes", name, |call, t| transfer::write_bytes(call, t, offset, data))
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
        callback::check_reentry("State::clear_bytes")?;
        self.0.clear_bytes(byte)
    }
}

/// The methods that weights and states both have. Those of `Weights` take `&mut self` to write.
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
                pub fn set<T: Element>(&$($mut)? $self, leaf: impl LeafKey, data: &[T]) -> Result<()> {
                    $self.0.write(concat!(stringify!($t), "::set"), leaf, |call, t| transfer::write(call, t, data))
                }

                /// Overwrites a tensor of any type with raw bytes, in ggml's block layout.
                ///
                /// # Errors
                ///
                /// [`Error::NoSuch`](crate::Error::NoSuch), [`Error::Length`](crate::Error::Length).
                pub fn set_bytes(&$($mut)? $self, leaf: impl LeafKey, data: &[u8]) -> Result<()> {
                    $self.0.write(concat!(stringify!($t), "::set_bytes"), leaf, |call, t| transfer::write_raw(call, t, data))
                }

                /// Overwrites equally long pieces of a tensor (`ggml_backend_tensor_set_2d`). [`Pieces`] has an
                /// example.
                ///
                /// # Errors
                ///
                /// As [`set`](Self::set); [`Error::Range`](crate::Error::Range) if a piece is out of bounds;
                /// [`Error::Param`](crate::Error::Param) if pieces overlap.
                #[doc(alias = "ggml_backend_tensor_set_2d")]
                pub fn set_2d<T: Element>(&$($mut)? $self, leaf: impl LeafKey, pieces: Pieces, data: &[T]) -> Result<()> {
                    $self.0.write(concat!(stringify!($t), "::set_2d"), leaf, |call, t| pieces::write(call, t, pieces, data))
                }

                /// Sets each byte of a tensor to `byte` (`ggml_backend_tensor_memset`). To set each element, use
                /// [`fill_with`](Self::fill_with).
                ///
                /// # Errors
                ///
                /// [`Error::NoSuch`](crate::Error::NoSuch) lists the existing names.
                #[doc(alias = "ggml_backend_tensor_memset")]
                pub fn fill_bytes(&$($mut)? $self, leaf: impl LeafKey, byte: u8) -> Result<()> {
                    $self.0.write(concat!(stringify!($t), "::fill_bytes"), leaf, |call, t| transfer::fill(call, t, byte))
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
                pub fn copy(&$($mut)? $self, leaf: impl LeafKey, from: Tensor<'_>) -> Result<()> {
                    $self.0.write(concat!(stringify!($t), "::copy"), leaf, |call, t| transfer::copy(call, whole(call, from)?, t))
                }

                /// The tensor with this name, as an operand; [`Tensor::read`] reads it. The handle borrows only `self`,
                /// and may be kept across [`Context::reset`](crate::Context::reset). A struct that owns the tensors
                /// keeps indices ([`index`](Self::index)).
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
                /// builder.tensor("up", DType::F16, [64, 256])?;
                /// builder.tensor("down", DType::F16, [256, 64])?;
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
                pub fn read_bytes(&self, leaf: impl LeafKey) -> Result<Vec<u8>> {
                    self.0.read(concat!(stringify!($t), "::read_bytes"), leaf, transfer::read_raw)
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
                pub fn read_2d<T: Element>(&self, leaf: impl LeafKey, pieces: Pieces, to: &mut [T]) -> Result<()> {
                    self.0.read(concat!(stringify!($t), "::read_2d"), leaf, |call, t| pieces::read(call, t, pieces, to))
                }

                /// Reads one element of a tensor by its index in each dimension (`ggml_get_f32_nd`).
                /// [`Tensor::unravel_index`](crate::Tensor::unravel_index) converts a linear index.
                ///
                /// ```
                /// # use ggml::prelude::*;
                /// let mut builder = WeightsBuilder::new();
                /// builder.tensor("t", DType::F32, [3, 2])?;
                #[doc = $made]
                /// tensors.fill_with("t", 7.0_f32)?;
                /// tensors.set_element("t", [2, 1, 0, 0], 5.0_f32)?; // column 2 of row 1
                /// assert_eq!(tensors.element::<f32>("t", [2, 1, 0, 0])?, 5.0);
                /// assert_eq!(tensors.element::<f32>("t", [1, 1, 0, 0])?, 7.0);
                /// # Ok::<(), ggml::Error>(())
                /// ```
                ///
                /// # Errors
                ///
                /// [`Error::NoSuch`](crate::Error::NoSuch); [`Error::ElementType`](crate::Error::ElementType);
                /// [`Error::Param`](crate::Error::Param) if an index is out of bounds;
                /// [`Error::Packed`](crate::Error::Packed).
                #[doc(alias = "ggml_get_f32_nd")]
                #[doc(alias = "ggml_get_f32_1d")]
                #[doc(alias = "ggml_get_i32_nd")]
                #[doc(alias = "ggml_get_i32_1d")]
                pub fn element<T: Element>(&self, leaf: impl LeafKey, at: [i64; 4]) -> Result<T> {
                    self.0.read(concat!(stringify!($t), "::element"), leaf, |call, t| element::read(call, t, at))
                }

                /// Overwrites one element of a tensor by its index in each dimension (`ggml_set_f32_nd`).
                /// [`element`](Self::element) has an example.
                ///
                /// # Errors
                ///
                /// As [`element`](Self::element); [`Error::Frozen`](crate::Error::Frozen) in the user's memory.
                #[doc(alias = "ggml_set_f32_nd")]
                #[doc(alias = "ggml_set_f32_1d")]
                #[doc(alias = "ggml_set_i32_nd")]
                #[doc(alias = "ggml_set_i32_1d")]
                pub fn set_element<T: Element>(&$($mut)? $self, leaf: impl LeafKey, at: [i64; 4], value: T) -> Result<()> {
                    $self.0.write(concat!(stringify!($t), "::set_element"), leaf, |call, t| element::write(call, t, at, value))
                }

                /// Overwrites all elements of a tensor with one value (`ggml_set_f32`).
                ///
                /// # Errors
                ///
                /// [`Error::NoSuch`](crate::Error::NoSuch); [`Error::ElementType`](crate::Error::ElementType);
                /// [`Error::Frozen`](crate::Error::Frozen) in the user's memory; [`Error::Packed`](crate::Error::Packed).
                #[doc(alias = "ggml_set_f32")]
                #[doc(alias = "ggml_set_i32")]
                pub fn fill_with<T: Element>(&$($mut)? $self, leaf: impl LeafKey, value: T) -> Result<()> {
                    $self.0.write(concat!(stringify!($t), "::fill_with"), leaf, |call, t| element::fill(call, t, value))
                }

                /// The buffers of all tensors.
                pub fn buffers(&self) -> &[Buffer] {
                    self.0.buffers()
                }
            }

            debug!($t, |this| tensors = &this.0.len());
        )*
    };
}

both! {
    Weights, self, &mut, "let mut tensors = builder.place(Device::cpu()?)?;";
    State, self, &, "let tensors = builder.place_state(Device::cpu()?)?;";
}
