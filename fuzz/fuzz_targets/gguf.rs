//! Reads files that may be anything, and places what is accepted: `cargo xtask fuzz-gguf` with a fuzzer that looks for ways.

#![no_main]

use std::io::Cursor;

use ggml::Device;
use ggml::gguf::{Load as _, Reader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let stream = Reader::from_stream(Cursor::new(bytes));
    let Ok(reader) = Reader::from_bytes(bytes) else {
        assert!(stream.is_err());
        return;
    };
    let memory = Device::cpu().unwrap().buffer_type();
    let loaded = reader.load(memory).unwrap();
    let streamed = stream.unwrap().stream(memory, |_, _| ()).unwrap();
    for t in reader.tensors() {
        let data = reader.data(t.name()).unwrap();
        assert_eq!(loaded.read_bytes(t.name()).unwrap(), data);
        assert_eq!(streamed.read_bytes(t.name()).unwrap(), data);
    }
});
