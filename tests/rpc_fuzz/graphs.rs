//! Each field of a graph that is wrong in a way that ggml's own server would believe.

use ggml::rpc::Server;
use ggml::sys;

use crate::client::{Client, Memory};
use crate::draw::{self, MEMORY, N};
use crate::fields::{BYTES, Does, ask, tensor};
use crate::log;
use crate::wire::{ADD, BUFFER_CLEAR, COMPUTE, FREE_BUFFER, GET_TENSOR, GRAPH_COMPUTE, NUMBERED, SET_TENSOR, Tensor};

/// A change of a graph, with a name, and why it is refused.
type Change = (&'static str, fn(&mut Graph), &'static str);

/// A graph of one operation, over tensors of a client's memory: operands, then the result.
pub(crate) struct Graph {
    pub(crate) tensors: Vec<(Tensor, Vec<i32>)>,
    pub(crate) nodes: Vec<u64>,
}

impl Graph {
    /// An operation on `n` operands of [`N`] numbers.
    pub(crate) fn new(memory: Memory, op: u32, n: u64) -> Self {
        let row = |i: u64| Tensor { id: i + 1, data: memory.base + i * BYTES, ..tensor(memory) };
        let mut result = Tensor { op, flags: COMPUTE, ..row(n) };
        for i in 0..n {
            result.src[i as usize] = i + 1;
        }
        Self { tensors: (0..n).map(row).chain([result]).map(|t| (t, Vec::new())).collect(), nodes: vec![n + 1] }
    }

    pub(crate) fn operand(&mut self, i: usize) -> &mut Tensor {
        &mut self.tensors[i].0
    }

    pub(crate) fn result(&mut self) -> &mut Tensor {
        &mut self.tensors.last_mut().unwrap().0
    }

    pub(crate) fn params(&mut self, params: &[i32]) {
        self.tensors.last_mut().unwrap().1 = params.to_vec();
    }

    pub(crate) fn request(&self) -> (u8, Vec<u8>) {
        let mut bytes = vec![0; if NUMBERED { 12 } else { 4 }];
        bytes.extend((self.nodes.len() as u32).to_le_bytes());
        self.nodes.iter().for_each(|id| bytes.extend(id.to_le_bytes()));
        bytes.extend((self.tensors.len() as u32).to_le_bytes());
        for (t, params) in &self.tensors {
            let mut t = t.bytes();
            t[56..].chunks_mut(4).zip(params).for_each(|(to, param)| to.copy_from_slice(&param.to_le_bytes()));
            bytes.extend(t);
        }
        (GRAPH_COMPUTE, bytes)
    }
}

pub(crate) fn judge(server: &Server, make: impl FnOnce(Memory) -> Graph) -> Does {
    ask(server, |memory| make(memory).request())
}

pub(crate) const DONE: Does = Does::Answers(Vec::new());

