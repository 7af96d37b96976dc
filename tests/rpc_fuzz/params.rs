//! Parameters of operations that no builder makes: C's kernels trust them.

use std::io;

use ggml::rpc::Server;
use ggml::sys::{self, ggml_op};

use crate::client::Client;
use crate::draw::tensors;
use crate::log;
use crate::record;
use crate::wire::{GRAPH_COMPUTE, Request};

const NAN: i32 = 0x7fc0_0000;
const MINUS_ONE: i32 = 0xbf80_0000_u32.cast_signed();

/// Operations of recorded sessions, the parameter to change, and its values.
const WRONG: &[(ggml_op, usize, &[i32])] = &[
    (sys::GGML_OP_ARGSORT, 0, &[2, -1]),
    (sys::GGML_OP_CONCAT, 0, &[4, -1, i32::MAX]),
    (sys::GGML_OP_UNARY, 0, &[-1, 99, i32::MAX]),
    (sys::GGML_OP_GLU, 0, &[-1, 99, i32::MAX]),
    (sys::GGML_OP_ROPE, 1, &[0, -2, 3, 1 << 20, i32::MAX]),
    (sys::GGML_OP_ROPE, 2, &[1, -1, 77]),
    (sys::GGML_OP_POOL_2D, 0, &[2, -1]),
    (sys::GGML_OP_POOL_2D, 1, &[0, -1, i32::MAX]),
    (sys::GGML_OP_POOL_2D, 3, &[0, -1]),
    (sys::GGML_OP_POOL_2D, 5, &[-1, i32::MAX]),
    (sys::GGML_OP_PAD, 0, &[-1, i32::MIN]),
    (sys::GGML_OP_PAD, 1, &[-1, 5, i32::MAX]),
    (sys::GGML_OP_UPSCALE, 0, &[-1, 99]),
    (sys::GGML_OP_GROUP_NORM, 0, &[0, -1, i32::MAX]),
    (sys::GGML_OP_NORM, 0, &[MINUS_ONE, NAN]),
    (sys::GGML_OP_RMS_NORM, 0, &[MINUS_ONE, NAN]),
    (sys::GGML_OP_FLASH_ATTN_EXT, 3, &[-1, 99]),
    (sys::GGML_OP_MUL_MAT, 0, &[-1, 99]),
    (sys::GGML_OP_MUL_MAT, 1, &[-1, 99]),
    (sys::GGML_OP_CONV_TRANSPOSE_1D, 0, &[0, -1, i32::MAX]),
    (sys::GGML_OP_CONV_TRANSPOSE_2D, 0, &[0, -1, i32::MAX]),
    (sys::GGML_OP_CONV_2D, 0, &[0, -1]),
    (sys::GGML_OP_CONV_2D, 2, &[-1, i32::MAX]),
    (sys::GGML_OP_TIMESTEP_EMBEDDING, 0, &[0, -1, i32::MAX]),
    (sys::GGML_OP_TRI, 0, &[-1, 9]),
];

/// Operations whose parameters are all zero: no other value is one of theirs.
const NONE: &[ggml_op] = &[
    sys::GGML_OP_ADD,
    sys::GGML_OP_MUL,
    sys::GGML_OP_SUB,
    sys::GGML_OP_DIV,
    sys::GGML_OP_SQR,
    sys::GGML_OP_SUM_ROWS,
    sys::GGML_OP_MEAN,
    sys::GGML_OP_REPEAT,
    sys::GGML_OP_GET_ROWS,
    sys::GGML_OP_CONT,
    sys::GGML_OP_SSM_CONV,
];

/// A session, the request with a graph in it, and the place of a tensor in that.
type Place = (&'static [Request], usize, usize);

/// The session and request with the first graph of an operation, and the place of the tensor in it.
fn find(op: ggml_op) -> Option<Place> {
    record::sessions().iter().find_map(|session| {
        session.iter().enumerate().find_map(|(i, request)| {
            let graph = (request.command == GRAPH_COMPUTE).then_some(&request.payload)?;
            let is = |&at: &usize| graph.get(at + 52..at + 56) == Some(&op.to_le_bytes()[..]);
            Some((&session[..], i, tensors(GRAPH_COMPUTE, graph).into_iter().find(is)?))
        })
    })
}

/// Sends a session up to a graph, in which a parameter has another value; why the server closed the connection, or
/// `None` if it didn't.
fn outcome(server: &Server, (session, last, at): Place, param: usize, value: Option<i32>) -> Option<String> {
    let mut client = Client::greeted(server.address()).unwrap();
    log::begin(server.address(), client.address());
    for (i, request) in session.iter().take(last + 1).enumerate() {
        let mut request = request.clone();
        if let Some(value) = value.filter(|_| i == last) {
            request.payload[at + 56 + 4 * param..][..4].copy_from_slice(&value.to_le_bytes());
        }
        let len = request.payload.len() as u64;
        client.tell(&request, len).unwrap();
    }
    let closed = client.settle().err()?;
    let kinds = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
    assert!(kinds.contains(&closed.kind()), "{closed:?}");
    Some(log::reason(server.address(), client.address()))
}

#[test]
fn parameters_that_no_builder_makes_are_refused() {
    let server = Server::builder().threads(1).start().unwrap();
    let all = NONE.iter().map(|&op| (op, 0, &[1, -1, i32::MIN][..])).chain(WRONG.iter().copied());
    let all = all.chain(NONE.iter().map(|&op| (op, 15, &[1][..])));
    let mut wrong = Vec::new();
    for (op, param, values) in all {
        let Some(graph) = find(op) else {
            wrong.push(format!("no session has operation {op}"));
            continue;
        };
        if let Some(why) = outcome(&server, graph, param, None) {
            wrong.push(format!("operation {op} as it was recorded: {why}"));
        }
        for &value in values {
            let why = outcome(&server, graph, param, Some(value)).unwrap_or_default();
            if !why.starts_with("refused: ") && !why.starts_with("failed: ") {
                wrong.push(format!("operation {op} with {value} as parameter {param}: computed, or {why:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
