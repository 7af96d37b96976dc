//! From options back to tensors.

use super::Operation;
use crate::context::Context;
use crate::driver::Failure;
use crate::dtype::DType;
#[cfg(ggml_0_28)]
use crate::ops::TopKMask;
use crate::ops::{GatedDeltaNet, GatedLinearAttn, RwkvWkv6, RwkvWkv7, SsmScan};
use crate::tensor::Tensor;

type Result<T> = std::result::Result<T, Failure>;

/// What a builder takes besides its options.
#[derive(Clone, Copy)]
struct Given<'a, 'c> {
    ctx: &'c Context,
    sources: &'a [Option<Tensor<'c>>],
    dtype: DType,
    ne: [i64; 4],
}

impl<'c> Given<'_, 'c> {
    fn option(&self, slot: usize) -> Option<Tensor<'c>> {
        self.sources.get(slot).copied().flatten()
    }

    fn at(&self, slot: usize) -> Result<Tensor<'c>> {
        self.option(slot).ok_or_else(|| Failure::new(format!("the operation lacks the operand in slot {slot}")))
    }

    /// A tensor of the result's shape, for builders that read only that.
    fn like(&self, dtype: DType) -> Result<Tensor<'c>> {
        Ok(self.ctx.input("like", dtype, self.ne)?)
    }
}

impl Operation {
    /// Builds the operation again, of other operands: `sources` by slot, as [`Node::source`](crate::driver::Node::source)
    /// counts them, for a result of this type and shape. An operation in place becomes one that isn't.
    ///
    /// A driver that computes with ggml does so with it, in a context of its own.
    ///
    /// # Errors
    ///
    /// The builder's; a failure if an operand is missing, or for the steps of optimisers, which have no builders.
    pub fn build<'c>(
        &self,
        ctx: &'c Context,
        sources: &[Option<Tensor<'c>>],
        dtype: DType,
        ne: [i64; 4],
    ) -> Result<Tensor<'c>> {
        let given = Given { ctx, sources, dtype, ne };
        let built = match given.option(0) {
            Some(a) => match elementwise(*self, given, a)? {
                Some(t) => Some(t),
                None => of_one(*self, given, a)?,
            },
            None => None,
        };
        let built = match built {
            Some(t) => t,
            None => of_several(*self, given)?,
        };
        Ok(built)
    }
}

/// Functions of each element, and sums.
fn elementwise<'c>(op: Operation, given: Given<'_, 'c>, a: Tensor<'c>) -> Result<Option<Tensor<'c>>> {
    let ctx = given.ctx;
    let b = || given.at(1);
    Ok(Some(match op {
        Operation::Add if given.dtype != a.dtype() => ctx.add_cast(a, b()?, given.dtype),
        Operation::Add => ctx.add(a, b()?),
        Operation::Add1 => ctx.add1(a, b()?),
        Operation::Sub => ctx.sub(a, b()?),
        Operation::Mul => ctx.mul(a, b()?),
        Operation::Div => ctx.div(a, b()?),
        Operation::Sqr => ctx.sqr(a),
        Operation::Sqrt => ctx.sqrt(a),
        Operation::Log => ctx.log(a),
        Operation::Sin => ctx.sin(a),
        Operation::Cos => ctx.cos(a),
        Operation::Unary(op) => ctx.unary(a, op),
        Operation::Xielu { alpha_n, alpha_p, beta, eps } => {
            let [n, p] = [alpha_n - beta, alpha_p].map(unsoftplus);
            ctx.xielu(a, n, p, beta, eps)
        }
        Operation::LeakyRelu { slope } => ctx.leaky_relu(a, slope),
        Operation::Scale { factor, bias } => ctx.scale_bias(a, factor, bias),
        Operation::Clamp { min, max } => ctx.clamp(a, min, max),
        Operation::Glu { op, .. } if given.option(1).is_some() => ctx.glu_split(a, b()?, op),
        Operation::Glu { op, swapped } => ctx.glu(a, op, swapped),
        Operation::SwigluOai { alpha, limit } => ctx.swiglu_oai(a, b()?, alpha, limit),
        Operation::SwigluClamp { limit } => ctx.swiglu_clamp(a, b()?, limit),
        Operation::SiluBack => ctx.silu_back(a, b()?),
        Operation::Fill { value } => ctx.fill(a, value),
        Operation::Sum => ctx.sum(a),
        Operation::SumRows => ctx.sum_rows(a),
        Operation::Mean => ctx.mean(a),
        Operation::Argmax => ctx.argmax(a),
        Operation::Cumsum => ctx.cumsum(a),
        Operation::CountEqual => ctx.count_equal(a, b()?),
        _ => return Ok(None),
    }?))
}

