//! Recurrent operations. Their references are in `tests/ops/recurrent/`.

use ggml::ops::{GatedDeltaNetOperands, GatedLinearAttnOperands, RwkvWkv6Operands, RwkvWkv7Operands, SsmScanOperands};

use super::case::{Operand, f32, ints};
use super::row::Row;

fn small<const N: usize>(ne: [usize; N]) -> Operand {
    f32(ne).within(-0.5, 0.5)
}

/// Heads of 64 elements over four tokens, as many operands of them as there are, and the state.
fn heads(n: usize, reach: f64) -> Vec<Operand> {
    let mut operands = vec![f32([64, 2, 4]).within(-reach, reach); n];
    operands.push(small([64 * 64 * 2, 2]));
    operands
}

fn scans() -> Vec<Row> {
    vec![
        Row::new("ssm_conv", "SSM_CONV")
            .case([f32([4 - 1 + 9, 64, 2]), f32([4, 64])], |c, t| c.ssm_conv(t[0], t[1]))
            .no_meta(),
        Row::new("ssm_scan", "SSM_SCAN")
            .case(
                [
                    f32([128, 16, 2, 2]),
                    f32([16, 2, 3, 2]),
                    f32([2, 3, 2]).within(-1.0, 1.0),
                    f32([1, 2]).within(-1.0, -0.1),
                    f32([128, 1, 3, 2]),
                    f32([128, 1, 3, 2]),
                    ints([2], [1, 0]),
                ],
                |c, t| {
                    let [s, x, dt, a, b, c_of, ids] = [t[0], t[1], t[2], t[3], t[4], t[5], t[6]];
                    c.ssm_scan(SsmScanOperands { s, x, dt, a, b, c: c_of, ids }, 1)
                },
            )
            .near(1e-2)
            .no_meta(),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = scans();
    let gated = || f32([1, 2, 3, 2]);
    let of_heads = || small([32, 2, 3, 2]);
    rows.extend([
        Row::new("rwkv_wkv6", "RWKV_WKV6")
            .case(
                {
                    let mut operands = heads(4, 0.5);
                    operands.push(f32([64, 2]));
                    operands
                },
                |c, t| c.rwkv_wkv6(RwkvWkv6Operands { k: t[0], v: t[1], r: t[2], td: t[3], state: t[4], tf: t[5] }),
            )
            .no_meta(),
        Row::new("rwkv_wkv7", "RWKV_WKV7")
            .case(heads(6, 0.3), |c, t| {
                let [r, w, k, v, a, b, state] = [t[0], t[1], t[2], t[3], t[4], t[5], t[6]];
                c.rwkv_wkv7(RwkvWkv7Operands { r, w, k, v, a, b, state })
            })
            .no_meta(),
        Row::new("gated_linear_attn", "GATED_LINEAR_ATTN")
            .case(heads(4, 0.5), |c, t| {
                c.gated_linear_attn(GatedLinearAttnOperands { k: t[0], v: t[1], q: t[2], g: t[3], state: t[4] }, 0.7)
            })
            .no_meta(),
        Row::new("gated_delta_net", "GATED_DELTA_NET")
            .case(
                [
                    of_heads(),
                    of_heads(),
                    of_heads(),
                    gated().within(-1.0, -0.1),
                    gated().within(0.1, 0.9),
                    small([32, 32, 2, 2]),
                ],
                |c, t| {
                    let [q, k, v, g, beta, state] = [t[0], t[1], t[2], t[3], t[4], t[5]];
                    c.gated_delta_net(GatedDeltaNetOperands { q, k, v, g, beta, state }, 1)
                },
            )
            .no_meta(),
    ]);
    rows
}
