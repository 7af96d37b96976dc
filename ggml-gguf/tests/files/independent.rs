//! A parser written from the format's description, independent of this crate except for the value types. It trusts its
//! input: files that were just written.

use ggml_gguf::{Array, Value};

#[derive(Debug, PartialEq)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dims: Vec<u64>,
    pub(crate) dtype: u32,
    pub(crate) offset: u64,
}

#[derive(Debug)]
pub(crate) struct File {
    pub(crate) version: u32,
    pub(crate) metadata: Vec<(String, Value)>,
    pub(crate) tensors: Vec<Tensor>,
    /// The offset at which the last description ends.
    pub(crate) described: usize,
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn next<const N: usize>(&mut self) -> [u8; N] {
        let (head, rest) = self.0.split_first_chunk().unwrap();
        self.0 = rest;
        *head
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.next())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.next())
    }

    fn text(&mut self) -> String {
        let n = usize::try_from(self.u64()).unwrap();
        let (head, rest) = self.0.split_at(n);
        self.0 = rest;
        String::from_utf8(head.to_vec()).unwrap()
    }

    fn bool(&mut self) -> bool {
        match self.next() {
            [0] => false,
            [1] => true,
            other => panic!("{other:?}"),
        }
    }

    fn many<T>(&mut self, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.u64()).map(|_| one(self)).collect()
    }

    fn value(&mut self) -> Value {
        match self.u32() {
            0 => u8::from_ne_bytes(self.next()).into(),
            1 => i8::from_ne_bytes(self.next()).into(),
            2 => u16::from_ne_bytes(self.next()).into(),
            3 => i16::from_ne_bytes(self.next()).into(),
            4 => self.u32().into(),
            5 => i32::from_ne_bytes(self.next()).into(),
            6 => f32::from_ne_bytes(self.next()).into(),
            7 => self.bool().into(),
            8 => self.text().into(),
            9 => self.array().into(),
            10 => self.u64().into(),
            11 => i64::from_ne_bytes(self.next()).into(),
            12 => f64::from_ne_bytes(self.next()).into(),
            other => panic!("type {other}"),
        }
    }

    fn array(&mut self) -> Array {
        match self.u32() {
            0 => Array::U8(self.many(|i| u8::from_ne_bytes(i.next()))),
            1 => Array::I8(self.many(|i| i8::from_ne_bytes(i.next()))),
            2 => Array::U16(self.many(|i| u16::from_ne_bytes(i.next()))),
            3 => Array::I16(self.many(|i| i16::from_ne_bytes(i.next()))),
            4 => Array::U32(self.many(Self::u32)),
            5 => Array::I32(self.many(|i| i32::from_ne_bytes(i.next()))),
            6 => Array::F32(self.many(|i| f32::from_ne_bytes(i.next()))),
            7 => Array::Bool(self.many(Self::bool)),
            8 => Array::String(self.many(Self::text).into()),
            10 => Array::U64(self.many(Self::u64)),
            11 => Array::I64(self.many(|i| i64::from_ne_bytes(i.next()))),
            12 => Array::F64(self.many(|i| f64::from_ne_bytes(i.next()))),
            other => panic!("array of {other}"),
        }
    }
}

pub(crate) fn parse(bytes: &[u8]) -> File {
    let mut input = Input(bytes);
    assert_eq!(&input.next(), b"GGUF");
    let version = input.u32();
    let (n_tensors, n_metadata) = (input.u64(), input.u64());
    let metadata = (0..n_metadata).map(|_| (input.text(), input.value())).collect();
    let tensors = (0..n_tensors)
        .map(|_| {
            let name = input.text();
            let n_dims = input.u32();
            let dims = (0..n_dims).map(|_| input.u64()).collect();
            Tensor { name, dims, dtype: input.u32(), offset: input.u64() }
        })
        .collect();
    File { version, metadata, tensors, described: bytes.len() - input.0.len() }
}
