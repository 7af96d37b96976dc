//! A computation that a row is tested with: its operands, and what it should compute.

use std::fmt::Debug;

use ggml::Result;
use ggml::prelude::*;

pub use super::operand::{Operand, below, f32, hiding, input, ints, of, sized};
use crate::array::Array;
use crate::bench::Bench;
use crate::encode::precision;
use crate::layout::Layout;

/// Calls a builder with operands. Its first call is the row's builder.
pub type Build = Box<dyn for<'c> Fn(&'c Context, &[Tensor<'c>]) -> Result<Tensor<'c>> + Send + Sync>;

/// An operand's values, and how far its elements may be from them.
pub struct Known {
    pub values: Array,
    pub error: f64,
}

impl Known {
    /// The largest of absolute values.
    pub fn largest(&self) -> f64 {
        self.values.data.iter().fold(0.0, |m, x| m.max(x.abs()))
    }
}

/// How far a result of operands that are not known exactly may be from the reference.
#[derive(Default)]
pub enum Spread {
    /// Nobody knows.
    #[default]
    Unknown,
    /// As far as the operands: the result has some of their elements.
    Moved,
    /// By what changes if all elements are larger: elements are multiplied, added and compared.
    Summed,
    /// By this, which knows all of the kernel's own error.
    By(ErrorBound),
}

/// A bound of the error of a result, by what is known of the operands.
type ErrorBound = Box<dyn Fn(&[Known]) -> f64 + Send + Sync>;

/// A computation.
pub struct Case {
    pub operands: Vec<Operand>,
    /// The parameters, for messages.
    pub params: String,
    /// The layouts that operands may have.
    pub layouts: &'static [Layout],
    pub build: Build,
    /// The builder in place.
    pub in_place: Option<Build>,
    /// The result, of the operands' values.
    #[expect(clippy::type_complexity, reason = "one type, used once")]
    pub reference: Option<Box<dyn Fn(&[Array]) -> Array + Send + Sync>>,
    /// The type of the result, if not the first operand's.
    pub dtype: Option<DType>,
    /// How far the CPU's result may be from the reference.
    pub off: Option<f64>,
    /// How far it may be where operands are not known exactly.
    pub spread: Spread,
    /// How far two devices' results may be apart.
    pub near: f64,
    /// Whether all of ggml's GPUs compute it, as it is and laid out plainly.
    pub must: bool,
    /// Whether it is not compared with other devices, which compute something else or keep elements in another order.
    pub lone: bool,
}

impl Case {
    /// A case without a reference.
    pub fn new(
        operands: impl IntoIterator<Item = Operand>,
        build: impl for<'c> Fn(&'c Context, &[Tensor<'c>]) -> Result<Tensor<'c>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            operands: operands.into_iter().collect(),
            params: String::new(),
            layouts: &[Layout::Plain],
            build: Box::new(build),
            in_place: None,
            reference: None,
            dtype: None,
            off: None,
            spread: Spread::Unknown,
            near: 1e-3,
            must: false,
            lone: false,
        }
    }

    /// The parameters, for messages.
    pub fn with(self, params: impl Debug) -> Self {
        Self { params: format!(" {params:?}"), ..self }
    }

    /// What it computes, in plain Rust, of operands in any layout.
    pub fn is(self, reference: impl Fn(&[Array]) -> Array + Send + Sync + 'static) -> Self {
        Self { reference: Some(Box::new(reference)), layouts: &Layout::ALL, ..self }
    }

    /// The layouts that operands may have. If there is a reference, any other is refused.
    pub fn laid(self, layouts: &'static [Layout]) -> Self {
        Self { layouts, ..self }
    }

    /// The builder in place, which computes the same.
    pub fn in_place(
        self,
        build: impl for<'c> Fn(&'c Context, &[Tensor<'c>]) -> Result<Tensor<'c>> + Send + Sync + 'static,
    ) -> Self {
        Self { in_place: Some(Box::new(build)), ..self }
    }

    /// The type of the result, if not that of the first operand.
    pub fn makes(self, dtype: DType) -> Self {
        Self { dtype: Some(dtype), ..self }
    }

    /// How far the CPU's result may be from the reference, if that is not its type's precision.
    pub fn off(self, off: f64) -> Self {
        Self { off: Some(off), ..self }
    }

    /// How far two devices' results may be apart.
    pub fn near(self, near: f64) -> Self {
        Self { near, ..self }
    }

    /// It is not compared with other devices.
    pub fn lone(self) -> Self {
        Self { lone: true, ..self }
    }

    /// Each element of the result is one of the operands', or a number without error.
    pub fn moves(self) -> Self {
        Self { spread: Spread::Moved, ..self }
    }

    /// Elements are multiplied, added and compared, and what is added is the result.
    pub fn sums(self) -> Self {
        Self { spread: Spread::Summed, ..self }
    }

    /// What comes of comparisons alone: numbers without error, if the operands have none.
    pub fn picks(self) -> Self {
        self.spreads(|k| if k.iter().all(|k| k.error == 0.0) { 0.0 } else { f64::INFINITY }).off(0.0)
    }

    /// How far the result may be off, of operands and how far those may be.
    pub fn spreads(self, error: impl Fn(&[Known]) -> f64 + Send + Sync + 'static) -> Self {
        Self { spread: Spread::By(Box::new(error)), ..self }
    }

    /// What the reference says of operands with these errors, and how far the CPU's result may be from that; nothing where
    /// that is not known.
    pub fn expected(&self, operands: &[Known]) -> Option<(Array, f64)> {
        let reference = self.reference.as_ref()?;
        let indexed = |(o, k): (&Operand, &Known)| o.below().is_none() || o.holds(&k.values.data);
        if !self.operands.iter().zip(operands).all(indexed) {
            return None;
        }
        let arrays: Vec<_> = operands.iter().map(|k| k.values.clone()).collect();
        let want = reference(&arrays);
        let error = match &self.spread {
            Spread::Unknown => {
                let plain = |(o, k): (&Operand, &Known)| k.error == 0.0 && o.holds(&k.values.data);
                if !self.operands.iter().zip(operands).all(plain) {
                    return None;
                }
                self.tolerance() * want.data.iter().fold(1.0_f64, |m, x| m.max(x.abs()))
            }
            Spread::Moved => operands.iter().fold(0.0_f64, |m, k| m.max(k.error)),
            Spread::By(error) => error(operands),
            Spread::Summed => {
                // Kernels may turn small numbers into 0.
                let larger = |by: f64| -> Vec<_> {
                    let all = self.operands.iter().zip(operands);
                    all.map(|(o, k)| {
                        k.values.map(|x| {
                            x.abs()
                                + if o.dtype.is_float() || o.dtype.is_quantized() { by * (k.error + 1e-7) } else { 0.0 }
                        })
                    })
                    .collect()
                };
                let terms = arrays.iter().map(|a| a.data.len()).max()? as f64;
                let tolerance = self.tolerance() + terms * f64::from(f32::EPSILON) / 4.0;
                let sums = reference(&larger(0.0)).data.into_iter().zip(reference(&larger(1.0)).data);
                sums.map(|(sum, more)| more - sum + tolerance * more).fold(0.0, f64::max)
            }
        };
        Some((want, error))
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

    /// How far the CPU's result may be from the reference: not at all, where elements are moved and keep their type.
    pub fn tolerance(&self) -> f64 {
        let same = self.operands.iter().all(|o| o.dtype == self.made() || o.below().is_some());
        let exact = same && matches!(self.spread, Spread::Moved);
        self.off.unwrap_or(if exact { 0.0 } else { precision(self.made()) })
    }

    /// The type that the result should have.
    pub fn made(&self) -> DType {
        self.dtype.or(self.operands.first().map(|o| o.dtype)).unwrap_or(DType::F32)
    }

    /// What tells it from the row's other cases.
    pub fn name(&self) -> String {
        let operands: Vec<_> = self.operands.iter().map(|o| format!("{} {:?}", o.dtype, o.ne)).collect();
        format!("{}{}", operands.join(", "), self.params)
    }
}
