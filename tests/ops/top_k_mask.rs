//! The mask of sparse attention. Since ggml 0.28.

use ggml::ops::TopKMaskOptions;
use ggml::prelude::*;

use crate::support::{Array, Lab, Layout, assert_close, ne, refused};

const N: usize = 7;
const PICKS: [usize; 4] = [3, 2, 3, 1];
const SCORES: usize = 5;

/// Whole numbers that look random, some of them below 0 and some too large.
fn picks(shape: [usize; 4], salt: usize) -> Array {
    let mut n = salt;
    Array::of(shape, |_| {
        n = (n * 75 + 74) % 65537;
        (n % 11) as f64 - 2.0
    })
}

#[test]
fn cells_that_were_picked_keep_the_mask() {
    for case in 0..16_usize {
        let [scored, blocked, extra, broadcast] = [1, 2, 4, 8].map(|bit| case & bit != 0);
        let ctx = Context::new();
        let lab = Lab::with_threads(&ctx, 1 + case % 3);
        let dtype = if case % 3 == 0 { DType::F16 } else { DType::F32 };
        let mask = Array::sample(ne([N, if broadcast { 1 } else { 2 }, 3]), 3, -1.0, 1.0);
        let (mask, values) = lab.operand(&mask, dtype, Layout::Plain);
        let (top, top_values) = lab.operand(&picks(PICKS, case), DType::I32, Layout::Plain);
        let score =
            Array::of([SCORES, 2, 3, 1], |[i, j, k, _]| if (i + j + k) % 3 == 0 { f64::NEG_INFINITY } else { 1.0 });
        let blocks = picks([2, SCORES, 1, 1], 9);
        let more = picks([2, 2, 3, 1], 5);
        let of = |array: &Array, dtype| lab.operand(array, dtype, Layout::Plain).0;
        let how = TopKMaskOptions::new()
            .with_score(scored.then(|| of(&score, DType::F32)))
            .with_blocks(blocked.then(|| of(&blocks, DType::I32)))
            .with_extra(extra.then(|| of(&more, DType::I32)));
        let want = Array::of([N, 2, 3, 1], |[cell, i, j, _]| {
            let is = |x: f64| x == cell as f64;
            let picked = (0..PICKS[0]).map(|n| top_values.at([n, i, j, 0])).any(|pick| {
                let n_pick = if scored || blocked { SCORES } else { N };
                if pick < 0.0 || pick >= n_pick as f64 {
                    return false;
                }
                let pick = pick as usize;
                if scored && score.at([pick, i, j, 0]) == f64::NEG_INFINITY {
                    return false;
                }
                if blocked { (0..2).any(|n| is(blocks.at([n, pick, 0, 0]))) } else { pick == cell }
            });
            let kept = picked || (extra && (0..2).any(|n| is(more.at([n, i, j, 0]))));
            if kept { values.at([cell, if broadcast { 0 } else { i }, j, 0]) } else { f64::NEG_INFINITY }
        });
        let got = lab.run(ctx.top_k_mask(mask, top, how).unwrap()).unwrap();
        assert_close(&got, &want, 0.0, &format!("{scored} {blocked} {extra} {broadcast}"));
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let ctx = Context::new();
    let f32s = |shape: [i64; 4]| ctx.input("x", DType::F32, shape).unwrap();
    let i32s = |shape: [i64; 4]| ctx.input("i", DType::I32, shape).unwrap();
    let (mask, top) = (f32s([8, 2, 3, 1]), i32s([4, 4, 3, 1]));
    assert!(ctx.top_k_mask(mask, top, TopKMaskOptions::new()).is_ok());
    refused!(DType, ctx.top_k_mask(i32s([8, 2, 3, 1]), top, TopKMaskOptions::new()));
    refused!(DType, ctx.top_k_mask(mask, f32s([4, 4, 3, 1]), TopKMaskOptions::new()));
    refused!(Shape, ctx.top_k_mask(f32s([8, 3, 3, 1]), top, TopKMaskOptions::new()), "3 does not divide 4");
    refused!(Shape, ctx.top_k_mask(ctx.transpose(f32s([2, 8, 3, 1])).unwrap(), top, TopKMaskOptions::new()));
    refused!(Shape, ctx.top_k_mask(f32s([1 << 40, 1, 1, 1]), i32s([1, 1 << 30, 1, 1]), TopKMaskOptions::new()));
    for (score, blocks, extra) in [
        (Some(f32s([5, 2, 3, 1])), None, None),
        (Some(f32s([5, 4, 3, 2])), None, None),
        (None, Some(i32s([2, 5, 2, 1])), None),
        (Some(f32s([5, 4, 3, 1])), Some(i32s([2, 6, 1, 1])), None),
        (None, None, Some(i32s([5, 2, 3, 1]))),
    ] {
        let how = TopKMaskOptions::new().with_score(score).with_blocks(blocks).with_extra(extra);
        refused!(Shape, ctx.top_k_mask(mask, top, how), "{how:?}");
    }
    for (score, blocks, extra) in [
        (Some(i32s([5, 4, 3, 1])), None, None),
        (None, Some(f32s([2, 5, 1, 1])), None),
        (None, None, Some(f32s([5, 4, 3, 1]))),
    ] {
        let how = TopKMaskOptions::new().with_score(score).with_blocks(blocks).with_extra(extra);
        refused!(DType, ctx.top_k_mask(mask, top, how), "{how:?}");
    }
}
