//! Device memory.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ggml::driver::{DriverBuffer, Failure, TensorView};

use super::fault::Call;
use super::race::{self, Access};
use super::{Control, told_to_panic};

/// The bytes of a buffer, which work under way keeps.
pub(super) type Bytes = Arc<Mutex<Box<[u8]>>>;

pub struct FakeBuffer {
    pub(super) id: usize,
    pub(super) bytes: Bytes,
    size: usize,
    control: Arc<Control>,
}

impl FakeBuffer {
    pub(super) fn new(control: &Arc<Control>, size: usize) -> Result<Self, Failure> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        if control.used.fetch_add(size, Ordering::SeqCst) + size > control.limit {
            control.used.fetch_sub(size, Ordering::SeqCst);
            return Err(Failure::new(format!("{size} bytes are more than are left of {}", control.limit)));
        }
        let mut bytes = Vec::new();
        if let Err(error) = bytes.try_reserve_exact(size) {
            control.used.fetch_sub(size, Ordering::SeqCst);
            return Err(error.into());
        }
        // What nobody has written to is not zero.
        bytes.resize(size, 0xA5);
        let bytes = Arc::new(Mutex::new(bytes.into()));
        Ok(Self { id: NEXT.fetch_add(1, Ordering::SeqCst), bytes, size, control: Arc::clone(control) })
    }

    pub(super) fn access(&self, offset: usize, len: usize, writes: bool) -> Access {
        Access { buffer: self.id, range: offset..offset + len, writes }
    }

    fn host(&self, offset: usize, len: usize, writes: bool, what: &str) {
        race::host(&self.access(offset, len, writes), what);
    }
}

impl DriverBuffer for FakeBuffer {
    fn set(&self, tensor: TensorView<'_>, offset: usize, data: &[u8]) -> Result<(), Failure> {
        self.control.enter(Call::BufferSet)?;
        self.host(offset, data.len(), true, &format!("the host writes {}", tensor.name()));
        self.bytes.lock().unwrap()[offset..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn get(&self, tensor: TensorView<'_>, offset: usize, data: &mut [u8]) -> Result<(), Failure> {
        self.control.enter(Call::BufferGet)?;
        self.host(offset, data.len(), false, &format!("the host reads {}", tensor.name()));
        data.copy_from_slice(&self.bytes.lock().unwrap()[offset..][..data.len()]);
        Ok(())
    }

    fn fill(&self, offset: usize, len: usize, value: u8) -> Result<(), Failure> {
        self.control.enter(Call::BufferFill)?;
        self.host(offset, len, true, "the host fills memory");
        self.bytes.lock().unwrap()[offset..][..len].fill(value);
        Ok(())
    }

    fn copy(&self, offset: usize, from: &Self, from_offset: usize, len: usize) -> Result<bool, Failure> {
        if !self.control.clone().enter(Call::BufferCopy)? {
            return Ok(false);
        }
        from.host(from_offset, len, false, "the host copies from memory");
        self.host(offset, len, true, "the host copies to memory");
        let data: Vec<_> = from.bytes.lock().unwrap()[from_offset..][..len].into();
        self.bytes.lock().unwrap()[offset..][..len].copy_from_slice(&data);
        Ok(true)
    }
}

impl Drop for FakeBuffer {
    fn drop(&mut self) {
        self.host(0, self.size, true, "the host frees memory");
        self.control.used.fetch_sub(self.size, Ordering::SeqCst);
        if !std::thread::panicking() && self.control.enter(Call::DropBuffer).is_err() {
            told_to_panic();
        }
    }
}
