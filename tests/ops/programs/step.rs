//! The steps of programs: what is asked of ggml, and what the model makes of it.

use ggml::prelude::*;
use ggml::{Glu, Result, TriType};

use super::model::{Model, packed};
use crate::matmul::{outer, product};
use crate::reduce::cumulated;
use crate::support::Array;

/// One step; operands are numbers of earlier tensors, taken modulo their count.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Neg(usize),
    Relu(usize),
    LeakyRelu(usize),
    Scale(usize),
    Clamp(usize),
    Add(usize, usize),
    Mul(usize, usize),
    MulMat(usize, usize),
    OutProd(usize, usize),
    GluSplit(usize, usize),
    SumRows(usize),
    CumSum(usize),
    Tri(usize),
    DiagMask(usize, i32),
    SoftMax(usize),
    Repeat(usize, usize),
    Concat(usize, usize, usize),
    Cont(usize),
    Cast(usize, DType),
    Cpy(usize, usize),
    Reshape(usize, [i64; 4]),
    Permute(usize, [usize; 4]),
    Transpose(usize),
    View(usize, [i64; 4], [usize; 3], usize),
}

/// A tensor, and what it should hold.
pub(super) type Known<'c> = (Tensor<'c>, Model);

fn pick<'a, 'c>(known: &'a [Known<'c>], n: usize) -> &'a Known<'c> {
    &known[n % known.len()]
}

/// An element-wise function of one operand, which changes errors by at most `slope`.
fn map(a: &Model, slope: f64, f: impl Fn(f64) -> f64) -> Option<Model> {
    Model::new(&a.array().map(f), a.dtype, slope * a.error)
}

fn zip(a: &Model, b: &Model, error: f64, f: impl Fn(f64, f64) -> f64) -> Option<Model> {
    let (x, y) = (a.array(), b.array());
    Model::new(&Array::of(x.ne, |i| f(x.at(i), y.wrapped(i))), a.dtype, error)
}

/// The error of a product of two numbers.
fn product_error(a: &Model, b: &Model) -> f64 {
    a.largest() * b.error + b.largest() * a.error + a.error * b.error
}

fn multiplied(a: &Model, b: &Model) -> Option<Model> {
    let rounding = match a.dtype {
        DType::F32 => 1e-6,
        DType::F16 => 1e-3,
        DType::BF16 => 8e-3,
        _ => 2e-2,
    };
    let (want, _) = product(&a.array(), &b.array());
    let error = product_error(a, b) + rounding * a.largest() * b.largest();
    Model::new(&want, DType::F32, a.ne[0] as f64 * error)
}

fn soft_max(row: &[f64]) -> Vec<f64> {
    let most = row.iter().copied().fold(f64::MIN, f64::max);
    let all: f64 = row.iter().map(|x| (x - most).exp()).sum();
    row.iter().map(|x| (x - most).exp() / all).collect()
}

fn joined(a: &Array, b: &Array, dim: usize) -> Array {
    let mut shape = a.ne;
    shape[dim] += b.ne[dim];
    Array::of(shape, |mut i| {
        if i[dim] < a.ne[dim] {
            return a.at(i);
        }
        i[dim] -= a.ne[dim];
        b.at(i)
    })
}

/// Asks ggml for a step. `Ok(None)`: it is computed, but its values are not followed further.
pub(super) fn apply<'c>(
    step: &Step,
    ctx: &'c Context,
    known: &[Known<'c>],
    targets: &mut Vec<Known<'c>>,
) -> Result<(Tensor<'c>, Option<Model>)> {
    let one = |n| pick(known, n);
    Ok(match *step {
        Step::Neg(a) => (ctx.neg(one(a).0)?, map(&one(a).1, 1.0, |x| -x)),
        Step::Relu(a) => (ctx.relu(one(a).0)?, map(&one(a).1, 1.0, |x| x.max(0.0))),
        Step::LeakyRelu(a) => {
            let f = |x: f64| if x > 0.0 { x } else { 0.5 * x };
            (ctx.leaky_relu(one(a).0, 0.5)?, map(&one(a).1, 1.0, f))
        }
        Step::Scale(a) => (ctx.scale_bias(one(a).0, -0.5, 1.0)?, map(&one(a).1, 0.5, |x| 1.0 - 0.5 * x)),
        Step::Clamp(a) => (ctx.clamp(one(a).0, -1.0, 0.5)?, map(&one(a).1, 1.0, |x| x.clamp(-1.0, 0.5))),
        Step::Add(a, b) => {
            let ((ta, a), (tb, b)) = (one(a), one(b));
            (ctx.add(*ta, *tb)?, zip(a, b, a.error + b.error, |x, y| x + y))
        }
        Step::Mul(a, b) => {
            let ((ta, a), (tb, b)) = (one(a), one(b));
            (ctx.mul(*ta, *tb)?, zip(a, b, product_error(a, b), |x, y| x * y))
        }
        Step::MulMat(a, b) => {
            let ((ta, a), (tb, b)) = (one(a), one(b));
            (ctx.mul_mat(*ta, *tb)?, multiplied(a, b))
        }
        Step::OutProd(a, b) => {
            let ((ta, a), (tb, b)) = (one(a), one(b));
            let y = ctx.out_prod(*ta, *tb)?;
            let (want, _) = outer(&a.array(), &b.array());
            let error = product_error(a, b) + 1e-6 * a.largest() * b.largest();
            (y, Model::new(&want, DType::F32, a.ne[1] as f64 * error))
        }
        Step::GluSplit(a, b) => {
            let ((ta, a), (tb, b)) = (one(a), one(b));
            let y = ctx.glu_split(*ta, *tb, Glu::Reglu)?;
            (y, zip(a, b, product_error(a, b), |x, y| x.max(0.0) * y))
        }
        Step::Repeat(a, like) => {
            let ((t, a), (tl, like)) = (one(a), one(like));
            let y = ctx.repeat(*t, *tl)?;
            let values = a.array();
            (y, Model::new(&Array::of(like.ne, |i| values.wrapped(i)), a.dtype, a.error))
        }
        Step::Concat(a, b, dim) => {
            let ((ta, a), (tb, b)) = (one(a), one(b));
            let y = ctx.concat(*ta, *tb, dim)?;
            let joined = joined(&a.array(), &b.array(), dim);
            (y, Model::new(&joined, a.dtype, a.error.max(b.error)))
        }
        Step::Cont(a) => (ctx.cont(one(a).0)?, map(&one(a).1, 1.0, |x| x)),
        Step::Cast(a, dtype) => {
            let (t, a) = one(a);
            (ctx.cast(*t, dtype)?, Model::new(&a.array(), dtype, a.error))
        }
        Step::Cpy(a, b) => {
            let (t, a) = one(a);
            // Each target is written once, so that nothing that was read before changes.
            let at = b % targets.len();
            let (tb, b) = &targets[at];
            let result = (ctx.cpy(*t, *tb)?, Some(b.written(a)));
            if targets.len() > 1 {
                targets.remove(at);
            }
            result
        }
        _ => by_rows(step, ctx, known)?,
    })
}

