//! Servers that answer byte by byte.

use std::time::{Duration, Instant};

use ggml::Error;
use ggml::rpc::{self, Options};

use crate::fake::{self, Answer};

const PAUSE: Duration = Duration::from_millis(200);
const LIMIT: Duration = Duration::from_secs(1);

fn options() -> Options {
    Options::new().with_connect_timeout(LIMIT).with_answer_timeout(LIMIT)
}

#[test]
fn memory_query_answered_in_single_bytes_is_limited() {
    let server = fake::start(|command| match command {
        fake::MEMORY => Answer::Trickle(PAUSE),
        _ => Answer::Good,
    });
    let connection = rpc::connect_with(&server.to_string(), &options()).unwrap();
    let start = Instant::now();
    let error = connection.devices()[0].memory().unwrap_err();
    assert!(matches!(error, Error::RpcLost { .. }), "{error:?}");
    assert!(error.to_string().contains("it did not finish GET_DEVICE_MEMORY within 1s"), "{error}");
    assert!(start.elapsed() < 20 * LIMIT, "took {:?}", start.elapsed());
}

#[test]
fn connect_answered_in_single_bytes_is_limited() {
    for trickling in [fake::HELLO, fake::DEVICE_COUNT, fake::ALIGNMENT, fake::MAX_SIZE] {
        let server = fake::start(move |command| match command {
            _ if command == trickling => Answer::Trickle(PAUSE),
            _ => Answer::Good,
        });
        let start = Instant::now();
        let error = rpc::connect_with(&server.to_string(), &options()).unwrap_err();
        assert!(matches!(&error, Error::Rpc { .. }) && error.to_string().contains("within 1s"), "{error:?}");
        assert!(start.elapsed() < 20 * LIMIT, "took {:?}", start.elapsed());
    }
}
