//! A file's tensors on devices.

use std::io::{Read, Seek};
use std::sync::Arc;

use ggml_gguf::Reader;

use crate::buffer::{BufferType, host_alignment};
use crate::callback;
use crate::device::{Device, DeviceType};
use crate::error::Result;
use crate::list;
use crate::log;
use crate::weights::{Destination, LeafInfo, Spot, Weights, WeightsBuilder};

/// How many bytes of a tensor are in host memory at a time while it is streamed.
const CHUNK: usize = 4 << 20;

/// How out-of-memory errors name what the memory was for.
const TENSORS: &str = "the tensors of a GGUF file";

/// Places the tensors of a [`Reader`] on devices. The prelude has it.
///
/// Each method takes a [`Destination`], such as a device, or a closure that is told a tensor's name, type, shape and
/// size.
///
/// ```
/// use ggml::gguf::{Reader, Writer};
/// use ggml::prelude::*;
/// # let mut writer = Writer::new();
/// # writer.tensor("w", DType::I8, [4], &[1, 2, 3, 4])?;
/// # let file = writer.to_bytes()?;
/// let weights = Reader::from_bytes(file)?.load(Device::cpu()?)?;
/// assert_eq!(weights.tensor("w")?.ne(), [4, 1, 1, 1]);
/// # Ok::<(), ggml::Error>(())
/// ```
pub trait Load<S>: sealed::LoadSeal {
    /// Copies each tensor to where `to` says; tensors for which it returns `None` are skipped.
    ///
    /// ```no_run
    /// use ggml::gguf::Reader;
    /// use ggml::prelude::*;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let reader = Reader::from_bytes(std::fs::read("model.gguf")?)?;
    /// let (cpu, best) = (Device::cpu()?, Device::best()?);
    /// let weights = reader.load(|leaf: &LeafInfo| if leaf.nbytes() > 1 << 20 { best } else { cpu })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`WeightsBuilder::place`], and where a device refuses the data.
    fn load(&self, to: impl Destination<Option<BufferType>>) -> Result<Weights>
    where
        S: AsRef<[u8]>;

    /// Uses tensors where they lie in the reader's bytes, such as a mapped file. That works if `to` chooses the own
    /// memory of a device with [`Capabilities::buffer_from_host`](crate::Capabilities::buffer_from_host), such as the
    /// CPU, and if the tensor is aligned for it: on a CPU to the size of its elements, or to the buffer's alignment if
    /// it is quantised. Other tensors are copied. The weights own the bytes.
    ///
    /// ```no_run
    /// use ggml::gguf::Reader;
    /// use ggml::prelude::*;
    /// # fn mapped(_: &std::fs::File) -> std::io::Result<Vec<u8>> { Ok(vec![]) }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let file = std::fs::File::open("model.gguf")?;
    /// let reader = Reader::from_bytes(mapped(&file)?)?; // such as memmap2::Mmap
    /// let (cpu, best) = (Device::cpu()?, Device::best()?);
    /// let weights = reader.map(|leaf: &LeafInfo| if leaf.name().starts_with("blk.") { best } else { cpu })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`WeightsBuilder::place_over`] and [`WeightsBuilder::place`].
    fn map(self, to: impl Destination) -> Result<Weights>
    where
        S: AsRef<[u8]> + Send + Sync + 'static,
        Self: Sized;

    /// Copies each tensor, some megabytes at a time, to where `to` says; tensors for which it returns `None` are
    /// skipped. Repacking buffer types and meta devices take each tensor as a whole: the largest of those is then in
    /// host memory once. `progress` receives the number of bytes loaded so far and in total.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::gguf::{Reader, Writer};
    /// # let mut writer = Writer::new();
    /// # writer.tensor("w", DType::I8, [4], &[1, 2, 3, 4])?;
    /// # let file = std::io::Cursor::new(writer.to_bytes()?);
    /// let mut reader = Reader::from_stream(file)?;
    /// let weights = reader.stream(Device::best()?, |done, total| println!("{done} of {total} bytes"))?;
    /// assert_eq!(weights.read_bytes("w")?, [1, 2, 3, 4]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`WeightsBuilder::place`]; fails if a device refuses the data; [`Error::File`](crate::Error::File) if they
    /// can't be read.
    fn stream(&mut self, to: impl Destination<Option<BufferType>>, progress: impl FnMut(u64, u64)) -> Result<Weights>
    where
        S: Read + Seek;
}

mod sealed {
    #[expect(unnameable_types, reason = "that is what seals the trait")]
    pub trait LoadSeal {}

    impl<S> LoadSeal for ggml_gguf::Reader<S> {}
}

impl<S> Load<S> for Reader<S> {
    fn load(&self, to: impl Destination<Option<BufferType>>) -> Result<Weights>
    where
        S: AsRef<[u8]>,
    {
        callback::check_reentry("Load::load")?;
        let (mut weights, chosen) = place(self, to)?;
        for (leaf, _) in chosen {
            weights.set_bytes(leaf.name(), self.data(leaf.name())?)?;
        }
        Ok(weights)
    }

