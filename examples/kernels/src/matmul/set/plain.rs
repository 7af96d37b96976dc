//! Plain Rust, for tests.

use half::f16;

use super::Set;

/// What every processor has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plain;

const LANES: usize = 8;

impl Set for Plain {
    type Ints = [i32; LANES];
    type Floats = [f32; LANES];
    type Bytes2 = [u8; 2 * LANES];
    type Bytes4 = [u8; 4 * LANES];
    type Square = [[i32; LANES]; LANES];
    type Short = Self;

    const SIGNED: bool = true;
    const WORDS: bool = true;
    const DEEP: usize = 8;

    fn short(self) -> Self {
        self
    }

    fn halves(self, bytes: &[u8; 2 * LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| f16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f32())
    }

    fn lookup(self, table: &[u8; 16], at: [u8; 32]) -> [u8; 32] {
        at.map(|i| table[usize::from(i)])
    }

    fn ints(self, x: i32) -> [i32; LANES] {
        [x; LANES]
    }

    fn floats(self, x: f32) -> [f32; LANES] {
        [x; LANES]
    }

    #[expect(clippy::cast_precision_loss, reason = "a sum of products of bytes")]
    fn convert(self, x: [i32; LANES]) -> [f32; LANES] {
        x.map(|x| x as f32)
    }

    fn mul(self, a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| a[i] * b[i])
    }

    fn mul_add(self, a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }

    fn sum(self, x: [f32; LANES]) -> f32 {
        x.iter().sum()
    }

    fn dot(self, to: [i32; LANES], weights: [i32; LANES], x: [i32; LANES]) -> [i32; LANES] {
        std::array::from_fn(|i| {
            let pairs = weights[i].to_ne_bytes().into_iter().zip(x[i].to_ne_bytes());
            to[i] + pairs.map(|(w, x)| i32::from(w.cast_signed()) * i32::from(x.cast_signed())).sum::<i32>()
        })
    }
}