/// The number whose softplus this is.
fn unsoftplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp_m1().ln() }
}

/// Operations on the elements' order, and those of one operand.
fn of_one<'c>(op: Operation, given: Given<'_, 'c>, a: Tensor<'c>) -> Result<Option<Tensor<'c>>> {
    let Given { ctx, dtype, ne, .. } = given;
    let int = |n: i64| i32::try_from(n).map_err(Failure::from);
    Ok(Some(match op {
        Operation::Dup => ctx.dup(a),
        Operation::Cont => ctx.cont_4d(a, ne),
        Operation::Cpy => ctx.cast(a, dtype).and_then(|t| if t.ne() == ne { Ok(t) } else { ctx.reshape(t, ne) }),
        Operation::Repeat => ctx.repeat_4d(a, ne),
        Operation::RepeatBack => ctx.repeat_back(a, given.like(a.dtype())?),
        Operation::Norm { eps } => ctx.norm(a, eps),
        Operation::RmsNorm { eps } => ctx.rms_norm(a, eps),
        Operation::L2Norm { eps } => ctx.l2_norm(a, eps),
        Operation::GroupNorm { groups, eps } => ctx.group_norm(a, groups, eps),
        Operation::Diag => ctx.diag(a),
        Operation::DiagMaskInf { n_past } => ctx.diag_mask_inf(a, n_past),
        Operation::DiagMaskZero { n_past } => ctx.diag_mask_zero(a, n_past),
        Operation::Tri(kept) => ctx.tri(a, kept),
        Operation::Argsort(order) => ctx.argsort(a, order),
        Operation::TopK { k } => ctx.top_k(a, k),
        Operation::Interpolate(how) => ctx.interpolate(a, ne, how),
        Operation::Pad(how) => ctx.pad(a, how),
        Operation::PadReflect1d { left, right } => ctx.pad_reflect_1d(a, left, right),
        Operation::Roll { shifts } => ctx.roll(a, shifts),
        Operation::Pool1d(pool, how) => ctx.pool_1d(a, pool, how),
        Operation::Pool2d(pool, how) => ctx.pool_2d(a, pool, how),
        Operation::Col2im1d { outputs, stride, padding } => ctx.col2im_1d(a, outputs, stride, padding),
        Operation::TimestepEmbedding { dim, max_period } => ctx.timestep_embedding(a, dim, max_period),
        Operation::WinPart { w } => ctx.win_part(a, w),
        Operation::WinUnpart { .. } => ctx.win_unpart(a, int(ne[1])?, int(ne[2])?),
        Operation::GetRelPos => ctx.get_rel_pos(a, int(ne[2])?, int(ne[1])?),
        Operation::SoftMax(how) => ctx.soft_max_ext(a, how.with_mask(given.option(1)).with_sinks(given.option(2))),
        _ => return Ok(None),
    }?))
}

