//! Host memory that asynchronous transfers read or write.

use std::ptr;
use std::sync::Arc;

use super::failure::Failure;
use crate::debug::debug;
use crate::list;
use crate::lock::Lock;

/// Allocates `len` zero bytes. A lack of memory is a failure here, where `vec![0; len]` ends the process.
///
/// ```
/// use ggml::driver::zeroed;
/// assert_eq!(zeroed(3)?, [0, 0, 0]);
/// assert!(zeroed(usize::MAX).is_err());
/// # Ok::<(), ggml::driver::Failure>(())
/// ```
///
/// # Errors
///
/// A failure if there is too little memory.
pub fn zeroed(len: usize) -> Result<Vec<u8>, Failure> {
    Ok(list::filled(0, len, "a device's bytes")?)
}

/// Whether a stream's transfers may still access the host memory that they were lent. A stream begins a new lease each
/// time it was waited for.
pub(super) type Lease = Arc<Lock<bool>>;

/// Begins a lease of host memory.
pub(super) fn lease() -> Lease {
    Arc::new(Lock::new(true))
}

/// Ends a lease of host memory: waits for accesses under way, and allows no more.
pub(super) fn end(lease: &Lease) {
    *lease.lock() = false;
}

/// Bytes of the host, lent until their lease ends.
struct Lent {
    start: *mut u8,
    len: usize,
    lease: Lease,
}

// SAFETY: any thread may copy to or from the memory while the lease runs. Whoever lent it lets nothing else write to
// it, or use it at all if it is a target (`Lent::new`). The lease's lock keeps the lease from ending during a copy.
unsafe impl Send for Lent {}
// SAFETY: any thread may use the memory while the lease runs; the lock also keeps two threads from copying at once.
unsafe impl Sync for Lent {}

impl Lent {
    /// Runs `copy` with the address of `len` bytes from `offset` on, which stay lent meanwhile.
    fn access(&self, offset: usize, len: usize, copy: impl FnOnce(*mut u8)) -> Result<(), Failure> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Failure::new(format!("{len} bytes from {offset} on are out of bounds of {}", self.len)));
        }
        let lent = self.lease.lock();
        if !*lent {
            return Err(Failure::new("the host's memory is no longer lent: its stream was waited for, or freed"));
        }
        copy(self.start.wrapping_add(offset));
        Ok(())
    }
}

/// Bytes of the host that a transfer reads: [`DriverStream::set`](super::DriverStream::set). They can be read until the
/// stream has been waited for, from any thread.
///
#[doc = include_str!("store.txt")]
/// fn in_halves(to: Region<'_, Probe>, from: HostSource) -> Result<(), Failure> {
///     let half = from.len() / 2;
///     let mut data = zeroed(half)?;
///     from.read(0, &mut data)?;
///     to.buffer().set(to.tensor(), to.offset(), &data)?;
///     from.read(half, &mut data)?;
///     to.buffer().set(to.tensor(), to.offset() + half, &data)
/// }
/// assert_eq!(stored("source", in_halves, get)?, [3.0, 4.0]);
/// # Ok(())
/// # }
/// ```
pub struct HostSource(Lent);

/// Bytes of the host that a transfer writes: [`DriverStream::get`](super::DriverStream::get). They can be written until
/// the stream has been waited for, from any thread.
///
#[doc = include_str!("store.txt")]
/// fn swapped(from: Region<'_, Probe>, to: HostTarget) -> Result<(), Failure> {
///     let mut data = zeroed(to.len())?;
///     from.buffer().get(from.tensor(), from.offset(), &mut data)?;
///     to.write(4, &data[..4])?;
///     to.write(0, &data[4..])
/// }
/// assert_eq!(stored("target", set, swapped)?, [4.0, 3.0]);
/// # Ok(())
/// # }
/// ```
pub struct HostTarget(Lent);

impl HostSource {
    /// # Safety
    ///
    /// Until the lease ends, the bytes must be live and initialised, and nothing may write to them.
    pub(super) unsafe fn new(start: *const u8, len: usize, lease: Lease) -> Self {
        Self(Lent { start: start.cast_mut(), len, lease })
    }

    /// Copies bytes from `offset` on to `to`.
    ///
    /// # Errors
    ///
    /// A failure if the bytes are out of bounds, or if the stream was waited for or freed.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), Failure> {
        self.0.access(offset, to.len(), |from| {
            // SAFETY: the bytes are in bounds and lent (`access`), so they are live and not written to (`new`); `to` is
            // borrowed mutably, so it doesn't overlap them.
            unsafe { ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        })
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether the number of bytes is 0.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }
}

impl HostTarget {
    /// # Safety
    ///
    /// Until the lease ends, the bytes must be live, and nothing else may use them.
    pub(super) unsafe fn new(start: *mut u8, len: usize, lease: Lease) -> Self {
        Self(Lent { start, len, lease })
    }

    /// Overwrites bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// As [`HostSource::read`].
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), Failure> {
        self.0.access(offset, data.len(), |to| {
            // SAFETY: the bytes are in bounds and lent (`access`), so they are live and nothing else uses them (`new`),
            // `data` included.
            unsafe { ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
        })
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether the number of bytes is 0.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }
}

debug!(HostSource, |this| len = &this.0.len);
debug!(HostTarget, |this| len = &this.0.len);
