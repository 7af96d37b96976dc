//! Limits of memory and time, and how a server stops.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ggml::rpc::{Limits, Server, Stop};
use ggml::sys;

use crate::client::{Client, Memory};
use crate::draw::{self, MEMORY};
use crate::fields::{BYTES, Does, ask, tensor};
use crate::graphs::{DONE, Graph};
use crate::log;
use crate::wire::{ADD, ALLOC_BUFFER, COMPUTE, GET_TENSOR, GRAPH_COMPUTE, HELLO, SET_TENSOR, Tensor};

const SHORT: Duration = Duration::from_millis(200);

/// Longer than the server takes for anything here.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn limits_are_kept() {
    let limits = Limits::new().with_client_memory(2 * MEMORY).with_memory(3 * MEMORY).with_buffers(2);
    let server = Server::builder().limits(limits).start().unwrap();
    let allocate = |size: u64| (ALLOC_BUFFER, [&[0; 4][..], &size.to_le_bytes()].concat());
    let none = Does::Answers(vec![0; 16]);
    // Until the client before has left.
    let free = || {
        while server.held() > 0 {
            std::thread::yield_now();
        }
    };
    assert_eq!(ask(&server, |_| allocate(MEMORY + 1)), none, "more than a client may have");
    free();
    assert_eq!(ask(&server, |_| allocate(u64::MAX)), none);
    free();
    assert_ne!(ask(&server, |_| allocate(1)), none);
    free();
    let mut first = Client::greeted(server.address()).unwrap();
    first.allocate(2 * MEMORY - 8).unwrap();
    assert_eq!(ask(&server, |_| allocate(9)), none, "more than all may have");
    drop(first);
    free();
    let mut many = Client::greeted(server.address()).unwrap();
    many.allocate(8).unwrap();
    many.allocate(8).unwrap();
    assert_eq!(many.ask(ALLOC_BUFFER, &allocate(8).1).unwrap(), vec![0; 16], "a third buffer");
    let limits = Limits::new().with_request(1 << 16).with_graph_tensors(3);
    let server = Server::builder().limits(limits).start().unwrap();
    assert_eq!(ask(&server, |m| (GRAPH_COMPUTE, draw::graph(m, ADD))), Does::Answers(Vec::new()));
    let long = |m| [draw::graph(m, ADD), vec![0; 1 << 16]].concat();
    ask(&server, |m| (GRAPH_COMPUTE, long(m))).closes("longer than the server allows", "a long request");
    let large = |m| {
        let mut graph = Graph::new(m, ADD, 2);
        graph.tensors.push((Tensor { id: 9, ..tensor(m) }, Vec::new()));
        graph.request()
    };
    ask(&server, large).closes("more tensors than the server allows", "a large graph");
}

/// A client whose connection the server closes for `why`, after at least [`SHORT`].
#[track_caller]
fn is_closed(server: &Server, client: &mut Client, started: Instant, why: &str) {
    let got = client.receive(&mut [0; 64]);
    assert!(matches!(&got, Ok(0)) || got.as_ref().is_err_and(is_reset), "{got:?}");
    assert!((SHORT..PATIENCE).contains(&started.elapsed()), "{:?}", started.elapsed());
    let said = log::reason(server.address(), client.address());
    assert!(said.contains(why), "{said}");
}

fn is_reset(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionReset
}

fn begin(address: SocketAddr) -> Client {
    let client = Client::connect(address).unwrap();
    log::begin(address, client.address());
    client
}

