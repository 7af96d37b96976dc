//! Builds an operation again, with an arm for each operation, which calls the operation's builder.

use crate::context::Context;
use crate::driver::Failure;
use crate::dtype::DType;
#[cfg(ggml_0_28)]
use crate::op::TopKMaskOptions;
use crate::op::{OpParams, Operation};
use crate::ops::{GatedDeltaNetOperands, GatedLinearAttnOperands, RwkvWkv6Operands, RwkvWkv7Operands, SsmScanOperands};
use crate::tensor::Tensor;

type Built<T> = Result<T, Failure>;

impl OpParams {
    /// The operation with its parameters, decoded.
    ///
    /// # Errors
    ///
    /// A failure for an operation that [`Operation`] doesn't know, or parameters that no builder makes.
    pub fn operation(&self) -> Built<Operation> {
        let unknown = || Failure::new("this crate knows no such operation, or not with these parameters");
        self.decode().ok_or_else(unknown)
    }
}

/// The operands by slot.
#[derive(Clone, Copy)]
struct Sources<'a, 'c>(&'a [Option<Tensor<'c>>]);

impl<'c> Sources<'_, 'c> {
    fn option(self, slot: usize) -> Option<Tensor<'c>> {
        self.0.get(slot).copied().flatten()
    }

    /// The operands in the first `N` slots.
    fn all<const N: usize>(self) -> Built<[Tensor<'c>; N]> {
        let missing = (0..N).find(|&slot| self.option(slot).is_none());
        match (missing, self.option(0)) {
            (None, Some(first)) => Ok(std::array::from_fn(|slot| self.option(slot).unwrap_or(first))),
            (slot, _) => {
                Err(Failure::new(format!("the operation lacks the operand in slot {}", slot.unwrap_or_default())))
            }
        }
    }
}

