//! Tables of split states: those of operations' results, given those of their operands.

use super::SplitState::Mirrored;
use super::*;
use crate::context::Context;
use crate::device::Device;
use crate::dtype::DType;
use crate::ops::{FlashAttnOptions, GluOp, RopeMode};
use crate::tensor::Tensor;
use crate::weights::WeightsBuilder;

fn along(axis: usize, shares: &[i64]) -> SplitState {
    SplitState::Along { axis, shares: shares.into() }
}

fn states(t: Tensor<'_>, srcs: &[SplitState]) -> Verdict<SplitResult> {
    let mut srcs = srcs.iter().cloned();
    let places: Vec<_> = t.ptr().slots().iter().map(|s| s.and_then(|_| srcs.next())).collect();
    result_of(t.ptr(), &places)
}

/// Compares the rules with a table of split states: those of the operands, and that of the result.
#[track_caller]
fn table(t: Tensor<'_>, rows: &[(&[SplitState], Option<SplitState>)]) {
    for (srcs, want) in rows {
        let made = states(t, srcs);
        assert_eq!(made.as_ref().map(|m| &m.state).ok(), want.as_ref(), "{} of {srcs:?}: {made:?}", t.op());
    }
}

#[test]
fn mul_mat_split_states() {
    let ctx = Context::new();
    let of = |w: [i64; 3], x: [i64; 3]| {
        ctx.mul_mat(ctx.input("", DType::F32, w).unwrap(), ctx.input("", DType::F32, x).unwrap()).unwrap()
    };
    let t = of([8, 6, 2], [8, 4, 2]);
    table(
        t,
        &[
            (&[Mirrored, Mirrored], Some(Mirrored)),
            (&[along(1, &[2, 4]), Mirrored], Some(along(0, &[2, 4]))),
            (&[Mirrored, along(1, &[1, 3])], Some(along(1, &[1, 3]))),
            (&[along(0, &[4, 4]), along(0, &[4, 4])], Some(Mirrored)),
            (&[along(2, &[1, 1]), along(2, &[1, 1])], Some(along(2, &[1, 1]))),
            (&[along(0, &[4, 4]), Mirrored], None),
            (&[Mirrored, along(0, &[4, 4])], None),
            (&[along(0, &[4, 4]), along(0, &[2, 6])], None),
            (&[along(2, &[1, 1]), Mirrored], None),
            (&[along(1, &[3, 3]), along(1, &[2, 2])], None),
        ],
    );
    assert!(states(t, &[along(0, &[4, 4]), along(0, &[4, 4])]).unwrap().partial, "to be reduced");
    assert!(!states(t, &[along(1, &[2, 4]), Mirrored]).unwrap().partial, "nothing to reduce");
    // There are two heads of queries per head of keys. With shares that don't fit, a device would pair its heads
    // wrongly.
    table(of([8, 6, 2], [8, 4, 4]), &[(&[along(2, &[1, 1]), along(2, &[2, 2])], None)]);
}

#[test]
fn elementwise_split_states() {
    let ctx = Context::new();
    let x = ctx.input("", DType::F32, [8, 6]).unwrap();
    let rows = [(&[along(0, &[2, 6])][..], Some(along(0, &[2, 6]))), (&[Mirrored], Some(Mirrored))];
    table(ctx.relu(x).unwrap(), &rows);
    table(ctx.scale(x, 2.0).unwrap(), &rows);
    table(ctx.cast(x, DType::F16).unwrap(), &rows);
    let bias = ctx.input("", DType::F32, [8, 1]).unwrap();
    table(
        ctx.add(x, bias).unwrap(),
        &[
            (&[Mirrored, Mirrored], Some(Mirrored)),
            (&[along(0, &[2, 6]), along(0, &[2, 6])], Some(along(0, &[2, 6]))),
            (&[along(1, &[2, 4]), Mirrored], Some(along(1, &[2, 4]))),
            (&[along(0, &[2, 6]), Mirrored], None),
            (&[along(0, &[2, 6]), along(0, &[4, 4])], None),
            (&[Mirrored, along(0, &[4, 4])], None),
        ],
    );
    let one = ctx.glu(x, GluOp::Swiglu, false).unwrap();
    table(one, &[(&[along(0, &[4, 4])], None), (&[along(1, &[2, 4])], Some(along(1, &[2, 4])))]);
    let two = ctx.glu_split(x, ctx.input("", DType::F32, [8, 6]).unwrap(), GluOp::Swiglu).unwrap();
    table(
        two,
        &[
            (&[along(0, &[4, 4]), along(0, &[4, 4])], Some(along(0, &[4, 4]))),
            (&[along(0, &[4, 4]), Mirrored], None),
            (&[Mirrored, along(0, &[4, 4])], None),
        ],
    );
}

