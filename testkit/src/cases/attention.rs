//! What belongs to attention: the indexer of sparse attention, relative positions, hyper-connections.

use ggml::prelude::*;

use super::case::{Case, Operand, f32, hiding, of, sized};
use super::draw::Source;
use super::row::Row;
use super::{BF16, F16, F32, PLAIN, ROWS};
use crate::array::Array;

fn indexer(operands: [Operand; 4]) -> Case {
    let rounded = if operands[1].dtype == F32 { 1e-5 } else { 2e-2 };
    let reference = |x: &[Array]| {
        let ([size, heads, n_batch, batches], [_, _, n_kv, _]) = (x[0].ne, x[1].ne);
        Array::of([n_kv, n_batch, 1, batches], |[key, query, _, batch]| {
            let score = |head| {
                let product = (0..size).map(|d| x[0].at([d, head, query, batch]) * x[1].at([d, 0, key, batch]));
                x[2].at([head, query, 0, batch]) * product.sum::<f64>().max(0.0)
            };
            (0..heads).map(score).sum::<f64>() + x[3].at([key, query, 0, batch % x[3].ne[3]])
        })
    };
    let case = Case::new(operands, |c, t| c.lightning_indexer(t[0], t[1], t[2], t[3]));
    let case = case.is(reference).laid(ROWS).makes(F32).off(1e-5).near(1e-2);
    case.spreads(move |k| {
        let [size, heads, ..] = k[0].values.ne;
        let [q, w, keys] = [0, 2, 1].map(|i| k[i].largest() + k[i].error);
        let off = k[0].error * keys + q * k[1].error + rounded * q * keys;
        let terms = (size * heads) as f64;
        terms * (w * off + k[2].error * q * keys + 1e-6 * q * keys * w) + k[3].error + 1e-6 * k[3].largest()
    })
}

fn lightning_indexer() -> Row {
    let sizes = [(32, 1, 1, 1, 1, 1), (64, 5, 3, 7, 1, 1), (32, 2, 4, 9, 4, 2), (96, 3, 2, 5, 2, 2)];
    let types = [F32, F16, BF16, DType::Q8_0];
    let row = Row::new("lightning_indexer", "LIGHTNING_INDEXER").with(indexer([
        f32([128, 4, 6]),
        of(F16, [128, 1, 20]),
        f32([4, 6]),
        of(F16, [20, 6]),
    ]));
    let row = row.all(sizes.into_iter().flat_map(|size| types.map(|t| (size, t))), |row, (size, of_keys)| {
        let (size, heads, n_batch, n_kv, batches, masks) = size;
        let all = [
            f32([size, heads, n_batch, batches]),
            of(of_keys, [size, 1, n_kv, batches]),
            f32([heads, n_batch, 1, batches]),
        ];
        let [q, keys, weights] = all.map(|o| o.within(-1.0, 1.0));
        row.with(indexer([q, keys, weights, hiding([n_kv, n_batch, 1, masks])]).lone())
    });
    let drawn = |s: &mut dyn Source| {
        let (size, heads, batch, n_kv, n3) = (s.dim(), s.size(1, 3), s.dim(), s.dim(), s.size(1, 2));
        let keys = s.dtype(&[F32, F16]);
        let m3 = if s.bool() { n3 } else { 1 };
        indexer([
            sized(F32, [size, heads, batch, n3]),
            sized(keys, [size, 1, n_kv, n3]),
            sized(F32, [heads, batch, 1, n3]),
            sized(F16, [n_kv, batch, 1, m3]),
        ])
    };
    row.drawn(drawn).no_meta()
}

/// The embedding of the distance of each query and key.
fn distances(x: Operand, queries: i32, keys: i32) -> Case {
    let reference = |x: &[Array]| {
        let n = x[0].ne[1].div_ceil(2);
        Array::of([x[0].ne[0], n, n, 1], |[i, key, query, _]| x[0].at([i, query + n - 1 - key, 0, 0]))
    };
    Case::new([x], move |c, t| c.get_rel_pos(t[0], queries, keys))
        .with((queries, keys))
        .is(reference)
        .laid(PLAIN)
        .moves()
}

