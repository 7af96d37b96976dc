//! Plain Rust, for tests.

use half::f16;
use pulp::NullaryFnOnce;

use super::Set;

/// What every processor has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plain;

const LANES: usize = 8;

#[inline(always)]
fn each<A: Copy, B: Copy, C: Copy + Default>(a: [A; LANES], b: [B; LANES], f: impl Fn(A, B) -> C) -> [C; LANES] {
    let mut all = [C::default(); LANES];
    for i in 0..LANES {
        all[i] = f(a[i], b[i]);
    }
    all
}

impl Set for Plain {
    type Ints = [i32; LANES];
    type Floats = [f32; LANES];
    type Bytes2 = [u8; 2 * LANES];
    type Bytes4 = [u8; 4 * LANES];
    type Square = [[i32; LANES]; LANES];
    type Short = Self;

    const LANES: usize = LANES;
    const SIGNED: bool = true;
    const DEEP: usize = 8;

    fn run<O: NullaryFnOnce>(self, op: O) -> O::Output {
        op.call()
    }

    fn short(self) -> Self {
        self
    }

    fn half(self, bits: u16) -> f32 {
        f16::from_bits(bits).to_f32()
    }

    fn halves(self, bytes: &[u8; 2 * LANES]) -> [f32; LANES] {
        let mut all = [0.0; LANES];
        for (to, bytes) in all.iter_mut().zip(bytes.as_chunks().0) {
            *to = f16::from_le_bytes(*bytes).to_f32();
        }
        all
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
        each(a, b, |a, b| a * b)
    }

    fn mul_add(self, a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
        each(self.mul(a, b), c, |ab, c| ab + c)
    }

    fn mul_sub(self, a: [f32; LANES], b: [f32; LANES], c: [f32; LANES]) -> [f32; LANES] {
        each(self.mul(a, b), c, |ab, c| c - ab)
    }

    fn sum(self, x: [f32; LANES]) -> f32 {
        x.iter().sum()
    }

    fn most(_: u32) -> usize {
        8
    }

    fn begin(self, sums: [i32; LANES]) -> [i32; LANES] {
        sums
    }

    fn dot(self, bits: u32, to: [i32; LANES], weights: [i32; LANES], x: [i32; LANES]) -> [i32; LANES] {
        let products = each(weights, x, |weights, x| {
            let pairs = weights.to_ne_bytes().into_iter().zip(x.to_ne_bytes());
            let of = |w: u8| if bits == 8 { i32::from(w.cast_signed()) } else { i32::from(w) };
            pairs.map(|(w, x)| of(w) * i32::from(x.cast_signed())).sum::<i32>()
        });
        each(to, products, |a, b| a + b)
    }

    fn end(self, _: [i32; LANES], products: [i32; LANES]) -> [i32; LANES] {
        products
    }

    fn transpose(self, square: Self::Square) -> Self::Square {
        std::array::from_fn(|i| std::array::from_fn(|j| square[j][i]))
    }

    fn fetch<T>(self, _: &T, _: usize) {}
}
