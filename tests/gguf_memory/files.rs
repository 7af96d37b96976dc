//! Valid files with known field positions, and their mutations.

use fastrand::Rng;

/// A file and the positions of its number fields.
#[derive(Default, Clone)]
pub(crate) struct File {
    pub(crate) bytes: Vec<u8>,
    /// The offsets of 4-byte and 8-byte fields: counts, lengths, types, dimensions, offsets.
    words: Vec<usize>,
    longs: Vec<usize>,
}

/// Value types by number, with their sizes; strings and arrays are separate.
const SCALARS: [(u32, usize); 11] =
    [(0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4), (7, 1), (10, 8), (11, 8), (12, 8)];
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Tensor types: number, elements and bytes per block.
const TENSORS: [(u32, u64, u64); 7] =
    [(0, 1, 4), (1, 1, 2), (24, 1, 1), (28, 1, 8), (2, 32, 18), (8, 32, 34), (12, 256, 144)];

impl File {
    fn word(&mut self, n: u32) {
        self.words.push(self.bytes.len());
        self.bytes.extend(n.to_ne_bytes());
    }

    fn long(&mut self, n: u64) {
        self.longs.push(self.bytes.len());
        self.bytes.extend(n.to_ne_bytes());
    }

    fn text(&mut self, text: &str) {
        self.long(text.len() as u64);
        self.bytes.extend(text.as_bytes());
    }

    fn scalar(&mut self, kind: u32, size: usize, rng: &mut Rng) {
        // Booleans are 0 or 1.
        let byte = |rng: &mut Rng| if kind == 7 { rng.u8(..2) } else { rng.u8(..) };
        self.bytes.extend((0..size).map(|_| byte(rng)));
    }

    fn value(&mut self, rng: &mut Rng) {
        let array = rng.u8(..4) == 0;
        if array {
            self.word(ARRAY);
        }
        let (kind, size) = SCALARS[rng.usize(..SCALARS.len())];
        let text = rng.u8(..3) == 0;
        self.word(if text { STRING } else { kind });
        let n = if array { rng.u64(..6) } else { 1 };
        if array {
            self.long(n);
        }
        for _ in 0..n {
            if text { self.text(&"text"[rng.usize(..5)..]) } else { self.scalar(kind, size, rng) }
        }
    }

    /// Creates a random valid file.
    pub(crate) fn valid(rng: &mut Rng) -> Self {
        let mut file = Self { bytes: b"GGUF".to_vec(), ..Self::default() };
        let (n_tensors, n_metadata) = (rng.u64(..5), rng.u64(..6));
        let alignment = *rng.choice(&[None, None, None, Some(1_u32), Some(8), Some(64)]).unwrap_or(&None);
        file.word(rng.u32(2..4));
        file.long(n_tensors);
        file.long(n_metadata + u64::from(alignment.is_some()));
        if let Some(n) = alignment {
            file.text("general.alignment");
            file.word(4);
            file.word(n);
        }
        for i in 0..n_metadata {
            file.text(&format!("key.{i}"));
            file.value(rng);
        }
        let alignment = u64::from(alignment.unwrap_or(32));
        let (mut offset, mut end) = (0_u64, 0);
        for i in 0..n_tensors {
            let (kind, block, bytes) = TENSORS[rng.usize(..TENSORS.len())];
            let n_dims = rng.u32(..5);
            // Without dimensions there is one element.
            let dims: Vec<_> =
                (0..n_dims).map(|d| if d == 0 { block * rng.u64(1..3) } else { rng.u64(1..4) }).collect();
            let (kind, block, bytes) = if dims.is_empty() { (0, 1, 4) } else { (kind, block, bytes) };
            file.text(&format!("tensor.{i}"));
            file.word(n_dims);
            for &d in &dims {
                file.long(d);
            }
            file.word(kind);
            file.long(offset);
            end = offset + dims.iter().product::<u64>() / block * bytes;
            offset = end.next_multiple_of(alignment);
        }
        if n_tensors > 0 {
            let start = (file.bytes.len() as u64).next_multiple_of(alignment);
            file.bytes.resize(usize::try_from(start).unwrap(), 0);
            file.bytes.extend((0..end).map(|_| rng.u8(..)));
        }
        file
    }

    /// Creates a randomly changed copy of the file.
    pub(crate) fn mutated(&self, other: &Self, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for _ in 0..rng.u8(1..4) {
            self.mutate(&mut bytes, other, rng);
        }
        bytes
    }

    fn mutate(&self, bytes: &mut Vec<u8>, other: &Self, rng: &mut Rng) {
        let len = bytes.len();
        let at = rng.usize(..=len);
        match rng.u8(..10) {
            0 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << rng.u8(..8);
                }
            }
            1 => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = rng.u8(..);
                }
            }
            2 => bytes.truncate(at),
            // Wrong types and versions; nested arrays.
            3 | 4 => {
                let at = rng.choice(&self.words).copied().unwrap_or(4);
                let n = [0, 1, 4, STRING, ARRAY, ARRAY, rng.u32(..48), u32::MAX][rng.usize(..8)];
                put(bytes, at, &n.to_ne_bytes());
            }
            // Counts, lengths, dimensions and offsets.
            5 | 6 => {
                let at = rng.choice(&self.longs).copied().unwrap_or(8);
                let n = number(bytes.get(at..), len, rng);
                put(bytes, at, &n.to_ne_bytes());
            }
            7 => {
                let n = number(bytes.get(at..), len, rng);
                put(bytes, at, &n.to_ne_bytes());
            }
            8 => drop(bytes.drain(at..len.min(at + rng.usize(..64)))),
            _ => {
                let from = rng.usize(..=other.bytes.len());
                let to = other.bytes.len().min(from + rng.usize(..64));
                drop(bytes.splice(at..at, other.bytes[from..to].iter().copied()));
            }
        }
    }
}

fn put(bytes: &mut [u8], at: usize, new: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(new) {
        *to = *from;
    }
}

/// A number that is likely to be wrong.
fn number(old: Option<&[u8]>, len: usize, rng: &mut Rng) -> u64 {
    let old = old.and_then(|b| b.first_chunk()).map_or(0, |&b| u64::from_ne_bytes(b));
    match rng.u8(..9) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        2 => len as u64,
        3 => 1 << rng.u8(..64),
        4 => (1 << rng.u8(..64)) - 1,
        5 => u64::MAX - rng.u64(..64),
        6 => i64::MAX as u64 / (1 + rng.u64(..8)),
        7 => len as u64 / (1 + rng.u64(..64)),
        _ => rng.u64(..64),
    }
}
