//! Draws random requests: valid ones, and changed ones.

use fastrand::Rng;

use crate::client::Memory;
use crate::wire::{
    ADD, BUFFER_CLEAR, COMPUTE, COPY_TENSOR, FIELDS, FREE_BUFFER, GET_ALLOC_SIZE, GET_TENSOR, GET_TENSOR_2D,
    GRAPH_COMPUTE, GRAPH_RECOMPUTE, INIT_TENSOR, MEMSET_TENSOR, NUMBERED, OPS, Request, SET_TENSOR, SET_TENSOR_2D,
    SET_TENSOR_HASH, Tensor,
};

/// The number of elements of a tensor: eight tensors fit into [`MEMORY`] bytes.
pub(crate) const N: u32 = 64;
pub(crate) const MEMORY: u64 = 8 * 4 * N as u64;

/// One of the tensors that a client would have.
fn tensor(memory: Memory, i: u64) -> Tensor {
    Tensor::row(i + 1, memory.buffer, memory.base + i * u64::from(4 * N), N)
}

/// `c = a op b` on the first device.
pub(crate) fn graph(memory: Memory, op: u32) -> Vec<u8> {
    let (a, b, mut c) = (tensor(memory, 0), tensor(memory, 1), tensor(memory, 2));
    (c.op, c.flags, c.src[0], c.src[1]) = (op, COMPUTE, a.id, b.id);
    let head = [&numbered()[..], &1_u32.to_le_bytes(), &c.id.to_le_bytes(), &3_u32.to_le_bytes()];
    [&head.concat()[..], &a.bytes(), &b.bytes(), &c.bytes()].concat()
}

/// The first device, and the number of its graph.
fn numbered() -> Vec<u8> {
    [&[0; 4][..], &1_u64.to_le_bytes()[..if NUMBERED { 8 } else { 0 }]].concat()
}

/// Two rows of a tensor that lie apart: an offset, their size, their number, and the distance.
fn rows(memory: Memory, i: u64) -> Vec<u8> {
    [place(memory, i, 8), [16_u64, 2, 32].map(u64::to_le_bytes).concat()].concat()
}

/// A tensor and an offset in it.
pub(crate) fn place(memory: Memory, i: u64, offset: u64) -> Vec<u8> {
    [&tensor(memory, i).bytes()[..], &offset.to_le_bytes()].concat()
}

/// A valid request.
pub(crate) fn sane(rng: &mut Rng, memory: Memory) -> Request {
    let i = rng.u64(0..8);
    let bytes = u64::from(4 * N);
    let (command, payload) = match rng.u8(0..if NUMBERED { 13 } else { 11 }) {
        0 => (BUFFER_CLEAR, [&memory.buffer.to_le_bytes()[..], &[0]].concat()),
        1 => {
            let data: Vec<u8> = (0..bytes).map(|_| rng.u8(..)).collect();
            (SET_TENSOR, [&tensor(memory, i).bytes()[..], &[0; 9], &data].concat())
        }
        2 => (SET_TENSOR_HASH, [place(memory, i, 0), rng.u64(..).to_le_bytes().to_vec()].concat()),
        3 => (GET_TENSOR, [place(memory, i, 0), bytes.to_le_bytes().to_vec()].concat()),
        4 => (COPY_TENSOR, [tensor(memory, i).bytes(), tensor(memory, (i + 1) % 8).bytes()].concat()),
        5 => (INIT_TENSOR, tensor(memory, i).bytes()),
        6 => {
            let sources = (0..10).flat_map(|_| Tensor::row(0, 0, 0, 0).bytes());
            (GET_ALLOC_SIZE, [0; 4].into_iter().chain(tensor(memory, i).bytes()).chain(sources).collect())
        }
        7 => (MEMSET_TENSOR, [&place(memory, i, 0)[..], &bytes.to_le_bytes(), &[7]].concat()),
        8 => (GRAPH_RECOMPUTE, numbered()),
        11 => (SET_TENSOR_2D, [rows(memory, i), vec![5; 32]].concat()),
        12 => (GET_TENSOR_2D, rows(memory, i)),
        _ => (GRAPH_COMPUTE, graph(memory, ADD)),
    };
    Request { command, payload }
}

/// A number that is likely to be near a limit.
fn number(rng: &mut Rng) -> u64 {
    match rng.u8(0..5) {
        0 => 1 << rng.u32(0..64),
        1 => (1 << rng.u32(0..64)) - 1,
        2 => rng.u64(0..64).wrapping_neg(),
        3 => rng.u64(0..5000),
        _ => rng.u64(..),
    }
}

fn put(payload: &mut [u8], at: usize, len: usize, value: u64) {
    payload.iter_mut().skip(at).zip(value.to_le_bytes()).take(len).for_each(|(to, from)| *to = from);
}