#[test]
fn clients_that_make_no_progress_are_closed() {
    let server = Server::builder().limits(Limits::new().with_progress(SHORT)).start().unwrap();
    let started = Instant::now();
    let mut silent = begin(server.address());
    is_closed(&server, &mut silent, started, "its request took too long to transfer");

    let mut client = begin(server.address());
    client.ask(HELLO, &[0; 24]).unwrap();
    // No request is under way: it may wait for longer.
    std::thread::sleep(2 * SHORT);
    client.settle().unwrap();
    let m = client.allocate(1 << 20).unwrap();
    let started = Instant::now();
    let upload = Tensor::row(1, m.buffer, m.base, 1 << 18).bytes();
    client
        .send(&[&[SET_TENSOR][..], &u64::to_le_bytes(305 + (1 << 20)), &upload, &[0; 9], &[1; 1000]].concat())
        .unwrap();
    is_closed(&server, &mut client, started, "it made no progress with a request");

    let mut slow = begin(server.address());
    slow.ask(HELLO, &[0; 24]).unwrap();
    let started = Instant::now();
    slow.send(&[ALLOC_BUFFER, 12, 0, 0, 0, 0, 0, 0, 0]).unwrap();
    for _ in 0..11 {
        std::thread::sleep(SHORT / 5);
        if slow.send(&[0]).is_err() {
            break;
        }
    }
    is_closed(&server, &mut slow, started, "its request took too long to transfer");
}

/// What it held is free again, and its place.
#[test]
fn clients_that_are_idle_lose_their_place() {
    let limits = Limits::new().with_idle(SHORT).with_connections(1);
    let server = Server::builder().limits(limits).start().unwrap();
    let mut forgotten = begin(server.address());
    forgotten.ask(HELLO, &[0; 24]).unwrap();
    forgotten.allocate(MEMORY).unwrap();
    assert_eq!(server.held(), MEMORY);
    let started = Instant::now();
    let mut asked = started;
    while started.elapsed() < 2 * SHORT {
        std::thread::sleep(SHORT / 4);
        asked = Instant::now();
        forgotten.settle().unwrap();
    }
    is_closed(&server, &mut forgotten, asked, "it sent no request for 200ms");
    while server.held() > 0 || !server.clients().is_empty() {
        assert!(started.elapsed() < PATIENCE, "{server:?}");
        std::thread::yield_now();
    }
    Client::greeted(server.address()).unwrap();
}

/// A graph that computes for seconds: products of matrices, one over the other's result.
fn long_graph(m: Memory, steps: u64) -> (u8, Vec<u8>) {
    let n = 256;
    let square = |id: u64, at: u64| {
        let nb = [4, 4 * n, 4 * n * n, 4 * n * n];
        Tensor { id, data: m.base + at * u64::from(4 * n * n), ne: [n, n, 1, 1], nb, ..tensor(m) }
    };
    let mut graph = Graph::new(m, ADD, 2);
    graph.tensors = vec![(square(1, 0), Vec::new())];
    graph.nodes = (0..steps).map(|i| i + 2).collect();
    for id in graph.nodes.clone() {
        let mut product = Tensor { op: sys::GGML_OP_MUL_MAT, flags: COMPUTE, ..square(id, 1 + id % 2) };
        (product.src[0], product.src[1]) = (1, id - 1);
        graph.tensors.push((product, Vec::new()));
    }
    graph.request()
}

const LONG_MEMORY: u64 = 3 * 4 * 256 * 256;

#[test]
fn computations_are_ended_in_time() {
    let server = Server::builder().threads(1).limits(Limits::new().with_computation(SHORT)).start().unwrap();
    let compute = |steps: u64| {
        let mut client = begin(server.address());
        client.ask(HELLO, &[0; 24]).unwrap();
        let m = client.allocate(LONG_MEMORY).unwrap();
        let (command, payload) = long_graph(m, steps);
        let started = Instant::now();
        client.ask(command, &payload).unwrap();
        (client, started)
    };
    let (mut client, _) = compute(2);
    client.settle().unwrap();
    let (mut client, started) = compute(20_000);
    is_closed(&server, &mut client, started, "a computation took longer than the server allows");
    assert!(started.elapsed() < PATIENCE / 4, "it was not ended before its next operation");
}

