//! Indices made by operations: which are trusted, and that nothing writes to them.

use ggml::ops::{CustomOptions, SortOrder};
use ggml::prelude::*;

use crate::support::{Array, Lab, assert_close, ne, refused};

/// A layer of experts: each token goes to its two likeliest experts, and gets the mean of their results, weighted by
/// probability.
#[test]
fn h07_mixture_of_experts_equals_plain_rust() {
    let (k, m, n, used, tokens) = (32, 6, 5, 2, 7);
    for (dtype, tolerance) in [(DType::F32, 1e-4), (DType::F16, 2e-2), (DType::Q8_0, 0.2)] {
        for threads in [1, 3] {
            let ctx = Context::new();
            let lab = Lab::with_threads(&ctx, threads);
            let (logits, scores) = lab.plain(&Array::sample(ne([n, tokens]), 3, -3.0, 3.0));
            let (x, values) = lab.plain(&Array::sample(ne([k, 1, tokens]), 4, -1.0, 1.0));
            let (up, w) =
                lab.operand(&Array::sample(ne([k, k, n]), 5, -0.3, 0.3), dtype, crate::support::Layout::Plain);
            let (bias, b) = lab.plain(&Array::sample(ne([k, n]), 6, -1.0, 1.0));
            let (down, v) =
                lab.operand(&Array::sample(ne([k, m, n]), 7, -0.3, 0.3), dtype, crate::support::Layout::Plain);
            let shares = ctx.soft_max(logits).unwrap();
            let ids = ctx.argsort_top_k(shares, used as i32).unwrap();
            let rows = ctx.reshape(shares, [1, n as i64, tokens as i64]).unwrap();
            let weights = ctx.get_rows(rows, ids).unwrap();
            let h = ctx.add_id(ctx.mul_mat_id(up, x, ids).unwrap(), bias, ids).unwrap();
            let each = ctx.mul_mat_id(down, ctx.relu(h).unwrap(), ids).unwrap();
            let weighed = ctx.mul(each, weights).unwrap();
            let turned = ctx.cont(ctx.permute(weighed, [1, 0, 2, 3]).unwrap()).unwrap();
            let y = ctx.sum_rows(turned).unwrap();

            let want = Array::of(ne([1, m, tokens]), |[_, row, t, _]| {
                let all: f64 = (0..n).map(|e| scores.at([e, t, 0, 0]).exp()).sum();
                let mut order: Vec<_> = (0..n).collect();
                order.sort_by(|&a, &b| scores.at([b, t, 0, 0]).total_cmp(&scores.at([a, t, 0, 0])));
                let of_expert = |e: usize| -> f64 {
                    let h = |i: usize| {
                        let sum: f64 = (0..k).map(|j| w.at([j, i, e, 0]) * values.at([j, 0, t, 0])).sum();
                        (sum + b.at([i, e, 0, 0])).max(0.0)
                    };
                    (0..k).map(|i| v.at([i, row, e, 0]) * h(i)).sum()
                };
                order[..used].iter().map(|&e| scores.at([e, t, 0, 0]).exp() / all * of_expert(e)).sum()
            });
            assert_close(&lab.run(y).unwrap(), &want, tolerance, &format!("{dtype} {threads}"));
        }
    }
}

/// Rows written in the order of their keys.
#[test]
fn set_rows_accepts_indices_of_argsort() {
    let ctx = Context::new();
    let lab = Lab::with_threads(&ctx, 3);
    let (keys, k) = lab.plain(&Array::sample(ne([6, 2]), 3, -1.0, 1.0));
    let (b, x) = lab.plain(&Array::sample(ne([3, 6, 2]), 4, -1.0, 1.0));
    let order = ctx.argsort(keys, SortOrder::Asc).unwrap();
    let y = ctx.set_rows(ctx.neg(b).unwrap(), b, order).unwrap();
    let sorted = |plane: usize| {
        let mut order: Vec<_> = (0..6).collect();
        order.sort_by(|&i, &j| k.at([i, plane, 0, 0]).total_cmp(&k.at([j, plane, 0, 0])));
        order
    };
    let want = Array::of(x.ne, |[i0, row, plane, _]| {
        let from = sorted(plane).iter().position(|&place| place == row).unwrap();
        x.at([i0, from, plane, 0])
    });
    assert_close(&lab.run(y).unwrap(), &want, 0.0, "sorted");
}

#[test]
fn set_rows_trusts_only_parts_of_sorted_rows() {
    let ctx = Context::new();
    let of = |dtype, shape: [i64; 4]| ctx.input("x", dtype, shape).unwrap();
    let order = ctx.argsort(of(DType::F32, [6, 4, 1, 1]), SortOrder::Asc).unwrap();
    let table = |rows: i64, planes: i64| {
        (ctx.dup(of(DType::F32, [3, 6, planes, 1])).unwrap(), of(DType::F32, [3, rows, planes, 1]))
    };
    let write = |rows: Tensor<'_>| {
        let [n, planes, ..] = rows.ne();
        let (a, b) = table(n, planes);
        // SAFETY: the graph is never computed.
        let unchecked = unsafe { ctx.set_rows_unchecked(a, b, ctx.dup(rows).unwrap()) };
        assert!(unchecked.is_ok(), "it is the numbers that are refused");
        ctx.set_rows(a, b, rows).map(drop)
    };
    let view = |shape: [i64; 2], stride: usize, offset: usize| {
        ctx.view(order, shape, [stride, stride * shape[1] as usize, 96], offset).unwrap()
    };
    for whole in [order, view([6, 4], 24, 0), view([2, 4], 24, 16), view([1, 3], 24, 44), view([6, 2], 48, 0)] {
        write(whole).unwrap();
    }
    for parts in [
        ctx.reshape(order, [24]).unwrap(),
        ctx.reshape(order, [12, 2]).unwrap(),
        ctx.reshape(order, [4, 6]).unwrap(),
        ctx.transpose(order).unwrap(),
        view([2, 3], 24, 20),
        view([6, 3], 24, 4),
        view([2, 2], 20, 0),
    ] {
        refused!(Shape, write(parts), "{parts:?} {:?}", parts.nb());
    }
    // Reads may repeat indices.
    assert!(ctx.get_rows(of(DType::F32, [3, 6, 1, 1]), ctx.reshape(order, [24]).unwrap()).is_ok());
}

