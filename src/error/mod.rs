//! What can go wrong, told in terms of the call that was made and the tensors it was made with.

mod print;
mod shown;

use std::borrow::Cow;
use std::fmt;

use print::{Available, List, Log, Named, Needs};
pub(crate) use shown::Shown;

/// The result of everything fallible in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A tensor as an error message shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TensorInfo {
    /// The tensor's name, empty if it has none.
    pub name: Box<str>,
    /// ggml's name of the element type, such as `f32` or `q4_K`.
    pub dtype: &'static str,
    /// Elements per dimension in ggml's order: `ne[0]` is the innermost.
    pub ne: [i64; 4],
}

impl fmt::Display for TensorInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() {
            write!(f, "{} {:?}", self.dtype, self.ne)
        } else {
            write!(f, "`{}` {} {:?}", Shown::name(&self.name), self.dtype, self.ne)
        }
    }
}

/// Why a call failed.
///
/// Every variant says which call it was; those about tensors name them with their types and shapes.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operands' shapes, strides or memory do not fit the operation.
    #[error("{op}({}): {}", List(operands), Shown::text(expected))]
    Shape {
        /// The operation.
        op: &'static str,
        /// What it was called with.
        operands: Box<[TensorInfo]>,
        /// What it needs.
        expected: Cow<'static, str>,
    },
    /// The operands' element types do not fit the operation.
    #[error("{op}({}): {}", List(operands), Shown::text(expected))]
    DType {
        /// The operation.
        op: &'static str,
        /// What it was called with.
        operands: Box<[TensorInfo]>,
        /// What it needs.
        expected: Cow<'static, str>,
    },
    /// A parameter that is no tensor is out of its range.
    #[error("{op}: `{name}` is {}, but {}", Shown::text(value), Shown::text(expected))]
    Param {
        /// The operation.
        op: &'static str,
        /// The parameter.
        name: &'static str,
        /// What it was.
        value: Box<str>,
        /// What it needs.
        expected: Cow<'static, str>,
    },
    /// The operation would write into frozen weights.
    #[error("{op}: {tensor} belongs to frozen weights, which no operation may write; copy it first (`dup`)")]
    Frozen {
        /// The operation.
        op: &'static str,
        /// The tensor it would write to.
        tensor: TensorInfo,
    },
    /// Weights in memory that rearranges them, used for something else than products.
    #[error(
        "{call}: {tensor} lies in memory that rearranges it: it can be set as a whole, and be the first operand of `mul_mat` or `mul_mat_id`, nothing else"
    )]
    Packed {
        /// The call.
        call: &'static str,
        /// The tensor.
        tensor: TensorInfo,
    },
    /// Host data of another length than the tensor's.
    #[error("{call}: {tensor} takes {expected} {unit}, got {got}")]
    Length {
        /// The call.
        call: &'static str,
        /// The tensor.
        tensor: TensorInfo,
        /// How many it takes.
        expected: usize,
        /// How many there were.
        got: usize,
        /// Of what: elements or bytes.
        unit: &'static str,
    },
    /// A part of a tensor that does not lie inside it.
    #[error("{call}: {len} elements from element {offset} do not lie inside {tensor}, which has {size}")]
    Range {
        /// The call.
        call: &'static str,
        /// The tensor.
        tensor: TensorInfo,
        /// First element asked for.
        offset: usize,
        /// Number of elements asked for.
        len: usize,
        /// Number of elements there are.
        size: usize,
    },
    /// Data of another Rust type than the tensor's elements.
    #[error("{call}: {tensor} does not hold `{asked}` elements")]
    ElementType {
        /// The call.
        call: &'static str,
        /// The tensor.
        tensor: TensorInfo,
        /// The Rust type that was asked for.
        asked: &'static str,
    },
    /// An index beyond what it picks from.
    #[error("{call}: element {position} of {tensor} is {value}, but an operation uses it to pick one of {below}: it must lie in 0 to {}", below - 1)]
    Index {
        /// The call.
        call: &'static str,
        /// The tensor of indices.
        tensor: TensorInfo,
        /// Which element of the data.
        position: usize,
        /// Its value.
        value: i64,
        /// What it must be below.
        below: i64,
    },
    /// A row to write to, or an expert, that is named twice.
    #[error(
        "{call}: element {position} of {tensor} is {value} again, but an operation needs what it names in a row to differ"
    )]
    Repeated {
        /// The call.
        call: &'static str,
        /// The tensor of numbers.
        tensor: TensorInfo,
        /// Which element of the data.
        position: usize,
        /// Its value.
        value: i64,
    },
    /// The tensor is not part of the graph, or of the weights, that was asked.
    #[error("{call}: {tensor} is not part of {whole}")]
    NotPart {
        /// The call.
        call: &'static str,
        /// The tensor.
        tensor: TensorInfo,
        /// What it should be part of.
        whole: &'static str,
    },
    /// The tensor's value does not survive the computation, so it can't be read.
    #[error(
        "{call}: the memory of {tensor} is reused during the computation; name it in `Context::graph` or mark it with `Context::output`"
    )]
    NotKept {
        /// The call.
        call: &'static str,
        /// The tensor.
        tensor: TensorInfo,
    },
    /// A result was read before it was computed.
    #[error("{call}: {tensor} has not been computed yet; call `compute` first")]
    NotComputed {
        /// The call.
        call: &'static str,
        /// The tensor.
        tensor: TensorInfo,
    },
    /// An input was never given a value.
    #[error("{call}: the input {tensor} was not set; call `set` first")]
    InputNotSet {
        /// The call.
        call: &'static str,
        /// The tensor.
        tensor: TensorInfo,
    },
    /// A tensor that devices are using, in the closure of the `compute_async` that has them do so.
    #[error("{call}: {tensor} is being used by the computation that is under way; do that when it is over")]
    InUse {
        /// The call.
        call: &'static str,
        /// The tensor.
        tensor: TensorInfo,
    },
    /// A graph without operations.
    #[error("graph: nothing to compute; give at least one tensor that an operation made")]
    EmptyGraph,
    /// No device, or not the one it was put on, can run an operation.
    #[error("{} on {}: {} (device {})", Shown::name(op), List(operands), Shown::text(reason), Shown::text(device))]
    Unsupported {
        /// The operation.
        op: Box<str>,
        /// Its sources and its result.
        operands: Box<[TensorInfo]>,
        /// The device, or the list of those that were tried.
        device: Box<str>,
        /// What is missing.
        reason: Cow<'static, str>,
    },
    /// Something asked for by name that is not there.
    #[error("no {what} named `{}`; there {}", Shown::name(name), Available(available))]
    NoSuch {
        /// What kind of thing.
        what: &'static str,
        /// The name.
        name: Box<str>,
        /// What there is.
        available: Box<[Box<str>]>,
    },
    /// A name that is taken.
    #[error("{call}: there is a {what} named `{}` already", Shown::name(name))]
    Duplicate {
        /// The call.
        call: &'static str,
        /// What kind of thing.
        what: &'static str,
        /// The name.
        name: Box<str>,
    },
    /// A list of backends that the scheduler can't work with.
    #[error("Sched: {reason} (backends: {})", Shown::text(backends))]
    Backends {
        /// What is wrong with it.
        reason: &'static str,
        /// The list.
        backends: Box<str>,
    },
    /// Memory that could not be had.
    #[error("out of memory: {}{}{}", Shown::text(what), Needs(*bytes), Log(log))]
    OutOfMemory {
        /// What for.
        what: Cow<'static, str>,
        /// How much, where it is known; what ggml logged may say it too.
        bytes: Option<usize>,
        /// What ggml logged during the call.
        log: Box<str>,
    },
    /// The processor lacks what ggml was compiled for.
    #[error(
        "this processor lacks {missing}, which ggml was compiled to use; rebuild with a lower GGML_SYS_CPU (see the README)"
    )]
    Cpu {
        /// The missing features.
        missing: Box<str>,
    },
    /// Another ggml is linked, or was found when the program started, than the one that this crate was compiled for.
    #[error(
        "this program was compiled for ggml {built}, but ggml {found} is what it runs with; make the system find the former first (LD_LIBRARY_PATH, on macOS DYLD_LIBRARY_PATH, on Windows PATH), or compile the program again, with one ggml for all that it links"
    )]
    Version {
        /// The version, and the commit where it is known, that this crate was compiled for.
        built: Box<str>,
        /// Those of the ggml that is there.
        found: Box<str>,
    },
    /// ggml returned no object.
    #[error("{call} failed{}", Log(log))]
    Null {
        /// The C function.
        call: &'static str,
        /// What ggml logged during the call.
        log: Box<str>,
    },
    /// ggml returned a status that is not success.
    #[error("{call} returned {}{}", Named(*status), Log(log))]
    #[doc(alias = "ggml_status_to_string")]
    Status {
        /// The C function.
        call: &'static str,
        /// `ggml_status` as C gave it.
        status: i32,
        /// What ggml logged during the call.
        log: Box<str>,
    },
    /// An assertion of ggml's failed; the process lives because the call was guarded.
    #[error("{call}: ggml gave up: {}{}", Shown::text(message), Log(log))]
    Ggml {
        /// The C function.
        call: &'static str,
        /// ggml's message, with its file and line.
        message: Box<str>,
        /// What ggml logged during the call.
        log: Box<str>,
    },
    /// A C++ exception left ggml.
    #[error("{call}: C++ exception: {}{}", Shown::text(message), Log(log))]
    Exception {
        /// The C function.
        call: &'static str,
        /// The exception's text.
        message: Box<str>,
        /// What ggml logged during the call.
        log: Box<str>,
    },
    /// An earlier call failed inside this object and left it in an unknown state.
    #[error("this {object} can no longer be used: an earlier call failed inside it; make a new one")]
    Poisoned {
        /// What it is.
        object: &'static str,
    },
    /// A callback asked to stop, or the deadline was over.
    #[error("the computation was cancelled by its callback or its deadline")]
    Cancelled,
    /// A call from user code that runs inside of another call: a closure that ggml calls back, or the logger.
    #[error("{call}: a closure that ggml calls, or a logger, can't use ggml itself; do that when the call is over")]
    Nested {
        /// The call.
        call: &'static str,
    },
    /// Another thread computes on a meta device, with closures that may wait for this thread.
    #[error("{call}: another thread computes with closures beside a meta device; call again when it is done")]
    Busy {
        /// The call.
        call: &'static str,
    },
    /// No connection to an RPC server.
    #[error("RPC server {}: {}", Shown::text(endpoint), Shown::text(reason))]
    Rpc {
        /// The server's address.
        endpoint: Box<str>,
        /// What went wrong.
        reason: Cow<'static, str>,
    },
    /// An RPC server that was connected is gone; its devices and what lay on them are lost.
    #[error("RPC server {} was lost: {}; go on with the remaining devices", Shown::text(endpoint), Shown::text(reason))]
    RpcLost {
        /// The server's address.
        endpoint: Box<str>,
        /// What went wrong.
        reason: Cow<'static, str>,
    },
    /// A file that could not be read or written.
    #[error("{}: {}", Shown::text(path), Shown::text(reason))]
    File {
        /// The file.
        path: Box<str>,
        /// What the system said.
        reason: Box<str>,
    },
    /// Data that is not valid GGUF.
    #[error("GGUF: {}{}", Shown::text(reason), Log(log))]
    Gguf {
        /// What is wrong.
        reason: Cow<'static, str>,
        /// What ggml logged during the call.
        log: Box<str>,
    },
}

impl Error {
    /// Memory of this process that could not be had, for something that grows with what the user made.
    #[cold]
    pub(crate) fn no_memory(what: &'static str) -> Self {
        Self::OutOfMemory { what: what.into(), bytes: None, log: Box::default() }
    }

    /// [`Error::Unsupported`], whose operands may be none.
    pub(crate) fn unsupported(
        op: impl Into<Box<str>>,
        operands: impl IntoIterator<Item = TensorInfo>,
        device: impl Into<Box<str>>,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        let operands = operands.into_iter().collect();
        Self::Unsupported { op: op.into(), operands, device: device.into(), reason: reason.into() }
    }
}