/// What lies between indices is read as well, and rows whose indices must differ are collected.
#[test]
fn copies_of_indices_are_counted() {
    let headers = 500 * 64; // an arena has room for so many
    let judge = |most: u64, m: fn(Memory) -> Graph| {
        let limits = Limits::new().with_client_memory(MEMORY + headers + most);
        let server = Server::builder().threads(1).limits(limits).start().unwrap();
        ask(&server, |memory| {
            let mut graph = m(memory);
            let zeros =
                Tensor { id: 9, op: sys::GGML_OP_FILL, flags: COMPUTE, data: memory.base + BYTES, ..tensor(memory) };
            graph.tensors.insert(0, (Tensor { src: [9, 0, 0, 0, 0, 0, 0, 0, 0, 0], ..zeros }, Vec::new()));
            graph.nodes.insert(0, 9);
            graph.request()
        })
    };
    // One row is written, by one index.
    let distinct: fn(Memory) -> Graph = |m| {
        let mut graph = Graph::new(m, sys::GGML_OP_SET_ROWS, 3);
        (graph.operand(0).ne, graph.operand(0).nb) = ([8, 1, 1, 1], [4, 32, 32, 32]);
        let t = graph.operand(1);
        (t.kind, t.ne, t.nb) = (sys::GGML_TYPE_I32, [1, 1, 1, 1], [4, 4, 4, 4]);
        (graph.operand(2).ne, graph.operand(2).nb) = ([8, 8, 1, 1], [4, 32, 256, 256]);
        let to = graph.operand(2).data;
        (graph.result().ne, graph.result().nb, graph.result().data) = ([8, 8, 1, 1], [4, 32, 256, 256], to);
        graph
    };
    judge(7, distinct).closes("over the client's memory", "an index of 8 bytes");
    assert_eq!(judge(8, distinct), DONE);
    // Four rows are picked, by two and two indices with a gap between them.
    let apart: fn(Memory) -> Graph = |m| {
        let mut graph = Graph::new(m, sys::GGML_OP_GET_ROWS, 2);
        (graph.operand(0).ne, graph.operand(0).nb) = ([8, 2, 2, 1], [4, 32, 64, 128]);
        let t = graph.operand(1);
        (t.kind, t.ne, t.nb) = (sys::GGML_TYPE_I32, [2, 2, 1, 1], [4, 32, 64, 64]);
        (graph.result().ne, graph.result().nb) = ([8, 2, 2, 1], [4, 32, 64, 128]);
        graph
    };
    judge(40 + 16 - 1, apart).closes("over the client's memory", "indices that lie apart");
    assert_eq!(judge(40 + 16, apart), DONE);
}

