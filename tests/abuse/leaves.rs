//! Weights and states of a program: placed, filled, copied and read in pieces, with an account of what they must hold.

use ggml::prelude::*;
use ggml::{BufferType, Pieces, Result};
use testkit::encode::encode;

use crate::bench::{Bench, Known};
use crate::model::{Model, is_followed};
use crate::stats::{Stats, may_fail, must_fail};

/// A tensor of a program's weights or state, and the data that it has when something is computed.
struct Leaf {
    name: String,
    dtype: DType,
    elements: usize,
    bytes: Vec<u8>,
    values: Vec<f64>,
}

/// What a program reads its weights from, and writes to.
#[derive(Default)]
pub(crate) struct Leaves {
    weights: Option<(Weights, Vec<Leaf>)>,
    state: Option<(State, Vec<Leaf>)>,
}

/// What weights and states can do alike.
trait Store {
    fn bytes(&self, name: &str) -> Result<Vec<u8>>;
    fn read<T: Element>(&self, name: &str, pieces: Pieces, to: &mut [T]) -> Result<()>;
    fn write<T: Element>(&mut self, name: &str, pieces: Pieces, data: &[T]) -> Result<()>;
    fn fill(&mut self, name: &str, value: u8) -> Result<()>;
    fn put(&mut self, name: &str, data: &[u8]) -> Result<()>;
}

macro_rules! stores {
    ($($t:ty: $inner:ident;)*) => {
        $(
            impl Store for $t {
                fn bytes(&self, name: &str) -> Result<Vec<u8>> {
                    $inner::read_bytes(self, name)
                }

                fn read<T: Element>(&self, name: &str, pieces: Pieces, to: &mut [T]) -> Result<()> {
                    $inner::read_2d(self, name, pieces, to)
                }

                fn write<T: Element>(&mut self, name: &str, pieces: Pieces, data: &[T]) -> Result<()> {
                    $inner::set_2d(self, name, pieces, data)
                }

                fn fill(&mut self, name: &str, value: u8) -> Result<()> {
                    $inner::fill_bytes(self, name, value)
                }

                fn put(&mut self, name: &str, data: &[u8]) -> Result<()> {
                    $inner::set_bytes(self, name, data)
                }
            }
        )*
    };
}

stores! {
    Weights: Weights;
    &State: State;
}

impl Leaves {
    /// Places some, or none.
    pub(crate) fn place(stats: &mut Stats, rng: &mut fastrand::Rng, dims: [i64; 4], far: Option<BufferType>) -> Self {
        let near = Device::cpu().unwrap().buffer_type();
        let memory = |rng: &mut fastrand::Rng| far.filter(|_| rng.bool()).unwrap_or(near);
        let weights = rng.bool().then(|| {
            if rng.u32(..4) == 0 {
                return over(stats, rng, dims);
            }
            let mut weights = builder(stats, rng, dims).place(|_: &LeafInfo| memory(rng)).unwrap();
            let leaves: Vec<_> = weights.iter().map(|t| Leaf::new(rng, t)).collect();
            for leaf in &leaves {
                let mut holds = vec![0; leaf.bytes.len()];
                for _ in 0..rng.usize(..3) {
                    transfer(stats, rng, &mut weights, leaf, &mut holds);
                }
                weights.set_bytes(&leaf.name, &leaf.bytes).unwrap();
            }
            (weights, leaves)
        });
        let state = rng.bool().then(|| {
            let state = builder(stats, rng, dims).place_state(|_: &LeafInfo| memory(rng)).unwrap();
            let leaves: Vec<_> = state.iter().map(|t| Leaf::new(rng, t)).collect();
            (state, leaves)
        });
        Self { weights, state }
    }

