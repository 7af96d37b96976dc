//! Programs made at random. Whatever is asked for must either be refused or give what a model in plain Rust says; nothing
//! may end the process.
//!
//! All numbers are small integers, which every type and every order of additions keeps exact.

use std::cell::RefCell;
use std::collections::HashSet;
use std::rc::Rc;

use ggml::prelude::*;
use ggml::{Conv2d, Pool, Pool2d};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::array::Array;
use super::matrices::product;
use super::run::{BF16, F16, F32, I32, Program, cpu};

/// A tensor and its model: elements of some memory at some strides.
#[derive(Clone)]
struct Value<'c> {
    t: Tensor<'c>,
    memory: Rc<Vec<f64>>,
    stride: [usize; 4],
    offset: usize,
}

impl<'c> Value<'c> {
    fn packed(t: Tensor<'c>, a: Array) -> Self {
        let stride = [1, a.ne[0], a.ne[0] * a.ne[1], a.ne[0] * a.ne[1] * a.ne[2]];
        Self { t, memory: Rc::new(a.data), stride, offset: 0 }
    }

    fn ne(&self) -> [usize; 4] {
        self.t.ne().map(|n| n as usize)
    }

    fn places(&self) -> Vec<usize> {
        let places =
            Array::from_fn(self.ne(), |i| (self.offset + (0..4).map(|d| i[d] * self.stride[d]).sum::<usize>()) as f64);
        places.data.into_iter().map(|x| x as usize).collect()
    }

    fn array(&self) -> Array {
        Array { ne: self.ne(), data: self.places().into_iter().map(|i| self.memory[i]).collect() }
    }

    fn seen_as(&self, t: Tensor<'c>, stride: [usize; 4], offset: usize) -> Self {
        Self { t, memory: Rc::clone(&self.memory), stride, offset }
    }
}

/// What to do next: an operation, and numbers to choose its operands and parameters by.
type Step = (u8, [u8; 8]);

/// What became of the steps.
#[derive(Default, Debug)]
struct Tally {
    built: [usize; OPERATIONS],
    refused: usize,
    unsupported: usize,
}

const OPERATIONS: usize = 20;
/// The shape of what may be copied into.
const SLOT: [usize; 4] = [5, 6, 5, 4];

struct Machine<'c, 's> {
    p: Program<'c>,
    values: Vec<Value<'c>>,
    slots: Vec<Tensor<'c>>,
    sched: &'s RefCell<Sched>,
}

