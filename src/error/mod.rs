//! Errors: each names the call, its tensors with type and shape, and what was expected. The sentences are here; what they
//! quote (`expected`, `reason`) is written where the check is.

mod io;
mod make;
mod print;
mod tensor;

use std::borrow::Cow;

#[doc(hidden)] // for the examples of this repository
pub use ggml_gguf::Shown;
use ggml_gguf::{Available, Needs};
pub use io::IoError;
use print::{Aborted, CodeName, List, Log, On, Unloaded};
pub use tensor::TensorInfo;

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
///
/// Every variant names the call; those about tensors give their types and shapes. The message is complete: it contains
/// the text of the [`source`](std::error::Error::source), which is an [`io::Error`](std::io::Error) where there is one.
/// `Debug` prints the message too, so that `main` may return errors.
///
/// ```
/// # use ggml::prelude::*; let ctx = Context::new();
/// let [a, b] = [ctx.input("a", DType::F32, [4])?, ctx.input("b", DType::F32, [3])?];
/// match ctx.add(a, b) {
///     Err(Error::Shape { call, operands, .. }) => assert_eq!((call, operands.len()), ("add", 2)),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operands' shapes, strides or allocation don't suit the operation.
    #[error("{call}({}): {}", List(operands), Shown::text(expected))]
    Shape {
        /// The call.
        call: &'static str,
        /// The operands of the call.
        operands: Box<[TensorInfo]>,
        /// What the operation expects.
        expected: Cow<'static, str>,
    },
    /// The operands' element types don't suit the operation.
    #[error("{call}({}): {}", List(operands), Shown::text(expected))]
    DType {
        /// The call.
        call: &'static str,
        /// The operands of the call.
        operands: Box<[TensorInfo]>,
        /// What the operation expects.
        expected: Cow<'static, str>,
    },
    /// A parameter other than a tensor is out of range.
    #[error("{call}: `{name}` is {}, but {}", Shown::text(value), Shown::text(expected))]
    Param {
        /// The call.
        call: &'static str,
        /// The parameter's name.
        name: &'static str,
        /// The value that was passed.
        value: Box<str>,
        /// What the operation expects.
        expected: Cow<'static, str>,
    },
    /// The operation would write into frozen weights.
    #[error(
        "{call}: {tensor} belongs to frozen weights, which no operation may write; place it as a state (`place_state`), or \
         write to a copy (`dup`)"
    )]
    Frozen {
        /// The call.
        call: &'static str,
        /// The tensor that the operation would write to.
        tensor: TensorInfo,
    },
    /// Repacked weights (in a repacking buffer type) were used for something other than a matrix product.
    #[error(
        "{call}: {tensor} is in a repacking buffer type: it can be set as a whole, and be the first operand of `mul_mat` or `mul_mat_id`, nothing else"
    )]
    Packed {
        /// The call.
        call: &'static str,
        /// The tensor.
        tensor: TensorInfo,
    },
    /// Host data whose length differs from the tensor's.
    #[error("{call}: {tensor} takes {expected} {unit}, got {got}")]
    Length {
        /// The call.
        call: &'static str,
        /// The tensor.
        tensor: TensorInfo,
        /// The length of the tensor.
        expected: usize,
        /// The length of the data.
        got: usize,
        /// The unit of both lengths: elements or bytes.
        unit: &'static str,
    },
    /// A range of elements that is out of bounds of the tensor.
    #[error("{call}: {len} elements from element {offset} are out of bounds: {tensor} has {size}")]
    Range {
        /// The call.
        call: &'static str,
        /// The tensor.
        tensor: TensorInfo,
        /// The first element asked for.
        offset: usize,
        /// The number of elements asked for.
        len: usize,
        /// The number of elements of the tensor.
        size: usize,
    },
    /// The Rust type of the data differs from the tensor's element type.
    #[error("{call}: {tensor} does not hold `{asked}` elements")]
    ElementType {
        /// The call.
        call: &'static str,
        /// The tensor.
        tensor: TensorInfo,
        /// The Rust type that was asked for.
        asked: &'static str,
    },
    /// An index that is out of bounds of the dimension it selects from.
    #[error("{call}: element {position} of {tensor} is {value}, but an operation uses it as an index into {below} entries: it must lie in 0 to {}", below - 1)]
    Index {
        /// The call.
        call: &'static str,
        /// The tensor of indices.
        tensor: TensorInfo,
        /// The position of the index in the data.
        position: usize,
        /// The index.
        value: i64,
        /// The exclusive upper bound.
        below: i64,
    },
    /// An index occurs twice where indices must be distinct: rows to write to, or the experts of a token.
    #[error(
        "{call}: element {position} of {tensor} repeats the index {value}, but an operation needs the indices of a row to be distinct"
    )]
    Repeated {
        /// The call.
        call: &'static str,
        /// The tensor of indices.
        tensor: TensorInfo,
        /// The position of the second occurrence in the data.
        position: usize,
        /// The index.
        value: i64,
    },
    /// The tensor is not part of the graph, weights or state that was asked for it.
    #[error("{call}: {tensor} is not part of {whole}")]
    NotPart {
        /// The call.
        call: &'static str,
        /// The tensor.
        tensor: TensorInfo,
        /// What it should be part of.
        whole: &'static str,
    },
    /// The tensor's memory is reused during the computation, so its value can't be read afterwards.
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
    /// Devices still use the tensor: it was accessed in the closure of the `compute_async` that computes with it.
    #[error("{call}: {tensor} is in use by the running computation; access it after the computation")]
    InUse {
        /// The call.
        call: &'static str,
        /// The tensor.
        tensor: TensorInfo,
    },
    /// A graph without operations.
    #[error("graph: nothing to compute; give at least one tensor that an operation produced")]
    EmptyGraph,
    /// No device, or not the device the operation is assigned to, can run the operation.
    #[error("{}{}: {} (device {})", Shown::name(call), On(operands), Shown::text(reason), Shown::text(device))]
    Unsupported {
        /// The call; or the operation of a graph, such as `MUL_MAT`.
        call: Box<str>,
        /// The operation's sources and its result. May be empty.
        operands: Box<[TensorInfo]>,
        /// The device, or the list of devices that were tried.
        device: Box<str>,
        /// Why the device can't run it.
        reason: Cow<'static, str>,
    },
    /// No object has the requested name.
    #[error("no {what} named `{}`; there {}{}", Shown::name(name), Available(available), Unloaded(what, available))]
    NoSuch {
        /// The kind of object, such as `tensor`.
        what: &'static str,
        /// The requested name.
        name: Box<str>,
        /// The existing names.
        available: Box<[Box<str>]>,
    },
    /// The name is already in use.
    #[error("{call}: a {what} named `{}` already exists", Shown::name(name))]
    Duplicate {
        /// The call.
        call: &'static str,
        /// The kind of object, such as `tensor`.
        what: &'static str,
        /// The name.
        name: Box<str>,
    },
    /// A list of backends that a scheduler can't be built from.
    #[error("Sched: {reason} (backends: {})", Shown::text(backends))]
    Backends {
        /// What is wrong with the list.
        reason: &'static str,
        /// The backends, in order.
        backends: Box<str>,
    },
    /// Memory allocation failed.
    #[error("out of memory: {}{}{}", Shown::text(what), Needs(*bytes), Log(log))]
    OutOfMemory {
        /// What the memory was for.
        what: Cow<'static, str>,
        /// The size of the request, if known; ggml's log may contain it too.
        bytes: Option<usize>,
        /// What ggml logged during the call.
        log: Box<str>,
    },
    /// The processor lacks features that ggml was compiled to use.
    #[error(
        "this processor lacks {missing}, which ggml was compiled to use; rebuild with a lower GGML_SYS_CPU (see the README)"
    )]
    Cpu {
        /// The missing features.
        missing: Box<str>,
    },
    /// The program runs with (or links) another version of ggml than this crate was compiled for.
    #[error(
        "this program was compiled for ggml {built}, but runs with ggml {found}; make the dynamic linker find the former first (LD_LIBRARY_PATH, on macOS DYLD_LIBRARY_PATH, on Windows PATH), or recompile the program, with the same ggml for everything it links"
    )]
    Version {
        /// The version this crate was compiled for, with its commit if known.
        built: Box<str>,
        /// The version, with its commit, of the ggml that was found.
        found: Box<str>,
    },
    /// A C function returned NULL instead of an object.
    #[error("{call} failed{}", Log(log))]
    Null {
        /// The C function.
        call: &'static str,
        /// What ggml logged during the call.
        log: Box<str>,
    },
    /// ggml returned a status that is not success.
    #[error("{call} returned {}{}", CodeName(*status), Log(log))]
    #[doc(alias = "ggml_status_to_string")]
    Status {
        /// The C function.
        call: &'static str,
        /// The `ggml_status` that C returned.
        status: i32,
        /// What ggml logged during the call.
        log: Box<str>,
    },
    /// A ggml assertion failed. The process survives because the call was guarded.
    #[error("{call}: {}{}", Aborted(message), Log(log))]
    Ggml {
        /// The C function.
        call: &'static str,
        /// ggml's message, with its source file and line.
        message: Box<str>,
        /// What ggml logged during the call.
        log: Box<str>,
    },
    /// ggml threw a C++ exception.
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
        /// The type of the object.
        object: &'static str,
    },
    /// A callback asked to stop, or the deadline passed.
    #[error("the computation was cancelled by its callback or its deadline")]
    Cancelled,
    /// User code called ggml from inside another ggml call: from a closure that ggml runs, or from the logger.
    #[error("{call}: a closure that ggml calls, or a logger, can't call ggml itself; do that after the outer call")]
    Nested {
        /// The call.
        call: &'static str,
    },
    /// Another thread computes on a meta device, with closures that might wait for this thread.
    #[error("{call}: another thread computes on a meta device with closures; try again when it has finished")]
    Busy {
        /// The call.
        call: &'static str,
    },
    /// Connecting to an RPC server failed, or the server refused the request.
    #[error("RPC server {}: {}", Shown::text(endpoint), Shown::text(reason))]
    Rpc {
        /// The server's address.
        endpoint: Box<str>,
        /// What went wrong.
        reason: Cow<'static, str>,
        /// The error that caused it, if there is one.
        source: Option<IoError>,
    },
    /// A connected RPC server was lost, with its devices and all tensors stored there.
    #[error("RPC server {} was lost: {}; use the remaining devices", Shown::text(endpoint), Shown::text(reason))]
    RpcLost {
        /// The server's address.
        endpoint: Box<str>,
        /// What went wrong.
        reason: Cow<'static, str>,
        /// The error that caused it, if there is one.
        source: Option<IoError>,
    },
    /// A device that is implemented in Rust reported a failure, and can be used further.
    #[error("{call}: device {} failed: {}", Shown::name(device), Shown::lines(reason))]
    DeviceFailed {
        /// The function of the device.
        call: &'static str,
        /// The device.
        device: Box<str>,
        /// What the implementation says.
        reason: Box<str>,
    },
    /// A device that is implemented in Rust was lost: it panicked, or said so.
    #[error("device {} was lost: {}; use the remaining devices", Shown::name(device), Shown::lines(reason))]
    DeviceLost {
        /// The device.
        device: Box<str>,
        /// What the implementation says, or its panic.
        reason: Box<str>,
    },
    /// A file could not be read or written.
    #[error("{}: {}", Shown::text(path), Shown::lines(&source.to_string()))]
    File {
        /// The path.
        path: Box<str>,
        /// The cause, mostly an error of the operating system.
        source: IoError,
    },
    /// The data of a file are not valid GGUF.
    #[error("GGUF: {}{}", Shown::text(reason), Log(log))]
    Gguf {
        /// What is wrong.
        reason: Cow<'static, str>,
        /// What ggml logged during the call.
        log: Box<str>,
    },
}
