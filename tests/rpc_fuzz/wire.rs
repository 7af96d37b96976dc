//! ggml's RPC protocol, written down independently: command numbers and tensor descriptions.

/// A command's number and payload.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) command: u8,
    pub(crate) payload: Vec<u8>,
}

pub(crate) const ALLOC_BUFFER: u8 = 0;
pub(crate) const BUFFER_GET_BASE: u8 = 3;
pub(crate) const FREE_BUFFER: u8 = 4;
pub(crate) const BUFFER_CLEAR: u8 = 5;
pub(crate) const SET_TENSOR: u8 = 6;
pub(crate) const SET_TENSOR_HASH: u8 = 7;
pub(crate) const GET_TENSOR: u8 = 8;
pub(crate) const COPY_TENSOR: u8 = 9;
pub(crate) const GRAPH_COMPUTE: u8 = 10;
pub(crate) const INIT_TENSOR: u8 = 12;
pub(crate) const GET_ALLOC_SIZE: u8 = 13;
pub(crate) const HELLO: u8 = 14;
pub(crate) const DEVICE_COUNT: u8 = 15;
pub(crate) const GRAPH_RECOMPUTE: u8 = 16;
pub(crate) const MEMSET_TENSOR: u8 = 17;
pub(crate) const SET_TENSOR_2D: u8 = 18;
pub(crate) const GET_TENSOR_2D: u8 = 19;

/// Whether graphs have numbers, and there are commands after `MEMSET_TENSOR`: since version 8.
pub(crate) const NUMBERED: bool = ggml::rpc::VERSION[0] >= 8;

const NAMES: [&str; 23] = [
    "ALLOC_BUFFER",
    "GET_ALIGNMENT",
    "GET_MAX_SIZE",
    "BUFFER_GET_BASE",
    "FREE_BUFFER",
    "BUFFER_CLEAR",
    "SET_TENSOR",
    "SET_TENSOR_HASH",
    "GET_TENSOR",
    "COPY_TENSOR",
    "GRAPH_COMPUTE",
    "GET_DEVICE_MEMORY",
    "INIT_TENSOR",
    "GET_ALLOC_SIZE",
    "HELLO",
    "DEVICE_COUNT",
    "GRAPH_RECOMPUTE",
    "MEMSET_TENSOR",
    "SET_TENSOR_2D",
    "GET_TENSOR_2D",
    "COMM_INIT",
    "COMM_ALLREDUCE",
    "COMM_FREE",
];

pub(crate) fn name(command: u8) -> &'static str {
    NAMES.get(usize::from(command)).copied().unwrap_or("none at all")
}

/// Whether the server answers the command.
pub(crate) fn is_answered(command: u8) -> bool {
    matches!(command, 0..=3 | 7..=9 | 11 | 13..=15 | GET_TENSOR_2D | 20)
}

/// The number of operations in this version.
pub(crate) const OPS: u32 = ggml::sys::GGML_OP_COUNT;
pub(crate) const ADD: u32 = ggml::sys::GGML_OP_ADD;

/// The flag of tensors to be computed.
pub(crate) const COMPUTE: u32 = 16;

/// A tensor's description.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tensor {
    pub(crate) id: u64,
    pub(crate) kind: u32,
    pub(crate) buffer: u64,
    pub(crate) ne: [u32; 4],
    pub(crate) nb: [u32; 4],
    pub(crate) op: u32,
    pub(crate) flags: u32,
    pub(crate) src: [u64; 10],
    pub(crate) data: u64,
}

impl Tensor {
    /// A tensor of `n` f32 values.
    pub(crate) fn row(id: u64, buffer: u64, data: u64, n: u32) -> Self {
        let nb = [4, 4 * n, 4 * n, 4 * n];
        Self { id, kind: 0, buffer, ne: [n, 1, 1, 1], nb, op: 0, flags: 0, src: [0; 10], data }
    }

    /// Its description, without parameters, view and name.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(296);
        let words = |bytes: &mut Vec<u8>, words: &[u32]| words.iter().for_each(|w| bytes.extend(w.to_le_bytes()));
        bytes.extend(self.id.to_le_bytes());
        words(&mut bytes, &[self.kind]);
        bytes.extend(self.buffer.to_le_bytes());
        words(&mut bytes, &self.ne);
        words(&mut bytes, &self.nb);
        words(&mut bytes, &[self.op]);
        words(&mut bytes, &[0; 16]); // parameters
        words(&mut bytes, &[self.flags]);
        self.src.iter().for_each(|src| bytes.extend(src.to_le_bytes()));
        bytes.extend([0; 16]); // of a view
        bytes.extend(self.data.to_le_bytes());
        bytes.extend([0; 64 + 4]); // name, and how often it is used
        bytes
    }
}

/// The offset and size of the fields of a tensor that a server might trust.
pub(crate) const FIELDS: [(usize, usize); 21] = [
    (0, 8),  // id
    (8, 4),  // type
    (12, 8), // buffer
    (20, 4), // ne
    (24, 4),
    (28, 4),
    (32, 4),
    (36, 4), // nb
    (40, 4),
    (44, 4),
    (48, 4),
    (52, 4), // op
    (56, 4), // parameters
    (60, 4),
    (64, 4),
    (120, 4), // flags
    (124, 8), // sources
    (132, 8),
    (204, 8), // view of
    (212, 8), // from where
    (220, 8), // data
];
