//! The owner of a C description of a GGUF file, and the only file that frees one.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{self, NonNull};

use ggml_sys as sys;

use super::source::{HeaderReader, on_read};
use super::value::{self, Array, Value};
use crate::error::{Error, Result};
use crate::tensor::ptr::TensorPtr;
use crate::{ffi, guard, log};

/// The header of a GGUF file: metadata and tensors' descriptions, no data.
///
/// # Invariants
///
/// The pointer is a live context that nothing else frees.
pub(super) struct Header(NonNull<sys::gguf_context>);

/// What a header says of a tensor, checked only as far as the C parser goes.
pub(super) struct RawEntry {
    pub(super) name: String,
    pub(super) dtype: sys::ggml_type,
    pub(super) ne: [i64; 4],
    /// Distance from the beginning of the tensor data.
    pub(super) offset: usize,
}

pub(super) fn invalid(reason: impl Into<String>) -> Error {
    Error::Gguf { reason: reason.into().into(), log: Box::default() }
}

impl Header {
    /// A header without content.
    pub(super) fn empty() -> Result<Self> {
        const CALL: &str = "gguf_init_empty";
        let raw = guard::call(CALL, || {
            // SAFETY: no arguments; the result is ours.
            unsafe { sys::gguf_init_empty() }
        })?;
        NonNull::new(raw).map(Self).ok_or(Error::Null { call: CALL, log: Box::default() })
    }

    /// Parses the header of a file of `len` bytes.
    pub(super) fn parse(from: &HeaderReader<'_>, len: u64) -> Result<Self> {
        let mark = log::mark();
        let user = from.as_user();
        let raw = guard::call("gguf_init_from_callback", || {
            let params = sys::gguf_init_params { no_alloc: true, ctx: ptr::null_mut() };
            // SAFETY: `on_read` gets the live reader it expects and never more room than it is told; it returns no more
            // bytes than it was asked for, which C asserts. C keeps neither; the result is ours.
            unsafe { sys::gguf_init_from_callback(Some(on_read), user, 0, len, params) }
        })?;
        let fail = || Error::Gguf { reason: "this is no valid GGUF file".into(), log: log::since(mark) };
        NonNull::new(raw).map(Self).ok_or_else(fail)
    }

    fn as_ptr(&self) -> *mut sys::gguf_context {
        self.0.as_ptr()
    }

    pub(super) fn version(&self) -> u32 {
        // SAFETY: live by the type's invariant; the call reads a field.
        unsafe { sys::gguf_get_version(self.as_ptr()) }
    }

    pub(super) fn alignment(&self) -> usize {
        // SAFETY: live by the type's invariant; the call reads a field.
        unsafe { sys::gguf_get_alignment(self.as_ptr()) }
    }

    pub(super) fn data_offset(&self) -> usize {
        // SAFETY: live by the type's invariant; the call reads a field.
        unsafe { sys::gguf_get_data_offset(self.as_ptr()) }
    }

    /// The metadata in the file's order.
    pub(super) fn metadata(&self) -> Result<Vec<(String, Value)>> {
        // SAFETY: live by the type's invariant; the call reads a length.
        let n = unsafe { sys::gguf_get_n_kv(self.as_ptr()) };
        (0..n).map(|i| Ok((self.key(i)?, self.value(i)?))).collect()
    }

    /// The tensors in the file's order.
    pub(super) fn tensors(&self) -> Result<Vec<RawEntry>> {
        // SAFETY: live by the type's invariant; the call reads a length.
        let n = unsafe { sys::gguf_get_n_tensors(self.as_ptr()) };
        (0..n).map(|i| self.tensor(i)).collect()
    }

    fn key(&self, i: i64) -> Result<String> {
        let text = guard::call("gguf_get_key", || {
            // SAFETY: live by the type's invariant; the index lies below `gguf_get_n_kv`.
            unsafe { sys::gguf_get_key(self.as_ptr(), i) }
        })?;
        // SAFETY: a C string that lives as long as the header.
        unsafe { exact(text) }.ok_or_else(|| invalid(format!("metadata key {i} is not UTF-8")))
    }

    fn value(&self, i: i64) -> Result<Value> {
        let kind = guard::call("gguf_get_kv_type", || {
            // SAFETY: live by the type's invariant; the index lies below `gguf_get_n_kv`.
            unsafe { sys::gguf_get_kv_type(self.as_ptr(), i) }
        })?;
        if kind == sys::GGUF_TYPE_ARRAY {
            return self.array(i).map(Value::Array);
        }
        if kind == sys::GGUF_TYPE_STRING {
            let text = guard::call("gguf_get_val_str", || {
                // SAFETY: live by the type's invariant; the value with this index is a string.
                unsafe { sys::gguf_get_val_str(self.as_ptr(), i) }
            })?;
            // SAFETY: a C string that lives as long as the header.
            return Ok(Value::String(unsafe { ffi::string(text) }));
        }
        let data = guard::call("gguf_get_val_data", || {
            // SAFETY: live by the type's invariant; the value with this index is no array and no string.
            unsafe { sys::gguf_get_val_data(self.as_ptr(), i) }
        })?;
        // SAFETY: C keeps one value of this type there, as long as the header lives.
        let bytes = unsafe { copy(data, value::size(kind).unwrap_or(0)) };
        let value = if kind == sys::GGUF_TYPE_BOOL {
            bytes.first().map(|&b| Value::Bool(b != 0))
        } else {
            value::number(kind, &bytes)
        };
        value.ok_or_else(|| unknown_type(kind))
    }

