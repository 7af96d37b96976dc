//! Requests that move the data of tensors.

use std::io::{Read as _, Write as _};

use ggml_sys as sys;

use super::cache::Fnv;
use super::client::ClientSession;
use super::end::{End, Outcome, need};
use super::fields::{Fields, SLOTS, WireTensor};
use super::memory::BufferPart;
use crate::context::Context;
use crate::driver::Recipe;
use crate::header::Layout;
use crate::tensor::{Tensor, transfer};

/// The lengths of the fields before a tensor's data.
const TENSOR: u64 = 296;
const SET_FIELDS: u64 = TENSOR + 1 + 8;
const SET_2D_FIELDS: u64 = TENSOR + 4 * 8;

/// Bytes that are moved at once: few enough for the CPU's cache, or many enough for a transfer to a device.
const HOST_CHUNK: usize = 256 << 10;
const DEVICE_CHUNK: usize = 4 << 20;

/// Evenly spaced pieces of a tensor.
#[derive(Debug)]
struct TensorPieces {
    /// From the first piece to the end of the last.
    span: BufferPart,
    size: usize,
    count: usize,
    stride: usize,
}

impl ClientSession<'_> {
    fn chunk_of(region: &BufferPart) -> usize {
        if region.buffer.is_host() { HOST_CHUNK } else { DEVICE_CHUNK }.min(region.len)
    }

    /// Reads data from the socket into a part of a buffer, and shows them to `see`.
    fn receive(&mut self, to: &BufferPart, mut see: impl FnMut(&[u8])) -> Outcome {
        let mut done = 0;
        let chunk = Self::chunk_of(to);
        self.room(chunk)?;
        while done < to.len {
            let Some(bytes) = self.chunk.get_mut(..chunk.min(to.len - done)) else { break };
            self.socket.reader.read_exact(bytes)?;
            see(bytes);
            to.buffer.write(to.start + done, bytes)?;
            done += bytes.len();
        }
        Ok(())
    }

    /// Writes a part of a buffer to the socket.
    fn send(&mut self, from: &BufferPart) -> Outcome {
        let mut done = 0;
        let chunk = Self::chunk_of(from);
        self.room(chunk)?;
        while done < from.len {
            let Some(bytes) = self.chunk.get_mut(..chunk.min(from.len - done)) else { break };
            from.buffer.read(from.start + done, bytes)?;
            self.socket.writer.write_all(bytes)?;
            done += bytes.len();
        }
        Ok(())
    }

    /// Makes the chunk at least `len` long.
    fn room(&mut self, len: usize) -> Outcome {
        if self.chunk.len() < len {
            self.chunk = crate::list::filled(0, len, "a chunk of a tensor")?;
        }
        Ok(())
    }

    /// The fields before a tensor's data, and the number of bytes of the data.
    fn fields_before_data(&mut self, len: u64, fields: u64) -> Outcome<(Vec<u8>, u64)> {
        let data = len.checked_sub(fields).ok_or_else(|| End::refused("the request is shorter than its fields"))?;
        Ok((self.payload(fields)?, data))
    }

    pub(super) fn set_tensor(&mut self, len: u64) -> Outcome {
        let (payload, len) = self.fields_before_data(len, SET_FIELDS)?;
        let mut fields = Fields(&payload);
        let (t, store, offset) = (fields.tensor()?, fields.byte()?, fields.long()?);
        let to = self.buffers.part(&t, offset, len)?;
        let cache = self.shared.cache.as_ref().filter(|_| store != 0);
        let Some(mut file) = cache.and_then(|cache| cache.store(len)) else { return self.receive(&to, |_| ()) };
        self.receive(&to, |bytes| file.add(bytes))?;
        file.keep();
        Ok(())
    }

    /// Fills a tensor from the cache, if that has data of this hash.
    pub(super) fn set_tensor_hash(&mut self, mut fields: Fields<'_>) -> Outcome {
        let (t, offset, hash) = (fields.tensor()?, fields.long()?, fields.long()?);
        let whole = self.buffers.part(&t, offset, 0)?;
        let found = self.shared.cache.as_ref().and_then(|cache| Some((cache, cache.find(hash)?)));
        let Some((cache, (mut file, len))) = found else { return self.answer(&[0]) };
        // A file of another length has other data.
        let Ok(to) = self.buffers.part(&t, offset, len) else { return self.answer(&[0]) };
        drop(whole);
        let chunk = Self::chunk_of(&to);
        self.room(chunk)?;
        let (mut done, mut is) = (0, Fnv::default());
        while done < to.len {
            let Some(bytes) = self.chunk.get_mut(..chunk.min(to.len - done)) else { break };
            if file.read_exact(bytes).is_err() {
                break;
            }
            is.add(bytes);
            to.buffer.write(to.start + done, bytes)?;
            done += bytes.len();
        }
        let same = done == to.len && is.0 == hash;
        if !same {
            cache.discard(hash);
        }
        self.answer(&[same.into()])
    }

    pub(super) fn get_tensor(&mut self, mut fields: Fields<'_>) -> Outcome {
        let (t, offset, len) = (fields.tensor()?, fields.long()?, fields.long()?);
        let from = self.buffers.part(&t, offset, len)?;
        self.begin_answer(len)?;
        self.send(&from)?;
        Ok(self.socket.writer.flush()?)
    }

    /// The pieces of a 2D transfer.
    fn rows(&self, fields: &mut Fields<'_>) -> Outcome<TensorPieces> {
        let (t, offset) = (fields.tensor()?, fields.long()?);
        let (size, count, stride) = (fields.long()?, fields.long()?, fields.long()?);
        need(size > 0 && count > 0, "a 2D transfer has no bytes")?;
        let span = (count - 1).checked_mul(stride).and_then(|n| n.checked_add(size));
        let span = span.ok_or_else(|| End::refused("a 2D transfer is larger than the address space"))?;
        need(count == 1 || stride >= size, "the pieces of a 2D transfer overlap")?;
        let span = self.buffers.part(&t, offset, span)?;
        let number = |n: u64| usize::try_from(n).map_err(|_| End::refused("a 2D transfer is too large"));
        Ok(TensorPieces { span, size: number(size)?, count: number(count)?, stride: number(stride)? })
    }

    pub(super) fn set_tensor_2d(&mut self, len: u64) -> Outcome {
        let (payload, len) = self.fields_before_data(len, SET_2D_FIELDS)?;
        let rows = self.rows(&mut Fields(&payload))?;
        let all = rows.size.checked_mul(rows.count).map(|n| n as u64);
        need(all == Some(len), "a 2D transfer has other data than its pieces")?;
        (0..rows.count).try_for_each(|i| self.receive(&rows.piece(i), |_| ()))
    }

    pub(super) fn get_tensor_2d(&mut self, mut fields: Fields<'_>) -> Outcome {
        let rows = self.rows(&mut fields)?;
        self.begin_answer(rows.size.saturating_mul(rows.count) as u64)?;
        (0..rows.count).try_for_each(|i| self.send(&rows.piece(i)))?;
        Ok(self.socket.writer.flush()?)
    }

    pub(super) fn memset_tensor(&mut self, mut fields: Fields<'_>) -> Outcome {
        let (t, offset, len) = (fields.tensor()?, fields.long()?, fields.long()?);
        let (to, value) = (self.buffers.part(&t, offset, len)?, fields.byte()?);
        self.fill(&to, value)
    }

    fn fill(&mut self, to: &BufferPart, value: u8) -> Outcome {
        let (mut done, chunk) = (0, Self::chunk_of(to));
        self.room(chunk)?;
        if let Some(bytes) = self.chunk.get_mut(..chunk) {
            bytes.fill(value);
        }
        while done < to.len {
            let Some(bytes) = self.chunk.get(..chunk.min(to.len - done)) else { break };
            to.buffer.write(to.start + done, bytes)?;
            done += bytes.len();
        }
        Ok(())
    }

    pub(super) fn copy_tensor(&mut self, mut fields: Fields<'_>) -> Outcome {
        let [from, to] = [fields.tensor()?, fields.tensor()?];
        let [from_layout, to_layout] = [from.layout()?, to.layout()?];
        need(from_layout == to_layout, "a tensor is to be copied to one of another type, shape or strides")?;
        let len = from_layout.span().unwrap_or(0) as u64;
        let (from, to) = (self.buffers.part(&from, 0, len)?, self.buffers.part(&to, 0, len)?);
        need(!from.overlaps(&to), "a tensor is to be copied to memory that it shares")?;
        // ggml copies between devices that can't do it themselves through memory that it does not check.
        let on_devices = !from.buffer.is_host() && from.buffer.buffer_type() == to.buffer.buffer_type();
        if on_devices && from_layout.is_contiguous() && from.buffer.base() != to.buffer.base() {
            let ctx = Context::new();
            let a = ctx.place(from.buffer.memory()?, from_layout, from.start)?;
            let b = ctx.place(to.buffer.memory()?, from_layout, to.start)?;
            transfer::copy("rpc::Server", a.ptr(), b.ptr())?;
        } else {
            self.copy(&from, &to)?;
        }
        self.answer(&[1])
    }

    /// Copies through this process's memory.
    fn copy(&mut self, from: &BufferPart, to: &BufferPart) -> Outcome {
        let (mut done, chunk) = (0, Self::chunk_of(from).max(Self::chunk_of(to)));
        self.room(chunk)?;
        while done < from.len {
            let Some(bytes) = self.chunk.get_mut(..chunk.min(from.len - done)) else { break };
            from.buffer.read(from.start + done, bytes)?;
            to.buffer.write(to.start + done, bytes)?;
            done += bytes.len();
        }
        Ok(())
    }

    /// Clears what a device reads behind the end of a tensor whose rows it pads.
    pub(super) fn init_tensor(&mut self, mut fields: Fields<'_>) -> Outcome {
        let t = fields.tensor()?;
        let layout = t.layout()?;
        let mut region = self.buffers.part(&t, 0, layout.span().unwrap_or(0) as u64)?;
        if region.buffer.is_host() {
            return Ok(());
        }
        let ctx = Context::new();
        let leaf = ctx.input("", layout.dtype, layout.ne)?;
        let size = region.buffer.buffer_type().alloc_size_of(leaf.ptr())?;
        region.start += region.len;
        region.len = size.saturating_sub(region.len);
        need(region.is_inside(), "a tensor lies outside of its buffer, with the padding that its device needs")?;
        self.fill(&region, 0)
    }

    /// How many bytes a device needs for a tensor: more than it has, for some operations of some devices.
    pub(super) fn get_alloc_size(&mut self, mut fields: Fields<'_>) -> Outcome {
        let (device, t) = (self.device(fields.word()?)?, fields.tensor()?);
        let mut sources = [None; SLOTS];
        for source in &mut sources {
            let t = fields.tensor()?;
            *source = if t.id == 0 { None } else { Some(t.layout()?) };
        }
        if t.is_empty() {
            return self.answer(&[0; 8]);
        }
        let layout = t.layout()?;
        let buft = device.buffer_type();
        let mut size = layout.span().unwrap_or(0);
        if !buft.is_host() {
            let ctx = Context::new();
            let built = twin(&ctx, &t, layout, &sources);
            size = size.max(buft.alloc_size_of(built?.ptr())?);
        }
        self.answer(&(size as u64).to_le_bytes())
    }
}

/// The tensor, without memory: its operation over operands of these layouts, or a leaf where it has none.
fn twin<'c>(
    ctx: &'c Context,
    t: &WireTensor,
    layout: Layout,
    sources: &[Option<Layout>; SLOTS],
) -> Outcome<Tensor<'c>> {
    if t.is_view_op() || t.params().op() == sys::GGML_OP_CPY {
        return Ok(ctx.input("", layout.dtype, layout.ne)?);
    }
    let built = Recipe::new(t.params(), layout, sources).build(ctx);
    built.map(|built| built.result).map_err(|failure| End::refused(failure.to_string()))
}

impl TensorPieces {
    fn piece(&self, i: usize) -> BufferPart {
        BufferPart { start: self.span.start + i * self.stride, len: self.size, ..self.span.clone() }
    }
}