/// Operands of more bytes than are read at once.
#[test]
fn all_of_many_indices_are_checked() {
    const MANY: u32 = 100_000;
    let server = Server::builder().threads(1).start().unwrap();
    let row = |id: u64, m: Memory, at: u64| Tensor { data: m.base + at, ..Tensor::row(id, m.buffer, 0, MANY) };
    let run = |wide: bool, change: fn(&mut Vec<i64>), rows: bool| {
        let mut client = begin(server.address());
        client.ask(HELLO, &[0; 24]).unwrap();
        let m = client.allocate(4 << 20).unwrap();
        let mut values: Vec<i64> = (0..i64::from(MANY)).rev().collect();
        change(&mut values);
        let width = if wide { 8 } else { 4 };
        let mut indices = row(2, m, 1 << 20);
        indices.kind = if wide { sys::GGML_TYPE_I64 } else { sys::GGML_TYPE_I32 };
        indices.nb = [width, MANY * width, MANY * width, MANY * width];
        let data: Vec<u8> = values.iter().flat_map(|n| n.to_le_bytes().into_iter().take(width as usize)).collect();
        client.ask(SET_TENSOR, &[&indices.bytes()[..], &[0; 9], &data].concat()).unwrap();
        let column = |t: Tensor| Tensor { ne: [1, MANY, 1, 1], nb: [4, 4, 4 * MANY, 4 * MANY], ..t };
        let (from, to) = (column(row(1, m, 0)), column(row(3, m, 2 << 20)));
        let mut result = Tensor { id: 4, flags: COMPUTE, ..column(row(4, m, 3 << 20)) };
        result.op = if rows { sys::GGML_OP_SET_ROWS } else { sys::GGML_OP_GET_ROWS };
        (result.src[0], result.src[1]) = (1, 2);
        let mut tensors = vec![from, indices];
        if rows {
            (result.src[2], result.data) = (3, to.data);
            tensors.push(to);
        }
        tensors.push(result);
        let mut graph = Graph::new(m, ADD, 2);
        graph.nodes = vec![4];
        graph.tensors = tensors.into_iter().map(|t| (t, Vec::new())).collect();
        let (command, payload) = graph.request();
        client.ask(command, &payload).unwrap();
        match client.settle() {
            Ok(()) => DONE,
            Err(_) => Does::Closes(log::reason(server.address(), client.address())),
        }
    };
    let last: fn(&mut Vec<i64>) = |v| v[MANY as usize - 1] = MANY.into();
    let twice: fn(&mut Vec<i64>) = |v| v[MANY as usize - 1] = v[0];
    for wide in [false, true] {
        assert_eq!(run(wide, |_| (), true), DONE);
        run(wide, last, true).closes("index 100000 is not below 100000", "the last index");
        run(wide, twice, true).closes("not distinct", "the first index and the last");
    }
    assert_eq!(run(false, twice, false), DONE);
    run(false, last, false).closes("index 100000 is not below 100000", "the last index");
}

/// The answer is longer than sockets hold, so that it is under way when the server stops.
#[test]
fn a_server_stops_after_requests_or_at_once() {
    const LARGE: u32 = 16 << 20;
    for how in [Stop::AfterRequests, Stop::Now] {
        let server = Server::builder().start().unwrap();
        let address = server.address();
        let (mut idle, mut busy) = (Client::greeted(address).unwrap(), Client::greeted(address).unwrap());
        let mut uploads = Client::greeted(address).unwrap();
        let m = busy.allocate(u64::from(4 * LARGE)).unwrap();
        let to = uploads.allocate(MEMORY).unwrap();
        let get = |t: Tensor, len: u64| [&t.bytes()[..], &[0; 8], &len.to_le_bytes()].concat();
        let get = get(Tensor::row(1, m.buffer, m.base, LARGE), u64::from(4 * LARGE));
        let len = u64::to_le_bytes(get.len() as u64);
        busy.send(&[&[GET_TENSOR][..], &len, &get].concat()).unwrap();
        let mut got = busy.receive(&mut [0; 1 << 10]).unwrap();
        let set = [&tensor(to).bytes()[..], &[0; 9], &[5; BYTES as usize]].concat();
        let (first, rest) = set.split_at(300);
        uploads.send(&[&[SET_TENSOR][..], &u64::to_le_bytes(set.len() as u64), first].concat()).unwrap();
        // The thread of that client has begun to read when it does not wait any more.
        std::thread::sleep(SHORT);
        let stopping = std::thread::spawn(move || server.stop(how));
        assert_eq!(idle.receive(&mut [0; 8]).unwrap_or(0), 0, "one that waits is closed");
        let sent = uploads.send(rest);
        let mut piece = vec![0; 1 << 20];
        while let Ok(n @ 1..) = busy.receive(&mut piece) {
            got += n;
        }
        assert_eq!(uploads.receive(&mut piece).unwrap_or(0), 0, "after its request it is closed");
        stopping.join().unwrap();
        let all = 8 + 4 * LARGE as usize;
        assert_eq!(got == all, how == Stop::AfterRequests, "{how:?}: {got} of {all}, {sent:?}");
        assert!(Client::connect(address).is_err(), "nobody listens any more");
    }
}