    fn array(&self, i: i64) -> Result<Array> {
        let kind = guard::call("gguf_get_arr_type", || {
            // SAFETY: live by the type's invariant; the value with this index is an array.
            unsafe { sys::gguf_get_arr_type(self.as_ptr(), i) }
        })?;
        let n = guard::call("gguf_get_arr_n", || {
            // SAFETY: as above.
            unsafe { sys::gguf_get_arr_n(self.as_ptr(), i) }
        })?;
        if kind == sys::GGUF_TYPE_STRING {
            return (0..n).map(|k| self.array_text(i, k)).collect::<Result<_>>().map(Array::String);
        }
        let data = guard::call("gguf_get_arr_data", || {
            // SAFETY: as above; the elements are no strings.
            unsafe { sys::gguf_get_arr_data(self.as_ptr(), i) }
        })?;
        // SAFETY: C keeps `n` values of this type there, as long as the header lives.
        let bytes = unsafe { copy(data, n.saturating_mul(value::size(kind).unwrap_or(0))) };
        let array = if kind == sys::GGUF_TYPE_BOOL {
            Some(Array::Bool(bytes.into_iter().map(|b| b != 0).collect()))
        } else {
            value::numbers(kind, &bytes)
        };
        array.ok_or_else(|| unknown_type(kind))
    }

    /// Element `k` of the array of strings with index `i`; `k` lies below its length, which C does not check (H29).
    fn array_text(&self, i: i64, k: usize) -> Result<String> {
        let text = guard::call("gguf_get_arr_str", || {
            // SAFETY: live by the type's invariant; the value is an array of strings, and longer than `k`.
            unsafe { sys::gguf_get_arr_str(self.as_ptr(), i, k) }
        })?;
        // SAFETY: a C string that lives as long as the header.
        Ok(unsafe { ffi::string(text) })
    }

    fn tensor(&self, i: i64) -> Result<RawEntry> {
        let text = guard::call("gguf_get_tensor_name", || {
            // SAFETY: live by the type's invariant; the index lies below `gguf_get_n_tensors`.
            unsafe { sys::gguf_get_tensor_name(self.as_ptr(), i) }
        })?;
        // SAFETY: a C string that lives as long as the header.
        let name = unsafe { exact(text) }.ok_or_else(|| invalid(format!("the name of tensor {i} is not UTF-8")))?;
        let dtype = guard::call("gguf_get_tensor_type", || {
            // SAFETY: as above.
            unsafe { sys::gguf_get_tensor_type(self.as_ptr(), i) }
        })?;
        let offset = guard::call("gguf_get_tensor_offset", || {
            // SAFETY: as above.
            unsafe { sys::gguf_get_tensor_offset(self.as_ptr(), i) }
        })?;
        let ne = guard::call("gguf_get_tensor_ne", || {
            // SAFETY: as above.
            unsafe { sys::gguf_get_tensor_ne(self.as_ptr(), i) }
        })?;
        // SAFETY: four dimensions that live as long as the header.
        let ne = unsafe { ne.cast::<[i64; 4]>().read() };
        Ok(RawEntry { name, dtype, ne, offset })
    }

    /// Adds a value or replaces the one with this key.
    ///
    /// The key is not empty; `general.alignment` is a `u32` and a power of two. C asserts both.
    pub(super) fn set(&mut self, key: &str, value: &Value) -> Result<()> {
        let key = c_string("key", key)?;
        match value {
            Value::U8(v) => self.set_with("gguf_set_val_u8", sys::gguf_set_val_u8, &key, *v),
            Value::I8(v) => self.set_with("gguf_set_val_i8", sys::gguf_set_val_i8, &key, *v),
            Value::U16(v) => self.set_with("gguf_set_val_u16", sys::gguf_set_val_u16, &key, *v),
            Value::I16(v) => self.set_with("gguf_set_val_i16", sys::gguf_set_val_i16, &key, *v),
            Value::U32(v) => self.set_with("gguf_set_val_u32", sys::gguf_set_val_u32, &key, *v),
            Value::I32(v) => self.set_with("gguf_set_val_i32", sys::gguf_set_val_i32, &key, *v),
            Value::F32(v) => self.set_with("gguf_set_val_f32", sys::gguf_set_val_f32, &key, *v),
            Value::U64(v) => self.set_with("gguf_set_val_u64", sys::gguf_set_val_u64, &key, *v),
            Value::I64(v) => self.set_with("gguf_set_val_i64", sys::gguf_set_val_i64, &key, *v),
            Value::F64(v) => self.set_with("gguf_set_val_f64", sys::gguf_set_val_f64, &key, *v),
            Value::Bool(v) => self.set_with("gguf_set_val_bool", sys::gguf_set_val_bool, &key, *v),
            Value::String(v) => {
                let text = c_string("value", v)?;
                self.set_with("gguf_set_val_str", sys::gguf_set_val_str, &key, text.as_ptr())
            }
            Value::Array(array) => self.set_array(&key, array),
        }
    }

