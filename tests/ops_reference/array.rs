//! Tensors in plain Rust: what references compute with.

use ggml::{DType, Shape};
use half::{bf16, f16};

/// Elements in ggml's order, the first dimension innermost.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Array {
    pub(crate) ne: [usize; 4],
    pub(crate) data: Vec<f64>,
}

impl Array {
    pub(crate) fn from_fn(ne: [usize; 4], mut f: impl FnMut([usize; 4]) -> f64) -> Self {
        let mut data = Vec::with_capacity(ne.iter().product());
        for i3 in 0..ne[3] {
            for i2 in 0..ne[2] {
                for i1 in 0..ne[1] {
                    data.extend((0..ne[0]).map(|i0| f([i0, i1, i2, i3])));
                }
            }
        }
        Self { ne, data }
    }

    /// Numbers between `-reach` and `reach` without a pattern, other ones for each `seed`, as `dtype` holds them.
    pub(crate) fn noise(ne: [usize; 4], reach: f64, seed: u64, dtype: DType) -> Self {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        Self::from_fn(ne, |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 40) as f64 / f64::from(1 << 24) * 2.0 - 1.0) * reach
        })
        .rounded(dtype)
    }

    pub(crate) fn at(&self, i: [usize; 4]) -> f64 {
        assert!(i.iter().zip(self.ne).all(|(&i, n)| i < n), "{i:?} in {:?}", self.ne);
        self.data[i[0] + self.ne[0] * (i[1] + self.ne[1] * (i[2] + self.ne[2] * i[3]))]
    }

    /// The element at `i`, repeated in all dimensions.
    pub(crate) fn wrapped(&self, i: [usize; 4]) -> f64 {
        self.at([i[0] % self.ne[0], i[1] % self.ne[1], i[2] % self.ne[2], i[3] % self.ne[3]])
    }

    pub(crate) fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self { ne: self.ne, data: self.data.iter().map(|&x| f(x)).collect() }
    }

    /// Each row through `f`.
    pub(crate) fn rows(&self, mut f: impl FnMut(&[f64], [usize; 3]) -> Vec<f64>) -> Self {
        let mut data = Vec::new();
        let mut n0 = 0;
        for (r, row) in self.data.chunks(self.ne[0]).enumerate() {
            let (i1, r) = (r % self.ne[1], r / self.ne[1]);
            let out = f(row, [i1, r % self.ne[2], r / self.ne[2]]);
            n0 = out.len();
            data.extend(out);
        }
        Self { ne: [n0, self.ne[1], self.ne[2], self.ne[3]], data }
    }

    pub(crate) fn reshaped(&self, ne: [usize; 4]) -> Self {
        assert_eq!(ne.iter().product::<usize>(), self.data.len());
        Self { ne, data: self.data.clone() }
    }

    /// Dimension `i` becomes dimension `axes[i]`.
    pub(crate) fn permuted(&self, axes: [usize; 4]) -> Self {
        let mut ne = [0; 4];
        for (i, &axis) in axes.iter().enumerate() {
            ne[axis] = self.ne[i];
        }
        Self::from_fn(ne, |i| self.at(axes.map(|axis| i[axis])))
    }

    pub(crate) fn shape(&self) -> Shape {
        Shape::from(self.ne.map(|n| n as i64))
    }

    /// The nearest values that `dtype` holds.
    pub(crate) fn rounded(&self, dtype: DType) -> Self {
        self.map(|x| round(x, dtype))
    }

    /// The elements in the form in which a tensor of `dtype` holds them.
    pub(crate) fn bytes(&self, dtype: DType) -> Vec<u8> {
        let each = self.data.iter();
        match dtype {
            DType::F32 => each.flat_map(|&x| (x as f32).to_ne_bytes()).collect(),
            DType::F16 => each.flat_map(|&x| f16::from_f64(x).to_ne_bytes()).collect(),
            DType::BF16 => each.flat_map(|&x| bf16::from_f64(x).to_ne_bytes()).collect(),
            DType::I32 => each.flat_map(|&x| (x as i32).to_ne_bytes()).collect(),
            DType::I16 => each.flat_map(|&x| (x as i16).to_ne_bytes()).collect(),
            DType::I8 => each.flat_map(|&x| (x as i8).to_ne_bytes()).collect(),
            DType::I64 => each.flat_map(|&x| (x as i64).to_ne_bytes()).collect(),
            DType::F64 => each.flat_map(|&x| x.to_ne_bytes()).collect(),
            DType::Q8_0 => self.data.chunks(32).flat_map(q8_0).collect(),
            DType::Q4_0 => self.data.chunks(32).flat_map(q4_0).collect(),
            other => panic!("no encoding of {other} here"),
        }
    }

    pub(crate) fn from_bytes(ne: [usize; 4], dtype: DType, bytes: &[u8]) -> Self {
        let data: Vec<f64> = match dtype {
            DType::F32 => parts(bytes).map(|b| f32::from_ne_bytes(b).into()).collect(),
            DType::F16 => parts(bytes).map(|b| f16::from_ne_bytes(b).into()).collect(),
            DType::BF16 => parts(bytes).map(|b| bf16::from_ne_bytes(b).into()).collect(),
            DType::I32 => parts(bytes).map(|b| i32::from_ne_bytes(b).into()).collect(),
            DType::I16 => parts(bytes).map(|b| i16::from_ne_bytes(b).into()).collect(),
            DType::I8 => parts(bytes).map(|b| i8::from_ne_bytes(b).into()).collect(),
            DType::I64 => parts(bytes).map(|b| i64::from_ne_bytes(b) as f64).collect(),
            DType::F64 => parts(bytes).map(f64::from_ne_bytes).collect(),
            DType::Q8_0 => parts::<34>(bytes).flat_map(from_q8_0).collect(),
            DType::Q4_0 => parts::<18>(bytes).flat_map(from_q4_0).collect(),
            other => panic!("no encoding of {other} here"),
        };
        assert_eq!(data.len(), ne.iter().product::<usize>());
        Self { ne, data }
    }

    /// Fails unless each element is within `tolerance` of the wanted one, relative to it or to 1, whichever is larger.
    #[track_caller]
    pub(crate) fn assert_near(&self, want: &Self, tolerance: f64, what: &str) {
        assert_eq!(self.ne, want.ne, "shape of {what}");
        for (i, (&got, &want)) in self.data.iter().zip(&want.data).enumerate() {
            let near = got == want || (got - want).abs() <= tolerance * want.abs().max(1.0);
            assert!(near, "{what}: element {i} of {:?} is {got}, not {want}", self.ne);
        }
    }
}

