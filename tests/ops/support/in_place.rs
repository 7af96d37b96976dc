//! In-place operations.

use ggml::Result;
use ggml::prelude::*;
use testkit::array::{Array, assert_close};

use super::lab::Lab;

/// Asserts that `build`, given an operand with `values`, writes `want` to a state and to another operation's result,
/// with one thread and with three, and that it refuses weights, inputs and views of those.
pub(crate) fn assert_in_place(
    context: &str,
    values: &Array,
    want: &Array,
    tolerance: f64,
    build: impl for<'c> Fn(&Lab<'c>, Tensor<'c>) -> Result<Tensor<'c>>,
) {
    let shape = values.ne.map(|n| n as i64);
    let floats: Vec<f32> = values.data.iter().map(|&x| x as f32).collect();
    let place = || {
        let mut builder = WeightsBuilder::new();
        builder.tensor("t", DType::F32, shape).unwrap();
        builder
    };
    let buffer = Device::cpu().unwrap().buffer_type();
    for threads in [1, 3] {
        let state = place().place_state(buffer).unwrap();
        state.set("t", &floats).unwrap();
        let ctx = Context::new();
        let lab = Lab::with_threads(&ctx, threads);
        let y = build(&lab, state.tensor("t").unwrap()).unwrap();
        assert!(y.is_view(), "{context}: the result is a view");
        assert_close(&lab.run(y).unwrap(), want, tolerance, &format!("{context} over a state"));
        let left = state.tensor("t").unwrap().read::<f32>().unwrap().into_iter().map(f64::from).collect();
        assert_close(&Array { ne: want.ne, data: left }, want, tolerance, &format!("{context}: what the state holds"));
        let (x, _) = lab.plain(values);
        let made = ctx.dup(x).unwrap();
        let outputs = [build(&lab, made).unwrap(), x];
        let got = lab.run_all(&outputs).unwrap();
        assert_close(&got[0], want, tolerance, &format!("{context} over a result"));
        assert_close(&got[1], values, 1e-6, &format!("{context}: what the result was made from"));
    }
    let weights = place().place(buffer).unwrap();
    let ctx = Context::new();
    let lab = Lab::new(&ctx);
    let whole = |t| build(&lab, t);
    let w = weights.tensor("t").unwrap();
    let x = ctx.input("x", DType::F32, shape).unwrap();
    for (t, frozen) in
        [w, x].into_iter().flat_map(|t| [t, ctx.reshape(t, shape).unwrap()]).zip([true, true, false, false])
    {
        match (whole(t), frozen) {
            (Err(Error::Frozen { .. }), true) | (Err(Error::Shape { .. }), false) => {}
            (other, _) => panic!("{context} over {t:?} should be refused, got {other:?}"),
        }
    }
}
