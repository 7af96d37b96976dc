//! The relay against misbehaving servers, without ggml. `tests/rpc` has the handshake.

mod clients;
mod limits;

use std::error::Error as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::link::Link;
use super::options::Options;
use super::peer;
use super::relay::Relay;
use super::survey::Survey;
use super::wire::{self, CAPS, Command, RequestLen};
use crate::error::Error;

const SHORT: Duration = Duration::from_millis(300);

fn options() -> Options {
    Options::new().with_connect_timeout(SHORT).with_answer_timeout(SHORT).with_least_rate(limits::RATE)
}

/// A server that runs `script` on each connection in turn.
fn server(script: impl FnMut(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || listener.incoming().map(Result::unwrap).for_each(script));
    address
}

type Request = (Command, Vec<u8>);

/// Answers what a survey asks: one device.
fn survey(stream: &mut TcpStream) {
    assert_eq!(request(stream).map(|(command, _)| command), Some(Command::DeviceCount));
    reply(stream, &1_u32.to_le_bytes());
    for command in [Command::GetAlignment, Command::GetMaxSize] {
        assert_eq!(request(stream).map(|(command, _)| command), Some(command));
        reply(stream, &32_u64.to_le_bytes());
    }
}

/// Reads one request.
fn request(stream: &mut TcpStream) -> Option<Request> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let mut payload = vec![0; usize::try_from(u64::from_le_bytes(*head.last_chunk().unwrap())).unwrap()];
    stream.read_exact(&mut payload).ok()?;
    Some((Command::from_byte(head[0]).unwrap(), payload))
}

fn reply(stream: &mut TcpStream, payload: &[u8]) {
    stream.write_all(&[&(payload.len() as u64).to_le_bytes(), payload].concat()).unwrap();
}

fn shake(stream: &mut TcpStream) {
    assert_eq!(request(stream), Some((Command::Hello, vec![0; CAPS])));
    reply(stream, &wire::hello_reply());
}

/// ggml's side of a session.
struct Client(TcpStream);

impl Client {
    fn new(address: SocketAddr) -> Self {
        let mut client = Self(TcpStream::connect(address).unwrap());
        client.0.set_read_timeout(Some(100 * SHORT)).unwrap();
        let greeting = client.ask(Command::Hello, &[0; CAPS]);
        assert_eq!(greeting, wire::hello_reply());
        client
    }

    fn tell(&mut self, command: Command, payload: &[u8]) {
        self.0.write_all(&wire::request_head(command, payload.len() as u64)).unwrap();
        self.0.write_all(payload).unwrap();
    }

    fn ask(&mut self, command: Command, payload: &[u8]) -> Vec<u8> {
        self.tell(command, payload);
        let mut len = [0; 8];
        self.0.read_exact(&mut len).unwrap();
        let mut reply = vec![0; usize::try_from(u64::from_le_bytes(len)).unwrap()];
        self.0.read_exact(&mut reply).unwrap();
        reply
    }

    fn memory(&mut self) -> Vec<u8> {
        self.ask(Command::GetDeviceMemory, &[0; 4])
    }
}

/// [`start`], for tests that don't use the relay itself.
fn relayed(script: impl FnMut(TcpStream) + Send + 'static) -> (Arc<Link>, SocketAddr) {
    let (link, _, address) = start(script);
    (link, address)
}

/// A held relay to a server that runs `script` after the handshake.
fn start(mut script: impl FnMut(TcpStream) + Send + 'static) -> (Arc<Link>, Relay, SocketAddr) {
    let address = server(move |mut stream| {
        shake(&mut stream);
        survey(&mut stream);
        script(stream);
    });
    let (mut peer, _) = peer::open("", &[address], &options()).unwrap();
    let link = Arc::new(Link::new("fake", address, options()));
    link.hold();
    let survey = Survey::make(&mut peer, &link).unwrap();
    let relay = Relay::start(Arc::clone(&link), survey, peer).unwrap();
    let address = relay.address();
    (link, relay, address)
}