/// Functions of rows and matrices.
fn by_rows<'c>(step: &Step, ctx: &'c Context, known: &[Known<'c>]) -> Result<(Tensor<'c>, Option<Model>)> {
    let one = |n| pick(known, n);
    Ok(match *step {
        Step::SumRows(a) => {
            let (t, a) = one(a);
            let y = ctx.sum_rows(*t)?;
            let n = a.ne[0] as f64;
            let error = n * (a.error + 1e-6 * a.largest());
            (y, Model::new(&a.array().rows(|r| vec![r.iter().sum()]), a.dtype, error))
        }
        Step::CumSum(a) => {
            let (t, a) = one(a);
            let y = ctx.cumsum(*t)?;
            let error = a.ne[0] as f64 * (a.error + 1e-6 * a.largest());
            (y, Model::new(&a.array().rows(cumulated), a.dtype, error))
        }
        Step::Tri(a) => {
            let (t, a) = one(a);
            let y = ctx.tri(*t, TriType::LowerDiag)?;
            let values = a.array();
            let kept = Array::of(a.ne, |i| if i[0] <= i[1] { values.at(i) } else { 0.0 });
            (y, Model::new(&kept, a.dtype, a.error))
        }
        Step::DiagMask(a, n_past) => {
            let (t, a) = one(a);
            let y = ctx.diag_mask_zero(*t, n_past)?;
            let values = a.array();
            let kept = Array::of(a.ne, |i| if i[0] <= i[1] + n_past as usize { values.at(i) } else { 0.0 });
            (y, Model::new(&kept, a.dtype, a.error))
        }
        Step::SoftMax(a) => {
            let (t, a) = one(a);
            let y = ctx.soft_max(*t)?;
            (y, Model::new(&a.array().rows(soft_max), a.dtype, (2.0 * a.error).exp_m1() + 1e-5))
        }
        _ => look(step, ctx, known)?,
    })
}

/// Steps that look at memory in another way.
fn look<'c>(step: &Step, ctx: &'c Context, known: &[Known<'c>]) -> Result<(Tensor<'c>, Option<Model>)> {
    let one = |n| pick(known, n);
    Ok(match *step {
        Step::Reshape(a, shape) => {
            let (t, a) = one(a);
            let y = ctx.reshape(*t, shape)?;
            let ne = shape.map(|n| usize::try_from(n).unwrap());
            assert_eq!(ne.iter().product::<usize>(), a.elements(), "{step:?}");
            (y, Some(a.view(ne, packed(a.dtype, ne), 0)))
        }
        Step::Permute(a, axes) => {
            let (t, a) = one(a);
            let y = ctx.permute(*t, axes)?;
            let (mut ne, mut nb) = ([0; 4], [0; 4]);
            for (from, to) in axes.into_iter().enumerate() {
                (ne[to], nb[to]) = (a.ne[from], a.nb[from]);
            }
            (y, Some(a.view(ne, nb, 0)))
        }
        Step::Transpose(a) => {
            let (t, a) = one(a);
            let y = ctx.transpose(*t)?;
            let ([n0, n1, n2, n3], [nb0, nb1, nb2, nb3]) = (a.ne, a.nb);
            (y, Some(a.view([n1, n0, n2, n3], [nb1, nb0, nb2, nb3], 0)))
        }
        Step::View(a, shape, strides, offset) => {
            let (t, a) = one(a);
            let y = ctx.view(*t, shape, strides, offset)?;
            let [nb1, nb2, nb3] = strides;
            let nb = [a.dtype.type_size(), nb1, nb2, nb3];
            (y, Some(a.view(shape.map(|n| usize::try_from(n).unwrap()), nb, offset)))
        }
        _ => unreachable!("`apply` and `by_rows` have all others"),
    })
}
