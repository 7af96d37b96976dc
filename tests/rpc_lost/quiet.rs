//! Standard output belongs to the program: the output of ggml's server goes to the log.

use ggml::rpc::{self, Server};

use crate::again::alone;

struct ToStderr;

impl log::Log for ToStderr {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("log: {} {}", record.target(), record.args());
    }

    fn flush(&self) {}
}

#[test]
fn server_prints_nothing_and_logs() {
    let said = alone("quiet::server_prints_nothing_and_logs", || {
        log::set_logger(&ToStderr).unwrap();
        log::set_max_level(log::LevelFilter::Info);
        let server = Server::builder().start().unwrap();
        let connection = rpc::connect(&server.address().to_string()).unwrap();
        assert_eq!(connection.devices().len(), 1);
        drop(connection);
        while !server.clients().is_empty() {
            std::thread::yield_now();
        }
        println!("the program's own line");
    });
    let Some(said) = said else { return };
    let (printed, logged) = (String::from_utf8(said.stdout).unwrap(), String::from_utf8(said.stderr).unwrap());
    assert!(printed.contains("the program's own line"), "{printed}");
    for line in [": connected", ": it left"] {
        assert!(!printed.contains(line), "{printed}");
        assert!(
            logged.lines().any(|l| l.starts_with("log: ggml RPC server on 127.0.0.1:") && l.contains(line)),
            "{logged}"
        );
    }
}
