//! In-place functions: their results, that they write nothing else, and refused operands.

use ggml::prelude::*;
use ggml::{Result, ops::SetOptions};
use testkit::cases::each::{Each, Second};
use testkit::cases::{Row, rows};
use testkit::encode::{decode, encode};
use testkit::layout::inside;

use crate::support::{Array, Lab, Layout, assert_close, ne, precision, refused};

/// In-place functions of one operand, by the table.
fn functions() -> impl Iterator<Item = (Row, Each)> {
    let of_one = |row: Row| {
        let each = row.each.filter(|each| each.second == Second::None)?;
        row.in_place.is_some().then_some((row, each))
    };
    rows().into_iter().filter_map(of_one)
}

fn in_place<'c>(row: &Row, ctx: &'c Context, a: Tensor<'c>) -> Result<Tensor<'c>> {
    (row.in_place.as_ref().unwrap().1)(ctx, &[a])
}

/// A state with these values.
pub(crate) fn state(values: &Array, dtype: DType) -> (State, Array) {
    let mut builder = WeightsBuilder::new();
    builder.tensor("s", dtype, values.ne.map(|n| n as i64)).unwrap();
    let state = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
    let (bytes, rounded) = encode(dtype, &values.data);
    state.set_bytes("s", &bytes).unwrap();
    (state, Array { ne: values.ne, data: rounded })
}

/// The values of a state.
pub(crate) fn held(state: &State) -> Array {
    let t = state.tensor("s").unwrap();
    Array { ne: t.ne().map(|n| n as usize), data: decode(t.dtype(), &state.read_bytes("s").unwrap()) }
}

const WHOLE: [usize; 4] = [9, 5, 3, 1];
/// A view: elements 2 to 7 of rows 1 to 4 of planes 0 and 2.
const PART: [i64; 3] = [6, 3, 2];

fn in_part([i0, i1, i2, _]: [usize; 4]) -> bool {
    (2..8).contains(&i0) && (1..4).contains(&i1) && i2 != 1
}

fn part_of<'c>(ctx: &'c Context, t: Tensor<'c>) -> Tensor<'c> {
    let [nb0, nb1, nb2, _] = t.nb();
    ctx.view(t, PART, [nb1, 2 * nb2, 4 * nb2], 2 * nb0 + nb1).unwrap()
}

/// Writes to a whole tensor and to a view, of a result and of a state, and compares the whole tensor afterwards.
#[track_caller]
fn check(row: &Row, each: &Each, dtype: DType) {
    let name = row.name;
    let (from, to) = each.limits;
    let values = Array::sample(WHOLE, 11, from, to);
    let tolerance = precision(dtype).max(each.off());
    for (part, threads) in [(false, 2), (false, 1), (true, 3)] {
        if part && !each.layouts.contains(&Layout::Gaps) {
            continue;
        }
        let context = format!("{name} of {dtype}, of a part: {part}");
        let after = |before: &Array| {
            let all = each.of_arrays(std::slice::from_ref(before));
            Array::of(before.ne, |i| if part && !in_part(i) { before.at(i) } else { all.at(i) })
        };
        let ctx = Context::new();
        let lab = Lab::with_threads(&ctx, threads);
        let (x, rounded) = lab.operand(&values, dtype, Layout::Plain);
        let t = ctx.cont(x).unwrap();
        let y = in_place(row, &ctx, if part { part_of(&ctx, t) } else { t }).unwrap();
        assert!(y.is_view(), "{context}");
        // The result comes first, so that the tensor is copied after the write.
        let copy = ctx.cont(y).unwrap();
        let got = lab.run_all(&[copy, t]).unwrap();
        assert_close(&got[1], &after(&rounded), tolerance, &format!("{context}, a result"));
        assert_eq!(got[0].data.len(), y.elements(), "{context}");

        let (state, before) = state(&values, dtype);
        let ctx = Context::new();
        let s = state.tensor("s").unwrap();
        let y = in_place(row, &ctx, if part { part_of(&ctx, s) } else { s }).unwrap();
        Lab::with_threads(&ctx, threads).run_all(&[ctx.cont(y).unwrap()]).unwrap();
        assert_close(&held(&state), &after(&before), tolerance, &format!("{context}, a state"));
    }
}

#[test]
fn unary_inplace_writes_only_its_operand() {
    let mut n = 0;
    for (row, each) in functions() {
        for &dtype in each.types {
            check(&row, &each, dtype);
        }
        n += 1;
    }
    assert!(n > 25, "{n} functions");
}

