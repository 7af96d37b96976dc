//! Where random shapes and parameters of a case come from.

use fastrand::Rng;
use ggml::prelude::*;

use super::case::{Operand, sized};

/// Floats, most often of 32 bits.
pub const REALS: [DType; 5] = [DType::F32, DType::F32, DType::F32, DType::F16, DType::BF16];

/// A case with a random shape and random parameters.
pub type Drawn = Box<dyn Fn(&mut dyn Source) -> super::case::Case + Send + Sync>;

/// Where random shapes and parameters come from: a seed ([`Seeded`]), or a random program, which takes operands that are
/// there, and now and then numbers with which nothing can be built.
pub trait Source {
    fn rng(&mut self) -> &mut Rng;

    /// A dimension.
    fn dim(&mut self) -> i64;

    /// A whole number, mostly in `from..=to`.
    fn long(&mut self, from: i64, to: i64) -> i64;

    /// [`Source::long`] in 32 bits.
    fn int(&mut self, from: i32, to: i32) -> i32;

    /// A number, mostly in `from..to`.
    fn float(&mut self, from: f32, to: f32) -> f32;

    /// A type, mostly one of these.
    fn dtype(&mut self, of: &[DType]) -> DType;

    /// The first operand, which builders in place write to: mostly of one of these types, and of a shape for which `holds`.
    fn pick(&mut self, types: &[DType], holds: &dyn Fn([i64; 4]) -> bool) -> Operand;

    /// The first operand, of any type, where these are usual.
    fn any(&mut self, usual: &[DType]) -> Operand;

    /// The first operand, with this type and shape.
    fn target(&mut self, dtype: DType, ne: [i64; 4]) -> Operand {
        sized(dtype, ne).still()
    }

    /// [`Source::pick`] in `f32`, in order without gaps.
    fn plain(&mut self) -> Operand;
}

impl dyn Source + '_ {
    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng().usize(..of.len())]
    }

    pub fn bool(&mut self) -> bool {
        self.rng().bool()
    }

    /// One in `n`.
    pub fn chance(&mut self, n: u32) -> bool {
        self.rng().u32(..n) == 0
    }

    /// A whole number that is always in `from..=to`.
    pub fn size(&mut self, from: i64, to: i64) -> i64 {
        self.rng().i64(from..=to)
    }

    /// [`Source::int`] for each dimension.
    pub fn ints<const N: usize>(&mut self, from: i32, to: i32) -> [i32; N] {
        [(); N].map(|()| self.int(from, to))
    }

    /// [`Source::pick`] with any shape.
    pub fn first(&mut self, types: &[DType]) -> Operand {
        self.pick(types, &|_| true)
    }

    /// The same for floats, most often of 32 bits.
    pub fn real(&mut self) -> Operand {
        self.first(&REALS)
    }
}

/// A dimension that is repeated over one of `n`.
pub fn part(s: &mut dyn Source, n: i64) -> i64 {
    match s.size(0, 5) {
        0 => 1,
        1 if n % 2 == 0 => n / 2,
        _ => n,
    }
}

/// Sane shapes and parameters, by a seed.
pub struct Seeded(Rng);

impl Seeded {
    pub fn new(seed: u64) -> Self {
        Self(Rng::with_seed(seed))
    }
}

impl Source for Seeded {
    fn rng(&mut self) -> &mut Rng {
        &mut self.0
    }

    fn dim(&mut self) -> i64 {
        self.0.i64(1..10)
    }

    fn long(&mut self, from: i64, to: i64) -> i64 {
        self.0.i64(from..=to.max(from))
    }

    fn int(&mut self, from: i32, to: i32) -> i32 {
        self.0.i32(from..=to.max(from))
    }

    fn float(&mut self, from: f32, to: f32) -> f32 {
        from + (to - from) * self.0.f32()
    }

    fn dtype(&mut self, of: &[DType]) -> DType {
        of[self.0.usize(..of.len())]
    }

    fn pick(&mut self, types: &[DType], holds: &dyn Fn([i64; 4]) -> bool) -> Operand {
        let dtype = self.dtype(types);
        let shapes = std::iter::repeat_with(|| {
            let mut ne = [9, 6, 4, 3].map(|most| if self.0.u32(..4) == 0 { 1 } else { self.0.i64(1..=most) });
            ne[0] *= dtype.block_size();
            ne
        });
        sized(dtype, shapes.take(1000).find(|&ne| holds(ne)).unwrap())
    }

    fn any(&mut self, usual: &[DType]) -> Operand {
        self.pick(usual, &|_| true)
    }

    fn plain(&mut self) -> Operand {
        self.pick(&[DType::F32], &|_| true).still()
    }
}