/// Scores plus relative positions.
fn placed(operands: [Operand; 3]) -> Case {
    let reference = |x: &[Array]| {
        let [w, n1, ..] = x[1].ne;
        Array::of(x[0].ne, |[key, query, batch, i3]| {
            let position = |i| [i, query % n1, query / n1, batch];
            x[0].at([key, query, batch, i3]) + x[1].at(position(key % w)) + x[2].at(position(key / w))
        })
    };
    Case::new(operands, |c, t| c.add_rel_pos(t[0], t[1], t[2]))
        .is(reference)
        .in_place(|c, t| c.add_rel_pos_inplace(t[0], t[1], t[2]))
        .laid(PLAIN)
        .off(1e-6)
        .sums()
}

fn positions() -> [Row; 2] {
    let get = Row::new("get_rel_pos", "GET_REL_POS")
        .with(distances(of(F16, [8, 9]), 5, 5))
        .all([(1, 1), (5, 1), (3, 4), (16, 7)], |row, (size, n)| {
            row.with(distances(of(F16, [size, 2 * n - 1]), n as i32, n as i32))
        });
    let get = get.drawn(|s| {
        let (size, n) = (s.dim(), s.int(1, 6));
        let other = if s.chance(24) { s.int(1, 6) } else { n };
        distances(sized(F16, [size, 2 * i64::from(n) - 1, 1, 1]), n, other)
    });
    let add = Row::new("add_rel_pos", "ADD_REL_POS")
        .all([(1, 1, 1, 1), (3, 2, 5, 1), (4, 4, 4, 5)], |row, (w, n1, n2, n)| {
            row.with(placed([f32([w * w, n1 * n2, n]), f32([w, n1, n2, n]), f32([w, n1, n2, n])]))
        });
    let add = add.in_place("add_rel_pos_inplace", |c, t| c.add_rel_pos_inplace(t[0], t[1], t[2])).drawn(|s| {
        let [w, n1, n2, n3] = [(); 4].map(|()| s.size(1, 3));
        let positions = || sized(F32, [w, n1, n2, n3]);
        placed([s.target(F32, [w * w, n1 * n2, n3, 1]), positions().still(), positions()])
    });
    [get.no_vulkan().no_meta(), add.no_vulkan().no_meta()]
}

/// Divides a matrix `[to, from]` of non-negative numbers by its sums over one dimension.
fn divided(m: &Array, over_to: bool, eps: f64) -> Array {
    Array::of(m.ne, |[to, from, ..]| {
        let sum: f64 = (0..4).map(|i| if over_to { m.at([i, from, 0, 0]) } else { m.at([to, i, 0, 0]) }).sum();
        m.at([to, from, 0, 0]) / (sum + eps)
    })
}

/// The mixing matrix of one token.
fn mixing(mixes: &[f64], scale: f64, base: &[f64], eps: f64, rounds: i32) -> Array {
    let logits = Array::of([4, 4, 1, 1], |[to, from, ..]| mixes[8 + to + 4 * from] * scale + base[8 + to + 4 * from]);
    let shares = divided(&logits.map(f64::exp), true, 0.0).map(|x| x + eps);
    (1..rounds).fold(divided(&shares, false, eps), |m, _| divided(&divided(&m, true, eps), false, eps))
}

fn mixed(operands: [Operand; 3], eps: f32, rounds: i32) -> Case {
    let reference = move |x: &[Array]| {
        let mixes = x[0].data.chunks(24);
        let all: Vec<_> = mixes.map(|m| mixing(m, x[1].data[2], &x[2].data, eps.into(), rounds)).collect();
        Array::of([4, 4, x[0].ne[1], 1], |[to, from, token, _]| all[token].at([to, from, 0, 0]))
    };
    let case = Case::new(operands, move |c, t| c.dsv4_hc_comb(t[0], t[1], t[2], eps, rounds));
    case.with((eps, rounds)).is(reference).off(1e-5)
}

/// Streams joined, each with a weight for each token.
fn joined(operands: [Operand; 2]) -> Case {
    let reference = |x: &[Array]| {
        let [width, streams, tokens, _] = x[0].ne;
        Array::of([width, tokens, 1, 1], |[i, t, ..]| {
            (0..streams).map(|h| x[0].at([i, h, t, 0]) * x[1].at([h, t, 0, 0])).sum()
        })
    };
    Case::new(operands, |c, t| c.dsv4_hc_pre(t[0], t[1])).is(reference).off(1e-5).sums()
}

