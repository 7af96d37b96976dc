//! Constants, sequences, embeddings of time steps, and masks.

use ggml::Result;
use ggml::ops::TriType;
use ggml::prelude::*;

#[cfg(ggml_0_28)]
use super::I32;
use super::case::{Case, Operand, f32, input, sized};
use super::each::{Each, Param};
use super::row::{Refused, Row};
use super::{F16, F32, PLAIN, ROWS};
use crate::array::Array;

fn constants() -> Vec<Row> {
    let fill = Each {
        params: &[Param { usual: 0.75, from: -2.0, to: 2.0 }],
        in_place: Some(("fill_inplace", |c, t, p| c.fill_inplace(t[0], p[0]))),
        types: &[F32, F16],
        layouts: PLAIN,
        error: 0.0,
        ..Each::new(|c, t, p| c.fill(t[0], p[0]), |_, p| p[0])
    };
    let mut fill = fill.row("fill", "FILL").no_meta();
    // Its builder already refuses other floats.
    fill.refused.retain(|(how, _)| *how == Refused::DType);
    let fill = fill.refuses(Refused::DType, |c| c.fill(input(c, DType::BF16, [4]), 1.0));
    vec![
        fill,
        Row::new("arange", "ARANGE")
            .with(sequence(1.0, 700.0, 0.5))
            .drawn(|s| {
                let (start, step) = (s.float(-4.0, 4.0), s.float(0.1, 2.0));
                sequence(start, start + s.float(0.1, 20.0), step)
            })
            .no_meta(),
        Row::new("timestep_embedding", "TIMESTEP_EMBEDDING")
            .all([(7, 32, 1000), (5, 31, 10_000)], |row, (n, dim, period)| {
                row.with(embedding(f32([n]).within(0.0, 20.0), dim, period)).must()
            })
            .drawn(|s| embedding(sized(F32, [s.dim(), 1, 1, 1]), s.int(1, 40), s.int(1, 10000)))
            .no_meta(),
    ]
}

fn sequence(start: f32, stop: f32, step: f32) -> Case {
    // The length is computed in 32 bits.
    let n = ((stop - start) / step).ceil().clamp(0.0, 1e6) as usize;
    Case::new([], move |c, _| c.arange(start, stop, step))
        .with((start, stop, step))
        .is(move |_| Array::of([n, 1, 1, 1], |[i, ..]| f64::from(start) + i as f64 * f64::from(step)))
        .near(1e-6)
        .spreads(|_| 1e-4)
}

/// Frequency `j` of `half` is `period` to the power of `-j / half`.
fn embedding(steps: Operand, dim: i32, period: i32) -> Case {
    let reference = move |x: &[Array]| {
        let half = dim as usize / 2;
        Array::of([dim as usize, x[0].ne[0], 1, 1], |[i, row, ..]| {
            if i == 2 * half {
                return 0.0;
            }
            let angle = x[0].data[row] * f64::from(period).powf(-((i % half) as f64) / half as f64);
            if i < half { angle.cos() } else { angle.sin() }
        })
    };
    let case = Case::new([steps], move |c, t| c.timestep_embedding(t[0], dim, period)).with((dim, period));
    case.is(reference).off(5e-5).spreads(|k| k[0].error + 1e-5 + 5e-6 * k[0].largest())
}

type Mask = for<'c> fn(&'c Context, Tensor<'c>, i32) -> Result<Tensor<'c>>;

/// What is hidden lies above the diagonal, moved by `past`.
fn hide(x: Operand, [mask, in_place]: [Mask; 2], past: i32, hidden: f64) -> Case {
    Case::new([x], move |c, t| mask(c, t[0], past))
        .with(past)
        .is(move |x| {
            Array::of(x[0].ne, |i| if i[0] as i64 > i[1] as i64 + i64::from(past) { hidden } else { x[0].at(i) })
        })
        .in_place(move |c, t| in_place(c, t[0], past))
        .laid(PLAIN)
        .near(1e-6)
        .moves()
}

fn future(name: &'static str, op: &'static str, masks: [Mask; 2], hidden: f64) -> Row {
    let mask = masks[0];
    let row = Row::new(name, op)
        .case([f32([9, 7, 3])], move |c, t| {
            let y = mask(c, t[0], 2)?;
            // Infinity tells devices apart nowhere.
            if hidden == 0.0 { Ok(y) } else { c.clamp(y, -9.0, 9.0) }
        })
        .near(1e-6);
    // CUDA writes the least float instead of an infinity, and is not asked to.
    let row = if hidden == 0.0 || crate::device::rounding() > 0.0 { row } else { row.must() };
    let row =
        row.all([0, 2, 9], |row, past| row.with(hide(f32([6, 4, 2, 2]), masks, past, hidden).lone())).drawn(move |s| {
            let x = s.plain();
            hide(x, masks, s.int(0, 6), hidden)
        });
    row.refuses(Refused::Param, move |c| mask(c, input(c, F32, [6, 4]), -1))
        .refuses(Refused::Shape, move |c| mask(c, c.transpose(input(c, F32, [6, 4]))?, 0))
        .refuses(Refused::DType, move |c| mask(c, input(c, F16, [6, 4]), 0))
        .learns()
}

