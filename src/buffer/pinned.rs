//! Pinned host memory, from which a backend copies faster.

use std::ffi::{CStr, c_void};
use std::ptr;

use crate::callback;
use crate::debug::debug;
use crate::device::Registry;
use crate::error::Result;
use crate::guard;

/// The user's memory, such as a mapped file, pinned by a GPU driver so that it copies from there directly, without a
/// staging buffer; made by [`Registry::pin`]. Dropping it unpins and drops the memory.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::Registry;
/// let pinned = Registry::by_name("CPU")?.pin(vec![1_u8, 2, 3])?;
/// assert_eq!(pinned.as_ref(), [1, 2, 3]);
/// assert!(!pinned.is_pinned(), "there is no need to, on a CPU");
/// # Ok::<(), ggml::Error>(())
/// ```
pub struct Pinned<M> {
    /// The memory; `None` once it was leaked.
    memory: Option<Box<M>>,
    pinned: Option<Registration>,
}

/// Memory registered with a backend.
struct Registration {
    /// The start of the memory, which C only compares.
    address: usize,
    unregister: Unregister,
}

type Register = unsafe extern "C-unwind" fn(*mut c_void, usize) -> bool;
type Unregister = unsafe extern "C-unwind" fn(*mut c_void);
// No header declares the names by which backends offer these functions. For these names, the CUDA and HIP backends
// return the functions below, whose types are checked here.
#[cfg(any(feature = "cuda", feature = "hip"))]
const _: (Register, Unregister) =
    (crate::sys::ggml_backend_cuda_register_host_buffer, crate::sys::ggml_backend_cuda_unregister_host_buffer);

/// The environment variable without which ggml neither registers nor unregisters memory.
const VARIABLE: &str = "GGML_CUDA_REGISTER_HOST";

impl Registry {
    /// Pins the user's memory for copies to the backend's devices, until the result is dropped
    /// (`ggml_backend_register_host_buffer`). This affects speed only. [`Pinned::is_pinned`] tells whether the backend
    /// did it: CUDA and HIP do if the environment variable `GGML_CUDA_REGISTER_HOST` is set; other backends don't.
    ///
    /// ```
    /// use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("w", DType::I8, [4])?;
    /// let device = Device::best()?;
    /// let mut weights = builder.place(device.buffer_type())?;
    /// let file = vec![1_u8, 2, 3, 4]; // or a mapped one
    /// match device.registry() {
    ///     Some(registry) => weights.set_bytes("w", registry.pin(file)?.as_ref())?,
    ///     None => weights.set_bytes("w", &file)?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`](crate::Error::Ggml) or [`Error::Exception`](crate::Error::Exception) if the backend fails.
    #[doc(alias = "ggml_backend_cuda_register_host_buffer")]
    #[doc(alias = "ggml_backend_cuda_unregister_host_buffer")]
    pub fn pin<M: AsRef<[u8]> + 'static>(self, memory: M) -> Result<Pinned<M>> {
        const REGISTER: &CStr = c"ggml_backend_register_host_buffer";
        const UNREGISTER: &CStr = c"ggml_backend_unregister_host_buffer";
        callback::check_reentry("Registry::pin")?;
        // SAFETY: `Register` is the type of the function with this name (checked against CUDA's header above).
        let register = unsafe { self.find_function::<Register>(REGISTER) };
        // SAFETY: `Unregister` is the type of the function with this name (checked against CUDA's header above).
        let unregister = unsafe { self.find_function::<Unregister>(UNREGISTER) };
        // SAFETY: both functions are from the same backend.
        unsafe { Pinned::new(memory, register.zip(unregister)) }
    }
}

impl<M: AsRef<[u8]> + 'static> Pinned<M> {
    /// # Safety
    ///
    /// The functions must be a backend's pair: the first may keep the memory until the second gets its address.
    unsafe fn new(memory: M, functions: Option<(Register, Unregister)>) -> Result<Self> {
        const CALL: &str = "ggml_backend_register_host_buffer";
        // The memory is boxed, because bytes inside `M` itself must not move.
        let memory = Box::new(memory);
        let bytes = (*memory).as_ref();
        let mut pinned = None;
        if let Some((register, unregister)) = functions.filter(|_| !bytes.is_empty()) {
            let start = bytes.as_ptr().cast_mut().cast();
            let done = guard::call(CALL, || {
                // SAFETY: the bytes stay in place until the result is dropped, which calls `unregister` first: the box
                // is never borrowed mutably. Devices only read them.
                unsafe { register(start, bytes.len()) }
            });
            match done {
                Ok(true) => pinned = Some(Registration { address: start.addr(), unregister }),
                Ok(false) => {}
                Err(error) => {
                    // After an error, the backend may or may not have pinned the memory: leak it.
                    Box::leak(memory);
                    return Err(error);
                }
            }
        }
        Ok(Self { memory: Some(memory), pinned })
    }
}

