//! The frame of each message: its command, its length, and its place in the conversation.

use ggml::rpc::Server;

use crate::client::Client;
use crate::draw::{self, MEMORY};
use crate::fields::{Does, ask, tensor};
use crate::graphs::DONE;
use crate::log;
use crate::wire::{
    self, ADD, DEVICE_COUNT, FREE_BUFFER, GRAPH_COMPUTE, GRAPH_RECOMPUTE, HELLO, NUMBERED, Request, SET_TENSOR,
    SET_TENSOR_2D, Tensor,
};

/// The length of each command's request; `None` where it differs.
fn length(command: u8) -> Option<usize> {
    Some(match command {
        SET_TENSOR | SET_TENSOR_2D | GRAPH_COMPUTE => return None,
        0 => 12,
        1 | 2 | 11 | 22 => 4,
        3 | FREE_BUFFER => 8,
        5 => 9,
        7 | 8 => 296 + 16,
        9 => 2 * 296,
        12 => 296,
        13 => 4 + 11 * 296,
        HELLO => 24,
        DEVICE_COUNT => 0,
        GRAPH_RECOMPUTE => 4 + if NUMBERED { 8 } else { 0 },
        17 => 296 + 17,
        19 => 296 + 32,
        20 => 80,
        21 => 4 + 296,
        _ => panic!("no command {command}"),
    })
}

fn commands() -> std::ops::Range<u8> {
    0..if NUMBERED { 23 } else { 18 }
}

/// C reads that many bytes into a structure, whatever the length says.
#[test]
fn requests_of_another_length_are_refused() {
    let server = Server::builder().start().unwrap();
    for command in commands() {
        let Some(len) = length(command) else { continue };
        for wrong in [len.wrapping_sub(1), len + 1, len + (1 << 32), usize::MAX].into_iter().filter(|&n| n != len) {
            let mut client = Client::greeted(server.address()).unwrap();
            log::begin(server.address(), client.address());
            let sent = client.tell(&Request { command, payload: vec![0; len] }, wrong as u64);
            let closed = sent.and_then(|_| client.settle());
            assert!(closed.is_err(), "{} of {wrong} bytes", wire::name(command));
            let said = log::reason(server.address(), client.address());
            assert!(said.ends_with(&format!("{} has {wrong} bytes", wire::name(command))), "{said}");
        }
    }
    for command in [SET_TENSOR, SET_TENSOR_2D, GRAPH_COMPUTE].into_iter().filter(|&c| NUMBERED || c != SET_TENSOR_2D) {
        for len in [0, 3, 4, 8, 15, 295, 296, 304] {
            let does = ask(&server, |m| (command, tensor(m).bytes().into_iter().chain([0; 8]).take(len).collect()));
            assert!(matches!(&does, Does::Closes(_)), "{command} of {len} bytes: {does:?}");
        }
    }
}

#[test]
fn commands_that_the_protocol_has_not_are_refused() {
    let server = Server::builder().start().unwrap();
    for command in [commands().end, 42, 127, u8::MAX] {
        let why = format!("the protocol has no command {command}");
        ask(&server, |_| (command, Vec::new())).closes(&why, command);
    }
}

#[test]
fn a_client_that_does_not_greet_first_is_refused() {
    let server = Server::builder().start().unwrap();
    for command in commands().filter(|&command| command != HELLO) {
        let mut client = Client::connect(server.address()).unwrap();
        log::begin(server.address(), client.address());
        let payload = vec![0; length(command).unwrap_or(400)];
        let len = payload.len() as u64;
        let answer = client.tell(&Request { command, payload }, len).and_then(|_| client.settle());
        assert!(answer.is_err(), "{command}");
        let said = log::reason(server.address(), client.address());
        assert!(said.ends_with("it does not begin as a ggml RPC client does"), "{said}");
    }
}

/// What C's server keeps is found by number alone, and freed with any buffer.
#[test]
fn graphs_are_repeated_only_while_they_are_kept() {
    let server = Server::builder().threads(1).start().unwrap();
    let repeat = |number: u64| [&[0; 4][..], &number.to_le_bytes()[..if NUMBERED { 8 } else { 0 }]].concat();
    let why = "the graph that it wants to repeat is not there";
    ask(&server, |_| (GRAPH_RECOMPUTE, repeat(1))).closes(why, "none was sent");
    // The request of `ask` follows what is sent before it.
    let after = |frees: bool, number: u64| {
        let mut client = Client::greeted(server.address()).unwrap();
        log::begin(server.address(), client.address());
        let memory = client.allocate(MEMORY).unwrap();
        let other = client.allocate(MEMORY).unwrap();
        client.ask(GRAPH_COMPUTE, &draw::graph(memory, ADD)).unwrap();
        if frees {
            client.ask(FREE_BUFFER, &other.buffer.to_le_bytes()).unwrap();
        }
        client.ask(GRAPH_RECOMPUTE, &repeat(number)).unwrap();
        match client.settle() {
            Ok(()) => DONE,
            Err(_) => Does::Closes(log::reason(server.address(), client.address())),
        }
    };
    assert_eq!(after(false, 1), DONE);
    after(true, 1).closes(why, "a buffer was freed");
    if NUMBERED {
        after(false, 2).closes(why, "another number");
        after(false, 0).closes(why, "the number of graphs that are not kept");
    }
}

