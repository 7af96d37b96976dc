//! Compares ggml's own functions with this crate's: both write the same bytes, and read the same values from them.

use std::ffi::{CStr, CString, c_char};
use std::io::Cursor;
use std::ptr;

use ggml::gguf::{Array, Load as _, Reader, Value, Writer};
use ggml::{DType, Device, Quantize as _, sys};

use crate::{everything, tensors, values};

/// A file in ggml's representation, freed on drop.
struct C(*mut sys::gguf_context);

impl Drop for C {
    fn drop(&mut self) {
        // SAFETY: this struct owns the context, and drop is its last use.
        unsafe { sys::gguf_free(self.0) }
    }
}

/// Copies an array from C.
///
/// # Safety
///
/// `data` must point to `n` values, aligned or not; every bit pattern must be a valid `T`.
unsafe fn copy<T: Copy>(data: *const T, n: usize) -> Vec<T> {
    (0..n)
        .map(|i| {
            // SAFETY: the caller promises `n` values, and `i` is below `n`.
            unsafe { data.wrapping_add(i).read_unaligned() }
        })
        .collect()
}

/// # Safety
///
/// `text` must be a NUL-terminated string.
unsafe fn string(text: *const c_char) -> String {
    // SAFETY: the caller promises a NUL-terminated string.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

impl C {
    fn parse(bytes: &[u8]) -> Self {
        let params = sys::gguf_init_params { no_alloc: true, ctx: ptr::null_mut() };
        // SAFETY: the bytes live during the call, and C keeps no pointer to them.
        let raw = unsafe { sys::gguf_init_from_buffer(bytes.as_ptr().cast(), bytes.len(), params) };
        assert!(!raw.is_null(), "ggml reads whatever this crate does");
        Self(raw)
    }

    fn value(&self, i: i64) -> Value {
        // SAFETY: the context is live, and `i` is below the number of entries.
        let kind = unsafe { sys::gguf_get_kv_type(self.0, i) };
        let array = kind == sys::GGUF_TYPE_ARRAY;
        let (of, n) = if array {
            // SAFETY: the context is live, `i` is below the number of entries, and the entry is an array.
            let of = unsafe { sys::gguf_get_arr_type(self.0, i) };
            // SAFETY: the context is live, `i` is below the number of entries, and the entry is an array.
            (of, unsafe { sys::gguf_get_arr_n(self.0, i) })
        } else {
            (kind, 1)
        };
        let data = || match (array, of) {
            (_, sys::GGUF_TYPE_STRING) => ptr::null(),
            // SAFETY: entry `i` of the live context is an array of something other than strings.
            (true, _) => unsafe { sys::gguf_get_arr_data(self.0, i) },
            // SAFETY: entry `i` of the live context is neither an array nor a string.
            (false, _) => unsafe { sys::gguf_get_val_data(self.0, i) },
        };
        macro_rules! of {
            ($($raw:ident $variant:ident $t:ty;)*) => {
                match of {
                    $(sys::$raw => {
                        // SAFETY: ggml reports `n` values of that type, which live as long as the context.
                        let values = unsafe { copy(data().cast::<$t>(), n) };
                        if array { Array::$variant(values).into() } else { values[0].into() }
                    })*
                    sys::GGUF_TYPE_BOOL => {
                        // SAFETY: ggml stores `n` booleans as one byte each, which live as long as the context.
                        let bytes = unsafe { copy(data().cast::<u8>(), n) };
                        let values: Vec<_> = bytes.into_iter().map(|b| b != 0).collect();
                        if array { Array::Bool(values).into() } else { values[0].into() }
                    }
                    sys::GGUF_TYPE_STRING if array => Array::String((0..n).map(|j| self.element(i, j)).collect()).into(),
                    sys::GGUF_TYPE_STRING => {
                        // SAFETY: entry `i` of the live context is a string, which lives as long as the context.
                        let text = unsafe { sys::gguf_get_val_str(self.0, i) };
                        // SAFETY: `text` is NUL-terminated and lives as long as the context.
                        unsafe { string(text) }.into()
                    }
                    other => panic!("type {other}"),
                }
            };
        }
        of! {
            GGUF_TYPE_UINT8 U8 u8;
            GGUF_TYPE_INT8 I8 i8;
            GGUF_TYPE_UINT16 U16 u16;
            GGUF_TYPE_INT16 I16 i16;
            GGUF_TYPE_UINT32 U32 u32;
            GGUF_TYPE_INT32 I32 i32;
            GGUF_TYPE_FLOAT32 F32 f32;
            GGUF_TYPE_UINT64 U64 u64;
            GGUF_TYPE_INT64 I64 i64;
            GGUF_TYPE_FLOAT64 F64 f64;
        }
    }

    /// Element `j` of string array `i`.
    fn element(&self, i: i64, j: usize) -> String {
        // SAFETY: the callers keep both indices in bounds; the string lives as long as the context.
        let text = unsafe { sys::gguf_get_arr_str(self.0, i, j) };
        // SAFETY: `text` is NUL-terminated and lives as long as the context.
        unsafe { string(text) }
    }

    fn tensor(&self, i: i64) -> (String, [i64; 4], sys::ggml_type, u64, usize) {
        // SAFETY: the callers keep `i` below the number of tensors; the name lives as long as the context.
        let name = unsafe { sys::gguf_get_tensor_name(self.0, i) };
        // SAFETY: `i` is in bounds, see above; the result points to four dimensions of the live context.
        let ne = unsafe { sys::gguf_get_tensor_ne(self.0, i) };
        // SAFETY: `i` is in bounds, see above.
        let dtype = unsafe { sys::gguf_get_tensor_type(self.0, i) };
        // SAFETY: `i` is in bounds, see above.
        let offset = unsafe { sys::gguf_get_tensor_offset(self.0, i) };
        // SAFETY: `i` is in bounds, see above.
        let size = unsafe { sys::gguf_get_tensor_size(self.0, i) };
        // SAFETY: `ne` points to four dimensions.
        let ne = unsafe { copy(ne, 4) }.try_into().unwrap();
        // SAFETY: `name` is NUL-terminated and lives as long as the context.
        (unsafe { string(name) }, ne, dtype, offset as u64, size)
    }
}

/// The part of a value that C shows: strings end at the first NUL. Floats are compared as bits.
fn shown(value: &Value) -> String {
    let cut = |text: &str| text.split('\0').next().unwrap().to_owned();
    match value {
        Value::String(text) => format!("{:?}", cut(text)),
        Value::Array(Array::String(texts)) => format!("{:?}", texts.iter().map(cut).collect::<Vec<_>>()),
        Value::F32(x) => format!("{:x}", x.to_bits()),
        Value::F64(x) => format!("{:x}", x.to_bits()),
        Value::Array(Array::F32(xs)) => format!("{:x?}", xs.iter().map(|x| x.to_bits()).collect::<Vec<_>>()),
        Value::Array(Array::F64(xs)) => format!("{:x?}", xs.iter().map(|x| x.to_bits()).collect::<Vec<_>>()),
        other => format!("{other:?}"),
    }
}

/// A writer of the same file.
pub(crate) fn writer(reader: &Reader<impl AsRef<[u8]>>) -> Writer {
    let mut writer = Writer::new();
    writer.set_kv(reader).unwrap();
    for t in reader.tensors() {
        writer.tensor(t.name(), t.dtype(), t.shape(), reader.data(t.name()).unwrap()).unwrap();
    }
    writer
}

/// Fails unless ggml reads from `bytes` what `reader` does.
pub(crate) fn same(bytes: &[u8], reader: &Reader<impl AsRef<[u8]>>) {
    let c = C::parse(bytes);
    // SAFETY: `c` owns a live context, here and below.
    let n = unsafe { sys::gguf_get_n_kv(c.0) };
    assert_eq!(usize::try_from(n).unwrap(), reader.key_values().count());
    for (i, (key, value)) in (0..n).zip(reader.key_values()) {
        // SAFETY: `i` is below the number of entries; the key lives as long as the context.
        let c_key = unsafe { sys::gguf_get_key(c.0, i) };
        // SAFETY: `c_key` is NUL-terminated and lives as long as the context.
        assert_eq!(unsafe { string(c_key) }, key.split('\0').next().unwrap());
        let c_value = c.value(i);
        assert_eq!((c_value.type_name(), shown(&c_value)), (value.type_name(), shown(value)), "{key}");
    }
    // SAFETY: the context is live.
    let n = unsafe { sys::gguf_get_n_tensors(c.0) };
    assert_eq!(usize::try_from(n).unwrap(), reader.tensors().count());
    // SAFETY: the context is live.
    let data = unsafe { sys::gguf_get_data_offset(c.0) };
    for (i, t) in (0..n).zip(reader.tensors()) {
        let (name, ne, dtype, offset, size) = c.tensor(i);
        assert_eq!((&*name, ne, offset, size), (t.name(), t.shape().ne(), t.offset(), t.size()));
        // SAFETY: ggml has read this type, so it is a valid one.
        let dtype = unsafe { sys::ggml_type_name(dtype) };
        // SAFETY: ggml returns a NUL-terminated string literal.
        assert_eq!(unsafe { string(dtype) }, t.dtype().name());
        let start = data + usize::try_from(offset).unwrap();
        assert_eq!(reader.data(t.name()).unwrap(), &bytes[start..start + size]);
    }
    // SAFETY: the context is live.
    assert_eq!(unsafe { sys::gguf_get_alignment(c.0) }, reader.alignment() as usize);
    // SAFETY: the context is live.
    assert_eq!(unsafe { sys::gguf_get_version(c.0) }, reader.version());
}

#[test]
fn ggml_reads_what_the_writer_writes() {
    let bytes = everything();
    let reader = Reader::from_bytes(bytes.clone()).unwrap();
    same(&bytes, &reader);
    let aligned = writer(&reader).set("general.alignment", 128_u32).unwrap().to_bytes().unwrap();
    same(&aligned, &Reader::from_bytes(aligned.clone()).unwrap());
}

#[test]
fn ggml_reads_tensors_of_every_type() {
    let mut writer = Writer::new();
    for dtype in DType::ALL.iter().filter(|t| t.is_known()) {
        let ne = [2 * dtype.block_size(), 3];
        let size = 6 * dtype.type_size();
        let data: Vec<u8> = (0..size).map(|i| u8::try_from(i % 251).unwrap()).collect();
        writer.tensor(dtype.name(), *dtype, ne, &data).unwrap();
    }
    let bytes = writer.to_bytes().unwrap();
    let mut stream = Reader::from_stream(Cursor::new(&bytes)).unwrap();
    let reader = Reader::from_bytes(&bytes).unwrap();
    same(&bytes, &reader);
    let memory = Device::cpu().unwrap().buffer_type();
    let (loaded, streamed) = (reader.load(memory).unwrap(), stream.stream(memory, |_, _| ()).unwrap());
    for t in reader.tensors() {
        let data = reader.data(t.name()).unwrap();
        assert_eq!(loaded.tensor(t.name()).unwrap().dtype(), t.dtype());
        assert_eq!(loaded.read_bytes(t.name()).unwrap(), data, "{}", t.name());
        assert_eq!(streamed.read_bytes(t.name()).unwrap(), data, "{}", t.name());
    }
}

/// Sets `key` through ggml.
fn set(c: &C, key: &str, value: &Value) {
    let key = CString::new(key).unwrap();
    macro_rules! set {
        ($($variant:ident $set:ident $raw:ident;)*) => {
            match value {
                // SAFETY: the context is live; the NUL-terminated key is copied.
                $(Value::$variant(v) => unsafe { sys::$set(c.0, key.as_ptr(), *v) },)*
                // SAFETY: the context is live; C copies the key and the values, whose number is passed.
                $(Value::Array(Array::$variant(v)) => unsafe {
                    sys::gguf_set_arr_data(c.0, key.as_ptr(), sys::$raw, v.as_ptr().cast(), v.len());
                },)*
                Value::String(text) => {
                    let text = CString::new(text.as_str()).unwrap();
                    // SAFETY: the context is live; C copies both NUL-terminated strings.
                    unsafe { sys::gguf_set_val_str(c.0, key.as_ptr(), text.as_ptr()) }
                }
                Value::Array(Array::String(texts)) => {
                    let texts: Vec<_> = texts.iter().map(|t| CString::new(t).unwrap()).collect();
                    let mut pointers: Vec<_> = texts.iter().map(|t| t.as_ptr()).collect();
                    // SAFETY: the context is live; C copies the strings, whose number is passed.
                    unsafe { sys::gguf_set_arr_str(c.0, key.as_ptr(), pointers.as_mut_ptr(), pointers.len()) }
                }
                other => panic!("{other:?}"),
            }
        };
    }
    set! {
        U8 gguf_set_val_u8 GGUF_TYPE_UINT8;
        I8 gguf_set_val_i8 GGUF_TYPE_INT8;
        U16 gguf_set_val_u16 GGUF_TYPE_UINT16;
        I16 gguf_set_val_i16 GGUF_TYPE_INT16;
        U32 gguf_set_val_u32 GGUF_TYPE_UINT32;
        I32 gguf_set_val_i32 GGUF_TYPE_INT32;
        F32 gguf_set_val_f32 GGUF_TYPE_FLOAT32;
        Bool gguf_set_val_bool GGUF_TYPE_BOOL;
        U64 gguf_set_val_u64 GGUF_TYPE_UINT64;
        I64 gguf_set_val_i64 GGUF_TYPE_INT64;
        F64 gguf_set_val_f64 GGUF_TYPE_FLOAT64;
    }
}

#[test]
fn writer_writes_the_bytes_of_ggml() {
    // SAFETY: no preconditions; `C` takes ownership of the result.
    let c = C(unsafe { sys::gguf_init_empty() });
    for (key, value) in values() {
        set(&c, &key, &value);
    }
    let all = tensors();
    let params = sys::ggml_init_params { mem_size: 1 << 16, mem_buffer: ptr::null_mut(), no_alloc: true };
    // SAFETY: C allocates the pool: 64 KiB, enough for the headers of seven tensors.
    let pool = unsafe { sys::ggml_init(params) };
    for (name, dtype, ne, data) in &all {
        let dtype = (0..sys::GGML_TYPE_COUNT).find(|&raw| {
            // SAFETY: accepts any type number below the count of types.
            let name = unsafe { sys::ggml_type_name(raw) };
            // SAFETY: not NULL, hence a NUL-terminated string literal.
            !name.is_null() && unsafe { string(name) } == dtype.name()
        });
        // SAFETY: the pool is live and has room; the four dimensions are whole blocks.
        let t = unsafe { sys::ggml_new_tensor(pool, dtype.unwrap(), 4, ne.as_ptr()) };
        let name = CString::new(name.as_str()).unwrap();
        // SAFETY: the tensor is live; C copies the name.
        unsafe { sys::ggml_set_name(t, name.as_ptr()) };
        // SAFETY: context and tensor are live; C copies the header.
        unsafe { sys::gguf_add_tensor(c.0, t) };
        // SAFETY: the data have the tensor's size and live until the file is written.
        unsafe { sys::gguf_set_tensor_data(c.0, name.as_ptr(), data.as_ptr().cast()) };
    }
    let path = format!("{}/gguf-c-{}.gguf", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let c_path = CString::new(path.as_str()).unwrap();
    // SAFETY: the context and all data that it refers to are live.
    assert!(unsafe { sys::gguf_write_to_file(c.0, c_path.as_ptr(), false) });
    // SAFETY: the pool is owned here and no longer used: the context has copies of the headers.
    unsafe { sys::ggml_free(pool) };
    let written = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(written, everything());
}
