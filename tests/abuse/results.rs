//! What should come of a step.

use ggml::prelude::*;
use testkit::array::Array;

use crate::bench::{Known, Made, Memory};
use crate::draw::Draw;
use crate::model::Model;

impl<'c> Draw<'_, 'c> {
    /// A result in memory of its own that is not followed.
    #[expect(clippy::unused_self, reason = "as its likes")]
    pub(crate) fn only(&self, t: Tensor<'c>) -> Made<'c> {
        Made { t, model: None, memory: Memory::New }
    }

    /// A result in memory of its own.
    pub(crate) fn made(&self, t: Tensor<'c>, model: Option<Model>) -> Made<'c> {
        Made { model, ..self.only(t) }
    }

    /// A result of these values, known to within `error`.
    pub(crate) fn values(&self, t: Tensor<'c>, values: &Array, error: f64) -> Made<'c> {
        self.made(t, Model::new(values, t.dtype(), error))
    }

    /// A look at `a`'s memory.
    #[expect(clippy::unused_self, reason = "as its likes")]
    pub(crate) fn look(&self, t: Tensor<'c>, a: &Known<'c>, model: Option<Model>) -> Made<'c> {
        Made { t, model, memory: Memory::View(a.root) }
    }

    /// A result that was written over `a`, all elements of which are now these, known to within `error`.
    #[expect(clippy::unused_self, reason = "as its likes")]
    pub(crate) fn wrote(&self, t: Tensor<'c>, a: &Known<'c>, values: Option<(Array, f64)>) -> Made<'c> {
        let model = a.model.as_ref().zip(values).and_then(|(m, (v, error))| m.written(&v.data, error));
        Made { t, model, memory: Memory::Written(a.root) }
    }

    /// A function of each element: `f`, which the kernel computes to within `tolerance` of operand and result.
    pub(crate) fn map(&self, t: Tensor<'c>, a: &Known<'c>, tolerance: f64, f: impl Fn(f64) -> f64) -> Made<'c> {
        self.made(t, mapped(a, tolerance, f).and_then(|(v, e)| Model::new(&v, t.dtype(), e)))
    }

    /// A function of each element of `a` and that of `b` that belongs to it.
    pub(crate) fn zip(
        &self,
        t: Tensor<'c>,
        a: &Known<'c>,
        b: &Known<'c>,
        tolerance: f64,
        f: impl Fn(f64, f64) -> f64,
    ) -> Made<'c> {
        self.made(t, zipped(a, b, tolerance, f).and_then(|(v, e)| Model::new(&v, t.dtype(), e)))
    }
}

/// The values of a function of each element, and how far they may be off.
pub(crate) fn mapped(a: &Known<'_>, tolerance: f64, f: impl Fn(f64) -> f64) -> Option<(Array, f64)> {
    let m = a.model.as_ref()?;
    let mut error = 0.0_f64;
    let values = m.array().map(|x| x);
    let data = values
        .data
        .iter()
        .map(|&x| {
            let y = f(x);
            let mut e = tolerance * (x.abs() + y.abs() + 1e-3);
            if m.error > 0.0 {
                e += 1.5 * ((f(x + m.error) - y).abs() + (f(x - m.error) - y).abs());
            }
            error = if e.is_nan() { f64::INFINITY } else { error.max(e) };
            y
        })
        .collect();
    Some((Array { ne: values.ne, data }, error))
}

/// The values of a function of pairs of elements, and how far they may be off.
pub(crate) fn zipped(
    a: &Known<'_>,
    b: &Known<'_>,
    tolerance: f64,
    f: impl Fn(f64, f64) -> f64,
) -> Option<(Array, f64)> {
    let (a, b) = (a.model.as_ref()?, b.model.as_ref()?);
    let (xs, ys) = (a.array(), b.array());
    let mut error = 0.0_f64;
    let values = Array::of(xs.ne, |i| {
        let (x, y) = (xs.at(i), ys.wrapped(i));
        let z = f(x, y);
        let mut e = tolerance * (x.abs() + y.abs() + z.abs());
        if a.error > 0.0 || b.error > 0.0 {
            let (p, q) = (a.error, b.error);
            let most = [(p, q), (p, -q), (-p, q), (-p, -q)].map(|(p, q)| (f(x + p, y + q) - z).abs());
            e += 1.5 * most.into_iter().fold(0.0, |m, x| if x.is_nan() { f64::INFINITY } else { f64::max(m, x) });
        }
        error = if e.is_nan() { f64::INFINITY } else { error.max(e) };
        z
    });
    Some((values, error))
}

/// The dimensions in another order: dimension `i` becomes dimension `axes[i]`.
pub(crate) fn permuted(m: &Model, axes: [usize; 4]) -> Model {
    let (mut ne, mut nb) = ([0; 4], [0; 4]);
    for (from, to) in axes.into_iter().enumerate() {
        (ne[to], nb[to]) = (m.ne[from], m.nb[from]);
    }
    m.view(ne, nb, 0)
}