fn parts<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> + '_ {
    bytes.chunks_exact(N).map(|b| b.try_into().unwrap())
}

fn round(x: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(x as f32),
        DType::F16 => f16::from_f64(x).into(),
        DType::BF16 => bf16::from_f64(x).into(),
        _ => x,
    }
}

/// Blocks of 32: a 16-bit scale, then 8 bits each.
fn q8_0(block: &[f64]) -> Vec<u8> {
    let largest = block.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
    let scale = f16::from_f64(largest / 127.0);
    let mut out = scale.to_ne_bytes().to_vec();
    out.extend(block.iter().map(|x| if largest == 0.0 { 0 } else { (x / largest * 127.0).round() as i8 as u8 }));
    out
}

fn from_q8_0(block: [u8; 34]) -> Vec<f64> {
    let scale = f64::from(f16::from_ne_bytes([block[0], block[1]]));
    block[2..].iter().map(|&q| scale * f64::from(q as i8)).collect()
}

/// Blocks of 32: a 16-bit scale, then 4 bits each, less 8; the low halves of the bytes hold the first 16.
fn q4_0(block: &[f64]) -> Vec<u8> {
    let largest = block.iter().fold(0.0_f64, |m, &x| if x.abs() > m.abs() { x } else { m });
    let scale = f16::from_f64(largest / -8.0);
    let quantum = |x: f64| {
        if largest == 0.0 { 8 } else { (x / f64::from(scale) + 8.0).round().clamp(0.0, 15.0) as u8 }
    };
    let mut out = scale.to_ne_bytes().to_vec();
    out.extend((0..16).map(|i| quantum(block[i]) | quantum(block[i + 16]) << 4));
    out
}

fn from_q4_0(block: [u8; 18]) -> Vec<f64> {
    let scale = f64::from(f16::from_ne_bytes([block[0], block[1]]));
    let low = block[2..].iter().map(|&q| q & 15);
    let high = block[2..].iter().map(|&q| q >> 4);
    low.chain(high).map(|q| scale * (f64::from(q) - 8.0)).collect()
}
