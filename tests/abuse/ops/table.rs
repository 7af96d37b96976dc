//! Operations that are drawn as their rows say (`testkit/src/cases`), if no family here has them.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use ggml::Result;
use ggml::prelude::*;
use testkit::array::Array;
use testkit::cases::case::{self, Case, Operand, sized};
use testkit::cases::draw::{Drawn, Source};
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
        if let Some(drawn) = &row.drawn {
            all.push(Op { name: row.name, run: Run::Drawn(drawn, false) });
            if let Some((name, _)) = row.in_place {
                all.push(Op { name, run: Run::Drawn(drawn, true) });
            }
        } else if let Some(each) = &row.each {
            all.push(Op { name: row.name, run: Run::Each(each) });
            if let Some((name, make)) = each.in_place {
                all.push(Op { name, run: Run::InPlace(each, make) });
            }
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

/// What a random program draws cases with.
struct Drawing<'p, 'd, 'c> {
    p: &'p mut Draw<'d, 'c>,
    in_place: bool,
    /// The operands that it has already.
    there: Vec<Known<'c>>,
}

impl<'c> Drawing<'_, '_, 'c> {
    fn take(&mut self, known: Known<'c>) -> Operand {
        let mut operand = sized(known.dtype(), known.ne());
        operand.there = Some(self.there.len());
        self.there.push(known);
        operand
    }
}

impl Source for Drawing<'_, '_, '_> {
    fn rng(&mut self) -> &mut fastrand::Rng {
        self.p.rng
    }

    fn dim(&mut self) -> i64 {
        self.p.dim()
    }

    fn long(&mut self, from: i64, to: i64) -> i64 {
        self.p.long(from, to)
    }

    fn int(&mut self, from: i32, to: i32) -> i32 {
        self.p.int(from, to)
    }

    fn float(&mut self, from: f32, to: f32) -> f32 {
        self.p.float(from, to)
    }

    fn dtype(&mut self, of: &[DType]) -> DType {
        self.p.dtype(of)
    }

    fn pick(&mut self, types: &[DType], holds: &dyn Fn([i64; 4]) -> bool) -> Operand {
        let known = if self.in_place {
            self.p.writable()
        } else {
            let dtype = self.p.one(types);
            self.p.pick(|k| k.dtype() == dtype && holds(k.ne()))
        };
        self.take(known)
    }

    fn any(&mut self, _: &[DType]) -> Operand {
        let known = self.p.any();
        self.take(known)
    }

    fn target(&mut self, dtype: DType, ne: [i64; 4]) -> Operand {
        let made = if self.in_place { self.p.node(dtype, ne).ok() } else { None };
        made.map_or_else(|| sized(dtype, ne).still(), |known| self.take(known))
    }

    fn plain(&mut self) -> Operand {
        if self.in_place {
            return self.pick(&[], &|_| true);
        }
        let known = self.p.plain().unwrap_or_else(|_| self.p.f32());
        self.take(known)
    }
}

/// A case as its row draws it.
pub(super) fn drawn<'c>(p: &mut Draw<'_, 'c>, name: &str, drawn: &Drawn, in_place: bool) -> Result<Made<'c>> {
    let mut source = Drawing { p, in_place, there: Vec::new() };
    let case = drawn(&mut source);
    let there = source.there;
    let mut operands = Vec::new();
    for o in &case.operands {
        operands.push(match (o.there, o.below()) {
            (Some(i), _) => there[i].clone(),
            (None, Some(n)) => p.indices(o.dtype, o.shape(), n)?,
            (None, None) if o.is_still() => p.fresh(o.dtype, o.shape())?,
            (None, None) => p.operand(o.dtype, o.shape())?,
        });
    }
    let build = if in_place { case.in_place.as_ref().unwrap() } else { &case.build };
    let tensors: Vec<_> = operands.iter().map(|k| k.t).collect();
    p.trace(name, &(&tensors, case.name()));
    let t = build(p.ctx, &tensors)?;
    if t.elements() > LARGEST {
        return Ok(p.only(t));
    }
    let values = values(&case, &operands);
    if in_place {
        return Ok(p.wrote(t, &operands[0], values));
    }
    Ok(p.made(t, values.and_then(|(v, e)| Model::new(&v, t.dtype(), e))))
}

/// What the case's reference says, if it is about these operands, and they are known well enough.
fn values(case: &Case, operands: &[Known<'_>]) -> Option<(Array, f64)> {
    case.reference.as_ref()?;
    let known = |(o, k): (&Operand, &Known<'_>)| {
        let m = k.model.as_ref().filter(|m| m.ne == o.ne && m.dtype == o.dtype)?;
        Some(case::Known { values: m.array(), error: m.error })
    };
    let known: Vec<_> = case.operands.iter().zip(operands).map(known).collect::<Option<_>>()?;
    case.expected(&known)
}