#[test]
fn row_operation_split_states() {
    let ctx = Context::new();
    let x = ctx.input("", DType::F32, [8, 6]).unwrap();
    let rows = [(&[along(0, &[4, 4])][..], None), (&[along(1, &[2, 4])], Some(along(1, &[2, 4])))];
    table(ctx.rms_norm(x, 1e-5).unwrap(), &rows);
    table(ctx.mean(x).unwrap(), &rows);
    table(ctx.soft_max(x).unwrap(), &rows);
}

#[test]
fn reshape_and_view_split_states() {
    let ctx = Context::new();
    let x = ctx.input("", DType::F32, [8, 6]).unwrap();
    let reshaped = |ne: [i64; 3]| ctx.reshape(x, ne).unwrap();
    table(
        reshaped([4, 2, 6]),
        &[
            (&[along(0, &[4, 4])], Some(along(1, &[1, 1]))),
            (&[along(0, &[2, 6])], None),
            (&[along(1, &[2, 4])], Some(along(2, &[2, 4]))),
            (&[Mirrored], Some(Mirrored)),
        ],
    );
    table(reshaped([16, 3, 1]), &[(&[along(0, &[4, 4])], None), (&[along(1, &[2, 4])], Some(along(1, &[1, 2])))]);
    table(reshaped([48, 1, 1]), &[(&[along(1, &[2, 4])], Some(along(0, &[16, 32])))]);
    table(reshaped([6, 8, 1]), &[(&[along(0, &[4, 4])], None), (&[along(1, &[3, 3])], Some(along(1, &[4, 4])))]);
    table(ctx.transpose(x).unwrap(), &[(&[along(0, &[4, 4])], Some(along(1, &[4, 4])))]);
    let permuted = ctx.permute(x, [2, 0, 1, 3]).unwrap();
    table(
        permuted,
        &[(&[along(0, &[4, 4])], Some(along(2, &[4, 4]))), (&[along(1, &[2, 4])], Some(along(0, &[2, 4])))],
    );
    let view = ctx.view(x, [8, 3], [32, 96, 96], 0);
    table(view.unwrap(), &[(&[along(0, &[4, 4])], None), (&[along(1, &[2, 4])], None), (&[Mirrored], Some(Mirrored))]);
}