/// A server that reports the requests it gets, and answers allocation requests.
fn recorder() -> (Arc<Link>, SocketAddr, Receiver<Request>) {
    let (sender, requests) = channel();
    let (link, relay) = relayed(move |mut stream| {
        while let Some((command, payload)) = request(&mut stream) {
            sender.send((command, payload)).unwrap();
            if command == Command::GetDeviceMemory {
                reply(&mut stream, &[7; 16]);
            }
        }
    });
    (link, relay, requests)
}

fn reason(link: &Link) -> String {
    match link.check() {
        Err(Error::RpcLost { endpoint, reason, .. }) => {
            assert_eq!(&*endpoint, "fake");
            reason.into_owned()
        }
        other => panic!("not lost: {other:?}"),
    }
}

/// The kind of the I/O error behind `error`, if there is one.
fn io_kind(error: &Error) -> Option<ErrorKind> {
    error.source()?.downcast_ref::<io::Error>().map(io::Error::kind)
}

/// A request for `len` bytes of a tensor.
fn get(len: u64) -> Vec<u8> {
    [&[0; 304][..], &len.to_le_bytes()].concat()
}

#[test]
fn relay_forwards_requests_and_replies_unchanged() {
    let data: Vec<u8> = (0..3_000_000_u32).map(|i| i.to_le_bytes()[i as usize % 3]).collect();
    let (expected, data_len) = (data.clone(), data.len() as u64);
    let (link, relay) = relayed(move |mut stream| {
        let mut stored = Vec::new();
        while let Some((command, payload)) = request(&mut stream) {
            match command {
                Command::SetTensor => stored = payload,
                Command::GetTensor => reply(&mut stream, &stored),
                _ => reply(&mut stream, &[7; 16]),
            }
        }
    });
    let survey = link.traffic.read();
    let mut client = Client::new(relay);
    assert_eq!(client.memory(), [7; 16]);
    client.tell(Command::SetTensor, &data);
    assert!(client.ask(Command::GetTensor, &get(data.len() as u64)) == expected, "the data was changed on its way");
    link.check().unwrap();
    let traffic = link.traffic.read();
    let sent = (9 + 4) + (9 + data_len) + (9 + 312);
    let received = (8 + 16) + (8 + data_len);
    assert_eq!(
        (traffic.requests - survey.requests, traffic.sent - survey.sent, traffic.received - survey.received),
        (3, sent, received)
    );
}

#[test]
fn relay_detects_a_closed_connection_before_the_next_request() {
    let (link, relay) = relayed(drop);
    let mut client = Client::new(relay);
    thread::sleep(SHORT);
    client.tell(Command::BufferClear, &[0; 9]);
    assert_eq!(client.memory(), [0; 16]);
    assert_eq!(reason(&link), "it closed the connection");
}

#[test]
fn relay_answers_every_request_after_the_loss() {
    let (link, relay) = relayed(|mut stream| drop(request(&mut stream)));
    let mut client = Client::new(relay);
    assert_eq!(client.memory(), [0; 16]);
    assert_eq!(reason(&link), "it closed the connection during GET_DEVICE_MEMORY");

    client.tell(Command::GraphCompute, &[1; 5000]);
    client.tell(Command::SetTensor, &vec![1; 1_000_000]);
    assert_eq!(client.ask(Command::AllocBuffer, &[9; 12]), [0; 16]);
    assert_eq!(client.ask(Command::GetAllocSize, &[0; 3260]), [0; 8]);
    assert_eq!(client.ask(Command::BufferGetBase, &[0; 8]), (1_u64 << 40).to_le_bytes());
    assert_eq!(client.ask(Command::SetTensorHash, &[0; 312]), [1]);
    assert_eq!(client.ask(Command::CopyTensor, &[0; 592]), [1]);
    assert_eq!(client.ask(Command::DeviceCount, &[]), 1_u32.to_le_bytes());
    assert!(client.ask(Command::GetTensor, &get(100_000)) == vec![0; 100_000], "not zeros");
    drop(client);
    assert_eq!(Client::new(relay).memory(), [0; 16], "a later client is answered too");
}

