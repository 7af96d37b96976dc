//! Each field of each message that is wrong in a way that ggml's own server would believe, or that would end it.

use std::io;

use ggml::rpc::Server;

use crate::client::{Client, Memory};
use crate::draw::{self, MEMORY, N};
use crate::log;
use crate::wire::{
    ALLOC_BUFFER, BUFFER_CLEAR, BUFFER_GET_BASE, COPY_TENSOR, FREE_BUFFER, GET_ALLOC_SIZE, GET_TENSOR, GET_TENSOR_2D,
    GRAPH_RECOMPUTE, HELLO, INIT_TENSOR, MEMSET_TENSOR, NUMBERED, Request, SET_TENSOR, SET_TENSOR_2D, SET_TENSOR_HASH,
    Tensor,
};

const GET_ALIGNMENT: u8 = 1;
const GET_MAX_SIZE: u8 = 2;
const GET_DEVICE_MEMORY: u8 = 11;
const COMM_INIT: u8 = 20;
const COMM_ALLREDUCE: u8 = 21;

/// The bytes of a tensor.
pub(crate) const BYTES: u64 = 4 * N as u64;

/// What the server does with a request of a client that holds [`MEMORY`] bytes, all 7.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// It answers, if the command has an answer, and goes on.
    Answers(Vec<u8>),
    /// It closes the connection, and logs this.
    Closes(String),
}

impl Does {
    /// Fails unless the connection was closed for this reason.
    #[track_caller]
    pub(crate) fn closes(&self, why: &str, what: impl std::fmt::Debug) {
        match self {
            Self::Closes(said) if said.contains(why) => {}
            other => panic!("{what:?}: {other:?} instead of a close because `{why}`"),
        }
    }
}

pub(crate) fn ask(server: &Server, request: impl FnOnce(Memory) -> (u8, Vec<u8>)) -> Does {
    let mut client = Client::greeted(server.address()).unwrap();
    log::begin(server.address(), client.address());
    let memory = client.allocate(MEMORY).unwrap();
    client.ask(BUFFER_CLEAR, &[&memory.buffer.to_le_bytes()[..], &[7]].concat()).unwrap();
    let (command, payload) = request(memory);
    let len = payload.len() as u64;
    let answer = client.tell(&Request { command, payload }, len).and_then(|answer| {
        client.settle()?;
        Ok(answer)
    });
    match answer {
        Ok(answer) => Does::Answers(answer),
        Err(e) => {
            let closed = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
            assert!(closed.contains(&e.kind()), "{e:?}");
            Does::Closes(log::reason(server.address(), client.address()))
        }
    }
}

pub(crate) fn tensor(memory: Memory) -> Tensor {
    Tensor::row(1, memory.buffer, memory.base, N)
}

fn with(t: &Tensor, fields: &[u64]) -> Vec<u8> {
    [t.bytes(), fields.iter().copied().flat_map(u64::to_le_bytes).collect()].concat()
}

/// A change of a tensor's description, with a name, and why it is refused.
type Change = (&'static str, fn(&mut Tensor), &'static str);

/// A command, with its payload for a tensor.
type Message = (u8, fn(&Tensor) -> Vec<u8>);

/// The second tensor of the first buffer, of which clients get the number and the address.
fn beside() -> Tensor {
    Tensor::row(2, 1, (1 << 32) + BYTES, N)
}

/// Changes of a tensor's description after which nothing may be read from it or written to it.
const NO_PLACE: [Change; 16] = [
    ("no buffer", |t| t.buffer = 0, "has no buffer 0"),
    ("another number", |t| t.buffer += 1, "has no buffer 2"),
    ("an address for a number", |t| t.buffer = t.data, "has no buffer 4294967296"),
    ("before its buffer", |t| t.data -= 4, "lies outside of its buffer"),
    ("at address 0", |t| t.data = 0, "lies outside of its buffer"),
    ("behind its buffer", |t| t.data += MEMORY, "lies outside of its buffer"),
    ("over the end of its buffer", |t| t.data += MEMORY - BYTES / 2, "lies outside of its buffer"),
    ("at the end of all addresses", |t| t.data = u64::MAX - 3, "lies outside of its buffer"),
    ("not aligned", |t| t.data += 4, "can't use"),
    ("of no type", |t| t.kind = ggml::sys::GGML_TYPE_COUNT, "ggml has no type"),
    ("of a type that was removed", |t| t.kind = 4, "ggml has no type 4"),
    ("empty", |t| t.ne[3] = 0, "is empty"),
    ("too many elements", |t| t.ne[1] = 1000, "lies outside of its buffer"),
    ("as large as the address space", |t| (t.ne, t.nb) = ([u32::MAX; 4], [4, 1 << 20, 1 << 31, u32::MAX - 3]), ""),
    ("elements at parts of others", |t| (t.ne[1], t.nb[1]) = (2, BYTES as u32 + 1), "parts of others"),
    ("rows that overlap", |t| (t.ne[1], t.nb[1]) = (2, 4), "elements that overlap"),
];

