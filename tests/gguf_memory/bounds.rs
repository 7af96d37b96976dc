//! Files that announce as much as they can.

use ggml::gguf::{Reader, Writer};

use crate::counting;

/// The most bytes that were allocated at a time while `bytes` were read, themselves not counted.
fn peak(bytes: Vec<u8>) -> (usize, bool) {
    counting::peak(|| Reader::from_bytes(bytes).is_ok())
}

fn header(n_tensors: u64, n_metadata: u64) -> Vec<u8> {
    [&b"GGUF"[..], &3_u32.to_ne_bytes(), &n_tensors.to_ne_bytes(), &n_metadata.to_ne_bytes()].concat()
}

#[test]
fn reading_takes_a_small_multiple_of_the_file() {
    const LEN: usize = 1 << 20;
    const MOST: usize = 8 * LEN;
    // What the first error or log line sets up is not at issue.
    assert!(Reader::from_bytes(header(1, 1)).is_err());

    // As many entries as there can be: keys of three bytes with a boolean each.
    let mut dense = Writer::new();
    for i in 0..60_000 {
        dense.set(&format!("{i:x}"), true).unwrap();
    }
    let dense = dense.to_bytes().unwrap();
    let (taken, read) = peak(dense.clone());
    assert!(read && taken <= 8 * dense.len(), "{taken} bytes for a file of {}", dense.len());

    // Empty texts, the smallest thing that takes memory of its own.
    let mut texts = Writer::new();
    texts.set("texts", vec![String::new(); LEN / 8]).unwrap();
    let (taken, read) = peak(texts.to_bytes().unwrap());
    assert!(read && taken <= MOST, "{taken}");

    // Counts that just fit, and counts that don't, with nothing behind them that is meant.
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