#[test]
fn wrong_fields_of_an_addition_are_refused() {
    let server = Server::builder().threads(1).start().unwrap();
    assert_eq!(judge(&server, |m| Graph::new(m, ADD, 2)), DONE, "as it should be");
    let changes: &[Change] = &[
        ("no nodes", |g| g.nodes.clear(), "a graph has no nodes"),
        ("an unknown node", |g| g.nodes[0] = 9, "a node is none of the graph's tensors"),
        ("node 0", |g| g.nodes[0] = 0, "a node is none of the graph's tensors"),
        ("a node twice", |g| g.nodes.push(3), "a graph has a node twice"),
        ("a tensor twice", |g| g.operand(1).id = 1, "two tensors of a graph have one number"),
        ("a tensor without a number", |g| g.operand(1).id = 0, "has the number of no tensor"),
        ("an unknown source", |g| g.result().src[1] = 77, "a source is none of the graph's tensors"),
        ("a source that is missing", |g| g.result().src[1] = 0, ""),
        ("a source that no builder takes", |g| g.result().src[2] = 1, "with these operands"),
        ("an operand outside of the buffer", |g| g.operand(0).data += 1 << 20, "lies outside of its buffer"),
        ("an operand without a buffer", |g| g.operand(0).buffer = 0, "has no buffer 0"),
        ("an operand of another shape", |g| g.operand(1).ne[0] = N / 2 + 1, ""),
        ("an operand of another type", |g| g.operand(1).kind = sys::GGML_TYPE_I32, ""),
        (
            "an operand with wide strides",
            |g| (g.operand(0).ne[0], g.operand(0).nb[0]) = (8, 8),
            "gaps between its elements",
        ),
        ("an empty operand", |g| g.operand(0).ne[1] = 0, "is empty"),
        ("a result outside of the buffer", |g| g.result().data -= 3 * BYTES, "lies outside of its buffer"),
        ("a result over the buffer's end", |g| g.result().data += 6 * BYTES - 32, "lies outside of its buffer"),
        (
            "a result of another shape",
            |g| (g.result().ne[0], g.result().ne[1]) = (N / 2, 2),
            "another type, shape or strides than it makes",
        ),
        ("a larger result", |g| g.result().ne[1] = 2, ""),
        ("a result of another type", |g| g.result().kind = sys::GGML_TYPE_I32, "the first operand must be f16"),
        (
            "a result with other strides",
            |g| (g.result().ne, g.result().nb) = ([8, 8, 1, 1], [32, 4, 256, 256]),
            "another type, shape or strides than it makes",
        ),
        ("a result over a part of an operand", |g| g.result().data -= BYTES / 2, "writes to memory that it reads"),
        ("parameters that addition has not", |g| g.params(&[1]), "with these parameters"),
        ("no operation of ggml", |g| g.result().op = sys::GGML_OP_COUNT, "unknown"),
        ("a closure", |g| g.result().op = sys::GGML_OP_CUSTOM, "no builder makes such an operation"),
        ("a mapped closure", |g| g.result().op = sys::GGML_OP_MAP_CUSTOM2, "no builder makes such an operation"),
        ("an operation that ggml has not", |g| g.result().op = sys::GGML_OP_FLASH_ATTN_BACK, "unknown"),
        ("an operation of one operand", |g| g.result().op = sys::GGML_OP_SQR, ""),
        ("an operation of three operands", |g| g.result().op = sys::GGML_OP_ADD_ID, ""),
    ];
    for (what, change, why) in changes {
        let does = judge(&server, |m| {
            let mut graph = Graph::new(m, ADD, 2);
            change(&mut graph);
            graph
        });
        does.closes(why, what);
    }
    // As ggml's allocator places results.
    for i in 0..2 {
        let over = judge(&server, |m| {
            let mut graph = Graph::new(m, ADD, 2);
            graph.result().data = m.base + i * BYTES;
            graph
        });
        assert_eq!(over, DONE, "a result over operand {i}");
    }
}

#[test]
fn views_that_lie_elsewhere_are_refused() {
    let server = Server::builder().threads(1).start().unwrap();
    let view = |src: u64, offset: u64| {
        move |m| {
            let mut graph = Graph::new(m, ADD, 2);
            let (command, mut bytes) = graph.request();
            let first = bytes.len() - 3 * 296 + 296;
            graph.operand(0);
            bytes[first + 204..][..8].copy_from_slice(&src.to_le_bytes());
            bytes[first + 212..][..8].copy_from_slice(&offset.to_le_bytes());
            (command, bytes)
        }
    };
    assert_eq!(ask(&server, view(1, BYTES)), DONE, "where it says");
    let elsewhere = "a view lies elsewhere than its source and its offset say";
    ask(&server, view(1, 0)).closes(elsewhere, "another offset");
    ask(&server, view(9, BYTES)).closes("a view's source is none of the graph's tensors", "an unknown source");
    ask(&server, view(1, u64::MAX)).closes(elsewhere, "an offset without end");
}

/// All bytes of the memory are 7, so each index in it is 0x07070707.
#[test]
fn indices_are_checked_before_they_are_used() {
    let server = Server::builder().threads(1).start().unwrap();
    let rows = |m: Memory, fill: bool| {
        // The rows of a matrix of 8 × 8, picked by 4 indices, which the graph may compute before: 0.0 has the bytes of 0.
        let mut graph = Graph::new(m, sys::GGML_OP_GET_ROWS, 2);
        (graph.operand(0).ne, graph.operand(0).nb) = ([8, 8, 1, 1], [4, 32, 256, 256]);
        let indices = graph.operand(1);
        (indices.kind, indices.ne, indices.nb) = (sys::GGML_TYPE_I32, [4, 1, 1, 1], [4, 16, 16, 16]);
        (graph.result().ne, graph.result().nb) = ([8, 4, 1, 1], [4, 32, 128, 128]);
        if fill {
            let data = m.base + BYTES;
            let zeros = Tensor { id: 9, op: sys::GGML_OP_FILL, flags: COMPUTE, data, src: [9; 10], ..tensor(m) };
            graph.tensors.insert(0, (Tensor { src: [9, 0, 0, 0, 0, 0, 0, 0, 0, 0], ..zeros }, Vec::new()));
            graph.nodes.insert(0, 9);
        }
        graph
    };
    judge(&server, |m| rows(m, false)).closes("index 117901063 is not below 8", "out of bounds");
    assert_eq!(judge(&server, |m| rows(m, true)), DONE, "the graph itself makes them zeros");
    let wrong_after = judge(&server, |m| {
        let mut graph = rows(m, true);
        graph.tensors[0].1 = vec![1.0_f32.to_bits().cast_signed()]; // filled with 1.0
        graph
    });
    wrong_after.closes("index 1065353216 is not below 8", "the graph itself spoils them");
    // Adds to rows where an index is the result's own memory.
    let over = judge(&server, |m| {
        let mut graph = rows(m, true);
        graph.result().data = m.base + BYTES;
        graph
    });
    over.closes("writes to memory that it reads", "the result lies over the indices");
}

