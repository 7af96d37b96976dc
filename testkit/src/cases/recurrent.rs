//! Recurrent operations. Their references are in `tests/ops/recurrent/`; random programs compare two computations.

use ggml::ops::{GatedDeltaNetOperands, GatedLinearAttnOperands, RwkvWkv6Operands, RwkvWkv7Operands, SsmScanOperands};

use super::F32;
use super::case::{Case, Operand, below, f32, ints, sized};
use super::draw::Source;
use super::row::Row;

fn small<const N: usize>(ne: [usize; N]) -> Operand {
    f32(ne).within(-0.5, 0.5)
}

fn fresh(ne: [i64; 4]) -> Operand {
    sized(F32, ne).still()
}

/// Heads of 64 elements over four tokens, as many operands of them as there are, and the state.
fn heads(n: usize, reach: f64) -> Vec<Operand> {
    let mut operands = vec![f32([64, 2, 4]).within(-reach, reach); n];
    operands.push(small([64 * 64 * 2, 2]));
    operands
}

/// The same with random shapes, and the size and number of heads.
fn drawn_heads(s: &mut dyn Source, n: usize) -> (Vec<Operand>, [i64; 2]) {
    let small = s.one(&[1, 2, 4, 8, 16]);
    let (size, sequences) = (if n == 6 && !s.chance(4) { 64 } else { small }, s.size(1, 2));
    let heads = if size == 64 { 1 } else { s.size(1, 2) };
    let tokens = sequences * s.size(1, 2);
    let operand = |s: &mut dyn Source| {
        let x = sized(F32, [size, heads, tokens, 1]);
        if s.chance(8) { x } else { x.still() }
    };
    let mut operands: Vec<_> = (0..n).map(|_| operand(s)).collect();
    operands.push(fresh([size * size * heads, if s.chance(24) { tokens } else { sequences }, 1, 1]));
    (operands, [size, heads])
}

fn wkv6(operands: Vec<Operand>) -> Case {
    Case::new(operands, |c, t| {
        c.rwkv_wkv6(RwkvWkv6Operands { k: t[0], v: t[1], r: t[2], td: t[3], state: t[4], tf: t[5] })
    })
}

fn wkv7(operands: Vec<Operand>) -> Case {
    Case::new(operands, |c, t| {
        let [r, w, k, v, a, b, state] = [t[0], t[1], t[2], t[3], t[4], t[5], t[6]];
        c.rwkv_wkv7(RwkvWkv7Operands { r, w, k, v, a, b, state })
    })
}

fn linear(operands: Vec<Operand>, scale: f32) -> Case {
    let case = Case::new(operands, move |c, t| {
        c.gated_linear_attn(GatedLinearAttnOperands { k: t[0], v: t[1], q: t[2], g: t[3], state: t[4] }, scale)
    });
    case.with(scale)
}

fn delta(operands: [Operand; 6], snapshots: i64) -> Case {
    let case = Case::new(operands, move |c, t| {
        let [q, k, v, g, beta, state] = [t[0], t[1], t[2], t[3], t[4], t[5]];
        c.gated_delta_net(GatedDeltaNetOperands { q, k, v, g, beta, state }, snapshots)
    });
    case.with(snapshots)
}

fn conv(x: Operand, kernel: Operand) -> Case {
    Case::new([x, kernel], |c, t| c.ssm_conv(t[0], t[1]))
}

fn scan(operands: [Operand; 7], snapshots: i64) -> Case {
    let case = Case::new(operands, move |c, t| {
        let [s, x, dt, a, b, c_of, ids] = [t[0], t[1], t[2], t[3], t[4], t[5], t[6]];
        c.ssm_scan(SsmScanOperands { s, x, dt, a, b, c: c_of, ids }, snapshots)
    });
    case.with(snapshots).near(1e-2)
}

fn drawn_delta(s: &mut dyn Source) -> Case {
    let (size, qk, n, sequences) = (s.size(1, 8), s.size(1, 2), s.size(1, 3), s.size(1, 2));
    let heads = qk * s.size(1, 2);
    let per = if s.bool() { size } else { 1 };
    let operands = [
        sized(F32, [size, qk, n, sequences]),
        fresh([size, qk, n, sequences]),
        fresh([size, heads, n, sequences]),
        fresh([per, heads, n, sequences]),
        fresh([1, heads, n, sequences]),
        fresh([size, size, heads, sequences]),
    ];
    delta(operands, s.long(1, n))
}

fn drawn_scan(s: &mut dyn Source) -> Case {
    let (d, size, groups, n, sequences) = (s.size(1, 8), s.size(1, 4), s.size(1, 2), s.size(1, 3), s.size(1, 2));
    let (heads, states) = (groups * s.size(1, 2), sequences + s.size(0, 1));
    let rates = if s.bool() { 1 } else { d };
    let operands = [
        fresh([d, size, heads, states]),
        fresh([size, heads, n, sequences]),
        fresh([heads, n, sequences, 1]),
        fresh([rates, heads, 1, 1]),
        fresh([d, groups, n, sequences]),
        sized(F32, [d, groups, n, sequences]),
        below(super::I32, [sequences, 1, 1, 1], states),
    ];
    scan(operands, if rates == 1 { s.long(1, n) } else { s.long(1, 1) })
}

fn scans() -> [Row; 2] {
    let states = [
        f32([128, 16, 2, 2]),
        f32([16, 2, 3, 2]),
        f32([2, 3, 2]).within(-1.0, 1.0),
        f32([1, 2]).within(-1.0, -0.1),
        f32([128, 1, 3, 2]),
        f32([128, 1, 3, 2]),
        ints([2], [1, 0]),
    ];
    [
        Row::new("ssm_conv", "SSM_CONV").with(conv(f32([4 - 1 + 9, 64, 2]), f32([4, 64]))).drawn(|s| {
            let (width, n, channels) = (s.size(1, 4), s.size(1, 4), s.dim());
            conv(sized(F32, [width - 1 + n, channels, s.size(1, 2), 1]), sized(F32, [width, channels, 1, 1]))
        }),
        Row::new("ssm_scan", "SSM_SCAN").with(scan(states, 1)).drawn(drawn_scan),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let gated = || f32([1, 2, 3, 2]);
    let of_heads = || small([32, 2, 3, 2]);
    let nets = [of_heads(), of_heads(), of_heads(), gated().within(-1.0, -0.1), gated().within(0.1, 0.9)];
    let [q, k, v, g, beta] = nets;
    let mut receptive = heads(4, 0.5);
    receptive.push(f32([64, 2]));
    let others = [
        Row::new("rwkv_wkv6", "RWKV_WKV6").with(wkv6(receptive)).drawn(|s| {
            let (mut operands, [size, heads]) = drawn_heads(s, 4);
            operands.push(fresh([size, heads, 1, 1]));
            wkv6(operands)
        }),
        Row::new("rwkv_wkv7", "RWKV_WKV7").with(wkv7(heads(6, 0.3))).drawn(|s| wkv7(drawn_heads(s, 6).0)),
        Row::new("gated_linear_attn", "GATED_LINEAR_ATTN")
            .with(linear(heads(4, 0.5), 0.7))
            .drawn(|s| linear(drawn_heads(s, 4).0, s.float(0.1, 1.0))),
        Row::new("gated_delta_net", "GATED_DELTA_NET")
            .with(delta([q, k, v, g, beta, small([32, 32, 2, 2])], 1))
            .drawn(drawn_delta),
    ];
    scans().into_iter().chain(others).map(Row::no_meta).collect()
}
