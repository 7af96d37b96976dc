//! Rotary positions. Their references are in `tests/ops/rope.rs`.

use ggml::ops::{RopeMode, RopeOptions};
use ggml::prelude::*;

use super::case::{Operand, f32, ints, of};
use super::row::Row;
use super::{F16, F32};
use crate::layout::Layout;

/// The operands of a mode: values, positions, factors; and the options without factors.
fn mode<'c>(mode: RopeMode, dtype: DType) -> ([Operand; 3], RopeOptions<'c>) {
    let several = !matches!(mode, RopeMode::Normal | RopeMode::NeoX);
    let n = if several { 4 } else { 1 };
    let operands = [
        of(dtype, [64, 5, 7]),
        ints([7 * n], (0..7 * n as i32).map(|i| i * 3 % 19)),
        f32([32]).within(0.8, 1.2).still(),
    ];
    (operands, RopeOptions::new(32, mode).with_sections([if several { 4 } else { 0 }; 4]))
}

fn simple() -> Row {
    let modes = [RopeMode::Normal, RopeMode::NeoX].into_iter().flat_map(|m| [64, 32].map(|n| (m, n)));
    let cases = modes.flat_map(|(mode, n)| [F32, F16].map(|dtype| (mode, n, dtype)));
    let positions = || ints([9], (0..).map(|i| i * 3));
    let row = Row::new("rope", "ROPE").all(cases, |row, (mode, n, dtype)| {
        row.case([of(dtype, [64, 4, 9]), positions()], move |c, t| c.rope(t[0], t[1], n, mode)).must()
    });
    row.in_place("rope_inplace", |c, t| c.rope_inplace(t[0], t[1], 2, RopeMode::NeoX)).learns()
}

fn extended(name: &'static str, op: &'static str, back: bool) -> Row {
    let modes = [RopeMode::Normal, RopeMode::NeoX, RopeMode::MRope, RopeMode::IMRope];
    let cases =
        modes.into_iter().flat_map(|m| [F32, F16].into_iter().flat_map(move |d| [false, true].map(|f| (m, d, f))));
    Row::new(name, op).all(cases, |row, (m, dtype, factors)| {
        row.case(mode(m, dtype).0, move |c, t| {
            let how = mode(m, dtype).1.with_freq_factors(factors.then_some(t[2]));
            if back { c.rope_ext_back(t[0], t[1], how) } else { c.rope_ext(t[0], t[1], how) }
        })
        .laid(&[Layout::Plain, Layout::Gaps])
    })
}

pub(super) fn rows() -> Vec<Row> {
    let yarn = [f32([64, 4, 9]), ints([9], (0..).map(|i| i * 30)), f32([32]).within(0.1, 2.1).still()];
    let ext = extended("rope_ext", "ROPE", false)
        .case(yarn, |c, t| {
            let how = RopeOptions::new(64, RopeMode::NeoX)
                .with_n_ctx_orig(512)
                .with_freq_scale(0.25)
                .with_ext_factor(1.0)
                .with_attn_factor(1.1)
                .with_freq_factors(t[2]);
            c.rope_ext(t[0], t[1], how)
        })
        .must()
        .all([(RopeMode::MRope, [8, 12, 12, 0]), (RopeMode::Vision, [20, 12, 0, 0])], |row, (mode, sections)| {
            row.case([f32([64, 4, 9]), ints([36], 0..)], move |c, t| {
                c.rope_ext(t[0], t[1], RopeOptions::new(32, mode).with_sections(sections))
            })
        })
        .in_place("rope_ext_inplace", |c, t| c.rope_ext_inplace(t[0], t[1], RopeOptions::new(2, RopeMode::NeoX)));
    vec![simple(), ext, extended("rope_ext_back", "ROPE_BACK", true).no_meta()]
}