/// In-place results equal those in new tensors, bit by bit.
#[test]
fn inplace_operations_equal_their_counterparts() {
    for (row, each) in functions() {
        let ctx = Context::new();
        let lab = Lab::new(&ctx);
        let (x, _) = lab.plain(&Array::sample(ne([37, 3]), 5, 0.1, 3.0));
        let y = in_place(&row, &ctx, ctx.cont(x).unwrap()).unwrap();
        let beside = (each.make)(&ctx, &[x], &each.usual()).unwrap();
        let got = lab.run_all(&[beside, ctx.cont(y).unwrap()]).unwrap();
        assert_eq!(got[0], got[1], "{}", row.name);
    }
}

/// What a function doesn't take beside its operand, it doesn't take in place, either.
#[test]
fn h10_inplace_functions_refuse_the_same_strides() {
    for (row, _) in functions() {
        for laying in row.cases[0].forbidden() {
            let ctx = Context::new();
            let lab = Lab::new(&ctx);
            let result = ctx.cont(lab.plain(&Array::sample(ne([4, 3, 2, 2]), 3, 0.5, 2.0)).0).unwrap();
            let t = match laying[0] {
                Layout::Gaps => inside(&ctx, result),
                layout => ctx.permute(result, layout.axes()).unwrap(),
            };
            refused!(Shape, in_place(&row, &ctx, t), "{} {laying:?}", row.name);
        }
    }
}

/// Two operands. Only the second one's shape matters to the checks.
type BuildTwo = for<'c> fn(&'c Context, Tensor<'c>, Tensor<'c>) -> Result<Tensor<'c>>;

const OF_TWO: &[(&str, BuildTwo)] = &[
    ("add", |c, a, b| c.add_inplace(a, b)),
    ("sub", |c, a, b| c.sub_inplace(a, b)),
    ("mul", |c, a, b| c.mul_inplace(a, b)),
    ("div", |c, a, b| c.div_inplace(a, b)),
    ("add1", |c, a, b| c.add1_inplace(a, b)),
    ("set", |c, a, b| c.set_inplace(a, b, SetOptions::new(0))),
    ("set_1d", |c, a, b| c.set_1d_inplace(a, b, 0)),
    ("set_2d", |c, a, b| c.set_2d_inplace(a, b, 16, 0)),
    ("acc", |c, a, b| c.acc_inplace(a, b, SetOptions::new(0))),
];

#[test]
fn inplace_operations_refuse_weights_and_inputs() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [4, 2]).unwrap();
    let weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    let ctx = Context::new();
    let w = weights.tensor("w").unwrap();
    let x = ctx.input("x", DType::F32, [4, 2]).unwrap();
    let one = ctx.input("one", DType::F32, [1]).unwrap();
    let flat = |t| ctx.reshape(t, [8]).unwrap();
    for (row, _) in functions() {
        refused!(Frozen, in_place(&row, &ctx, w), "{}", row.name);
        refused!(Frozen, in_place(&row, &ctx, flat(w)), "{}", row.name);
        refused!(Shape, in_place(&row, &ctx, x), "{}", row.name);
        refused!(Shape, in_place(&row, &ctx, flat(x)), "{}", row.name);
    }
    for (name, build) in OF_TWO {
        refused!(Frozen, build(&ctx, w, one), "{name}");
        refused!(Frozen, build(&ctx, flat(w), one), "{name}");
        refused!(Shape, build(&ctx, x, one), "{name}");
        refused!(Shape, build(&ctx, flat(x), one), "{name}");
        assert!(build(&ctx, ctx.cont(x).unwrap(), one).is_ok(), "{name}");
    }
}

/// In-place operations are ordered only by their results, whose readers see all earlier writes.
#[test]
fn inplace_operations_run_in_order() {
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let (x, values) = lab.plain(&Array::sample(ne([33, 4]), 5, 0.5, 2.0));
    let t = ctx.sqr(x).unwrap();
    let t = ctx.log_inplace(t).unwrap();
    let t = ctx.scale_inplace(t, 0.5).unwrap();
    let t = ctx.add_inplace(t, x).unwrap();
    let t = ctx.mul_inplace(t, t).unwrap();
    let want = values.map(|x| (x.ln() + x).powi(2));
    let got = lab.run_all(&[ctx.neg(t).unwrap(), ctx.neg(ctx.cont(t).unwrap()).unwrap()]).unwrap();
    for got in got {
        assert_close(&got, &want.map(|x| -x), 2e-5, "in place");
    }
}