impl<'c> Machine<'c, '_> {
    /// One step: what it makes, if anything can be made of it.
    fn step(&mut self, (op, by): Step) -> ggml::Result<Option<Value<'c>>> {
        let ctx = self.p.ctx;
        let pick = |n: u8| self.values[usize::from(n) % self.values.len()].clone();
        let (a, b) = (pick(by[0]), pick(by[1]));
        let (x, y) = (a.array(), b.array());
        let plain = |t, array| Ok(Some(Value::packed(t, array)));
        let small = |n: u8| 1 + usize::from(n) % 4;
        match usize::from(op) % OPERATIONS {
            0 => {
                let which = usize::from(by[2]) % 5;
                let f = |x: f64| match which {
                    0 => -x,
                    1 => x.abs(),
                    2 => x.max(0.0),
                    3 => x * x,
                    _ => f64::from(u8::from(x > 0.0)),
                };
                let t = match which {
                    0 => ctx.neg(a.t),
                    1 => ctx.abs(a.t),
                    2 => ctx.relu(a.t),
                    3 => ctx.sqr(a.t),
                    _ => ctx.step(a.t),
                }?;
                plain(t, x.map(f))
            }
            1 => plain(ctx.leaky_relu(a.t, 2.0)?, x.map(|x| if x > 0.0 { x } else { 2.0 * x })),
            2 => plain(ctx.scale_bias(a.t, 2.0, f32::from(by[2] % 3))?, x.map(|x| 2.0 * x + f64::from(by[2] % 3))),
            3 => plain(ctx.clamp(a.t, -3.0, 4.0)?, x.map(|x| x.clamp(-3.0, 4.0))),
            4 | 5 => {
                let which = usize::from(by[2]) % 3;
                let f = |a: f64, b: f64| match which {
                    0 => a + b,
                    1 => a - b,
                    _ => a * b,
                };
                let t = match which {
                    0 => ctx.add(a.t, b.t),
                    1 => ctx.sub(a.t, b.t),
                    _ => ctx.mul(a.t, b.t),
                }?;
                plain(t, Array::from_fn(x.ne, |i| f(x.at(i), y.wrapped(i))))
            }
            6 | 7 => plain(ctx.mul_mat(a.t, b.t)?, product(&x, &y)),
            8 | 9 => self.view(&a, None, by),
            10 => {
                let mut axes = [0, 1, 2, 3];
                axes.swap(0, usize::from(by[1]) % 4);
                axes.swap(1, usize::from(by[2]) % 4);
                axes.swap(2, usize::from(by[3]) % 4);
                let mut stride = [0; 4];
                for (i, &axis) in axes.iter().enumerate() {
                    stride[axis] = a.stride[i];
                }
                Ok(Some(a.seen_as(ctx.permute(a.t, axes)?, stride, a.offset)))
            }
            11 => {
                let [s0, s1, s2, s3] = a.stride;
                Ok(Some(a.seen_as(ctx.transpose(a.t)?, [s1, s0, s2, s3], a.offset)))
            }
            12 => {
                let n = x.data.len();
                let first = [1, 2, 3, n][usize::from(by[1]) % 4];
                let ne = [first, n / first, 1, 1];
                let t = ctx.reshape(a.t, ne.map(|n| n as i64))?;
                // What is reshaped lies in order, whatever strides its dimensions of 1 have.
                let offset = a.places()[0];
                Ok(Some(a.seen_as(t, [1, first, n, n], offset)))
            }
            13 => plain(ctx.cont(a.t)?, x),
            14 => {
                let to = [F32, F16, BF16][usize::from(by[1]) % 3];
                plain(ctx.cast(a.t, to)?, x)
            }
            15 => {
                let Some(slot) = self.slots.pop() else { return Ok(None) };
                let whole = Value::packed(slot, Array::from_fn(SLOT, |_| 7.0));
                let Some(into) = self.view(&whole, Some(x.ne), by)? else { return Ok(None) };
                let t = ctx.cpy(a.t, into.t)?;
                let mut memory = whole.memory.to_vec();
                for (place, x) in into.places().into_iter().zip(&x.data) {
                    memory[place] = *x;
                }
                Ok(Some(Value { t, memory: Rc::new(memory), ..into }))
            }
            16 => plain(ctx.sum_rows(a.t)?, x.rows(|row, _| vec![row.iter().sum()])),
            17 => {
                let dim = usize::from(by[2]) % 5;
                let t = ctx.concat(a.t, b.t, dim)?;
                let mut ne = x.ne;
                ne[dim] += y.ne[dim];
                let of = |mut i: [usize; 4]| {
                    if i[dim] < x.ne[dim] {
                        return x.at(i);
                    }
                    i[dim] -= x.ne[dim];
                    y.at(i)
                };
                plain(t, Array::from_fn(ne, of))
            }
            18 => {
                let [n0, n1, n2, n3] = x.ne;
                let picks = Array::from_fn([2, n2, n3, 1], |i| ((usize::from(by[1]) + i[0] + i[1]) % n1) as f64);
                let t = ctx.get_rows(a.t, self.p.input(&picks, I32))?;
                let at = |[i, j, k, l]: [usize; 4]| x.at([i, picks.at([j, k, l, 0]) as usize, k, l]);
                plain(t, Array::from_fn([n0, 2, n2, n3], at))
            }
            _ => {
                let mut how = Pool2d::square(1);
                how.window = [small(by[1]) as i32, small(by[2]) as i32];
                how.stride = [small(by[3]) as i32, small(by[4]) as i32];
                let t = ctx.pool_2d(a.t, Pool::Max, how)?;
                let most = |i: [usize; 4]| {
                    let (k, s) = (how.window.map(|n| n as usize), how.stride.map(|n| n as usize));
                    let corner = [i[0] * s[0], i[1] * s[1]];
                    let window = (0..k[0] * k[1]).map(|n| [corner[0] + n % k[0], corner[1] + n / k[0], i[2], i[3]]);
                    window.map(|i| x.at(i)).fold(f64::NEG_INFINITY, f64::max)
                };
                plain(t, Array::from_fn(t.ne().map(|n| n as usize), most))
            }
        }
    }

    /// A view with any numbers, of a shape that is `like` another in half of the cases, and in half of the cases with rows
    /// one after the other. One that is accepted must lie in the memory, and see each element once.
    fn view(&self, a: &Value<'c>, like: Option<[usize; 4]>, by: [u8; 8]) -> ggml::Result<Option<Value<'c>>> {
        let any = [by[1] % 5, by[2] % 4, by[3] % 3, by[4] % 3].map(usize::from);
        let ne = like.filter(|_| by[1] < 128).unwrap_or(any);
        let mut steps = [usize::from(by[5] % 16), usize::from(by[6] % 32), usize::from(by[7] % 64)];
        if by[5] < 128 {
            steps[0] = ne[0] + usize::from(by[2] % 2);
            steps[1] = steps[0] * ne[1] + usize::from(by[6] % 3);
            steps[2] = steps[1] * ne[2] + usize::from(by[7] % 3);
        }
        let ne = ne.map(|n| n as i64);
        let size = a.t.dtype().type_size();
        let offset = usize::from(by[0] % 16);
        let t = self.p.ctx.view(a.t, ne, steps.map(|n| n * size), offset * size)?;
        let [s1, s2, s3] = steps;
        let v = a.seen_as(t, [1, s1, s2, s3], a.offset + offset);
        let places: HashSet<_> = v.places().into_iter().collect();
        assert!(places.iter().all(|&i| i < a.memory.len()), "{ne:?} {steps:?} {offset} ends outside");
        assert_eq!(places.len(), t.elements(), "{ne:?} {steps:?} sees elements twice");
        Ok(Some(v))
    }

    /// Makes a step if it can be computed with exact numbers.
    fn take(&mut self, step: Step, tally: &mut Tally) {
        match self.step(step) {
            Err(Error::Shape { .. } | Error::Param { .. } | Error::DType { .. }) => tally.refused += 1,
            Err(e) => panic!("{step:?}: {e}"),
            Ok(None) => {}
            Ok(Some(v)) => {
                let most = v.memory.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
                let exact = most <= if v.t.dtype() == BF16 { 256.0 } else { 2048.0 };
                if !exact || v.t.elements() > 5000 {
                    return;
                }
                let graph = self.p.ctx.graph([v.t]);
                match graph.map(|g| self.sched.borrow_mut().alloc(&g).map(drop)) {
                    Ok(Ok(())) => {
                        tally.built[usize::from(step.0) % OPERATIONS] += 1;
                        self.values.push(v);
                    }
                    Ok(Err(Error::Unsupported { .. })) => tally.unsupported += 1,
                    Err(Error::EmptyGraph) => self.values.push(v),
                    Ok(Err(e)) | Err(e) => panic!("{step:?}: {e}"),
                }
            }
        }
    }
}

