//! Arrays of 64-bit floats in ggml's order of dimensions: used by references.

use fastrand::Rng;

/// Values with a shape, the first dimension innermost.
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    pub ne: [usize; 4],
    pub data: Vec<f64>,
}

impl Array {
    /// The array whose element at `i` is `f(i)`.
    pub fn of(ne: [usize; 4], mut f: impl FnMut([usize; 4]) -> f64) -> Self {
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

    /// Deterministic pseudo-random numbers in `from..to`.
    pub fn sample(ne: [usize; 4], seed: u64, from: f64, to: f64) -> Self {
        let mut rng = Rng::with_seed(seed);
        Self::of(ne, |_| from + (to - from) * rng.f64())
    }

    pub fn at(&self, i: [usize; 4]) -> f64 {
        self.data[self.position(i)]
    }

    /// The element at `i`, each dimension taken modulo its size: as repeated operands are read.
    pub fn wrapped(&self, i: [usize; 4]) -> f64 {
        self.at([i[0] % self.ne[0], i[1] % self.ne[1], i[2] % self.ne[2], i[3] % self.ne[3]])
    }

    pub fn position(&self, i: [usize; 4]) -> usize {
        assert!(i.iter().zip(self.ne).all(|(&i, n)| i < n), "{i:?} in {:?}", self.ne);
        i[0] + self.ne[0] * (i[1] + self.ne[1] * (i[2] + self.ne[2] * i[3]))
    }

    pub fn map(&self, f: impl Fn(f64) -> f64) -> Self {
        Self { ne: self.ne, data: self.data.iter().map(|&x| f(x)).collect() }
    }

    /// Maps each row to another, all of one length.
    pub fn rows(&self, f: impl FnMut(&[f64]) -> Vec<f64>) -> Self {
        let data: Vec<f64> = self.data.chunks(self.ne[0]).flat_map(f).collect();
        let [_, n1, n2, n3] = self.ne;
        Self { ne: [data.len() / (n1 * n2 * n3), n1, n2, n3], data }
    }

    /// Permutes dimensions: dimension `i` becomes dimension `axes[i]`.
    pub fn permuted(&self, axes: [usize; 4]) -> Self {
        let mut ne = [0; 4];
        for (from, &to) in axes.iter().enumerate() {
            ne[to] = self.ne[from];
        }
        Self::of(ne, |i| self.at(axes.map(|to| i[to])))
    }
}

/// Asserts that the numbers are equal to within `tolerance`, relative for those above 1; infinities and NaN must match.
#[track_caller]
pub fn assert_close(got: &Array, want: &Array, tolerance: f64, context: &str) {
    assert_eq!(got.ne, want.ne, "{context}: shape");
    for (n, (&g, &w)) in got.data.iter().zip(&want.data).enumerate() {
        let same = g == w || (g.is_nan() && w.is_nan());
        let near = (g - w).abs() <= tolerance * w.abs().max(1.0);
        assert!(same || near, "{context}: element {n} of {:?} is {g}, should be {w}", want.ne);
    }
}

/// A weighted sum of the result's elements, whose gradient is tested.
pub fn weighted(y: &Array, grad: &Array) -> f64 {
    y.data.iter().zip(&grad.data).map(|(y, g)| y * g).sum()
}

/// The numerical derivative of `f` with respect to each element of `x`.
pub fn derived(x: &Array, f: impl Fn(&Array) -> f64) -> Array {
    const STEP: f64 = 1e-5;
    let mut moved = x.clone();
    let mut data = Vec::with_capacity(x.data.len());
    for (i, &at) in x.data.iter().enumerate() {
        let mut value = |by: f64| {
            moved.data[i] = at + by;
            f(&moved)
        };
        let slope = (value(STEP) - value(-STEP)) / (2.0 * STEP);
        value(0.0);
        data.push(slope);
    }
    Array { ne: x.ne, data }
}