/// Counts in a graph that C multiplies and reads by.
#[test]
fn counts_of_a_graph_that_its_bytes_do_not_have_are_refused() {
    let server = Server::builder().threads(1).start().unwrap();
    let head = if NUMBERED { 12 } else { 4 };
    let with = |at: usize, count: u32| {
        ask(&server, |m| {
            let mut graph = draw::graph(m, ADD);
            graph[head + at..][..4].copy_from_slice(&count.to_le_bytes());
            (GRAPH_COMPUTE, graph)
        })
    };
    assert_eq!(with(0, 1), DONE);
    let large = [1 << 29, 1 << 31, u32::MAX];
    for count in large {
        with(0, count).closes("more nodes than the server allows", count);
        with(12, count).closes("more tensors than the server allows", count);
    }
    with(0, 0).closes("a graph has no nodes", 0);
    for count in [2, 100, 1 << 17] {
        let nodes = with(0, count);
        assert!(matches!(nodes, Does::Closes(_)), "{count} nodes: {nodes:?}");
    }
    for count in [0, 1, 2] {
        with(12, count).closes("the request is longer than its fields", count);
    }
    for count in [4, 100, 1 << 17] {
        with(12, count).closes("the request is shorter than its fields", count);
    }
    let longer = ask(&server, |m| (GRAPH_COMPUTE, [draw::graph(m, ADD), vec![0]].concat()));
    longer.closes("the request is longer than its fields", "a byte more");
}

/// C takes the name for a string that ends, and the number of uses for a count.
#[test]
fn fields_that_do_not_matter_are_not_looked_at() {
    let server = Server::builder().threads(1).start().unwrap();
    let fields = [("flags besides the first byte's", 121, 3), ("name", 228, 64), ("number of uses", 292, 4)];
    for (field, at, len) in fields {
        for t in 0..3 {
            let does = ask(&server, |m| {
                let mut graph = draw::graph(m, ADD);
                let first = graph.len() - 3 * 296 + t * 296;
                graph[first + at..][..len].fill(0xff);
                (GRAPH_COMPUTE, graph)
            });
            assert_eq!(does, DONE, "{field} of tensor {t}");
        }
        let does = ask(&server, |m| {
            let mut bytes = tensor(m).bytes();
            bytes[at..][..len].fill(0xff);
            (SET_TENSOR, [&bytes[..], &[0; 9], &[1; 8]].concat())
        });
        assert_eq!(does, DONE, "{field} of a tensor to set");
    }
}

/// Devices of this process need no more than a tensor has, so C's function is not asked.
#[test]
fn sizes_are_told_of_tensors_that_can_be() {
    let server = Server::builder().start().unwrap();
    let none = Tensor::row(0, 0, 0, 0).bytes();
    let asks = |change: fn(&mut Tensor), source: fn(&mut Tensor)| {
        ask(&server, |m| {
            let (mut t, mut first) = (tensor(m), Tensor::row(0, 0, 0, 0));
            change(&mut t);
            source(&mut first);
            (13, [&[0; 4][..], &t.bytes(), &first.bytes(), &none.repeat(9)].concat())
        })
    };
    let size = Does::Answers(256_u64.to_le_bytes().to_vec());
    assert_eq!(asks(|_| (), |_| ()), size);
    assert_eq!(asks(|t| (t.buffer, t.data) = (9, 9), |_| ()), size, "it need not lie anywhere");
    assert_eq!(asks(|t| t.ne[3] = 0, |_| ()), Does::Answers(vec![0; 8]), "an empty tensor");
    asks(|t| t.kind = ggml::sys::GGML_TYPE_COUNT, |_| ()).closes("ggml has no type", "a tensor of no type");
    asks(|t| (t.ne[1], t.nb[1]) = (2, 4), |_| ()).closes("overlap", "rows that overlap");
    asks(|_| (), |t| *t = Tensor { kind: 99, ..Tensor::row(1, 0, 0, 4) })
        .closes("ggml has no type", "a source of no type");
    asks(|_| (), |t| *t = Tensor::row(1, 0, 0, 0)).closes("is empty", "an empty source");
}