#[test]
fn relay_completes_a_truncated_reply() {
    let (link, relay) = relayed(|mut stream| {
        request(&mut stream);
        stream.write_all(&1000_u64.to_le_bytes()).unwrap();
        stream.write_all(&[5; 600]).unwrap();
    });
    let data = Client::new(relay).ask(Command::GetTensor, &get(1000));
    assert_eq!(data, [[5; 600].as_slice(), &[0; 400]].concat());
    assert_eq!(reason(&link), "it closed the connection during GET_TENSOR");
    assert_eq!(io_kind(&link.check().unwrap_err()), Some(ErrorKind::UnexpectedEof));
}

#[test]
fn relay_answers_device_queries_from_the_survey() {
    let (sender, requests) = channel();
    let address = server(move |mut stream| {
        shake(&mut stream);
        while let Some((command, payload)) = request(&mut stream) {
            sender.send(command).unwrap();
            match command {
                Command::DeviceCount => reply(&mut stream, &2_u32.to_le_bytes()),
                Command::GetAlignment => reply(&mut stream, &(32_u64 << payload[0]).to_le_bytes()),
                _ => reply(&mut stream, &(1000 + u64::from(payload[0])).to_le_bytes()),
            }
        }
    });
    let (mut peer, _) = peer::open("", &[address], &options()).unwrap();
    let link = Arc::new(Link::new("fake", address, options()));
    let survey = Survey::make(&mut peer, &link).unwrap();
    let asked =
        [Command::DeviceCount, Command::GetAlignment, Command::GetMaxSize, Command::GetAlignment, Command::GetMaxSize];
    assert_eq!(requests.try_iter().collect::<Vec<_>>(), asked);
    assert_eq!(link.traffic.read().requests, 5);
    link.hold();
    let relay = Relay::start(Arc::clone(&link), survey, peer).unwrap();
    let mut client = Client::new(relay.address());
    assert_eq!(client.ask(Command::DeviceCount, &[]), 2_u32.to_le_bytes());
    for device in 0..2_u32 {
        assert_eq!(client.ask(Command::GetAlignment, &device.to_le_bytes()), (32_u64 << device).to_le_bytes());
        assert_eq!(client.ask(Command::GetMaxSize, &device.to_le_bytes()), (1000 + u64::from(device)).to_le_bytes());
    }
    assert_eq!(requests.try_iter().count(), 0, "the server was asked again");
}

#[test]
fn stopped_relay_releases_its_port() {
    let (_link, relay, address) = start(drop);
    relay.stop();
    drop(relay);
    let start = Instant::now();
    while TcpListener::bind(address).is_err() {
        assert!(start.elapsed() < 100 * SHORT, "the port is still taken");
        thread::sleep(SHORT / 100);
    }
}

#[test]
fn relay_renews_its_link_once_the_first_is_free() {
    let (link, relay, address) = start(drop);
    let other = server(|mut stream| {
        shake(&mut stream);
        while request(&mut stream).is_some() {
            reply(&mut stream, &[9; 16]);
        }
    });
    let (peer, _) = peer::open("", &[other], &options()).unwrap();
    let (new, mut peer) = (Arc::new(Link::new("fake", other, options())), Some(peer));
    let mut client = Client::new(address);
    assert_eq!(client.memory(), [0; 16]);
    assert!(link.check().is_err());
    assert!(!relay.renew(&new, &mut peer), "the first is held");
    link.release();
    assert!(!relay.renew(&new, &mut peer), "the first has a client");
    drop(client);
    let start = Instant::now();
    while !relay.renew(&new, &mut peer) {
        assert!(start.elapsed() < 100 * SHORT, "the client is not seen to leave");
    }
    assert!(peer.is_none());
    assert_eq!(Client::new(address).memory(), [9; 16]);
    new.check().unwrap();
    assert!(link.check().is_err(), "what was lost stays lost");
}