/// llama.cpp's graphs have branches of which one is computed. What the others read was never written.
#[test]
fn nodes_that_the_client_does_not_select_are_not_computed() {
    let server = Server::builder().threads(1).start().unwrap();
    let mut client = Client::greeted(server.address()).unwrap();
    let memory = client.allocate(MEMORY).unwrap();
    let mut compute = |flags: u32, op: u32, kind: u32| {
        client.ask(BUFFER_CLEAR, &[&memory.buffer.to_le_bytes()[..], &[7]].concat()).unwrap();
        let mut graph = Graph::new(memory, op, 2);
        (graph.result().flags, graph.operand(1).kind) = (flags, kind);
        let (command, bytes) = graph.request();
        client.ask(command, &bytes).unwrap();
        let place = [draw::place(memory, 2, 0), BYTES.to_le_bytes().to_vec()].concat();
        client.ask(GET_TENSOR, &place).unwrap()
    };
    let untouched = vec![7; BYTES as usize];
    assert_ne!(compute(COMPUTE, ADD, sys::GGML_TYPE_F32), untouched);
    assert_eq!(compute(0, ADD, sys::GGML_TYPE_F32), untouched);
    assert_eq!(compute(!COMPUTE, ADD, sys::GGML_TYPE_F32), untouched);
    // Indices out of range, and a shape that no builder would give.
    assert_eq!(compute(0, sys::GGML_OP_GET_ROWS, sys::GGML_TYPE_I32), untouched);
}

#[test]
fn rows_to_write_must_be_distinct() {
    let server = Server::builder().threads(1).start().unwrap();
    let set = |m: Memory, indices: u32| {
        let mut graph = Graph::new(m, sys::GGML_OP_SET_ROWS, 3);
        (graph.operand(0).ne, graph.operand(0).nb) = ([8, indices, 1, 1], [4, 32, 32 * indices, 32 * indices]);
        let t = graph.operand(1);
        (t.kind, t.ne, t.nb) = (sys::GGML_TYPE_I32, [indices, 1, 1, 1], [4, 4 * indices, 4 * indices, 4 * indices]);
        (graph.operand(2).ne, graph.operand(2).nb) = ([8, 8, 1, 1], [4, 32, 256, 256]);
        let to = graph.operand(2).data;
        (graph.result().ne, graph.result().nb, graph.result().data) = ([8, 8, 1, 1], [4, 32, 256, 256], to);
        let data = m.base + BYTES;
        let zeros = Tensor { id: 9, op: sys::GGML_OP_FILL, flags: COMPUTE, data, ..tensor(m) };
        graph.tensors.insert(0, (Tensor { src: [9, 0, 0, 0, 0, 0, 0, 0, 0, 0], ..zeros }, Vec::new()));
        graph.nodes.insert(0, 9);
        graph
    };
    assert_eq!(judge(&server, |m| set(m, 1)), DONE, "one");
    judge(&server, |m| set(m, 2)).closes("not distinct", "two that are equal");
    let elsewhere = judge(&server, |m| {
        let mut graph = set(m, 1);
        graph.result().data += BYTES;
        graph
    });
    elsewhere.closes("is not the operand that it writes to", "a result that is not what the rows are written to");
}

