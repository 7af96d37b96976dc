//! What operations draw their operands and options with.

use ggml::Result;
use ggml::prelude::*;
use testkit::array::Array;
use testkit::encode::{decode, encode};

use crate::bench::{Bench, Input, Known, LARGEST};
use crate::model::{Model, is_followed};
use crate::results::permuted;

/// One step's view of the program.
pub(crate) struct Draw<'p, 'c> {
    pub(crate) ctx: &'c Context,
    pub(crate) rng: &'p mut fastrand::Rng,
    pub(crate) bench: &'p mut Bench<'c>,
    /// The dimensions that this program likes.
    pub(crate) dims: [i64; 4],
    pub(crate) trace: bool,
    /// Whose memory the operands of this step depend on.
    pub(crate) used: u128,
    /// Whether an option is a number with which nothing is defined.
    pub(crate) undefined: bool,
}

/// Dimensions that make no tensor, or one that can't be had.
const WILD: [i64; 12] = [
    0,
    -1,
    i64::MIN,
    i64::MAX,
    1 << 31,
    (1 << 31) - 1,
    1 << 32,
    1 << 40,
    1 << 62,
    1 << 16,
    (1 << 31) - (1 << 16),
    (1 << 24) + 1,
];

/// Calls a builder, and prints the call before where a program is traced.
macro_rules! call {
    ($p:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        $p.trace(stringify!($name), &($(&$arg,)*));
        $p.ctx.$name($($arg),*)
    }};
}
pub(crate) use call;

/// [`call`] in a line of the table, with which the line ends where the result is refused, or too large for a model.
macro_rules! build {
    ($p:expr, $($call:tt)*) => {{
        let t = $crate::draw::call!($p, $($call)*)?;
        if t.elements() > $crate::bench::LARGEST {
            return Ok($p.only(t));
        }
        t
    }};
}
pub(crate) use build;

