//! Servers: found, not found, lost.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use ggml::prelude::*;
use ggml::rpc::{self, Options};
use testkit::server::ServerProcess;

/// Who may be connected to.
pub(crate) struct Peers {
    server: ServerProcess,
    /// Where nobody listens.
    nobody: String,
    /// What is no server.
    strange: Vec<String>,
}

/// A listener that does something with what connects.
fn listener(act: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || listener.incoming().filter_map(Result::ok).for_each(act));
    endpoint
}

impl Peers {
    pub(crate) fn new() -> Self {
        let strange = vec![
            listener(drop),
            listener(|mut stream| drop(stream.write_all(&[b'x'; 64]))),
            // Half an answer to the handshake.
            listener(|mut stream| {
                let _asked = stream.read(&mut [0; 64]);
                let _sent = stream.write_all(&[28, 0, 0, 0]);
            }),
            // The handshake, and then nothing.
            listener(|mut stream| {
                let _asked = stream.read_exact(&mut [0; 9 + 24]);
                let _sent = stream.write_all(&[28, 0, 0, 0, 0, 0, 0, 0, rpc::VERSION[0], 0, 0, 0]);
                let _sent = stream.write_all(&[0; 24]);
            }),
        ];
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        Self { server: ServerProcess::start(), nobody, strange }
    }

    /// Connects to all of them; now and then the server goes.
    pub(crate) fn round(&mut self, n: u64) {
        self.connects();
        self.refusals();
        if n % 8 == 3 {
            self.loses();
        }
    }

    fn connects(&self) {
        let connection = rpc::connect(&self.server.address.to_string()).unwrap();
        let device = connection.devices()[0];
        let mut builder = WeightsBuilder::new();
        builder.tensor("w", DType::F32, [64]).unwrap();
        let mut weights = builder.place(device.buffer_type()).unwrap();
        weights.set("w", &[2.0_f32; 64]).unwrap();
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [64]).unwrap();
        let y = ctx.mul(weights.tensor("w").unwrap(), x).unwrap();
        let graph = ctx.graph([y]).unwrap();
        let cpu = Backend::cpu().unwrap();
        let mut sched = Sched::builder().backend(device.init().unwrap()).backend(cpu).build().unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        run.set(x, &[3.0_f32; 64]).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(y).unwrap(), [6.0; 64]);
    }

    fn refusals(&self) {
        let options = Options::new()
            .with_connect_timeout(Duration::from_millis(200))
            .with_answer_timeout(Duration::from_millis(200));
        for endpoint in self.strange.iter().chain([&self.nobody]) {
            let result = rpc::connect_with(endpoint, &options);
            assert!(result.is_err(), "connected to {endpoint}");
        }
    }

    /// The server goes while it is used, and comes back where it was.
    fn loses(&mut self) {
        let address = self.server.address;
        let connection = rpc::connect(&address.to_string()).unwrap();
        let device = connection.devices()[0];
        let mut builder = WeightsBuilder::new();
        builder.tensor("w", DType::F32, [64]).unwrap();
        let mut weights = builder.place(device.buffer_type()).unwrap();
        self.server.kill();
        let lost = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(2));
            weights.set("w", &[2.0_f32; 64]).and_then(|()| weights.read_bytes("w")).is_err()
        });
        assert!(lost, "nobody noticed");
        drop(weights);
        drop(connection);
        self.server = ServerProcess::start_at(address);
    }
}
