//! A computation that a row is tested with: its operands, and what it should compute.

use ggml::Result;
use ggml::prelude::*;

use crate::array::Array;
use crate::bench::Bench;
use crate::encode::precision;
use crate::layout::Layout;

/// Calls a builder with operands. Its first call is the row's builder.
pub type Build = Box<dyn for<'c> Fn(&'c Context, &[Tensor<'c>]) -> Result<Tensor<'c>> + Send + Sync>;

/// An operand: its type, its shape, and where its values come from.
#[derive(Debug, Clone)]
pub struct Operand {
    pub dtype: DType,
    pub ne: [usize; 4],
    values: Values,
    /// Whether it is laid out in several ways.
    laid: bool,
    /// Whether it may have any layout, whatever the others have.
    free: bool,
}

#[derive(Debug, Clone)]
enum Values {
    /// Numbers between two limits; first, if `turns`, some at which functions turn.
    Within { from: f64, to: f64, turns: bool },
    /// These numbers again and again.
    These(Vec<i32>),
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
        values: Values::Within { from: -2.0, to: 2.0, turns: false },
        laid: true,
        free: false,
    }
}

/// [`of`] in `f32`.
pub fn f32<const N: usize>(ne: [usize; N]) -> Operand {
    of(DType::F32, ne)
}

/// An operand of these indices, as often as they fit.
pub fn ints<const N: usize>(ne: [usize; N], values: impl IntoIterator<Item = i32>) -> Operand {
    let values = Values::These(values.into_iter().take(ne.iter().product()).collect());
    Operand { dtype: DType::I32, ne: padded(ne), values, laid: false, free: false }
}

/// An input without values, for calls that are refused.
pub fn input<const N: usize>(ctx: &Context, dtype: DType, ne: [i64; N]) -> Tensor<'_> {
    let mut full = [1; 4];
    full[..N].copy_from_slice(&ne);
    ctx.input("x", dtype, full).unwrap()
}

impl Operand {
    /// Values between these limits.
    pub fn within(self, from: f64, to: f64) -> Self {
        Self { values: Values::Within { from, to, turns: false }, ..self }
    }

    /// Values between these limits, among which are some at which functions turn.
    pub fn turning(self, from: f64, to: f64) -> Self {
        Self { values: Values::Within { from, to, turns: true }, ..self }
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
        match &self.values {
            Values::These(all) => all.iter().max().map(|&n| i64::from(n) + 1),
            Values::Within { .. } => None,
        }
    }

    fn array(&self, seed: u64) -> Array {
        match &self.values {
            Values::These(all) => {
                let mut all = all.iter().cycle();
                Array::of(self.ne, |_| all.next().map_or(0.0, |&n| n.into()))
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

/// A computation.
pub struct Case {
    pub operands: Vec<Operand>,
    /// The layouts that operands may have.
    pub layouts: &'static [Layout],
    pub build: Build,
    /// The result, of the operands' values.
    #[expect(clippy::type_complexity, reason = "one type, used once")]
    pub reference: Option<Box<dyn Fn(&[Array]) -> Array + Send + Sync>>,
    /// The type of the result, if not the first operand's.
    pub dtype: Option<DType>,
    /// How far the CPU's result may be from the reference.
    pub off: f64,
    /// How far two devices' results may be apart.
    pub near: f64,
    /// Whether all of ggml's GPUs compute it, as it is and laid out plainly.
    pub must: bool,
}

impl Case {
    pub(super) fn new(operands: Vec<Operand>, build: Build) -> Self {
        Self {
            operands,
            layouts: &[Layout::Plain],
            build,
            reference: None,
            dtype: None,
            off: 0.0,
            near: 1e-3,
            must: false,
        }
    }

    /// The layouts of the operands, for each time that the case is computed.
    pub fn layings(&self) -> Vec<Vec<Layout>> {
        let layouts = |n: usize| if self.operands[n].free { &Layout::ALL } else { self.layouts };
        let laid: Vec<_> =
            (0..self.operands.len()).filter(|&n| self.operands[n].laid).map(|n| layouts(n).len()).collect();
        let most = laid.iter().max().copied().unwrap_or(1);
        // All in the same, and, if there are several, each in another.
        let shifts = 0..laid.len().clamp(1, 2);
        let all = shifts.flat_map(|shift| (0..most).map(move |i| (i, shift)));
        all.map(|(i, shift)| self.laying(|n| layouts(n)[(i + n * shift) % layouts(n).len()])).collect()
    }

    /// Layouts that the first operand may not have.
    pub fn forbidden(&self) -> Vec<Vec<Layout>> {
        // A dimension of 1 has no stride that matters.
        let tells = self.operands.first().is_some_and(|o| o.laid && o.ne[..3].iter().all(|&n| n > 1));
        // Blocks lie in rows.
        let blocks = self.operands.first().is_some_and(|o| o.dtype.block_size() > 1);
        let possible: &[Layout] = if blocks { &Layout::ROWS } else { &Layout::ALL };
        let others = possible.iter().filter(|layout| tells && !self.layouts.contains(layout));
        others.map(|&layout| self.laying(|n| if n == 0 { layout } else { Layout::Plain })).collect()
    }

    fn laying(&self, layout: impl Fn(usize) -> Layout) -> Vec<Layout> {
        self.operands.iter().enumerate().map(|(n, o)| if o.laid { layout(n) } else { Layout::Plain }).collect()
    }

    /// Makes the operands, and says what they hold.
    pub fn make<'c>(&self, bench: &Bench<'c>, laying: &[Layout]) -> (Vec<Tensor<'c>>, Vec<Array>) {
        let seeds = 3..;
        let made = self.operands.iter().zip(laying).zip(seeds);
        made.map(|((o, &layout), seed)| bench.operand(&o.array(seed), o.dtype, layout)).unzip()
    }

    /// Makes the operands, and builds the result.
    ///
    /// # Errors
    /// Those of the builder.
    pub fn build<'c>(&self, bench: &Bench<'c>, laying: &[Layout]) -> Result<Tensor<'c>> {
        (self.build)(bench.ctx, &self.make(bench, laying).0)
    }

    /// How far a result of this type may be from the reference.
    pub fn tolerance(&self, dtype: DType) -> f64 {
        precision(dtype).max(self.off)
    }

    /// The type that the result should have.
    pub fn made(&self) -> DType {
        self.dtype.or(self.operands.first().map(|o| o.dtype)).unwrap_or(DType::F32)
    }

    /// What tells it from the row's other cases.
    pub fn name(&self) -> String {
        self.operands.iter().map(|o| format!("{} {:?}", o.dtype, o.ne)).collect::<Vec<_>>().join(", ")
    }
}
