//! The cache on disk: tensors that a client uploaded are there for the next one, by their hash.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ggml::rpc::{Limits, Server};
use tempfile::TempDir;

use crate::client::Memory;
use crate::draw::N;
use crate::fields::{BYTES, Does, ask, tensor};
use crate::wire::{GET_TENSOR, SET_TENSOR, SET_TENSOR_HASH, Tensor};

/// FNV-1a of 64 bits, as ggml's client computes it.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

fn data() -> Vec<u8> {
    (0..BYTES).map(|i| i as u8).collect()
}

fn upload(data: &[u8], store: u8) -> impl FnOnce(Memory) -> (u8, Vec<u8>) {
    move |m| (SET_TENSOR, [&tensor(m).bytes()[..], &[store], &[0; 8], data].concat())
}

fn find(hash: u64, change: fn(&mut Tensor)) -> impl FnOnce(Memory) -> (u8, Vec<u8>) {
    move |m| {
        let mut t = tensor(m);
        change(&mut t);
        (SET_TENSOR_HASH, [&t.bytes()[..], &[0; 8], &hash.to_le_bytes()].concat())
    }
}

fn serve(folder: &Path, limits: Limits) -> Server {
    Server::builder().cache(folder).limits(limits).start().unwrap()
}

/// The name of the file of a hash, once the server has written it.
fn file(folder: &Path, hash: u64) -> std::path::PathBuf {
    let (file, start) = (folder.join(format!("{hash:016x}")), Instant::now());
    while !file.exists() && start.elapsed() < Duration::from_secs(10) {
        std::thread::yield_now();
    }
    file
}

const FOUND: [u8; 1] = [1];
const NOT_FOUND: [u8; 1] = [0];

#[test]
fn a_tensor_is_loaded_by_its_hash() {
    let folder = TempDir::new().unwrap();
    let data = data();
    let is = hash(&data);
    {
        let server = serve(folder.path(), Limits::new());
        assert_eq!(ask(&server, find(is, |_| ())), Does::Answers(NOT_FOUND.to_vec()), "before it was sent");
        assert_eq!(ask(&server, upload(&data, 1)), Does::Answers(Vec::new()));
        assert_eq!(fs::read(file(folder.path(), is)).unwrap(), data);
        assert_eq!(ask(&server, find(is ^ 1, |_| ())), Does::Answers(NOT_FOUND.to_vec()), "another hash");
    }
    // Another server finds what the first one stored.
    let server = serve(folder.path(), Limits::new());
    let mut got = Vec::new();
    let mut client = crate::client::Client::greeted(server.address()).unwrap();
    let m = client.allocate(2 * BYTES).unwrap();
    let (command, payload) = find(is, |_| ())(m);
    assert_eq!(client.ask(command, &payload).unwrap(), FOUND);
    got.extend(client.ask(GET_TENSOR, &[&tensor(m).bytes()[..], &[0; 8], &BYTES.to_le_bytes()].concat()).unwrap());
    assert_eq!(got, data);
    // No tensor of another length is filled.
    let shorter: fn(&mut Tensor) = |t| *t = Tensor::row(1, t.buffer, t.data, N / 2);
    assert_eq!(ask(&server, find(is, shorter)), Does::Answers(NOT_FOUND.to_vec()));
    let elsewhere: fn(&mut Tensor) = |t| t.data -= 4;
    ask(&server, find(is, elsewhere)).closes("lies outside of its buffer", "a tensor outside");
}

#[test]
fn a_file_with_other_bytes_than_its_hash_says_is_discarded() {
    let folder = TempDir::new().unwrap();
    let (server, data) = (serve(folder.path(), Limits::new()), data());
    let is = hash(&data);
    assert_eq!(ask(&server, upload(&data, 1)), Does::Answers(Vec::new()));
    let file = file(folder.path(), is);
    fs::write(&file, [&data[1..], &[0]].concat()).unwrap();
    assert_eq!(ask(&server, find(is, |_| ())), Does::Answers(NOT_FOUND.to_vec()));
    assert!(!file.exists());
    assert_eq!(ask(&server, upload(&data, 1)), Does::Answers(Vec::new()));
    self::file(folder.path(), is);
    assert_eq!(ask(&server, find(is, |_| ())), Does::Answers(FOUND.to_vec()), "it is sent and stored again");
}

#[test]
fn the_cache_holds_what_it_may_and_nothing_half_written() {
    let folder = TempDir::new().unwrap();
    let names = || fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect::<Vec<_>>();
    let (data, other) = (data(), vec![3; BYTES as usize]);
    {
        let server = serve(folder.path(), Limits::new().with_cache(2 * BYTES - 1));
        assert_eq!(ask(&server, upload(&data, 0)), Does::Answers(Vec::new()));
        assert_eq!(names().len(), 0, "the client did not ask to store it");
        assert_eq!(ask(&server, upload(&data, 1)), Does::Answers(Vec::new()));
        assert_eq!(ask(&server, upload(&other, 1)), Does::Answers(Vec::new()), "stored on the device alone");
        assert_eq!(ask(&server, upload(&data[..100], 1)), Does::Answers(Vec::new()), "a part of the tensor");
    }
    // `BYTES` and 100 bytes: there was no room for the second.
    let mut is = [hash(&data), hash(&data[..100])].map(|hash| OsString::from(format!("{hash:016x}")));
    is.sort();
    let mut names = names();
    names.sort();
    assert_eq!(names, is);
    // A file counts after a restart as well.
    let server = serve(folder.path(), Limits::new().with_cache(2 * BYTES));
    assert_eq!(ask(&server, upload(&other, 1)), Does::Answers(Vec::new()));
    drop(server);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}