#[test]
fn tensors_that_lie_in_no_memory_of_the_client_are_refused() {
    let server = Server::builder().start().unwrap();
    let requests: [Message; 7] = [
        (GET_TENSOR, |t| with(t, &[0, 4])),
        (SET_TENSOR, |t| [t.bytes(), vec![0; 9 + 4]].concat()),
        (SET_TENSOR_HASH, |t| with(t, &[0, 1])),
        (MEMSET_TENSOR, |t| [with(t, &[0, 4]), vec![1]].concat()),
        (COPY_TENSOR, |t| [t.bytes(), beside().bytes()].concat()),
        (COPY_TENSOR, |t| [beside().bytes(), t.bytes()].concat()),
        (INIT_TENSOR, Tensor::bytes),
    ];
    let two = [(SET_TENSOR_2D, true), (GET_TENSOR_2D, false)];
    let check = |command: u8, payload: &dyn Fn(&Tensor) -> Vec<u8>| {
        let sane = ask(&server, |m| (command, payload(&tensor(m))));
        assert!(matches!(sane, Does::Answers(_)), "{command} as it should be: {sane:?}");
        for (what, change, why) in NO_PLACE {
            let does = ask(&server, |m| {
                let mut t = tensor(m);
                change(&mut t);
                (command, payload(&t))
            });
            // A copy has two tensors, and compares them first.
            let differs = command == COPY_TENSOR && what == "too many elements";
            does.closes(if differs { "another type, shape or strides" } else { why }, (command, what));
        }
    };
    for (command, payload) in requests {
        check(command, &payload);
    }
    for (command, sends) in two.into_iter().filter(|_| NUMBERED) {
        let payload = |t: &Tensor| [with(t, &[0, 8, 2, 16]), vec![0; if sends { 16 } else { 0 }]].concat();
        check(command, &payload);
    }
}

const NOT_THERE: &str = "are not those of a tensor of 256 bytes";

#[test]
fn parts_that_are_no_parts_of_a_tensor_are_refused() {
    let server = Server::builder().start().unwrap();
    let huge = u64::MAX;
    for (offset, len) in [(0, BYTES + 1), (BYTES, 1), (BYTES + 1, 0), (huge, 4), (huge - 3, 4), (4, huge), (0, huge)] {
        let get = ask(&server, |m| (GET_TENSOR, with(&tensor(m), &[offset, len])));
        get.closes(NOT_THERE, ("GET", offset, len));
        let fill = ask(&server, |m| (MEMSET_TENSOR, [with(&tensor(m), &[offset, len]), vec![1]].concat()));
        fill.closes(NOT_THERE, ("MEMSET", offset, len));
        if len < 2 * BYTES {
            let data = vec![0; len as usize];
            let place = |m| [&tensor(m).bytes()[..], &[0], &offset.to_le_bytes(), &data].concat();
            ask(&server, |m| (SET_TENSOR, place(m))).closes(NOT_THERE, ("SET", offset, len));
        }
    }
    let hash = ask(&server, |m| (SET_TENSOR_HASH, with(&tensor(m), &[BYTES + 1, 1])));
    hash.closes(NOT_THERE, "SET_HASH");
    assert_eq!(ask(&server, |m| (GET_TENSOR, with(&tensor(m), &[8, 4]))), Does::Answers(vec![7; 4]));
    assert_eq!(ask(&server, |m| (GET_TENSOR, with(&tensor(m), &[BYTES, 0]))), Does::Answers(Vec::new()));
}

#[test]
fn pieces_that_are_no_parts_of_a_tensor_are_refused() {
    if !NUMBERED {
        return; // not a command of this protocol
    }
    let server = Server::builder().start().unwrap();
    let huge = u64::MAX;
    for (fields, why) in [
        ([0, 0, 2, 16], "has no bytes"),
        ([0, 8, 0, 16], "has no bytes"),
        ([0, 8, 2, BYTES], NOT_THERE),
        ([0, 8, 1000, 16], NOT_THERE),
        ([BYTES - 8, 8, 2, 16], NOT_THERE),
        ([huge, 8, 2, 16], NOT_THERE),
        ([0, huge, 2, 16], "larger than the address space"),
        ([0, 8, huge, 16], "larger than the address space"),
        ([0, 8, 2, huge], "larger than the address space"),
        ([0, 8, huge, huge], "larger than the address space"),
        ([0, huge, huge, huge], "larger than the address space"),
        // The pieces overlap.
        ([0, 8, 2, 4], "overlap"),
        ([0, 8, 1 << 40, 0], "overlap"),
    ] {
        ask(&server, |m| (GET_TENSOR_2D, with(&tensor(m), &fields))).closes(why, ("GET", fields));
        let set = |m| [with(&tensor(m), &fields), vec![0; 16]].concat();
        ask(&server, |m| (SET_TENSOR_2D, set(m))).closes(why, ("SET", fields));
    }
    for len in [0, 15, 17] {
        let set = |m| [with(&tensor(m), &[0, 8, 2, 16]), vec![0; len]].concat();
        ask(&server, |m| (SET_TENSOR_2D, set(m))).closes("has other data than its pieces", len);
    }
    assert_eq!(ask(&server, |m| (GET_TENSOR_2D, with(&tensor(m), &[0, 8, 2, 16]))), Does::Answers(vec![7; 16]));
}

