//! An operand that a case is computed with.

use std::sync::Arc;

use fastrand::Rng;
use ggml::prelude::*;

use crate::array::Array;

/// An operand: its type, its shape, and where its values come from.
#[derive(Debug, Clone)]
pub struct Operand {
    pub dtype: DType,
    pub ne: [usize; 4],
    /// Shared, because memcheck believes that what the compiler makes of copies reads memory that nobody wrote.
    values: Arc<Values>,
    /// Whether it is laid out in several ways.
    pub(super) laid: bool,
    /// Whether it may have any layout, whatever the others have.
    pub(super) free: bool,
    /// Which of the operands it is that a random program has already.
    pub there: Option<usize>,
}

#[derive(Debug)]
enum Values {
    /// Numbers between two limits; first, if `turns`, some at which functions turn.
    Within { from: f64, to: f64, turns: bool },
    /// These numbers again and again.
    These(Vec<i32>),
    /// A mask: each row has some of its numbers, and the last one, if there are several, none.
    Hiding,
    /// Random whole numbers below this one.
    Below(i64),
}

/// `shape`, padded with ones.
fn padded<const N: usize>(shape: [usize; N]) -> [usize; 4] {
    let mut full = [1; 4];
    full[..N].copy_from_slice(&shape);
    full
}

/// An operand of values in -2 to 2.
pub fn of<const N: usize>(dtype: DType, ne: [usize; N]) -> Operand {
    Operand {
        dtype,
        ne: padded(ne),
        values: Arc::new(Values::Within { from: -2.0, to: 2.0, turns: false }),
        laid: true,
        free: false,
        there: None,
    }
}

/// [`of`] with the shape of a tensor.
pub fn sized(dtype: DType, ne: [i64; 4]) -> Operand {
    of(dtype, ne.map(|n| n as usize))
}

/// A mask that hides some places of each row, and all of the last row.
pub fn hiding(ne: [usize; 4]) -> Operand {
    Operand { values: Arc::new(Values::Hiding), ..of(DType::F16, ne) }
}

/// An operand of random indices below `most`.
pub fn below(dtype: DType, ne: [i64; 4], most: i64) -> Operand {
    Operand { values: Arc::new(Values::Below(most)), laid: false, ..sized(dtype, ne) }
}

/// [`of`] in `f32`.
pub fn f32<const N: usize>(ne: [usize; N]) -> Operand {
    of(DType::F32, ne)
}

/// An operand of these indices, as often as they fit.
pub fn ints<const N: usize>(ne: [usize; N], values: impl IntoIterator<Item = i32>) -> Operand {
    let values = Values::These(values.into_iter().take(ne.iter().product()).collect());
    Operand { values: Arc::new(values), laid: false, ..of(DType::I32, ne) }
}

/// An input without values, for calls that are refused.
pub fn input<const N: usize>(ctx: &Context, dtype: DType, ne: [i64; N]) -> Tensor<'_> {
    let mut full = [1; 4];
    full[..N].copy_from_slice(&ne);
    ctx.input("x", dtype, full).unwrap()
}

impl Operand {
    /// It, and another one of its type and shape.
    pub fn twice(self) -> [Self; 2] {
        [self.clone(), Self { there: None, ..self }]
    }

    /// Values between these limits.
    pub fn within(self, from: f64, to: f64) -> Self {
        Self { values: Arc::new(Values::Within { from, to, turns: false }), ..self }
    }

    /// Values between these limits, among which are some at which functions turn.
    pub fn turning(self, from: f64, to: f64) -> Self {
        Self { values: Arc::new(Values::Within { from, to, turns: true }), ..self }
    }

    /// An operand that lies in order without gaps in all layouts.
    pub fn still(self) -> Self {
        Self { laid: false, ..self }
    }

    /// An operand that may have any layout.
    pub fn free(self) -> Self {
        Self { free: true, ..self }
    }

    /// The number of possible values, if they are indices.
    pub fn below(&self) -> Option<i64> {
        match &*self.values {
            Values::These(all) => all.iter().max().map(|&n| i64::from(n) + 1),
            Values::Below(most) => Some(*most),
            Values::Within { .. } | Values::Hiding => None,
        }
    }

    /// Whether it lies in order without gaps in all layouts.
    pub fn is_still(&self) -> bool {
        !self.laid
    }

    /// Whether these may be its values.
    pub fn holds(&self, values: &[f64]) -> bool {
        match &*self.values {
            &Values::Within { from, to, .. } => values.iter().all(|x| (from..=to).contains(x)),
            _ => self.below().is_some_and(|n| values.iter().all(|x| (0.0..n as f64).contains(x))),
        }
    }

    /// The shape of a tensor.
    pub fn shape(&self) -> [i64; 4] {
        self.ne.map(|n| n as i64)
    }

    pub(super) fn array(&self, seed: u64) -> Array {
        match &*self.values {
            Values::These(all) => {
                let mut all = all.iter().cycle();
                Array::of(self.ne, |_| all.next().map_or(0.0, |&n| n.into()))
            }
            Values::Hiding => {
                let noise = Array::sample(self.ne, seed, -2.0, 1.0);
                let [n0, n1, ..] = self.ne;
                Array::of(self.ne, |i| {
                    let hidden = noise.at(i) < -1.0 || (i[1] + 1 == n1 && n1 > 1) || i[0] > i[1] + n0 / 2;
                    if hidden { f64::NEG_INFINITY } else { noise.at(i) }
                })
            }
            &Values::Below(most) => {
                let mut rng = Rng::with_seed(seed);
                Array::of(self.ne, |_| rng.i64(0..most) as f64)
            }
            &Values::Within { from, to, turns } => {
                let mut a = Array::sample(self.ne, seed, from, to);
                if !self.dtype.is_float() && !self.dtype.is_quantized() {
                    a = a.map(f64::floor);
                }
                let turning = [0.0, 0.5, -0.5, 1.5, -1.5, 2.5, 3.0, -3.0, 1.0, -1.0];
                for (to, from) in a.data.iter_mut().zip(turning.into_iter().filter(|&x| turns && x > from)) {
                    *to = from;
                }
                a
            }
        }
    }
}