fn diagonal(x: Operand) -> Case {
    let reference = |x: &[Array]| {
        let [n, _, n2, n3] = x[0].ne;
        Array::of([n, n, n2, n3], |i| if i[0] == i[1] { x[0].at([i[0], 0, i[2], i[3]]) } else { 0.0 })
    };
    Case::new([x], |c, t| c.diag(t[0])).is(reference).laid(ROWS).near(1e-6).moves()
}

fn triangle(x: Operand, kind: TriType) -> Case {
    let kept = move |i: [usize; 4]| match kind {
        TriType::Lower => i[0] < i[1],
        TriType::LowerDiag => i[0] <= i[1],
        TriType::Upper => i[0] > i[1],
        _ => i[0] >= i[1],
    };
    let reference = move |x: &[Array]| Array::of(x[0].ne, |i| if kept(i) { x[0].at(i) } else { 0.0 });
    Case::new([x], move |c, t| c.tri(t[0], kind)).with(kind).is(reference).laid(PLAIN).near(1e-6).moves()
}

fn masks() -> Vec<Row> {
    let kinds = [TriType::Lower, TriType::LowerDiag, TriType::Upper, TriType::UpperDiag];
    vec![
        future(
            "diag_mask_inf",
            "DIAG_MASK_INF",
            [Context::diag_mask_inf, Context::diag_mask_inf_inplace],
            f64::NEG_INFINITY,
        )
        .in_place("diag_mask_inf_inplace", |c, t| c.diag_mask_inf_inplace(t[0], 0)),
        future("diag_mask_zero", "DIAG_MASK_ZERO", [Context::diag_mask_zero, Context::diag_mask_zero_inplace], 0.0)
            .no_vulkan()
            .no_meta()
            .in_place("diag_mask_zero_inplace", |c, t| c.diag_mask_zero_inplace(t[0], 0)),
        Row::new("diag", "DIAG")
            .with(diagonal(f32([9, 1, 3])))
            .drawn(|s| diagonal(sized(F32, [s.dim(), 1, s.size(1, 2), 1])))
            .refuses(Refused::Shape, |c| c.diag(input(c, F32, [4, 2])))
            .refuses(Refused::DType, |c| c.diag(input(c, F16, [4])))
            .refuses(Refused::Shape, |c| c.diag(input(c, F32, [1 << 40])))
            .refuses(Refused::Shape, |c| {
                let column = c.view(input(c, F32, [2, 4]), [1, 4], [8, 32, 32], 0)?;
                c.diag(c.transpose(column)?)
            })
            .no_meta(),
        Row::new("tri", "TRI")
            .all(kinds, |row, kind| row.with(triangle(f32([9, 9, 3]), kind)))
            .drawn(move |s| {
                let n = s.dim();
                triangle(sized(F32, [n, n, s.size(1, 2), 1]), s.one(&kinds))
            })
            .refuses(Refused::Shape, |c| c.tri(input(c, F32, [4, 3]), TriType::Lower))
            .refuses(Refused::Shape, |c| c.tri(c.transpose(input(c, F32, [4, 4]))?, TriType::Lower))
            .refuses(Refused::DType, |c| c.tri(input(c, F16, [4, 4]), TriType::Upper))
            .no_meta(),
    ]
}

/// Operands of which scores, blocks and more picks, if any, follow the first two.
#[cfg(ggml_0_28)]
fn picking(operands: Vec<Operand>, [score, blocks, extra]: [bool; 3]) -> Case {
    let case = Case::new(operands, move |c, t| {
        let mut rest = t[2..].iter().copied();
        let how = ops::TopKMaskOptions::new().with_score(if score { rest.next() } else { None });
        let how = how.with_blocks(if blocks { rest.next() } else { None });
        c.top_k_mask(t[0], t[1], how.with_extra(if extra { rest.next() } else { None }))
    });
    case.with([score, blocks, extra]).near(0.0)
}

#[cfg(ggml_0_28)]
fn top_k_mask() -> Row {
    Row::new("top_k_mask", "TOP_K_MASK")
        .with(picking(vec![f32([67, 5, 3]).within(-1.0, 1.0), super::case::ints([4, 5, 3], 0..60)], [false; 3]))
        .drawn(|s| {
            let (n, k, n1, n2, picks) = (s.dim(), s.size(1, 4), s.size(1, 3), s.size(1, 2), s.dim());
            let mask = sized(s.one(&[F32, F16]), [n, if s.bool() { n1 } else { 1 }, n2, 1]);
            // Indices out of range are passed over.
            let of_ints = |ne| sized(I32, ne);
            let more = [sized(F32, [picks, n1, n2, 1]), of_ints([2, picks, 1, 1]), of_ints([3, n1, n2, 1])];
            let taken = [(); 3].map(|()| s.bool());
            let more = more.into_iter().zip(taken).filter_map(|(o, taken)| taken.then_some(o));
            picking([mask, of_ints([k, n1, n2, 1])].into_iter().chain(more).collect(), taken)
        })
        .no_vulkan()
        .no_meta()
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = constants();
    rows.extend(masks());
    #[cfg(ggml_0_28)]
    rows.push(top_k_mask());
    rows
}