impl<'c> Draw<'_, 'c> {
    /// One in `n`.
    pub(crate) fn chance(&mut self, n: u32) -> bool {
        self.rng.u32(..n) == 0
    }

    /// Whether to do something that no sane program does.
    pub(crate) fn wild(&mut self) -> bool {
        self.chance(24)
    }

    pub(crate) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.rng.usize(..of.len())]
    }

    pub(crate) fn trace(&self, name: &str, arguments: &dyn std::fmt::Debug) {
        if self.trace {
            eprintln!("    {name}{arguments:?}");
        }
    }

    /// A dimension.
    pub(crate) fn dim(&mut self) -> i64 {
        if self.wild() {
            return self.one(&WILD);
        }
        match self.rng.u32(..8) {
            0..5 => self.one(&self.dims.clone()),
            5 => 1,
            6 => self.rng.i64(1..10),
            _ => self.one(&[8, 16, 32, 64, 12]),
        }
    }

    /// A whole number: mostly in `from..=to`.
    pub(crate) fn int(&mut self, from: i32, to: i32) -> i32 {
        if !self.wild() {
            return self.rng.i32(from..=to);
        }
        self.one(&[
            0,
            -1,
            1,
            i32::MIN,
            i32::MAX,
            1 << 30,
            (1 << 30) - 1,
            from.wrapping_sub(1),
            to.wrapping_add(1),
            1 << 16,
        ])
    }

    /// [`Draw::int`] for counts.
    pub(crate) fn count(&mut self, from: usize, to: usize) -> usize {
        if !self.wild() {
            return self.rng.usize(from..=to);
        }
        self.one(&[0, 1, from.wrapping_sub(1), to + 1, 1 << 31, 1 << 32, 1 << 62, usize::MAX, usize::MAX / 2, 1 << 16])
    }

    /// [`Draw::int`] in 64 bits.
    pub(crate) fn long(&mut self, from: i64, to: i64) -> i64 {
        if self.wild() { self.one(&WILD) } else { self.rng.i64(from..=to) }
    }

    /// A number: mostly in `from..to`.
    pub(crate) fn float(&mut self, from: f32, to: f32) -> f32 {
        if !self.wild() {
            return from + (to - from) * self.rng.f32();
        }
        let bits = f32::from_bits(self.rng.u32(..));
        let odd =
            [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, -1.0, f32::MAX, f32::MIN_POSITIVE, 1e-40, bits];
        let value = self.one(&odd);
        // Products with it, or with its inverse, overflow in 32 bits, where the reference has more.
        self.undefined |= value != 0.0 && !(1e-18..1e18).contains(&value.abs());
        value
    }

    /// Bytes: mostly a small multiple of `unit`.
    pub(crate) fn bytes(&mut self, unit: usize, most: usize) -> usize {
        match self.rng.u32(..24) {
            0 => self.one(&[1, 3, 7, 1 << 31, 1 << 32, 1 << 40, usize::MAX - 3, usize::MAX, 1 << 63]),
            1 => self.rng.usize(..64),
            _ => unit * self.rng.usize(..=most),
        }
    }

    /// An element type: mostly one of `of`.
    pub(crate) fn dtype(&mut self, of: &[DType]) -> DType {
        if self.wild() { self.one(DType::ALL) } else { self.one(of) }
    }

    /// Any operand.
    pub(crate) fn any(&mut self) -> Known<'c> {
        if !self.bench.odd.is_empty() && self.wild() {
            let i = self.rng.usize(..self.bench.odd.len());
            let odd = self.bench.odd[i].clone();
            self.used |= odd.deps;
            return odd;
        }
        let n = self.bench.known.len();
        // Half of them among the latest, so that programs get deep.
        let i = if self.rng.bool() { self.rng.usize(..n) } else { n - 1 - self.rng.usize(..n.min(6)) };
        self.take(i)
    }

    fn take(&mut self, i: usize) -> Known<'c> {
        let known = &self.bench.known;
        let like = |a: &Known<'_>, b: &Known<'_>| (a.dtype(), a.ne(), a.t.nb()) == (b.dtype(), b.ne(), b.t.nb());
        let mut i = i;
        if let Some(rng) = &mut self.bench.swap
            && rng.bool()
        {
            let others: Vec<_> = (0..known.len()).filter(|&j| like(&known[j], &known[i])).collect();
            i = others[rng.usize(..others.len())];
        }
        let known = known[i].clone();
        self.used |= known.deps;
        known
    }

    /// An operand of which something holds, if there is one; now and then, one of which it doesn't.
    pub(crate) fn find(&mut self, holds: impl Fn(&Known<'c>) -> bool) -> Option<Known<'c>> {
        if self.wild() {
            return Some(self.any());
        }
        let n = self.bench.known.len();
        let start = self.rng.usize(..n);
        (0..n).map(|i| (start + i) % n).find(|&i| holds(&self.bench.known[i])).map(|i| self.take(i))
    }

    /// [`Draw::find`], or anything.
    pub(crate) fn pick(&mut self, holds: impl Fn(&Known<'c>) -> bool) -> Known<'c> {
        self.find(holds).unwrap_or_else(|| self.any())
    }

    /// An operand of one of these types.
    pub(crate) fn of(&mut self, types: &[DType]) -> Known<'c> {
        self.pick(|k| types.contains(&k.dtype()))
    }

    /// An operand of floats, most often of 32 bits.
    pub(crate) fn real(&mut self) -> Known<'c> {
        let types = [DType::F32, DType::F32, DType::F32, DType::F16, DType::BF16];
        let t = self.one(&types);
        self.pick(|k| k.dtype() == t)
    }

    pub(crate) fn f32(&mut self) -> Known<'c> {
        self.of(&[DType::F32])
    }

    /// [`Draw::f32`] whose elements lie in order without gaps: a copy, where there is none.
    pub(crate) fn plain(&mut self) -> Result<Known<'c>> {
        let a = self.f32();
        if a.t.is_contiguous() || self.wild() {
            return Ok(a);
        }
        self.contiguous(&a)
    }

    /// An operand that may be written to: a state's tensor, a look at one, or something that was computed.
    pub(crate) fn writable(&mut self) -> Known<'c> {
        let roots = self.bench.targets.iter().fold(0, |all, k| all | k.root);
        match self.rng.u32(..8) {
            0 => self.any(),
            1..3 => self.pick(|k| k.copy.is_some()),
            _ => self.find(|k| k.root & roots != 0).unwrap_or_else(|| self.pick(|k| k.copy.is_some())),
        }
    }

    /// Something that an operation made in memory of its own, with this type and shape: what in-place operations take.
    pub(crate) fn node(&mut self, dtype: DType, ne: [i64; 4]) -> Result<Known<'c>> {
        let a = self.fresh(dtype, ne)?;
        self.contiguous(&a)
    }

    /// A copy that lies in order without gaps.
    fn contiguous(&mut self, a: &Known<'c>) -> Result<Known<'c>> {
        let t = call!(self, cont(a.t))?;
        let root = self.bench.next_root();
        self.used |= root;
        Ok(Known { t, root, deps: a.deps | root, copy: None, model: a.model.as_ref().map(Model::contiguous), op: a.op })
    }

    /// An operand of this type and shape in any layout: one that is there, or a new one. Now and then it is of another.
    pub(crate) fn operand(&mut self, dtype: DType, ne: [i64; 4]) -> Result<Known<'c>> {
        let (mut dtype, mut ne) = (dtype, ne);
        if self.chance(40) {
            dtype = self.one(DType::ALL);
        }
        if self.chance(40) {
            let i = self.rng.usize(..4);
            ne[i] = if self.rng.bool() { self.one(&WILD) } else { ne[i].saturating_add(self.rng.i64(-1..=1)) };
        }
        if self.chance(3)
            && let Some(found) = self.find(|k| k.dtype() == dtype && k.ne() == ne)
        {
            return Ok(found);
        }
        match self.rng.u32(..8) {
            0 if dtype.block_size() == 1 => {
                // A permutation of an input.
                let axes = self.one(&[[1, 0, 2, 3], [0, 2, 1, 3], [3, 2, 1, 0], [2, 0, 1, 3]]);
                let mut before = [0; 4];
                for (from, &to) in axes.iter().enumerate() {
                    before[from] = ne[to];
                }
                let a = self.fresh(dtype, before)?;
                let t = call!(self, permute(a.t, axes))?;
                let model = a.model.as_ref().map(|m| permuted(m, axes));
                Ok(Known { t, model, ..a })
            }
            1 => {
                // A part of an input, with gaps.
                let gap = dtype.block_size();
                let [n0, n1, n2, n3] = ne;
                let a = self.fresh(dtype, [n0.saturating_add(gap), n1.saturating_add(1), n2, n3])?;
                let [nb0, nb1, nb2, nb3] = a.t.nb();
                let (strides, offset) = ([nb1, nb2, nb3], if self.rng.bool() { nb0 } else { nb1 });
                let t = call!(self, view(a.t, ne, strides, offset))?;
                let model = a.model.as_ref().map(|m| m.view(ne.map(|n| n as usize), [nb0, nb1, nb2, nb3], offset));
                Ok(Known { t, model, ..a })
            }
            _ => self.fresh(dtype, ne),
        }
    }

    /// A new input of this type and shape.
    pub(crate) fn fresh(&mut self, dtype: DType, ne: [i64; 4]) -> Result<Known<'c>> {
        let t = self.input(dtype, ne)?;
        if t.elements() > LARGEST {
            return Ok(self.add_input(t, Vec::new(), None));
        }
        let (bytes, values) = self.data(dtype, t.elements());
        let model = values.and_then(|data| Model::exact(Array { ne: ne.map(|n| n as usize), data }, dtype));
        Ok(self.add_input(t, bytes, model))
    }

    /// A new input with these values.
    pub(crate) fn input_of(&mut self, dtype: DType, ne: [i64; 4], values: &[f64]) -> Result<Known<'c>> {
        let t = self.input(dtype, ne)?;
        if t.elements() != values.len() {
            return Ok(self.add_input(t, Vec::new(), None));
        }
        let (bytes, data) = encode(dtype, values);
        let model = Model::exact(Array { ne: ne.map(|n| n as usize), data }, dtype);
        Ok(self.add_input(t, bytes, model))
    }

    /// A new input of indices below `below`, of which now and then one is not.
    pub(crate) fn indices(&mut self, dtype: DType, ne: [i64; 4], below: i64) -> Result<Known<'c>> {
        if self.chance(4)
            && let Some(found) = self.find(|k| k.dtype() == dtype && k.ne() == ne)
        {
            return Ok(found);
        }
        let n = ne.iter().try_fold(1_i64, |n, &d| n.checked_mul(d)).filter(|n| (1..=LARGEST as i64).contains(n));
        let wild = self.wild();
        let values: Vec<_> = (0..n.unwrap_or(0))
            .map(|_| {
                if wild && self.rng.bool() {
                    return self.one(&[below, -1, i64::from(i32::MAX), i64::from(i32::MIN), 1 << 20]) as f64;
                }
                self.rng.i64(0..below.clamp(1, 1 << 20)) as f64
            })
            .collect();
        let dtype = if self.wild() { self.one(&[DType::I32, DType::I64, DType::F32]) } else { dtype };
        self.input_of(dtype, ne, &values)
    }

    /// [`Draw::indices`], no two of which are the same in a row.
    pub(crate) fn distinct(&mut self, dtype: DType, ne: [i64; 4], below: i64) -> Result<Known<'c>> {
        let small = ne.iter().all(|n| (1..=64).contains(n)) && ne[0] <= below;
        if !small || self.wild() {
            return self.indices(dtype, ne, below);
        }
        let mut values = Vec::new();
        let mut all: Vec<_> = (0..below.min(64)).map(|i| i as f64).collect();
        for _ in 0..ne[1] * ne[2] * ne[3] {
            self.rng.shuffle(&mut all);
            values.extend(all.iter().take(ne[0] as usize));
        }
        self.input_of(dtype, ne, &values)
    }

    fn input(&mut self, dtype: DType, ne: [i64; 4]) -> Result<Tensor<'c>> {
        let name = if self.trace { format!("in{}", self.bench.inputs.len()) } else { String::new() };
        call!(self, input(&name, dtype, ne))
    }

    fn add_input(&mut self, t: Tensor<'c>, bytes: Vec<u8>, model: Option<Model>) -> Known<'c> {
        let root = self.bench.next_root();
        let known = Known { t, model, root, deps: root, copy: None, op: usize::MAX };
        if t.elements() <= LARGEST {
            self.bench.inputs.push(Input { t, bytes, root });
            self.bench.known.push(known.clone());
        } else {
            self.bench.odd.push(known.clone());
        }
        self.used |= root;
        known
    }

    /// The bytes of an input, and its values if they are followed.
    fn data(&mut self, dtype: DType, n: usize) -> (Vec<u8>, Option<Vec<f64>>) {
        let size = n / dtype.block_size() as usize * dtype.type_size();
        if !is_followed(dtype) || self.chance(12) {
            let mut bytes = vec![0; size];
            match self.rng.u32(..4) {
                0 => {} // zeros
                1 => bytes.fill(0xff),
                _ => self.rng.fill(&mut bytes),
            }
            let values = (is_followed(dtype)).then(|| decode(dtype, &bytes));
            return (bytes, values);
        }
        if self.chance(16) && matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e-42, -3e38, 65504.0, 1.0, -1.0];
            let values: Vec<_> = (0..n).map(|_| self.one(&odd)).collect();
            let (bytes, rounded) = encode(dtype, &values);
            return (bytes, Some(rounded));
        }
        let values: Vec<_> = match dtype {
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => (0..n).map(|_| self.rng.u32(..4).into()).collect(),
            _ => (0..n).map(|_| 4.0 * self.rng.f64() - 2.0).collect(),
        };
        let (bytes, rounded) = encode(dtype, &values);
        (bytes, Some(rounded))
    }
}