impl<M> Pinned<M> {
    /// Whether the backend pinned the memory.
    pub fn is_pinned(&self) -> bool {
        self.pinned.is_some()
    }
}

impl<M: AsRef<[u8]>> AsRef<[u8]> for Pinned<M> {
    fn as_ref(&self) -> &[u8] {
        self.memory.as_deref().map_or(&[], AsRef::as_ref)
    }
}

impl<M> Drop for Pinned<M> {
    fn drop(&mut self) {
        let Some(Registration { address, unregister }) = self.pinned.take() else { return };
        // Without the environment variable, the call that unpins the memory does nothing. The memory must then be
        // leaked.
        let done = std::env::var_os(VARIABLE).is_some()
            && guard::reentrant("ggml_backend_unregister_host_buffer", || {
                // SAFETY: `register` was given this address, and each registration is undone once.
                unsafe { unregister(ptr::without_provenance_mut(address)) }
            })
            .is_ok();
        if !done && let Some(memory) = self.memory.take() {
            Box::leak(memory);
        }
    }
}

debug!(Pinned<; M>, |this| is_pinned = &this.is_pinned());

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// The end of the registered memory, or 0.
    static THERE: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C-unwind" fn register(start: *mut c_void, size: usize) -> bool {
        THERE.compare_exchange(0, start.addr() + size, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    unsafe extern "C-unwind" fn unregister(start: *mut c_void) {
        assert!(THERE.swap(0, Ordering::SeqCst) > start.addr());
    }

    /// Memory to pin. The reference count of `_owner` tells whether it was dropped.
    struct Memory {
        _owner: Arc<()>,
        bytes: [u8; 4],
    }

    impl AsRef<[u8]> for Memory {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    fn pin(count: &Arc<()>) -> Pinned<Memory> {
        // SAFETY: `register` and `unregister` only compare addresses.
        unsafe { Pinned::new(Memory { _owner: Arc::clone(count), bytes: [1, 2, 3, 4] }, Some((register, unregister))) }
            .unwrap()
    }

    /// Runs itself again in a child process, where an environment variable is set.
    #[test]
    fn pinned_memory_is_dropped_after_unregistering() {
        let count = Arc::new(());
        if std::env::var_os(VARIABLE).is_none() {
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["buffer::pinned::tests::pinned_memory_is_dropped_after_unregistering", "--exact"])
                .env(VARIABLE, "1")
                .output()
                .unwrap();
            assert!(status.status.success(), "{status:?}");
            let text = String::from_utf8_lossy(&status.stdout).into_owned();
            assert!(text.contains("1 passed"), "{text}");
            // Without the environment variable, no memory can be unregistered.
            let pinned = pin(&count);
            assert!(pinned.is_pinned());
            drop(pinned);
            assert_eq!(Arc::strong_count(&count), 2, "it is leaked");
            return;
        }
        let pinned = pin(&count);
        assert!(pinned.is_pinned());
        let bytes = pinned.as_ref();
        assert_eq!((bytes, bytes.as_ptr().addr() + 4), (&[1, 2, 3, 4][..], THERE.load(Ordering::SeqCst)));
        let moved = Box::new(pinned);
        assert_eq!(moved.as_ref().as_ref().as_ptr().addr() + 4, THERE.load(Ordering::SeqCst), "the bytes don't move");
        let second = pin(&count);
        assert!(!second.is_pinned(), "the backend refused");
        drop(second);
        drop(moved);
        assert_eq!((THERE.load(Ordering::SeqCst), Arc::strong_count(&count)), (0, 1));
    }

    #[test]
    fn pin_without_backend_support_pins_nothing() {
        let registry = crate::Device::cpu().unwrap().registry().unwrap();
        let pinned = registry.pin(vec![5_u8; 3]).unwrap();
        assert!(!pinned.is_pinned());
        assert_eq!(pinned.as_ref(), [5; 3]);
        // SAFETY: `register` and `unregister` only compare addresses.
        let empty = unsafe { Pinned::new(Vec::new(), Some((register, unregister))) }.unwrap();
        assert!(!empty.is_pinned() && empty.as_ref().is_empty());
    }
}
