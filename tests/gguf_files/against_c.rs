//! ggml's own functions, held against this crate's: both make the same bytes, and read the same from them.

use std::ffi::{CStr, CString, c_char};
use std::io::Cursor;
use std::ptr;

use ggml::gguf::{Array, Reader, Value, Writer};
use ggml::{DType, Device, sys};

use crate::{everything, tensors, values};

/// A file as ggml holds it, freed at the end.
struct C(*mut sys::gguf_context);

impl Drop for C {
    fn drop(&mut self) {
        // SAFETY: ours, and used no more.
        unsafe { sys::gguf_free(self.0) }
    }
}

/// Copies what C points to.
///
/// # Safety
///
/// There must be `n` values of the type, aligned or not; `T` must be one that any bits are a value of.
unsafe fn copy<T: Copy>(data: *const T, n: usize) -> Vec<T> {
    (0..n)
        .map(|i| {
            // SAFETY: there are `n` by contract.
            unsafe { data.wrapping_add(i).read_unaligned() }
        })
        .collect()
}

/// # Safety
///
/// `text` must be a C string.
unsafe fn string(text: *const c_char) -> String {
    // SAFETY: by contract.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
}

impl C {
    fn parse(bytes: &[u8]) -> Self {
        let params = sys::gguf_init_params { no_alloc: true, ctx: ptr::null_mut() };
        // SAFETY: the bytes are only used during the call.
        let raw = unsafe { sys::gguf_init_from_buffer(bytes.as_ptr().cast(), bytes.len(), params) };
        assert!(!raw.is_null(), "ggml reads whatever this crate does");
        Self(raw)
    }

