//! ggml's RPC protocol, as far as the relay has to understand it.
//!
//! A request is a command byte, a length and that many bytes. A reply, for the commands that have one, is a length and
//! that many bytes. Integers are little-endian, and a client has at most one reply outstanding.

use ggml_sys as sys;

/// The version of the protocol that this ggml speaks: major, minor and patch (`RPC_PROTO_MAJOR_VERSION`,
/// `RPC_PROTO_MINOR_VERSION`, `RPC_PROTO_PATCH_VERSION`).
///
/// A client accepts servers of the same major version whose minor version is not newer than its own.
pub const VERSION: [u8; 3] =
    [byte(sys::RPC_PROTO_MAJOR_VERSION), byte(sys::RPC_PROTO_MINOR_VERSION), byte(sys::RPC_PROTO_PATCH_VERSION)];

// This file describes exactly these versions.
const _: () = assert!(
    matches!(
        (sys::RPC_PROTO_MAJOR_VERSION, sys::RPC_PROTO_MINOR_VERSION, sys::RPC_PROTO_PATCH_VERSION),
        (7, 0, 0) | (8, 0, 1)
    ),
    "ggml speaks another protocol: compare this file with its sources"
);

/// Whether graphs have numbers, by which the server keeps several. In older protocols it keeps the last graph of each
/// device. Protocols with numbers also have the commands after `MEMSET_TENSOR`.
pub(super) const NUMBERED: bool = VERSION[0] >= 8;

/// The graphs of a device that client and server keep (`GRAPH_CACHE_MAX`): before another one, they discard all.
pub(super) const KEPT_GRAPHS: usize = if NUMBERED { 1024 } else { 1 };

const fn byte(number: u32) -> u8 {
    let [byte, ..] = number.to_le_bytes();
    byte
}

/// The length of a request's header: the command and the payload's length.
pub(super) const REQUEST_HEAD: usize = 1 + 8;

/// The length of a reply's header: the payload's length.
pub(super) const REPLY_HEAD: usize = 8;

/// Transport capabilities in a HELLO. All zero: plain TCP.
pub(super) const CAPS: usize = 24;

/// The length of the HELLO reply: version, padding, capabilities.
pub(super) const HELLO_REPLY: usize = 4 + CAPS;

/// The number of source slots in a tensor's description, used or not.
const SOURCES: u64 = sys::GGML_MAX_SRC as u64;

/// The length of a tensor's description: four 4-byte fields, five 8-byte fields, and arrays.
const TENSOR: u64 = 4 * 4
    + 5 * 8
    + 2 * 4 * sys::GGML_MAX_DIMS as u64
    + sys::GGML_MAX_OP_PARAMS as u64
    + 8 * SOURCES
    + sys::GGML_MAX_NAME as u64;

/// The maximum length of a fixed-length reply.
pub(super) const MAX_REPLY: usize = HELLO_REPLY;

/// Sizes and addresses from here on are rejected, so that sums of a few of them can't overflow.
const ABSURD: u64 = 1 << 60;

/// The maximum number of devices accepted from a server.
const MAX_DEVICES: u64 = 256;

/// The maximum alignment accepted from a server.
const MAX_ALIGNMENT: u64 = 1 << 30;

/// The client's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Command {
    AllocBuffer = 0,
    GetAlignment,
    GetMaxSize,
    BufferGetBase,
    FreeBuffer,
    BufferClear,
    SetTensor,
    SetTensorHash,
    GetTensor,
    CopyTensor,
    GraphCompute,
    GetDeviceMemory,
    InitTensor,
    GetAllocSize,
    Hello,
    DeviceCount,
    GraphRecompute,
    MemsetTensor,
    SetTensor2d,
    GetTensor2d,
    CommInit,
    CommAllreduce,
    CommFree,
}

/// The length of a request's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestLen {
    Exactly(u64),
    Any,
}

