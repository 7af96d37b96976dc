//! Constants of the format, and what names it takes.

/// The first bytes of a GGUF file.
pub(crate) const MAGIC: &[u8] = b"GGUF";

/// The version that [`Writer`] writes.
pub(crate) const VERSION: u32 = 3;

/// The metadata key of the tensor data's alignment.
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";

/// The maximum length of a tensor name in bytes: C stores it NUL-terminated in a field of 64 bytes.
pub(crate) const MAX_NAME: u64 = 63;

/// The maximum length of a key in bytes, by the format.
pub(crate) const MAX_KEY: u64 = u16::MAX as u64;

/// The maximum length of a string in bytes, as in ggml.
pub(crate) const MAX_TEXT: u64 = 1 << 30;

/// The maximum length of an array, as in ggml.
pub(crate) const MAX_VALUES: u64 = 1 << 30;

/// Why a file can't have this tensor name; `None` if it can.
pub(crate) fn name_fault(name: &str) -> Option<&'static str> {
    if name.len() as u64 > MAX_NAME {
        Some("a tensor's name may have at most 63 bytes")
    } else if name.contains('\0') {
        Some("a tensor's name may hold no NUL")
    } else {
        None
    }
}

/// Why a file can't have this key; `None` if it can.
pub(crate) fn key_fault(key: &str) -> Option<&'static str> {
    if key.is_empty() {
        Some("a key must have at least one byte")
    } else if key.len() as u64 > MAX_KEY {
        Some("a key may have at most 65535 bytes")
    } else if key.contains('\0') {
        Some("a key may hold no NUL")
    } else {
        None
    }
}