#[test]
fn copies_between_tensors_that_differ_or_overlap_are_refused() {
    let server = Server::builder().start().unwrap();
    let changes: [Change; 5] = [
        ("to itself", |t| t.data -= BYTES, "memory that it shares"),
        ("to a part of itself", |t| t.data -= BYTES / 2, "memory that it shares"),
        ("of another type", |t| t.kind = 26, "another type, shape or strides"),
        ("of another shape", |t| t.ne[0] /= 2, "another type, shape or strides"),
        (
            "of other strides",
            |t| (t.ne[0], t.ne[1], t.nb) = (N / 2, 2, [8, 4, 512, 512]),
            "another type, shape or strides",
        ),
    ];
    for (what, change, why) in changes {
        let does = ask(&server, |m| {
            let mut to = Tensor::row(2, m.buffer, m.base + BYTES, N);
            change(&mut to);
            (COPY_TENSOR, [tensor(m).bytes(), to.bytes()].concat())
        });
        does.closes(why, what);
    }
}

#[test]
fn buffers_and_devices_that_are_not_there_are_refused() {
    let server = Server::builder().start().unwrap();
    for number in [0, 2, u64::MAX] {
        let why = &format!("has no buffer {number}");
        ask(&server, |_| (BUFFER_GET_BASE, number.to_le_bytes().to_vec())).closes(why, "BASE");
        ask(&server, |_| (FREE_BUFFER, number.to_le_bytes().to_vec())).closes(why, "FREE");
        let clear = [&number.to_le_bytes()[..], &[0]].concat();
        ask(&server, |_| (BUFFER_CLEAR, clear)).closes(why, "CLEAR");
    }
    for number in [1, u32::MAX] {
        let (device, why) = (number.to_le_bytes(), &format!("the server has no device {number}"));
        for command in [GET_ALIGNMENT, GET_MAX_SIZE, GET_DEVICE_MEMORY] {
            ask(&server, |_| (command, device.to_vec())).closes(why, command);
        }
        ask(&server, |_| (ALLOC_BUFFER, [&device[..], &[1; 8]].concat())).closes(why, "ALLOC");
        let none = Tensor::row(0, 0, 0, 0).bytes().repeat(10);
        let size = |m| [&device[..], &tensor(m).bytes(), &none].concat();
        ask(&server, |m| (GET_ALLOC_SIZE, size(m))).closes(why, "GET_ALLOC_SIZE");
        let graph = |m| [&device[..], &draw::graph(m, crate::wire::ADD)[4..]].concat();
        ask(&server, |m| (crate::wire::GRAPH_COMPUTE, graph(m))).closes(why, "COMPUTE");
        let again = [&device[..], &[1; 8][..if NUMBERED { 8 } else { 0 }]].concat();
        ask(&server, |_| (GRAPH_RECOMPUTE, again))
            .closes("the graph that it wants to repeat is not there", "RECOMPUTE");
    }
    ask(&server, |_| (HELLO, vec![0; 24])).closes("it greets twice", "HELLO");
    if NUMBERED {
        assert_eq!(ask(&server, |_| (COMM_INIT, vec![0; 80])), Does::Answers(vec![0]));
        let reduce = ask(&server, |m| (COMM_ALLREDUCE, [vec![0; 4], tensor(m).bytes()].concat()));
        reduce.closes("no servers are connected to each other", "COMM_ALLREDUCE");
    }
}

/// A client can't even say which memory of another it means.
#[test]
fn clients_do_not_reach_each_other() {
    let server = Server::builder().start().unwrap();
    let mut other = Client::greeted(server.address()).unwrap();
    let theirs = [MEMORY, 100].map(|size| other.allocate(size).unwrap());
    other.ask(BUFFER_CLEAR, &[&theirs[1].buffer.to_le_bytes()[..], &[9]].concat()).unwrap();
    let get = |m: Memory| with(&Tensor::row(1, m.buffer, m.base, 16), &[0, 64]);
    ask(&server, |_| (GET_TENSOR, get(theirs[1]))).closes("has no buffer 2", "GET");
    ask(&server, |_| (FREE_BUFFER, theirs[1].buffer.to_le_bytes().to_vec())).closes("has no buffer 2", "FREE");
    // It has the number of the client's own first buffer, and shows that.
    assert_eq!(ask(&server, |_| (GET_TENSOR, get(theirs[0]))), Does::Answers(vec![7; 64]));
    assert_eq!(other.ask(GET_TENSOR, &get(theirs[1])).unwrap(), [9; 64]);
}
