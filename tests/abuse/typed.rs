//! Generic methods, called for the element type of a tensor.

use ggml::prelude::*;

/// Calls a generic method for an element type, with the data as elements of it.
macro_rules! typed {
    ($dtype:expr, $bytes:expr, |$data:ident: $t:ident| $call:expr, $otherwise:expr) => {
        match $dtype {
            DType::F32 => typed!(@ f32, $bytes, $data, $t, $call),
            DType::F64 => typed!(@ f64, $bytes, $data, $t, $call),
            DType::F16 => typed!(@ half::f16, $bytes, $data, $t, $call),
            DType::BF16 => typed!(@ half::bf16, $bytes, $data, $t, $call),
            DType::I8 => typed!(@ i8, $bytes, $data, $t, $call),
            DType::I16 => typed!(@ i16, $bytes, $data, $t, $call),
            DType::I32 => typed!(@ i32, $bytes, $data, $t, $call),
            DType::I64 => typed!(@ i64, $bytes, $data, $t, $call),
            _ => $otherwise,
        }
    };
    (@ $type:ty, $bytes:expr, $data:ident, $t:ident, $call:expr) => {{
        type $t = $type;
        let $data: Vec<$type> = $crate::typed::elements($bytes);
        $call
    }};
}

pub(crate) use typed;

pub(crate) fn elements<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}