    /// Makes them known to a program.
    pub(crate) fn list<'c>(&'c self, bench: &mut Bench<'c>) {
        for (t, leaf) in self.weights.iter().flat_map(|(w, leaves)| w.iter().zip(leaves)) {
            let known = leaf.known(bench, t);
            bench.weights.push(known);
        }
        for (t, leaf) in self.state.iter().flat_map(|(s, leaves)| s.iter().zip(leaves)) {
            let known = leaf.known(bench, t);
            bench.targets.push(known);
        }
    }

    /// A tensor of the state by its name, with the data that models count on.
    pub(crate) fn first_of_state(&self) -> Option<(&State, &str, &[u8])> {
        let (state, leaves) = self.state.as_ref()?;
        leaves.first().map(|leaf| (state, &*leaf.name, &*leaf.bytes))
    }

    /// A tensor of the weights by its name, with its data.
    pub(crate) fn first_of_weights(&self) -> Option<(&Weights, &str, &[u8])> {
        let (weights, leaves) = self.weights.as_ref()?;
        leaves.first().map(|leaf| (weights, &*leaf.name, &*leaf.bytes))
    }

    /// Gives the state's tensors the data that models count on.
    pub(crate) fn restore(&self) {
        for (state, leaf) in self.state.iter().flat_map(|(s, leaves)| leaves.iter().map(move |leaf| (s, leaf))) {
            state.set_bytes(&leaf.name, &leaf.bytes).unwrap();
        }
    }

    /// Writes to the state and reads from both in all sorts of ways. Afterwards it holds something else.
    pub(crate) fn scribble(&self, stats: &mut Stats, rng: &mut fastrand::Rng) {
        if let Some((weights, leaves)) = &self.weights {
            let leaf = &leaves[rng.usize(..leaves.len())];
            assert_eq!(weights.read_bytes(&leaf.name).unwrap(), leaf.bytes, "weights that changed");
        }
        let Some((mut state, leaves)) = self.state.as_ref().map(|(s, leaves)| (s, leaves)) else { return };
        self.restore();
        let leaf = &leaves[rng.usize(..leaves.len())];
        let mut holds = leaf.bytes.clone();
        for _ in 0..rng.usize(1..5) {
            match rng.u32(..8) {
                0 => {
                    let value = rng.u8(..);
                    state.clear_bytes(value).unwrap();
                    holds.fill(value);
                }
                1 => {
                    let other = &leaves[rng.usize(..leaves.len())];
                    let from = state.tensor(&other.name).unwrap();
                    let bytes = state.read_bytes(&other.name).unwrap();
                    copy(stats, state, leaf, from, &bytes, &mut holds);
                }
                2 => {
                    let Some((weights, leaves)) = &self.weights else { continue };
                    let other = &leaves[rng.usize(..leaves.len())];
                    copy(stats, state, leaf, weights.tensor(&other.name).unwrap(), &other.bytes, &mut holds);
                }
                3 => {
                    let ctx = Context::new();
                    let x = ctx.input("x", leaf.dtype, state.tensor(&leaf.name).unwrap().ne()).unwrap();
                    must_fail(stats, "copying from no memory", state.copy(&leaf.name, x));
                }
                _ => transfer(stats, rng, &mut state, leaf, &mut holds),
            }
            assert_eq!(state.read_bytes(&leaf.name).unwrap(), holds, "a state does not hold what was written");
        }
    }
}

impl Leaf {
    /// A leaf like this tensor, with some data.
    fn new(rng: &mut fastrand::Rng, t: Tensor<'_>) -> Self {
        let values: Vec<_> = (0..t.elements()).map(|_| 4.0 * rng.f64() - 2.0).collect();
        let (bytes, values) = encode(t.dtype(), &values);
        Self { name: t.name(), dtype: t.dtype(), elements: t.elements(), bytes, values }
    }

    fn known<'c>(&self, bench: &mut Bench<'c>, t: Tensor<'c>) -> Known<'c> {
        let root = bench.next_root();
        let ne = t.ne().map(|n| n as usize);
        let values = testkit::array::Array { ne, data: self.values.clone() };
        let model = Model::exact(values, t.dtype()).filter(|_| is_followed(t.dtype()));
        let known = Known { t, model, root, deps: root, copy: None, op: usize::MAX };
        bench.known.push(known.clone());
        known
    }
}