#[test]
fn attention_split_states() {
    let ctx = Context::new();
    let input = |dtype, ne: [i64; 4]| ctx.input("", dtype, ne).unwrap();
    let x = input(DType::F32, [8, 4, 3, 1]);
    let rope = ctx.rope(x, input(DType::I32, [3, 1, 1, 1]), 8, RopeMode::Normal).unwrap();
    table(
        rope,
        &[
            (&[along(1, &[1, 3]), Mirrored], Some(along(1, &[1, 3]))),
            (&[along(0, &[4, 4]), Mirrored], None),
            (&[along(2, &[1, 2]), Mirrored], None),
        ],
    );
    let [q, kv] = [input(DType::F32, [8, 3, 4, 1]), input(DType::F16, [8, 5, 2, 1])];
    let heads = |q: &[i64], k: &[i64]| [along(2, q), along(2, k), along(2, k)];
    let t = ctx.flash_attn_ext(q, kv, kv, FlashAttnOptions::new(1.0)).unwrap();
    let with_mask = |heads: i64| {
        let how = FlashAttnOptions::new(1.0).with_mask(Some(input(DType::F16, [5, 3, heads, 1])));
        ctx.flash_attn_ext(q, kv, kv, how).unwrap()
    };
    let masked = |heads: [SplitState; 3]| heads.into_iter().chain([Mirrored]).collect::<Vec<_>>();
    table(with_mask(1), &[(&masked(heads(&[2, 2], &[1, 1])), Some(along(1, &[2, 2])))]);
    let whole = [Mirrored, Mirrored, Mirrored];
    table(with_mask(4), &[(&masked(heads(&[2, 2], &[1, 1])), None), (&masked(whole), Some(Mirrored))]);
    table(
        t,
        &[
            (&heads(&[2, 2], &[1, 1]), Some(along(1, &[2, 2]))),
            (&heads(&[1, 3], &[1, 1]), None),
            (&[along(2, &[2, 2]), Mirrored, Mirrored], None),
            (&[Mirrored, Mirrored, Mirrored], Some(Mirrored)),
        ],
    );
}

#[test]
fn state_split_states() {
    let ctx = Context::new();
    let mut builder = WeightsBuilder::new();
    builder.tensor("cache", DType::F32, [8, 6]).unwrap();
    let state = builder.place_state(Device::cpu().unwrap()).unwrap();
    let cache = state.tensor("cache").unwrap();
    let rows = ctx.input("", DType::F32, [8, 2]).unwrap();
    let written = ctx.set_rows(cache, rows, ctx.input("", DType::I32, [2]).unwrap()).unwrap();
    let halves = || along(0, &[4, 4]);
    let of = |rows: &SplitState, cache: &SplitState| [rows.clone(), Mirrored, cache.clone()];
    table(
        written,
        &[
            (&of(&halves(), &halves()), Some(halves())),
            (&of(&Mirrored, &Mirrored), Some(Mirrored)),
            (&of(&halves(), &Mirrored), None),
            (&of(&Mirrored, &halves()), None),
            (&of(&along(0, &[2, 6]), &halves()), None),
            (&of(&along(1, &[1, 1]), &along(1, &[3, 3])), None),
            (&[halves(), along(0, &[1, 1]), halves()], None),
        ],
    );
    let view = |ne: [i64; 3], nb: [usize; 3]| ctx.view(written, ne, nb, 0).unwrap();
    table(view([4, 2, 3], [16, 32, 96]), &[(&[halves()], Some(along(1, &[1, 1]))), (&[Mirrored], Some(Mirrored))]);
    table(view([8, 3, 1], [32, 96, 96]), &[(&[halves()], Some(halves())), (&[along(1, &[3, 3])], None)]);
    // Views that are refused: half of each row; cells before heads; rows that don't begin where those of the state do.
    table(view([4, 3, 1], [32, 96, 96]), &[(&[halves()], None), (&[Mirrored], Some(Mirrored))]);
    table(view([4, 6, 2], [32, 16, 192]), &[(&[halves()], None)]);
    table(view([6, 3, 1], [24, 72, 72]), &[(&[halves()], None)]);
}

#[test]
fn unknown_operations_have_no_split_state() {
    let ctx = Context::new();
    let x = ctx.input("", DType::F32, [8, 6]).unwrap();
    let concat = ctx.concat(x, ctx.input("", DType::F32, [8, 6]).unwrap(), 0).unwrap();
    table(concat, &[(&[Mirrored, Mirrored], Some(Mirrored)), (&[along(1, &[2, 4]), along(1, &[2, 4])], None)]);
    let roll = ctx.roll(x, [1, 0, 0, 0]).unwrap();
    assert!(!knows(roll.ptr()) && knows(concat.ptr()) && knows(x.ptr()), "as the table has it");
    table(roll, &[(&[Mirrored], None)]);
}
