//! Sessions of ggml's own client: what it sends for each case of `tests/device`, to be sent again with changes.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use ggml::Result;
use ggml::prelude::*;
use ggml::rpc::{self, Server};
use testkit::bench::Bench;

use crate::wire::{GRAPH_COMPUTE, HELLO, Request};
use crate::{Case, ops};

/// The maximum absolute value of operands.
const REACH: f32 = 1.0;

/// The families of `tests/device`, which call [`agree`].
const OPS: [fn(); 3] =
    [ops::operations_agree_with_cpu, ops::norm_mul_add_agrees_with_cpu, ops::transformer_block_agrees_with_cpu];

/// All sessions. Call this before a child process is started: it would inherit ggml's sockets, so that a connection that
/// is recorded would not end with its client.
///
/// The server's numbers and addresses are the same in each new connection, so they can be sent as they
/// are.
pub(crate) fn sessions() -> &'static [Vec<Request>] {
    static ALL: OnceLock<Vec<Vec<Request>>> = OnceLock::new();
    ALL.get_or_init(|| {
        RECORDS.store(true, Ordering::Relaxed);
        for record in OPS {
            record();
        }
        RECORDS.store(false, Ordering::Relaxed);
        let mut all = std::mem::take(&mut *RECORDED.lock().unwrap());
        let computes = |session: &Vec<Request>| session.iter().any(|request| request.command == GRAPH_COMPUTE);
        all.retain(computes);
        assert!(all.len() > 250, "{} sessions", all.len());
        all
    })
}

/// The bytes of a session's requests.
pub(crate) fn size(session: &[Request]) -> usize {
    session.iter().map(|request| request.payload.len()).sum()
}

/// Whether sessions are recorded now. The families are tests as well, which do nothing here.
static RECORDS: AtomicBool = AtomicBool::new(false);

static RECORDED: Mutex<Vec<Vec<Request>>> = Mutex::new(Vec::new());

/// Computes the cases on a server, and keeps what is sent.
pub(crate) fn agree(_family: &str, cases: impl IntoIterator<Item = Case>) {
    if !RECORDS.load(Ordering::Relaxed) {
        return;
    }
    let server = Server::builder().threads(1).start().unwrap();
    for case in cases {
        let (address, sent) = proxy(server.address());
        {
            let connection = rpc::connect(&address.to_string()).unwrap();
            let ctx = Context::new();
            let bench = Bench::new(&ctx, REACH);
            let y = (case.build)(&bench).unwrap();
            compute(&bench, y, connection.devices()[0]).unwrap();
        }
        RECORDED.lock().unwrap().push(requests(&sent.join().unwrap()));
    }
}

fn compute<'c>(bench: &Bench<'c>, y: Tensor<'c>, device: Device) -> Result<()> {
    let graph = bench.ctx.graph([y])?;
    let mut sched = Sched::builder().backend(device.init()?).backend(Backend::cpu()?).build()?;
    // A result that lies in an operand's memory can't be pinned.
    let pins: &[_] = if sched.alloc_pinned(&graph, &[(y, 0)]).is_ok() { &[(y, 0)] } else { &[] };
    for _ in 0..2 {
        // Else all would be computed on the CPU, as no weights lie on the device.
        let mut run = sched.alloc_pinned(&graph, pins)?;
        bench.set(|t, bytes| run.set_bytes(t, bytes))?;
        run.compute()?;
        run.get_bytes(y)?;
    }
    Ok(())
}

/// Forwards one connection to `to`. The thread returns what the client sent.
fn proxy(to: SocketAddr) -> (SocketAddr, thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let sent = thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        let (client, server) = (Arc::new(client), Arc::new(TcpStream::connect(to).unwrap()));
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let answers = {
            let (client, server) = (Arc::clone(&client), Arc::clone(&server));
            thread::spawn(move || pass(&server, &client))
        };
        let sent = pass(&client, &server);
        answers.join().unwrap();
        sent
    });
    (address, sent)
}

/// Copies until the stream ends, and returns what was copied.
fn pass(mut from: &TcpStream, mut to: &TcpStream) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    while let Ok(n @ 1..) = from.read(&mut piece) {
        all.extend(&piece[..n]);
        if to.write_all(&piece[..n]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Both));
    all
}

fn requests(mut bytes: &[u8]) -> Vec<Request> {
    let mut requests = Vec::new();
    while let [command, rest @ ..] = bytes {
        let (len, rest) = rest.split_first_chunk().expect("a length");
        let (payload, rest) = rest.split_at(u64::from_le_bytes(*len).try_into().unwrap());
        if *command != HELLO {
            requests.push(Request { command: *command, payload: payload.to_vec() });
        }
        bytes = rest;
    }
    requests
}