    fn value(&self, i: i64) -> Value {
        // SAFETY: `i` is below the number of entries.
        let kind = unsafe { sys::gguf_get_kv_type(self.0, i) };
        let array = kind == sys::GGUF_TYPE_ARRAY;
        let (of, n) = if array {
            // SAFETY: as above; the entry is an array.
            let of = unsafe { sys::gguf_get_arr_type(self.0, i) };
            // SAFETY: as above.
            (of, unsafe { sys::gguf_get_arr_n(self.0, i) })
        } else {
            (kind, 1)
        };
        let data = || match (array, of) {
            (_, sys::GGUF_TYPE_STRING) => ptr::null(),
            // SAFETY: an array that holds no text.
            (true, _) => unsafe { sys::gguf_get_arr_data(self.0, i) },
            // SAFETY: neither an array nor text.
            (false, _) => unsafe { sys::gguf_get_val_data(self.0, i) },
        };
        macro_rules! of {
            ($($raw:ident $variant:ident $t:ty;)*) => {
                match of {
                    $(sys::$raw => {
                        // SAFETY: `n` values of that type, as ggml says.
                        let values = unsafe { copy(data().cast::<$t>(), n) };
                        if array { Array::$variant(values).into() } else { values[0].into() }
                    })*
                    sys::GGUF_TYPE_BOOL => {
                        // SAFETY: a byte for each boolean.
                        let bytes = unsafe { copy(data().cast::<u8>(), n) };
                        let values: Vec<_> = bytes.into_iter().map(|b| b != 0).collect();
                        if array { Array::Bool(values).into() } else { values[0].into() }
                    }
                    sys::GGUF_TYPE_STRING if array => Array::String((0..n).map(|j| self.element(i, j)).collect()).into(),
                    sys::GGUF_TYPE_STRING => {
                        // SAFETY: a string that lives as long as the context.
                        let text = unsafe { sys::gguf_get_val_str(self.0, i) };
                        // SAFETY: as above.
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

    /// A text of an array.
    fn element(&self, i: i64, j: usize) -> String {
        // SAFETY: both indices are below their numbers; the string lives as long as the context.
        let text = unsafe { sys::gguf_get_arr_str(self.0, i, j) };
        // SAFETY: as above.
        unsafe { string(text) }
    }

    fn tensor(&self, i: i64) -> (String, [i64; 4], sys::ggml_type, u64, usize) {
        // SAFETY: `i` is below the number of tensors; the name lives as long as the context.
        let name = unsafe { sys::gguf_get_tensor_name(self.0, i) };
        // SAFETY: as above, four dimensions.
        let ne = unsafe { sys::gguf_get_tensor_ne(self.0, i) };
        // SAFETY: as above.
        let dtype = unsafe { sys::gguf_get_tensor_type(self.0, i) };
        // SAFETY: as above.
        let offset = unsafe { sys::gguf_get_tensor_offset(self.0, i) };
        // SAFETY: as above.
        let size = unsafe { sys::gguf_get_tensor_size(self.0, i) };
        // SAFETY: four dimensions.
        let ne = unsafe { copy(ne, 4) }.try_into().unwrap();
        // SAFETY: a C string.
        (unsafe { string(name) }, ne, dtype, offset as u64, size)
    }
}

/// What C shows of text: it ends at the first NUL. Floats are compared as bits.
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

/// Fails unless ggml reads from `bytes` what `reader` does.
pub(crate) fn same(bytes: &[u8], reader: &Reader<impl AsRef<[u8]>>) {
    let c = C::parse(bytes);
    // SAFETY: a live context, here and below.
    let n = unsafe { sys::gguf_get_n_kv(c.0) };
    assert_eq!(usize::try_from(n).unwrap(), reader.metadata().count());
    for (i, (key, value)) in (0..n).zip(reader.metadata()) {
        // SAFETY: `i` is below the number of entries; the key lives as long as the context.
        let c_key = unsafe { sys::gguf_get_key(c.0, i) };
        // SAFETY: a C string.
        assert_eq!(unsafe { string(c_key) }, key.split('\0').next().unwrap());
        let c_value = c.value(i);
        assert_eq!((c_value.type_name(), shown(&c_value)), (value.type_name(), shown(value)), "{key}");
    }
    // SAFETY: see above.
    let n = unsafe { sys::gguf_get_n_tensors(c.0) };
    assert_eq!(usize::try_from(n).unwrap(), reader.tensors().count());
    // SAFETY: see above.
    let data = unsafe { sys::gguf_get_data_offset(c.0) };
    for (i, t) in (0..n).zip(reader.tensors()) {
        let (name, ne, dtype, offset, size) = c.tensor(i);
        assert_eq!((&*name, ne, offset, size), (t.name(), t.shape().ne(), t.offset(), t.size()));
        // SAFETY: a type that ggml has read, and so knows.
        let dtype = unsafe { sys::ggml_type_name(dtype) };
        // SAFETY: a constant C string.
        assert_eq!(unsafe { string(dtype) }, t.dtype().name());
        let start = data + usize::try_from(offset).unwrap();
        assert_eq!(reader.data(t.name()).unwrap(), &bytes[start..start + size]);
    }
    // SAFETY: see above.
    assert_eq!(unsafe { sys::gguf_get_alignment(c.0) }, reader.alignment() as usize);
    // SAFETY: see above.
    assert_eq!(unsafe { sys::gguf_get_version(c.0) }, reader.version());
}

#[test]
fn ggml_reads_what_is_written() {
    let bytes = everything().to_bytes().unwrap();
    same(&bytes, &Reader::from_bytes(bytes.clone()).unwrap());
    let aligned = everything().set("general.alignment", 128_u32).unwrap().to_bytes().unwrap();
    same(&aligned, &Reader::from_bytes(aligned.clone()).unwrap());
}

#[test]
fn ggml_reads_tensors_of_every_type() {
    let mut writer = Writer::new();
    for dtype in DType::ALL {
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
    let (loaded, streamed) = (reader.load(|_| memory).unwrap(), stream.stream(|_| memory, |_, _| ()).unwrap());
    for t in reader.tensors() {
        let data = reader.data(t.name()).unwrap();
        assert_eq!(loaded.get(t.name()).unwrap().dtype(), t.dtype());
        assert_eq!(loaded.read_bytes(t.name()).unwrap(), data, "{}", t.name());
        assert_eq!(streamed.read_bytes(t.name()).unwrap(), data, "{}", t.name());
    }
}

/// Sets `key` in ggml's way.
fn set(c: &C, key: &str, value: &Value) {
    let key = CString::new(key).unwrap();
    macro_rules! set {
        ($($variant:ident $set:ident $raw:ident;)*) => {
            match value {
                // SAFETY: a live context and a C string that is copied.
                $(Value::$variant(v) => unsafe { sys::$set(c.0, key.as_ptr(), *v) },)*
                // SAFETY: as above, and as many values as are told, which are copied.
                $(Value::Array(Array::$variant(v)) => unsafe {
                    sys::gguf_set_arr_data(c.0, key.as_ptr(), sys::$raw, v.as_ptr().cast(), v.len());
                },)*
                Value::String(text) => {
                    let text = CString::new(text.as_str()).unwrap();
                    // SAFETY: C strings, which are copied.
                    unsafe { sys::gguf_set_val_str(c.0, key.as_ptr(), text.as_ptr()) }
                }
                Value::Array(Array::String(texts)) => {
                    let texts: Vec<_> = texts.iter().map(|t| CString::new(t).unwrap()).collect();
                    let mut pointers: Vec<_> = texts.iter().map(|t| t.as_ptr()).collect();
                    // SAFETY: as many C strings as are told, which are copied.
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
fn ggml_writes_the_same_bytes() {
    // SAFETY: no arguments; the result is ours.
    let c = C(unsafe { sys::gguf_init_empty() });
    for (key, value) in values() {
        set(&c, key, &value);
    }
    let all = tensors();
    let params = sys::ggml_init_params { mem_size: 1 << 16, mem_buffer: ptr::null_mut(), no_alloc: true };
    // SAFETY: asks for a pool of 64 KiB, enough for the headers of seven tensors.
    let pool = unsafe { sys::ggml_init(params) };
    for (name, dtype, ne, data) in &all {
        let dtype = (0..sys::GGML_TYPE_COUNT).find(|&raw| {
            // SAFETY: a number of a type.
            let name = unsafe { sys::ggml_type_name(raw) };
            // SAFETY: a constant C string or NULL.
            !name.is_null() && unsafe { string(name) } == dtype.name()
        });
        // SAFETY: a live pool with room, four dimensions that are whole blocks.
        let t = unsafe { sys::ggml_new_tensor(pool, dtype.unwrap(), 4, ne.as_ptr()) };
        let name = CString::new(*name).unwrap();
        // SAFETY: a live tensor; the name is copied.
        unsafe { sys::ggml_set_name(t, name.as_ptr()) };
        // SAFETY: both live; the header is copied.
        unsafe { sys::gguf_add_tensor(c.0, t) };
        // SAFETY: the data live until the file is written, and are as many as the tensor takes.
        unsafe { sys::gguf_set_tensor_data(c.0, name.as_ptr(), data.as_ptr().cast()) };
    }
    let path = format!("{}/gguf-c-{}.gguf", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    let c_path = CString::new(path.as_str()).unwrap();
    // SAFETY: everything that the file refers to lives.
    assert!(unsafe { sys::gguf_write_to_file(c.0, c_path.as_ptr(), false) });
    // SAFETY: ours, and used no more: the file's context has copies of the headers.
    unsafe { sys::ggml_free(pool) };
    let written = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(written, everything().to_bytes().unwrap());
}