fn check(shapes: &[[u8; 4]], steps: &[Step], sched: &RefCell<Sched>, tally: &mut Tally) {
    let mut builder = WeightsBuilder::new();
    for (i, dtype) in [F32, F16, F32].into_iter().enumerate() {
        builder.tensor(&i.to_string(), dtype, SLOT.map(|n| n as i64)).unwrap();
    }
    let state = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
    for t in state.iter() {
        let seven = Array::from_fn(SLOT, |_| 7.0).bytes(t.dtype());
        state.set_bytes(&t.name(), &seven).unwrap();
    }
    let ctx = Context::new();
    let mut machine = Machine { p: Program::new(&ctx), values: Vec::new(), slots: state.iter().collect(), sched };
    for (i, shape) in shapes.iter().enumerate() {
        let ne = shape.map(|n| 1 + usize::from(n) % 5);
        let a = Array::noise(ne, 3.5, i as u64 + 1, F32).map(f64::round);
        let dtype = [F32, F32, F16, BF16][i % 4];
        let t = machine.p.input(&a, dtype);
        machine.values.push(Value::packed(t, a));
    }
    let inputs = machine.values.len();
    for &step in steps {
        machine.take(step, tally);
    }
    let results: Vec<_> = machine.values.split_off(inputs);
    for v in &results {
        if ctx.graph([v.t]).is_err() {
            continue;
        }
        let got = machine.p.run_on(&mut sched.borrow_mut(), v.t).unwrap();
        assert_eq!(got, v.array(), "{:?} of {steps:?}", v.t);
    }
}

#[test]
fn programs_are_refused_or_right() {
    let (sched, tally) = (RefCell::new(cpu()), RefCell::new(Tally::default()));
    let shapes = prop::collection::vec(any::<[u8; 4]>(), 1..4);
    let steps = prop::collection::vec(any::<Step>(), 1..12);
    let mut runner = TestRunner::new(Config { cases: 6000, failure_persistence: None, ..Config::default() });
    let run = runner.run(&(shapes, steps), |(shapes, steps)| {
        check(&shapes, &steps, &sched, &mut tally.borrow_mut());
        Ok(())
    });
    run.unwrap();
    let tally = tally.into_inner();
    assert!(tally.built.iter().all(|&n| n >= 100), "operations that hardly ever came about: {tally:?}");
    assert!(tally.refused > 100 && tally.unsupported > 10, "{tally:?}");
}

/// The first few shapes that a convolution may have, all of them.
#[test]
fn small_convolutions_are_refused_or_right() {
    for n in 0..5_usize.pow(5) {
        let digit = |i: u32| n / 5_usize.pow(i) % 5;
        let mut how = Conv2d::default();
        how.stride = [digit(0) as i32, 1];
        how.padding = [digit(1) as i32 - 1, 0];
        how.dilation = [digit(2) as i32, 1];
        let (width, kernel) = (digit(3) + 1, digit(4) + 1);
        let ctx = Context::new();
        let x = ctx.input("x", F32, [width as i64, 1, 1]).unwrap();
        let k = ctx.input("k", F32, [kernel as i64, 1, 1]).unwrap();
        let reach = digit(2) * (kernel - 1) + 1;
        let valid = digit(0) > 0 && digit(1) > 0 && digit(2) > 0 && width + 2 * (digit(1).max(1) - 1) >= reach;
        match ctx.conv_2d(k, x, how) {
            Ok(y) => {
                assert!(valid, "{how:?} {width} {kernel}");
                assert_eq!(y.ne()[0] as usize, (width + 2 * (digit(1) - 1) - reach) / digit(0) + 1);
            }
            Err(e) => assert!(!valid, "{how:?} {width} {kernel}: {e}"),
        }
    }
}