/// The optimiser writes to its moments, which are operands.
#[test]
fn moments_that_are_indices_are_checked_after_they_change() {
    let server = Server::builder().threads(1).start().unwrap();
    let step = |rate: f32| {
        let mut client = Client::greeted(server.address()).unwrap();
        let m = client.allocate(MEMORY).unwrap(); // zeros
        let mut graph = Graph::new(m, sys::GGML_OP_OPT_STEP_ADAMW, 5);
        for i in 0..5 {
            let n = if i == 4 { 7 } else { 4 };
            (graph.operand(i).ne[0], graph.operand(i).nb) = (n, [4, 4 * n, 4 * n, 4 * n]);
        }
        (graph.result().ne[0], graph.result().nb, graph.result().data) = (4, [4, 16, 16, 16], m.base);
        let set = |t: Tensor, data: &[f32]| {
            let data: Vec<u8> = data.iter().flat_map(|x| x.to_le_bytes()).collect();
            [&t.bytes()[..], &[0; 9], &data].concat()
        };
        client.ask(SET_TENSOR, &set(*graph.operand(1), &[1.0; 4])).unwrap();
        client.ask(SET_TENSOR, &set(*graph.operand(4), &[0.1, 1.0 - rate, 0.9, 1e-8, 0.0, 1.0, 1.0])).unwrap();
        let mut rows = Graph::new(m, sys::GGML_OP_GET_ROWS, 2);
        (rows.operand(0).ne, rows.operand(0).nb) = ([8, 1, 1, 1], [4, 32, 32, 32]);
        let indices = rows.operand(1);
        (indices.kind, indices.ne, indices.nb) = (sys::GGML_TYPE_I32, [4, 1, 1, 1], [4, 16, 16, 16]);
        indices.data = m.base + 2 * BYTES; // the first moment
        (rows.result().ne, rows.result().nb) = ([8, 4, 1, 1], [4, 32, 128, 128]);
        rows.operand(0).data = m.base + 5 * BYTES;
        rows.result().data = m.base + 6 * BYTES;
        for (t, _) in &mut rows.tensors {
            t.id += 10;
            t.src = t.src.map(|id| if id == 0 { 0 } else { id + 10 });
        }
        graph.tensors.extend(rows.tensors);
        graph.nodes.push(13);
        let (command, payload) = graph.request();
        client.ask(command, &payload).unwrap();
        client.settle()
    };
    step(0.0).unwrap();
    assert!(step(0.5).is_err(), "the moments are no indices any more");
}

/// Without a number, clients send a graph again for each computation. It is not judged again, but what it reads is checked.
#[test]
fn a_graph_that_is_sent_again_is_checked_again() {
    let server = Server::builder().threads(1).start().unwrap();
    let after = |index: i32, frees: bool| {
        let mut client = Client::greeted(server.address()).unwrap();
        log::begin(server.address(), client.address());
        let m = client.allocate(MEMORY).unwrap(); // zeros
        let mut graph = Graph::new(m, sys::GGML_OP_GET_ROWS, 2);
        (graph.operand(0).ne, graph.operand(0).nb) = ([8, 8, 1, 1], [4, 32, 256, 256]);
        let indices = graph.operand(1);
        (indices.kind, indices.ne, indices.nb) = (sys::GGML_TYPE_I32, [4, 1, 1, 1], [4, 16, 16, 16]);
        let set = [&indices.bytes()[..], &[0; 9], &[index; 4].map(i32::to_le_bytes).concat()].concat();
        (graph.result().ne, graph.result().nb) = ([8, 4, 1, 1], [4, 32, 128, 128]);
        let (command, mut payload) = graph.request();
        if NUMBERED {
            payload[4..12].fill(0);
        }
        for _ in 0..3 {
            client.ask(command, &payload).unwrap();
            client.settle().unwrap();
        }
        client.ask(SET_TENSOR, &set).unwrap();
        if frees {
            client.ask(FREE_BUFFER, &m.buffer.to_le_bytes()).unwrap();
        }
        client.ask(command, &payload).unwrap();
        match client.settle() {
            Ok(()) => DONE,
            Err(_) => Does::Closes(log::reason(server.address(), client.address())),
        }
    };
    assert_eq!(after(7, false), DONE);
    after(8, false).closes("index 8 is not below 8", "an index that has changed");
    after(7, true).closes("the client has no buffer", "a buffer that is gone");
}

/// ggml's kernels sort with `std::sort`, for which NaN is undefined behaviour.
#[test]
fn nan_is_not_sorted() {
    let server = Server::builder().threads(1).start().unwrap();
    let sort = |m: Memory, fill: f32| {
        let mut graph = Graph::new(m, sys::GGML_OP_ARGSORT, 1);
        graph.result().kind = sys::GGML_TYPE_I32;
        let op = Tensor { id: 9, op: sys::GGML_OP_FILL, flags: COMPUTE, ..tensor(m) };
        let op = Tensor { src: [9, 0, 0, 0, 0, 0, 0, 0, 0, 0], ..op };
        graph.tensors.insert(0, (op, vec![fill.to_bits().cast_signed()]));
        graph.nodes.insert(0, 9);
        graph
    };
    assert_eq!(judge(&server, |m| sort(m, 1.0)), DONE);
    judge(&server, |m| sort(m, f32::NAN)).closes("NaN can't be sorted", "NaN");
}