/// Changes a request as an attacker would; also returns the length to claim.
pub(crate) fn spoil(rng: &mut Rng, memory: Memory, request: &mut Request) -> u64 {
    let payload = &mut request.payload;
    match rng.u8(0..9) {
        // A field of a tensor, at its position in this command.
        0..=3 => {
            let first = match request.command {
                GRAPH_COMPUTE => numbered().len() + 16 + 296 * rng.usize(0..3),
                GET_ALLOC_SIZE => 4 + 296 * rng.usize(0..11),
                COPY_TENSOR => 296 * rng.usize(0..2),
                _ => 0,
            };
            let (at, len) = FIELDS[rng.usize(0..FIELDS.len())];
            let value = match at {
                8 | 52 => rng.u64(0..u64::from(OPS)),
                220 => memory.base.wrapping_add(number(rng)),
                124 | 132 | 204 => rng.u64(0..5),
                _ => number(rng),
            };
            put(payload, first + at, len, value);
        }
        // Any operation, on existing tensors.
        4 if request.command == GRAPH_COMPUTE => *payload = graph(memory, rng.u32(0..OPS)),
        // A count, an offset or a size.
        4 | 5 => {
            let at = [0, 4, 8, 16, payload.len().saturating_sub(8), payload.len().saturating_sub(16)];
            put(payload, at[rng.usize(0..at.len())], 8, number(rng));
        }
        6 => {
            for _ in 0..rng.usize(1..20) {
                let at = rng.usize(0..payload.len().max(1));
                put(payload, at, 1, rng.u64(..));
            }
        }
        // Another length, so that the rest of the stream is read as something else.
        7 => payload.resize(rng.usize(0..2 * payload.len() + 2), rng.u8(..)),
        _ => return number(rng),
    }
    request.payload.len() as u64
}

/// Changes a recorded request. Most changes leave it well-formed. Also returns the length to claim.
pub(crate) fn change(rng: &mut Rng, request: &mut Request) -> u64 {
    let payload = &mut request.payload;
    let tensors = tensors(request.command, payload);
    match rng.u8(0..10) {
        // A field of a tensor, often by that of another one.
        0..=6 if !tensors.is_empty() => {
            let first = tensors[rng.usize(0..tensors.len())];
            let (at, len) = FIELDS[rng.usize(0..FIELDS.len())];
            let is = payload[first + at..][..len].iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
            let other = tensors[rng.usize(0..tensors.len())] + FIELDS.iter().find(|f| f.0 == at).map_or(at, |f| f.0);
            let value = match rng.u8(0..6) {
                0 => payload[other..][..len].iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)),
                1 => is.wrapping_add(rng.u64(0..9)).wrapping_sub(4),
                2 => is.wrapping_mul(2),
                3 => is / 2,
                4 => rng.u64(0..200),
                _ => number(rng),
            };
            put(payload, first + at, len, value);
        }
        // Another operation over the same operands.
        7 if !tensors.is_empty() => {
            let first = tensors[rng.usize(0..tensors.len())];
            put(payload, first + 52, 4, rng.u64(0..u64::from(OPS)));
        }
        0..=7 => {
            let at = rng.usize(0..payload.len().max(1));
            put(payload, at, rng.usize(1..9), number(rng));
        }
        8 => {
            for _ in 0..rng.usize(1..5) {
                let at = rng.usize(0..payload.len().max(1));
                put(payload, at, 1, rng.u64(..));
            }
        }
        _ if rng.bool() => return number(rng),
        _ => payload.resize(rng.usize(0..payload.len() + 300), rng.u8(..)),
    }
    request.payload.len() as u64
}

/// Where the descriptions of tensors begin in a valid request.
pub(crate) fn tensors(command: u8, payload: &[u8]) -> Vec<usize> {
    let count = |at: usize| payload.get(at..at + 4).map_or(0, |n| u32::from_le_bytes(n.try_into().unwrap())) as usize;
    let (first, n) = match command {
        GRAPH_COMPUTE => {
            let nodes = numbered().len();
            let tensors = nodes + 4 + 8 * count(nodes);
            (tensors + 4, count(tensors))
        }
        GET_ALLOC_SIZE => (4, 11),
        COPY_TENSOR => (0, 2),
        SET_TENSOR | SET_TENSOR_HASH | GET_TENSOR | INIT_TENSOR | MEMSET_TENSOR | SET_TENSOR_2D | GET_TENSOR_2D => {
            (0, 1)
        }
        _ => (0, 0),
    };
    (0..n).map(|i| first + 296 * i).take_while(|at| at + 296 <= payload.len()).collect()
}

/// A request that frees the memory.
pub(crate) fn free(memory: Memory) -> Request {
    Request { command: FREE_BUFFER, payload: memory.buffer.to_le_bytes().to_vec() }
}