#[test]
fn trusted_indices_cannot_be_overwritten() {
    let ctx = Context::new();
    let scores = ctx.input("scores", DType::F32, [6, 4]).unwrap();
    let input = ctx.input("rows", DType::I32, [6, 4]).unwrap();
    let mut state = WeightsBuilder::new();
    state.tensor("s", DType::I32, [6, 4]).unwrap();
    let state = state.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
    let table = ctx.input("table", DType::F32, [3, 6]).unwrap();
    let trusted = [
        ctx.argsort(scores, SortOrder::Asc).unwrap(),
        ctx.argsort_top_k(scores, 3).unwrap(),
        ctx.top_k(scores, 2).unwrap(),
        input,
    ];
    for ids in trusted {
        let [n0, n1, ..] = ids.ne();
        let flat = ctx.view(ids, [n0], [ids.nb()[1]; 3], 0).unwrap();
        assert!(ctx.get_rows(table, flat).is_ok());
        let whole = ctx.view(ids, [n0, n1], [ids.nb()[1], 96, 96], 0).unwrap();
        for target in [ids, whole, flat, ctx.permute(ids, [0, 2, 1, 3]).unwrap()] {
            let like = ctx.input("like", DType::I32, target.shape()).unwrap();
            refused!(Shape, ctx.cpy(like, target), "{target:?}");
            refused!(Shape, ctx.map_custom1_inplace::<i32>(target, CustomOptions::new(), |_| {}), "{target:?}");
            refused!(Shape, ctx.custom_inplace::<i32>(target, &[], CustomOptions::new(), |_, _| {}), "{target:?}");
            let [t0, _, t2, t3] = target.ne();
            let row = ctx.input("row", DType::F32, [t0, 1, t2, t3]).unwrap();
            let first = ctx.input("first", DType::I32, [1]).unwrap();
            refused!(Shape, ctx.set_rows(target, row, first), "{target:?}");
        }
        // A copy can be written to and is not trusted; nor is a tensor after a write.
        let copy = ctx.cont(flat).unwrap();
        let held = ctx.view(state.tensor("s").unwrap(), [n0], [24, 24, 24], 0).unwrap();
        for stray in
            [copy, ctx.dup(flat).unwrap(), ctx.cpy(flat, held).unwrap(), held, ctx.reshape(copy, [n0]).unwrap()]
        {
            refused!(Shape, ctx.get_rows(table, stray), "{stray:?}");
        }
    }
    // Indices into long rows may be out of range for a short table.
    let long = ctx.argsort(ctx.input("long", DType::F32, [7]).unwrap(), SortOrder::Asc).unwrap();
    refused!(Shape, ctx.get_rows(table, long));
    refused!(Shape, ctx.get_rows(table, ctx.view(long, [1], [4; 3], 0).unwrap()));
}

/// Indices checked for one graph don't count for another, and stay unchanged while a graph computes.
#[test]
fn checked_indices_belong_to_one_allocation() {
    let ctx = Context::new();
    let rows = ctx.input("rows", DType::I32, [3]).unwrap();
    let large = ctx.input("large", DType::F32, [4, 100]).unwrap();
    let small = ctx.input("small", DType::F32, [4, 2]).unwrap();
    // Many short-lived tensors around the indices.
    let mut noise = ctx.sqr(large).unwrap();
    for _ in 0..5 {
        noise = ctx.cont(ctx.transpose(ctx.neg(noise).unwrap()).unwrap()).unwrap();
    }
    let y = ctx.get_rows(large, rows).unwrap();
    let first = ctx.graph([y, noise, ctx.get_rows(ctx.neg(large).unwrap(), rows).unwrap()]).unwrap();
    let second = ctx.graph([ctx.get_rows(small, rows).unwrap()]).unwrap();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(&first).unwrap();
    let values: Vec<f32> = (0..400).map(|i| i as f32).collect();
    run.set(large, &values).unwrap();
    run.set(rows, &[99, 0, 50]).unwrap();
    for _ in 0..3 {
        run.compute().unwrap();
        assert_eq!(run.get::<i32>(rows).unwrap(), [99, 0, 50]);
        assert_eq!(run.get::<f32>(y).unwrap()[..5], [396.0, 397.0, 398.0, 399.0, 0.0]);
    }
    drop(run);
    let mut run = sched.alloc(&second).unwrap();
    run.set(small, &[1.0_f32; 8]).unwrap();
    refused!(InputNotSet, run.compute());
    refused!(Index, run.set(rows, &[99, 0, 50]));
    refused!(InputNotSet, run.compute());
    drop(run);
    let mut run = sched.alloc(&first).unwrap();
    run.set(large, &values).unwrap();
    refused!(InputNotSet, run.compute());
}