/// Leaves in a few shapes and types.
fn builder(stats: &mut Stats, rng: &mut fastrand::Rng, dims: [i64; 4]) -> WeightsBuilder {
    let mut builder = WeightsBuilder::new();
    for i in 0..rng.usize(1..4) {
        let types = [DType::F32, DType::F32, DType::F32, DType::F16, DType::Q8_0, DType::Q4_0];
        let dtype = types[rng.usize(..types.len())];
        let n0 = if dtype.block_size() > 1 { 32 } else { dims[rng.usize(..4)] };
        let shape = [n0, dims[rng.usize(..4)], rng.i64(1..3), 1];
        builder.tensor(&i.to_string(), dtype, shape).unwrap();
    }
    if rng.u32(..16) == 0 {
        must_fail(stats, "a name that is taken", builder.tensor("0", DType::F32, [1]).map(drop));
        must_fail(stats, "an overflow", builder.tensor("odd", DType::F32, [1_i64 << 62, 4]).map(drop));
        must_fail(stats, "half a block", builder.tensor("odd", DType::Q4_0, [33]).map(drop));
    }
    builder
}

/// Memory of the program's, which ends where the last tensor in it does, or soon after.
struct Memory(Vec<Aligned>);

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(32))]
struct Aligned([u8; 32]);