/// Operations of several operands, or of none.
fn of_several<'c>(op: Operation, given: Given<'_, 'c>) -> Result<Tensor<'c>> {
    let Given { ctx, dtype, ne, .. } = given;
    if let Operation::Arange { start, stop, step } = op {
        return Ok(ctx.arange(start, stop, step)?);
    }
    let (a, b) = (given.at(0)?, given.at(1)?);
    let at = |slot| given.at(slot);
    Ok(match op {
        Operation::AddId => ctx.add_id(a, b, at(2)?),
        Operation::AddRelPos => ctx.add_rel_pos(a, b, at(2)?),
        Operation::Acc(part) => ctx.acc(a, b, part),
        Operation::Set(part) => ctx.set(a, b, part),
        Operation::Concat { dim } => ctx.concat(a, b, dim),
        Operation::MulMat(how) => ctx.mul_mat_ext(a, b, how),
        Operation::MulMatId => ctx.mul_mat_id(a, b, at(2)?),
        Operation::OutProd => ctx.out_prod(a, b),
        Operation::SolveTri => ctx.solve_tri(a, b),
        Operation::GetRows => ctx.get_rows(a, b),
        Operation::GetRowsBack => ctx.get_rows_back(a, b, given.like(DType::F32)?),
        Operation::SetRows => ctx.set_rows(ctx.dup(at(2)?)?, a, b),
        Operation::RmsNormBack { eps } => ctx.rms_norm_back(a, b, eps),
        Operation::SoftMaxBack { scale } => ctx.soft_max_ext_back(a, b, scale),
        Operation::Rope(how) => ctx.rope_ext(a, b, how.with_freq_factors(given.option(2))),
        Operation::RopeBack(how) => ctx.rope_ext_back(a, b, how.with_freq_factors(given.option(2))),
        Operation::Im2col(how) => ctx.im2col(a, b, how, dtype),
        Operation::Im2col1d(how) => ctx.im2col_1d(a, b, how, dtype),
        Operation::Im2col3d { inputs, how } => ctx.im2col_3d(a, b, inputs, how, dtype),
        Operation::Im2colBack(how) => ctx.im2col_back(a, b, ne, how),
        Operation::Im2col1dBack(how) => ctx.im2col_1d_back(a, b, ne, how),
        Operation::Conv2dDirect(how) => ctx.conv_2d_direct(a, b, how),
        Operation::Conv2dDwDirect(how) => ctx.conv_2d_dw_direct(a, b, how),
        Operation::Conv3dDirect { inputs, how } => ctx.conv_3d_direct(a, b, inputs, how),
        Operation::ConvTranspose1d { stride } => ctx.conv_transpose_1d(a, b, stride),
        Operation::ConvTranspose2dP0 { stride } => ctx.conv_transpose_2d_p0(a, b, stride),
        Operation::Pool2dBack(pool, how) => ctx.pool_2d_back(a, b, pool, how),
        Operation::FlashAttnExt(how) => {
            ctx.flash_attn_ext(a, b, at(2)?, how.with_mask(given.option(3)).with_sinks(given.option(4)))
        }
        Operation::LightningIndexer => ctx.lightning_indexer(a, b, at(2)?, at(3)?),
        Operation::SsmConv => ctx.ssm_conv(a, b),
        Operation::SsmScan { n_snapshots } => {
            let on = SsmScan { s: a, x: b, dt: at(2)?, a: at(3)?, b: at(4)?, c: at(5)?, ids: at(6)? };
            ctx.ssm_scan(on, n_snapshots)
        }
        Operation::RwkvWkv6 => ctx.rwkv_wkv6(RwkvWkv6 { k: a, v: b, r: at(2)?, tf: at(3)?, td: at(4)?, state: at(5)? }),
        Operation::RwkvWkv7 => {
            ctx.rwkv_wkv7(RwkvWkv7 { r: a, w: b, k: at(2)?, v: at(3)?, a: at(4)?, b: at(5)?, state: at(6)? })
        }
        Operation::GatedLinearAttn { scale } => {
            ctx.gated_linear_attn(GatedLinearAttn { k: a, v: b, q: at(2)?, g: at(3)?, state: at(4)? }, scale)
        }
        Operation::GatedDeltaNet { n_snapshots } => {
            let on = GatedDeltaNet { q: a, k: b, v: at(2)?, g: at(3)?, beta: at(4)?, state: at(5)? };
            ctx.gated_delta_net(on, n_snapshots)
        }
        Operation::Dsv4HcComb { eps, n_iter } => ctx.dsv4_hc_comb(a, b, at(2)?, eps, n_iter),
        Operation::Dsv4HcPre => ctx.dsv4_hc_pre(a, b),
        Operation::Dsv4HcPreGated { scale } => ctx.dsv4_hc_pre_gated(a, b, scale),
        Operation::Dsv4HcPost => ctx.dsv4_hc_post(a, b, at(2)?, given.option(3)),
        #[cfg(ggml_0_28)]
        Operation::TopKMask => {
            let how = TopKMask::new().with_score(given.option(2)).with_blocks(given.option(3));
            ctx.top_k_mask(a, b, how.with_extra(given.option(4)))
        }
        Operation::CrossEntropyLoss => ctx.cross_entropy_loss(a, b),
        Operation::CrossEntropyLossBack => ctx.cross_entropy_loss_back(a, b, at(2)?),
        _ => return Err(Failure::new("the operation has no builder")),
    }?)
}