    fn map(self, mut to: impl Destination) -> Result<Weights>
    where
        S: AsRef<[u8]> + Send + Sync + 'static,
    {
        callback::check_reentry("Load::map")?;
        // All tensors' data are looked up before anything is placed: the file may have been cut.
        self.tensors().try_for_each(|t| self.data(t.name()).map(drop))?;
        let chosen = choose(&self, |leaf| Some(to.choose(leaf)))?;
        let file = self.map_source(|source| Shared(Arc::new(source)));
        let (mut spots, mut copied) = (Vec::new(), Vec::new());
        // There are few buffer types. Each type's device is looked up once, because this asks the device.
        let mut asked: Vec<(BufferType, Option<Device>)> = Vec::new();
        for (leaf, buft) in &chosen {
            let device = if let Some(&(_, device)) = asked.iter().find(|(b, _)| b == buft) {
                device
            } else {
                let device = device_over(*buft)?;
                list::push(&mut asked, (*buft, device), TENSORS)?;
                device
            };
            // The source's bytes include this offset (checked above), so it fits into a `usize`.
            let at = usize::try_from(file.range(leaf.name())?.start).unwrap_or(usize::MAX);
            let spot = match device {
                Some(device) if at.is_multiple_of(host_alignment(device, leaf.dtype())?) => Spot::Over(device, at),
                _ => {
                    list::push(&mut copied, leaf.name(), TENSORS)?;
                    Spot::In(*buft)
                }
            };
            list::push(&mut spots, spot, TENSORS)?;
        }
        let builder = WeightsBuilder::of(chosen.iter().map(|(leaf, _)| leaf))?;
        log::note(::log::Level::Debug, || {
            format!("{} of {} tensors are used where they lie in the file", spots.len() - copied.len(), spots.len())
        });
        let mut weights = builder.place_partly_over(file.source().clone(), spots)?;
        for name in copied {
            weights.set_bytes(name, file.data(name)?)?;
        }
        Ok(weights)
    }

    fn stream(
        &mut self,
        to: impl Destination<Option<BufferType>>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Weights>
    where
        S: Read + Seek,
    {
        callback::check_reentry("Load::stream")?;
        let (mut weights, chosen) = place(self, to)?;
        let total = chosen.iter().map(|(leaf, _)| leaf.nbytes() as u64).sum();
        let mut done = 0;
        progress(done, total);
        let mut chunk = Vec::new();
        for (leaf, buft) in chosen {
            let size = leaf.nbytes();
            let most = if takes_whole(buft)? { size } else { size.min(CHUNK) };
            if chunk.len() < most {
                // The old buffer is freed first, so that old and new one are never in memory together.
                drop(std::mem::take(&mut chunk));
                chunk = list::filled(0, most, TENSORS)?;
            }
            for at in (0..size).step_by(most) {
                let piece = chunk.get_mut(..most.min(size - at)).unwrap_or_default();
                self.read_into(leaf.name(), at, piece)?;
                weights.set_bytes_at(leaf.name(), at, piece)?;
                done += piece.len() as u64;
                progress(done, total);
            }
        }
        Ok(weights)
    }
}

/// Whether tensors of this buffer type are written as a whole: a meta device divides them among its members, and
/// repacking needs all of a tensor.
fn takes_whole(buft: BufferType) -> Result<bool> {
    Ok(buft.device().is_some_and(|d| d.device_type() == DeviceType::Meta) || buft.is_extra()?)
}

/// The device that can use tensors of this buffer type in the user's memory, if there is one. The device's own buffer
/// type must be this one. ggml names no device for the CPU's buffer type.
fn device_over(buft: BufferType) -> Result<Option<Device>> {
    match buft.device().or_else(|| Device::cpu().ok()).filter(|device| device.buffer_type() == buft) {
        Some(device) => Ok(device.capabilities()?.buffer_from_host.then_some(device)),
        None => Ok(None),
    }
}

/// A tensor, and the buffer type for it.
type Chosen = (LeafInfo, BufferType);

/// The tensors for which `to` returns a buffer type, in file order.
fn choose<S>(file: &Reader<S>, mut to: impl FnMut(&LeafInfo) -> Option<BufferType>) -> Result<Vec<Chosen>> {
    let mut chosen = Vec::new();
    for t in file.tensors() {
        let leaf = LeafInfo::new(t.name(), t.dtype(), t.shape())?;
        if let Some(buft) = to(&leaf) {
            list::push(&mut chosen, (leaf, buft), TENSORS)?;
        }
    }
    Ok(chosen)
}

/// Allocates the tensors for which `to` returns a buffer type. Returns the weights, and which tensors these are.
fn place<S>(file: &Reader<S>, mut to: impl Destination<Option<BufferType>>) -> Result<(Weights, Vec<Chosen>)> {
    let chosen = choose(file, |leaf| to.choose(leaf))?;
    let builder = WeightsBuilder::of(chosen.iter().map(|(leaf, _)| leaf))?;
    let weights = builder.place_each(chosen.iter().map(|&(_, buft)| buft))?;
    Ok((weights, chosen))
}

/// The source's bytes, shared by this module and the weights.
struct Shared<B>(Arc<B>);

impl<B> Clone for Shared<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Shared<B> {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}