    /// Calls one of C's setters, which must take a value of this type.
    fn set_with<T>(
        &mut self,
        call: &'static str,
        setter: unsafe extern "C-unwind" fn(*mut sys::gguf_context, *const c_char, T),
        key: &CStr,
        value: T,
    ) -> Result<()> {
        guard::call(call, || {
            // SAFETY: the header is live and ours; `setter` is one of `set`'s table, the key is a C string and so is a text.
            // C copies both.
            unsafe { setter(self.as_ptr(), key.as_ptr(), value) }
        })
    }

    fn set_array(&mut self, key: &CStr, array: &Array) -> Result<()> {
        let (raw, key) = (self.as_ptr(), key.as_ptr());
        if let Some((kind, bytes, n)) = array.raw() {
            return guard::call("gguf_set_arr_data", || {
                // SAFETY: the header is live and ours; the key is a C string, `bytes` are `n` values of the
                // type, which is neither string nor array (H29). C copies both.
                unsafe { sys::gguf_set_arr_data(raw, key, kind, bytes.as_ptr().cast(), n) }
            });
        }
        let Array::String(texts) = array else { return Err(invalid("an array of an unknown type")) };
        let texts = texts.iter().map(|s| c_string("value", s)).collect::<Result<Vec<_>>>()?;
        let mut pointers: Vec<_> = texts.iter().map(|s| s.as_ptr()).collect();
        guard::call("gguf_set_arr_str", || {
            // SAFETY: as above; the pointers are C strings that live during the call, as many as said.
            unsafe { sys::gguf_set_arr_str(raw, key, pointers.as_mut_ptr(), pointers.len()) }
        })
    }

    /// Adds a tensor, whose name is new.
    pub(super) fn add_tensor(&mut self, t: TensorPtr) -> Result<()> {
        guard::call("gguf_add_tensor", || {
            // SAFETY: the header is live and ours, the tensor is live. C copies it, and the pointers in the copy are
            // followed only by functions that write tensor data, none of which is called.
            unsafe { sys::gguf_add_tensor(self.as_ptr(), t.as_ptr()) }
        })
    }

    /// The header as it stands in a file, padded to the alignment.
    pub(super) fn to_bytes(&self) -> Result<Vec<u8>> {
        let size = guard::call("gguf_get_meta_size", || {
            // SAFETY: live by the type's invariant; the call only reads it.
            unsafe { sys::gguf_get_meta_size(self.as_ptr()) }
        })?;
        let mut out = Vec::new();
        out.try_reserve_exact(size).map_err(|_| Error::OutOfMemory {
            what: "the header of a GGUF file".into(),
            bytes: size,
            log: Box::default(),
        })?;
        out.resize(size, 0);
        let to = out.as_mut_ptr().cast::<c_void>();
        guard::call("gguf_get_meta_data", || {
            // SAFETY: live by the type's invariant; `out` has the size that C said it writes.
            unsafe { sys::gguf_get_meta_data(self.as_ptr(), to) }
        })?;
        Ok(out)
    }
}

impl Drop for Header {
    fn drop(&mut self) {
        // SAFETY: live and ours by the type's invariant, and used by nothing after this.
        unsafe { sys::gguf_free(self.as_ptr()) };
    }
}

fn unknown_type(kind: sys::gguf_type) -> Error {
    invalid(format!("this crate knows no metadata type with the number {kind}"))
}

fn c_string(what: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::Param {
        op: "gguf::Writer",
        name: what,
        value: format!("{text:?}").into(),
        expected: "ggml can't write a text with a NUL".into(),
    })
}

/// Copies a C string that is UTF-8.
///
/// # Safety
///
/// `text` must be a C string that lives during the call.
unsafe fn exact(text: *const c_char) -> Option<String> {
    // SAFETY: by contract.
    unsafe { CStr::from_ptr(text) }.to_str().ok().map(Into::into)
}

/// Copies `size` bytes.
///
/// # Safety
///
/// There must be as many at `data`, initialised; it may be NULL where `size` is 0.
unsafe fn copy(data: *const c_void, size: usize) -> Vec<u8> {
    let mut out = vec![0; size];
    if size > 0 {
        // SAFETY: `size` bytes on both sides, by contract and by construction; the vector is new, so they don't overlap.
        unsafe { out.as_mut_ptr().copy_from_nonoverlapping(data.cast(), size) };
    }
    out
}