/// Streams joined, each with a gate for each element.
fn gated(operands: [Operand; 2], scale: f32) -> Case {
    let reference = move |x: &[Array]| {
        let [width, streams, tokens, _] = x[0].ne;
        Array::of([width, tokens, 1, 1], |[i, t, ..]| {
            let gate = |h| f64::from(scale) / (1.0 + (-x[1].at([i, h, t, 0])).exp());
            (0..streams).map(|h| x[0].at([i, h, t, 0]) * gate(h)).sum()
        })
    };
    Case::new(operands, move |c, t| c.dsv4_hc_pre_gated(t[0], t[1], scale)).with(scale).is(reference).off(1e-5)
}

/// A result fed to streams, which are mixed by a matrix if there is one.
fn fed(operands: impl IntoIterator<Item = Operand>) -> Case {
    let reference = |x: &[Array]| {
        let [_, streams, ..] = x[1].ne;
        Array::of(x[1].ne, |[i, to, t, _]| {
            let mix = |from| x.get(3).map_or(f64::from(to == from), |comb| comb.at([to, from, t, 0]));
            let mixed: f64 = (0..streams).map(|from| x[1].at([i, from, t, 0]) * mix(from)).sum();
            x[0].at([i, t, 0, 0]) * x[2].at([to, t, 0, 0]) + mixed
        })
    };
    Case::new(operands, |c, t| c.dsv4_hc_post(t[0], t[1], t[2], t.get(3).copied())).is(reference).off(1e-5).sums()
}

fn hyper() -> [Row; 4] {
    let comb = Row::new("dsv4_hc_comb", "DSV4_HC_COMB").with(mixed([f32([24, 5]), f32([3]), f32([24])], 1e-6, 4)).all(
        [(1, 1), (5, 2), (7, 20)],
        |row, (tokens, rounds)| {
            row.with(mixed([f32([24, tokens]), f32([4]).within(0.5, 1.5), f32([24]).within(-1.0, 1.0)], 0.01, rounds))
        },
    );
    let comb = comb.drawn(|s| {
        let n = s.dim();
        let operands = [sized(F32, [24, n, 1, 1]), f32([3]), f32([24])];
        let (eps, rounds) = (s.float(1e-6, 0.1), s.rng().i32(-1..5));
        let case = mixed(operands, eps, rounds);
        // Sums of larger numbers are infinite in 32 bits.
        if (0.0..1.0).contains(&eps) { case } else { Case { reference: None, ..case } }
    });
    let sizes = [(32, 4, 5), (1, 1, 1), (5, 4, 3), (33, 3, 2)];
    let pre = Row::new("dsv4_hc_pre", "DSV4_HC_PRE").all(sizes, |row, (width, streams, tokens)| {
        row.with(joined([f32([width, streams, tokens]), f32([streams, tokens])]))
    });
    let pre = pre.drawn(|s| {
        let (width, streams, n) = (s.dim(), s.size(1, 5), s.dim());
        joined([sized(F32, [width, streams, n, 1]), sized(F32, [streams, n, 1, 1])])
    });
    let gates = Row::new("dsv4_hc_pre_gated", "").all(sizes, |row, (width, streams, tokens)| {
        row.with(gated([f32([width, streams, tokens]), f32([width, streams, tokens])], 0.5))
    });
    let gates = gates.drawn(|s| {
        let (width, streams, n) = (s.dim(), s.size(1, 5), s.dim());
        gated([sized(F32, [width, streams, n, 1]), sized(F32, [width, streams, n, 1])], s.float(0.1, 2.0))
    });
    let post = Row::new("dsv4_hc_post", "DSV4_HC_POST").all(sizes, |row, (width, streams, tokens)| {
        let all = [f32([width, tokens]), f32([width, streams, tokens]), f32([streams, tokens])];
        row.with(fed(all.clone().into_iter().chain([f32([streams, streams, tokens])]))).with(fed(all))
    });
    let post = post.drawn(|s| {
        let (width, streams, n) = (s.dim(), s.size(1, 5), s.dim());
        let all = [sized(F32, [width, n, 1, 1]), sized(F32, [width, streams, n, 1]), sized(F32, [streams, n, 1, 1])];
        let comb = s.bool().then(|| sized(F32, [streams, streams, n, 1]));
        fed(all.into_iter().chain(comb))
    });
    [comb.no_meta(), pre.no_meta(), gates.no_meta(), post.no_meta()]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![super::flash::row(), lightning_indexer()];
    rows.extend(positions());
    rows.extend(hyper());
    rows
}