impl AsRef<[u8]> for Memory {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// Weights that lie in memory of the program's.
fn over(stats: &mut Stats, rng: &mut fastrand::Rng, dims: [i64; 4]) -> (Weights, Vec<Leaf>) {
    let cpu = Device::cpu().unwrap();
    let like = rng.fork();
    let leaves: Vec<_> = {
        let weights = builder(stats, &mut like.clone(), dims).place(cpu.buffer_type()).unwrap();
        weights.iter().map(|t| Leaf::new(rng, t)).collect()
    };
    let mut places = Vec::new();
    let mut memory = Vec::new();
    for leaf in &leaves {
        memory.extend(vec![Aligned([0xff; 32]); rng.usize(..3)]);
        places.push(32 * memory.len());
        memory.extend(leaf.bytes.chunks(32).map(|part| {
            let mut all = [0; 32];
            all[..part.len()].copy_from_slice(part);
            Aligned(all)
        }));
    }
    let place = |leaf: &LeafInfo| places[leaf.name().parse::<usize>().unwrap()];
    if rng.u32(..8) == 0 {
        for wild in [1, 31, 32 * memory.len(), usize::MAX, 1 << 63] {
            let builder = builder(stats, &mut like.clone(), dims);
            let result = builder.place_over(cpu, Memory(memory.clone()), |leaf| place(leaf).wrapping_add(wild));
            must_fail(stats, "a tensor outside of memory", result);
        }
    }
    let mut weights = builder(stats, &mut like.clone(), dims).place_over(cpu, Memory(memory), place).unwrap();
    let first = &leaves[0];
    must_fail(stats, "writing to memory of the program's", weights.set_bytes(&first.name, &first.bytes));
    must_fail(stats, "filling memory of the program's", weights.fill_bytes(&first.name, 0));
    (weights, leaves)
}

/// Copies into a leaf what has these bytes.
fn copy(stats: &mut Stats, state: &State, to: &Leaf, from: Tensor<'_>, bytes: &[u8], holds: &mut Vec<u8>) {
    let like = state.tensor(&to.name).unwrap();
    if like != from && like.ne() == from.ne() && like.dtype() == from.dtype() {
        state.copy(&to.name, from).unwrap();
        holds.clear();
        holds.extend(bytes);
    } else {
        must_fail(stats, "copying what differs, or is the same", state.copy(&to.name, from));
    }
}

/// One transfer, with pieces that may be anything; `holds` is what the leaf holds.
fn transfer(stats: &mut Stats, rng: &mut fastrand::Rng, store: &mut impl Store, leaf: &Leaf, holds: &mut Vec<u8>) {
    match rng.u32(..8) {
        0 => {
            let value = rng.u8(..);
            store.fill(&leaf.name, value).unwrap();
            holds.fill(value);
        }
        1 => {
            rng.fill(holds);
            store.put(&leaf.name, holds).unwrap();
        }
        2 => {
            must_fail(stats, "too many bytes", store.put(&leaf.name, &vec![0; holds.len() + 1]));
            must_fail(stats, "no such tensor", store.fill("none", 0));
        }
        3 if leaf.dtype != DType::I8 => {
            let pieces = pieces(rng, leaf.elements);
            must_fail(stats, "another type", store.write::<i8>(&leaf.name, pieces, &[0; 4]));
        }
        _ => match leaf.dtype {
            DType::F32 => in_pieces::<f32>(stats, rng, store, leaf, holds),
            DType::F16 => in_pieces::<half::f16>(stats, rng, store, leaf, holds),
            _ => may_fail(stats, store.read::<f32>(&leaf.name, pieces(rng, leaf.elements), &mut [0.0; 8])),
        },
    }
    assert_eq!(store.bytes(&leaf.name).unwrap(), *holds, "a leaf does not hold what was written");
}

fn in_pieces<T: Element>(
    stats: &mut Stats,
    rng: &mut fastrand::Rng,
    store: &mut impl Store,
    leaf: &Leaf,
    holds: &mut [u8],
) {
    let p = pieces(rng, leaf.elements);
    let wide = |n: usize| n as i128;
    let end = |step: usize| {
        if p.count == 0 { 0 } else { (wide(p.count) - 1).saturating_mul(wide(step)).saturating_add(wide(p.len)) }
    };
    let needed = end(p.data_step);
    let have = match rng.u32(..8) {
        0 => (needed - 1).clamp(0, 4096),
        1 => needed.min(4093) + 3,
        _ => needed.min(4096),
    } as usize;
    let apart = p.count < 2 || (p.step >= p.len && p.data_step >= p.len);
    let fits = apart && end(p.step).saturating_add(wide(p.offset)) <= wide(leaf.elements) && needed <= wide(have);
    let unit = size_of::<T>();
    let mut data: Vec<T> = vec![bytemuck::Zeroable::zeroed(); have];
    rng.fill(bytemuck::cast_slice_mut(&mut data));
    let count = if fits && p.len > 0 { p.count } else { 0 };
    // The pieces, as bytes: where they are in the data, where in the leaf, and their length.
    let places = |i: usize| (i * p.data_step * unit, (p.offset + i * p.step) * unit, p.len * unit);
    if rng.bool() {
        let result = store.write(&leaf.name, p, &data);
        assert_eq!(result.is_ok(), fits, "writing {p:?} of {have} to {}: {result:?}", leaf.elements);
        let bytes: &[u8] = bytemuck::cast_slice(&data);
        for (from, to, n) in (0..count).map(places) {
            holds[to..to + n].copy_from_slice(&bytes[from..from + n]);
        }
        return may_fail(stats, result);
    }
    let mut expected: Vec<u8> = bytemuck::cast_slice(&data).to_vec();
    let result = store.read(&leaf.name, p, &mut data);
    assert_eq!(result.is_ok(), fits, "reading {p:?} of {have} from {}: {result:?}", leaf.elements);
    for (to, from, n) in (0..count).map(places) {
        expected[to..to + n].copy_from_slice(&holds[from..from + n]);
    }
    assert_eq!(bytemuck::cast_slice::<T, u8>(&data), expected, "reading {p:?} from {}", leaf.elements);
    may_fail(stats, result);
}

fn pieces(rng: &mut fastrand::Rng, elements: usize) -> Pieces {
    let count = rng.usize(..5);
    let step = elements / count.max(1);
    let len = rng.usize(..=step);
    let mut p = Pieces { offset: rng.usize(..=step - len), len, count, step, data_step: len + rng.usize(..3) };
    if rng.u32(..3) == 0 {
        let wild =
            [0, 1, elements, elements + 1, usize::MAX, usize::MAX / 2, usize::MAX / 4 + 1, 1 << 62, 1 << 63, 1 << 32];
        let value = wild[rng.usize(..wild.len())];
        let fields = [&mut p.offset, &mut p.len, &mut p.count, &mut p.step, &mut p.data_step];
        for (i, field) in fields.into_iter().enumerate() {
            if i == rng.usize(..5) {
                *field = value;
            }
        }
    }
    p
}