impl Operation {
    /// Builds the operation again, with other operands, for a result of this type and shape. `sources` are the operands
    /// by slot, as [`Node::source`](crate::driver::Node::source) counts them. An operation in place becomes one that
    /// isn't.
    ///
    /// A driver that computes with ggml uses this, in a context of its own.
    ///
    /// # Errors
    ///
    /// Those of the builder; a failure if an operand is missing, or if no builder takes the same parameters: for
    /// leaves, views, closures, and the steps of optimisers.
    #[expect(clippy::too_many_lines, reason = "an arm for each operation")]
    pub fn build<'c>(
        &self,
        ctx: &'c Context,
        sources: &[Option<Tensor<'c>>],
        dtype: DType,
        ne: [i64; 4],
    ) -> Built<Tensor<'c>> {
        let given = Sources(sources);
        let int = |n: i64| i32::try_from(n).map_err(Failure::from);
        // A stand-in for an operand of which the builder reads only the shape.
        let like = |dtype| ctx.input("like", dtype, ne);
        let one = || given.all().map(|[a]| a);
        let two = || given.all::<2>();
        let three = || given.all::<3>();
        let none = Err(Failure::new("the operation has no builder"));
        let built = match *self {
            Self::Add => {
                let [a, b] = two()?;
                if dtype == a.dtype() { ctx.add(a, b) } else { ctx.add_cast(a, b, dtype) }
            }
            Self::Add1 => two().map(|[a, b]| ctx.add1(a, b))?,
            Self::Sub => two().map(|[a, b]| ctx.sub(a, b))?,
            Self::Mul => two().map(|[a, b]| ctx.mul(a, b))?,
            Self::Div => two().map(|[a, b]| ctx.div(a, b))?,
            Self::AddId => three().map(|[a, b, ids]| ctx.add_id(a, b, ids))?,
            Self::AddRelPos => three().map(|[a, w, h]| ctx.add_rel_pos(a, w, h))?,
            Self::Acc(part) => two().map(|[a, b]| ctx.acc(a, b, part))?,
            Self::Set(part) => two().map(|[a, b]| ctx.set(a, b, part))?,
            Self::Concat { dim } => two().map(|[a, b]| ctx.concat(a, b, dim))?,
            Self::Sqr => ctx.sqr(one()?),
            Self::Sqrt => ctx.sqrt(one()?),
            Self::Log => ctx.log(one()?),
            Self::Sin => ctx.sin(one()?),
            Self::Cos => ctx.cos(one()?),
            Self::Unary(op) => ctx.unary(one()?, op),
            Self::Xielu { alpha_n, alpha_p, beta, eps } => {
                let [n, p] = [alpha_n - beta, alpha_p].map(unsoftplus);
                ctx.xielu(one()?, n, p, beta, eps)
            }
            Self::LeakyRelu { slope } => ctx.leaky_relu(one()?, slope),
            Self::Scale { factor, bias } => ctx.scale_bias(one()?, factor, bias),
            Self::Clamp { min, max } => ctx.clamp(one()?, min, max),
            Self::Fill { value } => ctx.fill(one()?, value),
            Self::Glu { op, swapped } => match given.option(1) {
                Some(b) => ctx.glu_split(one()?, b, op),
                None => ctx.glu(one()?, op, swapped),
            },
            Self::SwigluOai { alpha, limit } => two().map(|[a, b]| ctx.swiglu_oai(a, b, alpha, limit))?,
            Self::SwigluClamp { limit } => two().map(|[a, b]| ctx.swiglu_clamp(a, b, limit))?,
            Self::SiluBack => two().map(|[grad, x]| ctx.silu_back(grad, x))?,
            Self::Sum => ctx.sum(one()?),
            Self::SumRows => ctx.sum_rows(one()?),
            Self::Mean => ctx.mean(one()?),
            Self::Argmax => ctx.argmax(one()?),
            Self::Cumsum => ctx.cumsum(one()?),
            Self::CountEqual => two().map(|[a, b]| ctx.count_equal(a, b))?,
            Self::Dup => ctx.dup(one()?),
            Self::Cont => ctx.cont_4d(one()?, ne),
            Self::Cpy => {
                let cast = ctx.cast(one()?, dtype)?;
                if cast.ne() == ne { Ok(cast) } else { ctx.reshape(cast, ne) }
            }
            Self::Repeat => ctx.repeat_4d(one()?, ne),
            Self::RepeatBack => one().and_then(|a| Ok(ctx.repeat_back(a, like(a.dtype())?)))?,
            Self::Norm { eps } => ctx.norm(one()?, eps),
            Self::RmsNorm { eps } => ctx.rms_norm(one()?, eps),
            Self::RmsNormBack { eps } => two().map(|[grad, x]| ctx.rms_norm_back(grad, x, eps))?,
            Self::L2Norm { eps } => ctx.l2_norm(one()?, eps),
            Self::GroupNorm { groups, eps } => ctx.group_norm(one()?, groups, eps),
            Self::SoftMax(how) => ctx.soft_max_ext(one()?, how.with_mask(given.option(1)).with_sinks(given.option(2))),
            Self::SoftMaxBack { scale } => two().map(|[grad, y]| ctx.soft_max_ext_back(grad, y, scale))?,
            Self::CrossEntropyLoss => two().map(|[a, b]| ctx.cross_entropy_loss(a, b))?,
            Self::CrossEntropyLossBack => three().map(|[grad, a, b]| ctx.cross_entropy_loss_back(grad, a, b))?,
            Self::Rope(how) => {
                two().map(|[a, positions]| ctx.rope_ext(a, positions, how.with_freq_factors(given.option(2))))?
            }
            Self::RopeBack(how) => {
                two().map(|[a, positions]| ctx.rope_ext_back(a, positions, how.with_freq_factors(given.option(2))))?
            }
            Self::Diag => ctx.diag(one()?),
            Self::DiagMaskInf { n_past } => ctx.diag_mask_inf(one()?, n_past),
            Self::DiagMaskZero { n_past } => ctx.diag_mask_zero(one()?, n_past),
            Self::Tri(kept) => ctx.tri(one()?, kept),
            Self::Argsort(order) => ctx.argsort(one()?, order),
            Self::TopK { k } => ctx.top_k(one()?, k),
            Self::GetRows => two().map(|[a, rows]| ctx.get_rows(a, rows))?,
            Self::GetRowsBack => two().and_then(|[a, rows]| Ok(ctx.get_rows_back(a, rows, like(DType::F32)?)))?,
            Self::SetRows => three().and_then(|[b, rows, a]| Ok(ctx.set_rows(ctx.dup(a)?, b, rows)))?,
            Self::MulMat(how) => two().map(|[a, b]| ctx.mul_mat_ext(a, b, how))?,
            Self::MulMatId(how) => three().map(|[a, b, ids]| ctx.mul_mat_id_ext(a, b, ids, how))?,
            Self::OutProd => two().map(|[a, b]| ctx.out_prod(a, b))?,
            Self::SolveTri => two().map(|[a, b]| ctx.solve_tri(a, b))?,
            Self::FlashAttnExt(how) => three().map(|[q, k, v]| {
                ctx.flash_attn_ext(q, k, v, how.with_mask(given.option(3)).with_sinks(given.option(4)))
            })?,
            Self::LightningIndexer => given.all().map(|[q, k, w, mask]| ctx.lightning_indexer(q, k, w, mask))?,
            Self::GetRelPos => ctx.get_rel_pos(one()?, int(ne[2])?, int(ne[1])?),
            Self::Im2col(how) => two().map(|[kernel, image]| ctx.im2col(kernel, image, how, dtype))?,
            Self::Im2col1d(how) => two().map(|[kernel, image]| ctx.im2col_1d(kernel, image, how, dtype))?,
            Self::Im2col3d { inputs, how } => {
                two().map(|[kernel, image]| ctx.im2col_3d(kernel, image, inputs, how, dtype))?
            }
            Self::Im2colBack(how) => two().map(|[grad, kernel]| ctx.im2col_back(grad, kernel, ne, how))?,
            Self::Im2col1dBack(how) => two().map(|[grad, kernel]| ctx.im2col_1d_back(grad, kernel, ne, how))?,
            Self::Conv2dDirect(how) => two().map(|[kernel, image]| ctx.conv_2d_direct(kernel, image, how))?,
            Self::Conv2dDwDirect(how) => two().map(|[kernel, image]| ctx.conv_2d_dw_direct(kernel, image, how))?,
            Self::Conv3dDirect { inputs, how } => {
                two().map(|[kernel, image]| ctx.conv_3d_direct(kernel, image, inputs, how))?
            }
            Self::ConvTranspose1d { stride } => {
                two().map(|[kernel, image]| ctx.conv_transpose_1d(kernel, image, stride))?
            }
            Self::ConvTranspose2dP0 { stride } => {
                two().map(|[kernel, image]| ctx.conv_transpose_2d_p0(kernel, image, stride))?
            }
            Self::Col2im1d { outputs, stride, padding } => ctx.col2im_1d(one()?, outputs, stride, padding),
            Self::Pool1d(pool, how) => ctx.pool_1d(one()?, pool, how),
            Self::Pool2d(pool, how) => ctx.pool_2d(one()?, pool, how),
            Self::Pool2dBack(pool, how) => two().map(|[grad, x]| ctx.pool_2d_back(grad, x, pool, how))?,
            Self::Interpolate(how) => ctx.interpolate(one()?, ne, how),
            Self::Pad(how) => ctx.pad(one()?, how),
            Self::PadReflect1d { left, right } => ctx.pad_reflect_1d(one()?, left, right),
            Self::Roll { shifts } => ctx.roll(one()?, shifts),
            Self::Arange { start, stop, step } => ctx.arange(start, stop, step),
            Self::TimestepEmbedding { dim, max_period } => ctx.timestep_embedding(one()?, dim, max_period),
            Self::WinPart { w } => ctx.win_part(one()?, w),
            Self::WinUnpart { .. } => ctx.win_unpart(one()?, int(ne[1])?, int(ne[2])?),
            Self::SsmConv => two().map(|[sx, c]| ctx.ssm_conv(sx, c))?,
            Self::SsmScan { n_snapshots } => {
                let [s, x, dt, a, b, c, ids] = given.all()?;
                ctx.ssm_scan(SsmScanOperands { s, x, dt, a, b, c, ids }, n_snapshots)
            }
            Self::RwkvWkv6 => {
                let [k, v, r, tf, td, state] = given.all()?;
                ctx.rwkv_wkv6(RwkvWkv6Operands { k, v, r, tf, td, state })
            }
            Self::RwkvWkv7 => {
                let [r, w, k, v, a, b, state] = given.all()?;
                ctx.rwkv_wkv7(RwkvWkv7Operands { r, w, k, v, a, b, state })
            }
            Self::GatedLinearAttn { scale } => {
                let [k, v, q, g, state] = given.all()?;
                ctx.gated_linear_attn(GatedLinearAttnOperands { k, v, q, g, state }, scale)
            }
            Self::GatedDeltaNet { n_snapshots } => {
                let [q, k, v, g, beta, state] = given.all()?;
                ctx.gated_delta_net(GatedDeltaNetOperands { q, k, v, g, beta, state }, n_snapshots)
            }
            Self::Dsv4HcComb { eps, n_iter } => three().map(|[a, b, c]| ctx.dsv4_hc_comb(a, b, c, eps, n_iter))?,
            Self::Dsv4HcPre => two().map(|[a, b]| ctx.dsv4_hc_pre(a, b))?,
            Self::Dsv4HcPreGated { scale } => two().map(|[a, b]| ctx.dsv4_hc_pre_gated(a, b, scale))?,
            Self::Dsv4HcPost => three().map(|[a, b, c]| ctx.dsv4_hc_post(a, b, c, given.option(3)))?,
            #[cfg(ggml_0_28)]
            Self::TopKMask => {
                let how = TopKMaskOptions::new().with_score(given.option(2)).with_blocks(given.option(3));
                two().map(|[mask, picks]| ctx.top_k_mask(mask, picks, how.with_extra(given.option(4))))?
            }
            #[cfg(not(ggml_0_28))]
            Self::TopKMask => return none,
            Self::None
            | Self::Reshape
            | Self::View
            | Self::Permute { .. }
            | Self::Transpose
            | Self::Custom
            | Self::OptStepAdamw
            | Self::OptStepSgd => return none,
        };
        Ok(built?)
    }
}

/// The inverse of softplus.
fn unsoftplus(x: f32) -> f32 {
    if x > 20.0 { x } else { x.exp_m1().ln() }
}
