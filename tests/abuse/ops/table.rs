//! Operations that are drawn as their rows say (`testkit/src/cases`), if no family here draws them better.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use ggml::Result;
use ggml::prelude::*;
use testkit::array::Array;
use testkit::cases::case::{Case, Operand};
use testkit::cases::each::{Each, Make, Second};
use testkit::cases::{Row, rows};

use super::{FAMILIES, Op, Run};
use crate::bench::{Known, LARGEST, Made};
use crate::draw::Draw;
use crate::model::Model;
use crate::results::{mapped, zipped};

/// The rows, for as long as the process lives.
pub(crate) fn table() -> &'static [Row] {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    ROWS.get_or_init(rows)
}

/// Operations of all rows that no family has.
pub(super) fn others() -> Vec<Op> {
    let own: BTreeSet<_> = FAMILIES.iter().flat_map(|family| family.iter()).map(|op| op.name).collect();
    let mut all = Vec::new();
    for row in table() {
        if let Some(each) = &row.each {
            all.push(Op { name: row.name, run: Run::Each(each) });
            if let Some((name, make)) = each.in_place {
                all.push(Op { name, run: Run::InPlace(each, make) });
            }
        } else if !row.cases.is_empty() {
            all.push(Op { name: row.name, run: Run::Row(row) });
        }
    }
    all.retain(|op| !own.contains(op.name));
    all
}

/// A builder's result, and whether it is too large for a model.
fn built<'c>(p: &Draw<'_, 'c>, name: &str, t: &[Tensor<'c>], params: &[f32], make: Make) -> Result<(Tensor<'c>, bool)> {
    p.trace(name, &(t, params));
    let y = make(p.ctx, t, params)?;
    Ok((y, y.elements() > LARGEST))
}

fn params(p: &mut Draw<'_, '_>, each: &Each) -> (Vec<f32>, Vec<f64>) {
    let all: Vec<f32> = each.params.iter().map(|param| p.float(param.from, param.to)).collect();
    let wide = all.iter().map(|&x| x.into()).collect();
    (all, wide)
}

/// A function of each element, with parameters of any value.
pub(super) fn each<'c>(p: &mut Draw<'_, 'c>, name: &str, each: &Each) -> Result<Made<'c>> {
    let a = p.real();
    let b = if each.second == Second::Same { Some(p.operand(a.dtype(), a.ne())?) } else { None };
    let (params, wide) = params(p, each);
    let operands: Vec<_> = [Some(a.t), b.as_ref().map(|b| b.t)].into_iter().flatten().collect();
    let (t, large) = built(p, name, &operands, &params, each.make)?;
    if large {
        return Ok(p.only(t));
    }
    let values = match &b {
        Some(b) => zipped(&a, b, each.error, |x, y| (each.f)(&[x, y], &wide)),
        None => mapped(&a, each.error, |x| (each.f)(&[x], &wide)),
    };
    Ok(p.made(t, values.and_then(|(v, e)| Model::new(&v, t.dtype(), e))))
}

/// The same in place.
pub(super) fn in_place<'c>(p: &mut Draw<'_, 'c>, name: &str, each: &Each, make: Make) -> Result<Made<'c>> {
    let a = p.writable();
    let (params, wide) = params(p, each);
    let (t, large) = built(p, name, &[a.t], &params, make)?;
    if large {
        return Ok(p.only(t));
    }
    Ok(p.wrote(t, &a, mapped(&a, each.error, |x| (each.f)(&[x], &wide))))
}

/// One of a row's cases: with its shapes, or, if all operands are alike, with that of something that is there.
pub(super) fn row<'c>(p: &mut Draw<'_, 'c>, row: &Row) -> Result<Made<'c>> {
    let case = &row.cases[p.rng.usize(..row.cases.len())];
    let alike = |o: &Operand| (o.ne, o.dtype) == (case.operands[0].ne, case.operands[0].dtype);
    let like =
        if case.operands.iter().all(alike) && p.rng.bool() { Some(p.of(&[case.operands[0].dtype])) } else { None };
    let mut operands = Vec::new();
    for (i, o) in case.operands.iter().enumerate() {
        operands.push(match (&like, o.below()) {
            (Some(a), _) if i == 0 => a.clone(),
            (Some(a), _) => p.operand(a.dtype(), a.ne())?,
            (None, Some(n)) => p.indices(o.dtype, o.ne.map(|n| n as i64), n)?,
            (None, None) => p.operand(o.dtype, o.ne.map(|n| n as i64))?,
        });
    }
    let tensors: Vec<_> = operands.iter().map(|k| k.t).collect();
    p.trace(row.name, &tensors);
    let t = (case.build)(p.ctx, &tensors)?;
    let model = if t.elements() > LARGEST { None } else { values(case, &operands) };
    Ok(p.made(t, model.and_then(|(v, e)| Model::new(&v, t.dtype(), e))))
}

/// What the case's reference says, if it is about these operands, and they are known exactly.
fn values(case: &Case, operands: &[Known<'_>]) -> Option<(Array, f64)> {
    let reference = case.reference.as_ref()?;
    let known = |(o, k): (&Operand, &Known<'_>)| {
        let m = k.model.as_ref().filter(|m| m.error == 0.0 && m.ne == o.ne && m.dtype == o.dtype)?;
        let array = m.array();
        let fits = |&x: &f64| o.below().is_none_or(|n| (0.0..n as f64).contains(&x));
        array.data.iter().all(fits).then_some(array)
    };
    let arrays: Vec<_> = case.operands.iter().zip(operands).map(known).collect::<Option<_>>()?;
    let want = reference(&arrays);
    let most = want.data.iter().fold(1.0_f64, |m, x| m.max(x.abs()));
    Some((want, case.tolerance(case.made()) * most))
}
