//! Files that claim as much as possible.

use ggml::gguf::{Reader, Writer};
use testkit::counted;

/// The peak of allocated bytes while `bytes` are read, without `bytes` themselves.
fn peak(bytes: Vec<u8>) -> (usize, bool) {
    counted::peak(|| Reader::from_bytes(bytes).is_ok())
}

fn header(n_tensors: u64, n_metadata: u64) -> Vec<u8> {
    [&b"GGUF"[..], &3_u32.to_ne_bytes(), &n_tensors.to_ne_bytes(), &n_metadata.to_ne_bytes()].concat()
}

#[test]
fn reader_memory_is_a_small_multiple_of_the_file() {
    const LEN: usize = 1 << 20;
    const MOST: usize = 8 * LEN;
    // The first error or log line initialises static data, which is not measured.
    assert!(Reader::from_bytes(header(1, 1)).is_err());

    // As many entries as fit: three-byte keys with a boolean each.
    let mut dense = Writer::new();
    for i in 0..60_000 {
        dense.set(&format!("{i:x}"), true).unwrap();
    }
    let dense = dense.to_bytes().unwrap();
    let (taken, read) = peak(dense.clone());
    assert!(read && taken <= 8 * dense.len(), "{taken} bytes for a file of {}", dense.len());

    // Empty strings, the smallest values with an allocation of their own.
    let mut texts = Writer::new();
    texts.set("texts", vec![String::new(); LEN / 8]).unwrap();
    let (taken, read) = peak(texts.to_bytes().unwrap());
    assert!(read && taken <= MOST, "{taken}");

    // Counts that just fit and counts that don't, followed by garbage.
    for n in [LEN as u64 / 32, LEN as u64 / 24, 1 << 40, u64::MAX] {
        for (n_tensors, n_metadata) in [(n, 0), (0, n), (n, n)] {
            let mut file = header(n_tensors, n_metadata);
            file.resize(LEN, 0);
            let (taken, read) = peak(file);
            assert!(!read && taken <= MOST, "{taken} for {n_tensors} tensors, {n_metadata} entries");
        }
        let array =
            [&header(0, 1)[..], &1_u64.to_ne_bytes(), b"k", &9_u32.to_ne_bytes(), &8_u32.to_ne_bytes()].concat();
        let mut file = [&array[..], &n.to_ne_bytes()].concat();
        file.resize(LEN, 0xff);
        let (taken, read) = peak(file);
        assert!(!read && taken <= MOST, "{taken} for {n} texts");
    }
}

/// A sparse file of half a gigabyte of zeros.
#[cfg(target_os = "linux")]
#[test]
fn reader_memory_ignores_holes_of_a_sparse_file() {
    use std::fs;

    const LEN: u64 = 128 << 20;
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("holes-{}.gguf", std::process::id()));
    let open = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(LEN).unwrap();
        counted::peak(|| Reader::open(&path).map(drop))
    };
    // Tensors and entries that are claimed but are all zeros: the second one is refused.
    for bytes in [header(LEN / 24 - 1, 0), header(0, LEN / 14 - 2)] {
        let (taken, read) = open(&bytes);
        assert!(read.is_err() && taken < 1 << 20, "{taken} bytes to refuse a file that lies");
    }
    // A key and a tensor's name that are as long as the rest of the file.
    let long = LEN - 64;
    let value = [&header(0, 1)[..], &long.to_ne_bytes()].concat();
    let name = [&header(1, 0)[..], &long.to_ne_bytes()].concat();
    for bytes in [value, name] {
        let (taken, read) = open(&bytes);
        assert!(read.is_err() && taken < 1 << 20, "{taken} bytes to refuse a name of {long}");
    }
    // An array that really contains this many empty strings.
    let array = [&header(0, 1)[..], &1_u64.to_ne_bytes(), b"k", &9_u32.to_ne_bytes(), &8_u32.to_ne_bytes()].concat();
    let (taken, read) = open(&[&array[..], &(LEN / 8 - 10).to_ne_bytes()].concat());
    read.unwrap();
    assert!(taken as u64 <= 2 * LEN + (1 << 20), "{taken} bytes for a file of {LEN}");
    fs::remove_file(path).unwrap();
}