#[test]
fn relay_withholds_a_reply_of_another_length() {
    let (link, relay) = relayed(|mut stream| {
        request(&mut stream);
        reply(&mut stream, &[1; 8]);
    });
    assert_eq!(Client::new(relay).memory(), [0; 16]);
    assert_eq!(reason(&link), "it answered GET_DEVICE_MEMORY with 8 bytes instead of 16");
}

#[test]
fn relay_withholds_a_reply_that_ggml_would_assert_on() {
    let (link, relay) = relayed(|mut stream| {
        request(&mut stream);
        reply(&mut stream, &3_u64.to_le_bytes());
    });
    // The survey has one device.
    assert_eq!(Client::new(relay).ask(Command::GetAlignment, &1_u32.to_le_bytes()), 64_u64.to_le_bytes());
    assert_eq!(reason(&link), "it answered GET_ALIGNMENT with 3, which is no power of two in reason");
}

#[test]
fn relay_loses_a_server_that_sends_unrequested_data() {
    let (link, relay) = relayed(|mut stream| {
        request(&mut stream);
        reply(&mut stream, &[7; 16]);
        stream.write_all(&[1]).unwrap();
        request(&mut stream);
    });
    let mut client = Client::new(relay);
    assert_eq!(client.memory(), [7; 16]);
    thread::sleep(SHORT);
    assert_eq!(client.memory(), [0; 16]);
    assert_eq!(reason(&link), "it sent data that nothing asked for");
}

#[test]
fn relay_resends_a_graph_that_the_server_discarded() {
    let (link, relay, requests) = recorder();
    let mut client = Client::new(relay);
    let graph = [&1_u32.to_le_bytes()[..], &[9; 100]].concat();
    let RequestLen::Exactly(len) = Command::GraphRecompute.request_len() else { panic!("of no fixed length") };
    let again = &graph[..usize::try_from(len).unwrap()];
    client.tell(Command::GraphCompute, &graph);
    client.tell(Command::GraphRecompute, again);
    client.tell(Command::FreeBuffer, &[0; 8]);
    client.tell(Command::GraphRecompute, again);
    client.tell(Command::GraphRecompute, again);
    client.memory();
    let commands: Vec<_> = requests.try_iter().collect();
    let expected = [
        (Command::GraphCompute, graph.clone()),
        (Command::GraphRecompute, again.to_vec()),
        (Command::FreeBuffer, vec![0; 8]),
        (Command::GraphCompute, graph.clone()),
        (Command::GraphRecompute, again.to_vec()),
        (Command::GetDeviceMemory, vec![0; 4]),
    ];
    assert_eq!(commands, expected);
    link.check().unwrap();
}

/// Otherwise the servers of a meta device would add up partial sums among themselves, at the addresses of relays.
#[test]
fn a_collective_is_refused_and_never_reaches_the_server() {
    if Command::from_byte(Command::CommInit.byte()).is_none() {
        return; // not a command of this protocol
    }
    let (link, relay, requests) = recorder();
    let mut client = Client::new(relay);
    assert_eq!(client.ask(Command::CommInit, &[1; 80]), [0]);
    assert_eq!(client.memory(), [7; 16]);
    assert_eq!(requests.try_iter().map(|(command, _)| command).collect::<Vec<_>>(), [Command::GetDeviceMemory]);
    link.check().unwrap();
    client.tell(Command::CommAllreduce, &[0; 300]);
    assert_eq!(client.0.read(&mut [0]).unwrap_or(0), 0, "it is hung up on");
    assert_eq!(requests.try_iter().count(), 0);
}