impl Command {
    pub(super) const ALL: [Self; 23] = [
        Self::AllocBuffer,
        Self::GetAlignment,
        Self::GetMaxSize,
        Self::BufferGetBase,
        Self::FreeBuffer,
        Self::BufferClear,
        Self::SetTensor,
        Self::SetTensorHash,
        Self::GetTensor,
        Self::CopyTensor,
        Self::GraphCompute,
        Self::GetDeviceMemory,
        Self::InitTensor,
        Self::GetAllocSize,
        Self::Hello,
        Self::DeviceCount,
        Self::GraphRecompute,
        Self::MemsetTensor,
        Self::SetTensor2d,
        Self::GetTensor2d,
        Self::CommInit,
        Self::CommAllreduce,
        Self::CommFree,
    ];

    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL
            .get(usize::from(byte))
            .copied()
            .filter(|command| NUMBERED || command.byte() <= Self::MemsetTensor.byte())
    }

    pub(super) fn byte(self) -> u8 {
        self as u8
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AllocBuffer => "ALLOC_BUFFER",
            Self::GetAlignment => "GET_ALIGNMENT",
            Self::GetMaxSize => "GET_MAX_SIZE",
            Self::BufferGetBase => "BUFFER_GET_BASE",
            Self::FreeBuffer => "FREE_BUFFER",
            Self::BufferClear => "BUFFER_CLEAR",
            Self::SetTensor => "SET_TENSOR",
            Self::SetTensorHash => "SET_TENSOR_HASH",
            Self::GetTensor => "GET_TENSOR",
            Self::CopyTensor => "COPY_TENSOR",
            Self::GraphCompute => "GRAPH_COMPUTE",
            Self::GetDeviceMemory => "GET_DEVICE_MEMORY",
            Self::InitTensor => "INIT_TENSOR",
            Self::GetAllocSize => "GET_ALLOC_SIZE",
            Self::Hello => "HELLO",
            Self::DeviceCount => "DEVICE_COUNT",
            Self::GraphRecompute => "GRAPH_RECOMPUTE",
            Self::MemsetTensor => "MEMSET_TENSOR",
            Self::SetTensor2d => "SET_TENSOR_2D",
            Self::GetTensor2d => "GET_TENSOR_2D",
            Self::CommInit => "COMM_INIT",
            Self::CommAllreduce => "COMM_ALLREDUCE",
            Self::CommFree => "COMM_FREE",
        }
    }

    /// The length of the request's payload. All fixed lengths are small.
    pub(super) fn request_len(self) -> RequestLen {
        RequestLen::Exactly(match self {
            Self::SetTensor | Self::SetTensor2d | Self::GraphCompute => return RequestLen::Any,
            Self::DeviceCount => 0,
            Self::GetAlignment | Self::GetMaxSize | Self::GetDeviceMemory | Self::CommFree => 4,
            Self::GraphRecompute => 4 + if NUMBERED { 8 } else { 0 },
            Self::BufferGetBase | Self::FreeBuffer => 8,
            Self::BufferClear => 8 + 1,
            Self::AllocBuffer => 4 + 8,
            Self::Hello => 24,
            Self::InitTensor => TENSOR,
            Self::SetTensorHash | Self::GetTensor => TENSOR + 8 + 8,
            Self::MemsetTensor => TENSOR + 8 + 8 + 1,
            Self::GetTensor2d => TENSOR + 4 * 8,
            Self::CommInit => 4 * 4 + 64,
            Self::CommAllreduce => 4 + TENSOR,
            Self::CopyTensor => 2 * TENSOR,
            Self::GetAllocSize => 4 + (1 + SOURCES) * TENSOR,
        })
    }

    /// The length of the reply to `request`; `None` for a command without a reply.
    pub(super) fn reply_len(self, request: &[u8]) -> Option<u64> {
        match self {
            Self::FreeBuffer
            | Self::BufferClear
            | Self::SetTensor
            | Self::SetTensor2d
            | Self::GraphCompute
            | Self::InitTensor
            | Self::GraphRecompute
            | Self::MemsetTensor
            | Self::CommAllreduce
            | Self::CommFree => None,
            Self::SetTensorHash | Self::CopyTensor | Self::CommInit => Some(1),
            Self::DeviceCount => Some(4),
            Self::GetAlignment | Self::GetMaxSize | Self::BufferGetBase | Self::GetAllocSize => Some(8),
            Self::AllocBuffer | Self::GetDeviceMemory => Some(16),
            Self::Hello => Some(HELLO_REPLY as u64),
            // The client reads into a buffer of the length it asked for, which is the request's last field.
            Self::GetTensor => Some(trailing_u64(request)),
            // The last fields are the size, the number of copies, and the stride.
            Self::GetTensor2d => {
                let fields = request.last_chunk::<24>().map_or(&[][..], |fields| fields);
                Some(u64_at(fields, 0).saturating_mul(u64_at(fields, 8)))
            }
        }
    }

    /// Why ggml's client must not see `reply`, although its length is right: it would assert, or compute with it.
    pub(super) fn refusal(self, request: &[u8], reply: &[u8]) -> Option<String> {
        let first = u64_at(reply, 0);
        let (bad, rule) = match self {
            Self::DeviceCount => (first > MAX_DEVICES, "no plausible number of devices"),
            Self::GetAlignment => (!first.is_power_of_two() || first > MAX_ALIGNMENT, "no power of two in reason"),
            Self::GetMaxSize => (first == 0, "not a size"),
            Self::BufferGetBase => (first == 0 || first >= ABSURD, "no address"),
            Self::GetAllocSize => (first >= ABSURD, "no plausible size"),
            Self::AllocBuffer => {
                let size = u64_at(reply, 8);
                // A null pointer means that the server is out of memory, which the client handles.
                let wrong = first != 0 && (size < trailing_u64(request) || size >= ABSURD);
                return wrong.then(|| {
                    format!("it answered {} of {} bytes with a buffer of {size}", self.name(), trailing_u64(request))
                });
            }
            _ => return None,
        };
        bad.then(|| format!("it answered {} with {first}, which is {rule}", self.name()))
    }

    /// The relay's reply in place of a lost server's: one that ggml's client accepts and that causes no further
    /// requests. The result is a prefix; the rest of the reply is zeros.
    ///
    /// - `ALLOC_BUFFER`: a null buffer, which the client reports as a failed allocation.
    /// - `BUFFER_GET_BASE`: ggml asserts that it is not null; it is only used in address arithmetic.
    /// - `SET_TENSOR_HASH`: "the data are present", so that they are not sent.
    /// - `COPY_TENSOR`: "done"; a failure would make ggml copy through the host.
    /// - everything else: zeros. For `DEVICE_COUNT` that means no devices, for `GET_TENSOR` defined bytes; ggml raises an
    ///   allocation size of zero to the tensor's own.
    pub(super) fn stand_in(self) -> [u8; 8] {
        match self {
            Self::GetAlignment => 64_u64.to_le_bytes(),
            Self::GetMaxSize => u64::MAX.to_le_bytes(),
            Self::BufferGetBase => (1_u64 << 40).to_le_bytes(),
            Self::SetTensorHash | Self::CopyTensor => 1_u64.to_le_bytes(),
            _ => [0; 8],
        }
    }
}

