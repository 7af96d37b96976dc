//! Where tensors are placed.

use crate::buffer::BufferType;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::Result;
use crate::list;
use crate::shape::Shape;

/// The description of a tensor that has no memory yet, by which the closure of a [`Destination`] decides.
///
/// ```
/// # use ggml::prelude::*;
/// let mut builder = WeightsBuilder::new();
/// builder.tensor("up", DType::F16, [64, 256])?;
/// let (cpu, best) = (Device::cpu()?, Device::best()?);
/// let weights = builder.place(|leaf: &LeafInfo| {
///     assert_eq!((leaf.name(), leaf.dtype(), leaf.nbytes()), ("up", DType::F16, 32768));
///     if leaf.shape().ne()[1] > 1 { best } else { cpu } // matrices, and the rest
/// })?;
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafInfo {
    name: Box<str>,
    dtype: DType,
    shape: Shape,
}

impl LeafInfo {
    pub(crate) fn new(name: &str, dtype: DType, shape: Shape) -> Result<Self> {
        Ok(Self { name: list::text(name, "the name of a tensor")?, dtype, shape })
    }

    /// The tensor's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The tensor's element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of the tensor's elements per dimension.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The tensor's size in bytes (`ggml_nbytes`).
    pub fn nbytes(&self) -> usize {
        self.shape.nbytes(self.dtype).unwrap_or(usize::MAX)
    }
}

/// Where tensors are placed: in a [`Device`]'s own memory ([`Device::buffer_type`]), in a [`BufferType`], or each where
/// a closure decides.
///
/// A closure's argument needs its type, `|leaf: &LeafInfo|`. The closure returns a device or a buffer type. Where
/// tensors may be left out, as by [`Load::load`](crate::gguf::Load::load), it may also return an [`Option`] of a buffer
/// type. Implement the trait for a type to use the same rules for all tensors of a program.
///
/// ```
/// # use ggml::prelude::*;
/// # fn builder() -> ggml::Result<WeightsBuilder> {
/// #     let mut builder = WeightsBuilder::new();
/// #     builder.tensor("token_embd", DType::F16, [64, 1000])?;
/// #     builder.tensor("blk.0.up", DType::F16, [64, 256])?;
/// #     Ok(builder)
/// # }
/// let (cpu, best) = (Device::cpu()?, Device::best()?);
/// let on_a_device = builder()?.place(best)?;
/// let in_a_buffer_type = builder()?.place(best.host_buffer_type().unwrap_or(cpu.buffer_type()))?;
/// let by_name = builder()?.place(|leaf: &LeafInfo| if leaf.name().starts_with("blk.") { best } else { cpu })?;
/// # assert_eq!(by_name.iter().count(), 2);
/// # Ok::<(), ggml::Error>(())
/// ```
pub trait Destination<To = BufferType> {
    /// Where to place this tensor.
    fn choose(&mut self, leaf: &LeafInfo) -> To;
}

impl<To: From<Device>> Destination<To> for Device {
    fn choose(&mut self, _: &LeafInfo) -> To {
        (*self).into()
    }
}

impl<To: From<BufferType>> Destination<To> for BufferType {
    fn choose(&mut self, _: &LeafInfo) -> To {
        (*self).into()
    }
}

impl<To, R: Into<To>, F: FnMut(&LeafInfo) -> R> Destination<To> for F {
    fn choose(&mut self, leaf: &LeafInfo) -> To {
        self(leaf).into()
    }
}