/// The reply to a HELLO: this protocol, over plain TCP.
pub(super) fn hello_reply() -> [u8; HELLO_REPLY] {
    let mut reply = [0; HELLO_REPLY];
    for (to, from) in reply.iter_mut().zip(VERSION) {
        *to = from;
    }
    reply
}

/// The header of a request.
pub(super) fn request_head(command: Command, len: u64) -> [u8; REQUEST_HEAD] {
    let mut head = [command.byte(); REQUEST_HEAD];
    for (to, from) in head.iter_mut().skip(1).zip(len.to_le_bytes()) {
        *to = from;
    }
    head
}

/// The device in the first four bytes of a graph's payload; zero if there are fewer.
pub(super) fn device(payload: &[u8]) -> u32 {
    payload.first_chunk().copied().map_or(0, u32::from_le_bytes)
}

/// The number after the device in a graph's payload, by which it can be repeated; `None` if it can't be.
pub(super) fn graph_number(payload: &[u8]) -> Option<u64> {
    if NUMBERED { Some(u64_at(payload, 4)).filter(|&number| number != 0) } else { Some(0) }
}

fn trailing_u64(bytes: &[u8]) -> u64 {
    bytes.last_chunk().copied().map_or(0, u64::from_le_bytes)
}

/// The little-endian number at `at`; missing bytes are zero.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.iter().skip(at).take(8).rev().fold(0, |n, &b| n << 8 | u64::from(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_bytes_are_their_discriminants() {
        let known = if NUMBERED { Command::ALL.len() } else { 18 };
        for (i, command) in Command::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(command.byte()), i, "{}", command.name());
            assert_eq!(Command::from_byte(command.byte()), Some(command).filter(|_| i < known));
        }
        assert_eq!(Command::Hello.byte(), 14, "upstream keeps HELLO at 14 for ever");
        assert_eq!(Command::from_byte(known.try_into().unwrap()), None, "RPC_CMD_NONE never travels");
    }

    #[test]
    fn rpc_tensor_is_as_long_as_in_c() {
        assert_eq!(TENSOR, 296);
    }

    #[test]
    fn get_tensor_reply_length_is_read_from_the_request() {
        let mut request = vec![0; 312];
        request[304..].copy_from_slice(&70_000_u64.to_le_bytes());
        assert_eq!(Command::GetTensor.reply_len(&request), Some(70_000));
        let rows = [&[0; 304][..], &[7_u64, 10_000, 512].map(u64::to_le_bytes).concat()].concat();
        assert_eq!(RequestLen::Exactly(rows.len() as u64), Command::GetTensor2d.request_len());
        assert_eq!(Command::GetTensor2d.reply_len(&rows), Some(70_000));
    }

    #[test]
    fn stand_ins_pass_the_checks_of_replies() {
        let request = [0xff; 12];
        for command in Command::ALL {
            let Some(len) = command.reply_len(&request).filter(|&len| len <= MAX_REPLY as u64) else { continue };
            let reply: Vec<u8> =
                command.stand_in().into_iter().chain([0; MAX_REPLY]).take(usize::try_from(len).unwrap()).collect();
            assert_eq!(command.refusal(&request, &reply), None);
        }
    }

    #[test]
    fn refusal_names_replies_that_ggml_would_assert_on() {
        let request = |n: u64| [&[0; 4][..], &n.to_le_bytes()].concat();
        let two = |a: u64, b: u64| [a.to_le_bytes(), b.to_le_bytes()].concat();
        let one = u64::to_le_bytes;
        assert!(Command::GetAlignment.refusal(&[], &one(3)).is_some());
        assert!(Command::GetAlignment.refusal(&[], &one(0)).is_some());
        assert!(Command::GetAlignment.refusal(&[], &one(32)).is_none());
        assert!(Command::GetMaxSize.refusal(&[], &one(0)).is_some());
        assert!(Command::BufferGetBase.refusal(&[], &one(0)).is_some());
        assert!(Command::GetAllocSize.refusal(&[], &one(u64::MAX)).is_some());
        assert!(Command::DeviceCount.refusal(&[], &u32::MAX.to_le_bytes()).is_some());
        assert!(Command::AllocBuffer.refusal(&request(100), &two(1, 99)).is_some());
        assert!(Command::AllocBuffer.refusal(&request(100), &two(1, 100)).is_none());
        assert!(Command::AllocBuffer.refusal(&request(100), &two(0, 0)).is_none());
    }
}
