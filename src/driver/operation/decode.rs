//! From `op_params` to options.

use ggml_sys as sys;

use super::{OpParams, Operation};
use crate::driver::Failure;
use crate::ops::{
    Conv, FlashAttn, Glu, Interpolate, MulMat, Pad, Part, Pool, Prec, Rope, RopeMode, Scale, SoftMax, SortOrder,
    TriType, UnaryOp, Windows,
};

/// The parameters of an operation.
#[derive(Clone, Copy)]
struct Params([i32; 16]);

impl Params {
    fn int(&self, i: usize) -> i32 {
        self.0.get(i).copied().unwrap_or(0)
    }

    fn number(&self, i: usize) -> u32 {
        self.int(i).cast_unsigned()
    }

    fn float(&self, i: usize) -> f32 {
        f32::from_bits(self.number(i))
    }

    fn flag(&self, i: usize) -> bool {
        self.int(i) != 0
    }

    /// `N` integers, from parameter `first` on, `step` apart.
    fn ints<const N: usize>(&self, first: usize, step: usize) -> [i32; N] {
        std::array::from_fn(|i| self.int(first + i * step))
    }

    fn conv<const N: usize>(&self) -> Conv<N> {
        let [stride, padding, dilation] = [0, N, 2 * N].map(|first| self.ints(first, 1));
        Conv::new().with_stride(stride).with_padding(padding).with_dilation(dilation)
    }

    fn windows<const N: usize>(&self) -> Windows<N> {
        let [window, stride, padding] = [1, 1 + N, 1 + 2 * N].map(|first| self.ints(first, 1));
        Windows::new(window).with_stride(stride).with_padding(padding)
    }

    fn pool(&self) -> Option<Pool> {
        [Pool::Max, Pool::Avg].into_iter().find(|pool| pool.raw() == self.number(0))
    }

    fn prec(&self, i: usize) -> Option<Prec> {
        let all = [Prec::F32, Prec::BF16, Prec::F16, Prec::Q8, Prec::Q4];
        all.into_iter().find(|prec| prec.raw() == self.number(i) && self.flag(i))
    }

    fn part(&self) -> Part {
        let [strides @ .., offset] = self.ints::<4>(0, 1).map(|n| usize::try_from(n).unwrap_or(0));
        Part::new(offset).with_strides(strides)
    }

    fn mul_mat(&self) -> MulMat {
        let hadamard = self.number(1) == sys::GGML_HINT_SRC0_IS_HADAMARD;
        MulMat::new().with_acc(self.prec(0)).with_src(self.prec(3)).with_hadamard(hadamard)
    }

    fn flash_attn(&self) -> FlashAttn<'static> {
        let how = FlashAttn::new(self.float(0)).with_max_bias(self.float(1)).with_logit_softcap(self.float(2));
        how.with_acc(self.prec(3)).with_n_kv_max(self.int(4))
    }

    fn rope(&self) -> Option<Rope<'static>> {
        let modes = [RopeMode::Normal, RopeMode::NeoX, RopeMode::MRope, RopeMode::IMRope, RopeMode::Vision];
        let mode = modes.into_iter().find(|mode| mode.raw() == self.int(2))?;
        let how = Rope::new(self.int(1), mode).with_n_ctx_orig(self.int(4)).with_freq_base(self.float(5));
        let how = how.with_freq_scale(self.float(6)).with_ext_factor(self.float(7)).with_attn_factor(self.float(8));
        let how = how.with_beta_fast(self.float(9)).with_beta_slow(self.float(10));
        Some(how.with_sections(self.ints(11, 1)).with_offset(self.int(15)))
    }

    fn interpolate(&self) -> Option<Interpolate> {
        let all = [Scale::Nearest, Scale::Bilinear, Scale::Bicubic].into_iter().flat_map(|mode| {
            [(false, false), (false, true), (true, false), (true, true)]
                .map(|(align, anti)| Interpolate::new(mode).with_align_corners(align).with_antialias(anti))
        });
        all.into_iter().find(|how| how.raw() == self.number(0))
    }

    fn pad(&self) -> Pad {
        Pad::new().with_left(self.ints(0, 2)).with_right(self.ints(1, 2)).with_circular(self.flag(8))
    }

    fn order(&self) -> Option<SortOrder> {
        match self.number(0) {
            sys::GGML_SORT_ORDER_ASC => Some(SortOrder::Asc),
            sys::GGML_SORT_ORDER_DESC => Some(SortOrder::Desc),
            _ => None,
        }
    }

    fn tri(&self) -> Option<TriType> {
        match self.number(0) {
            sys::GGML_TRI_TYPE_LOWER => Some(TriType::Lower),
            sys::GGML_TRI_TYPE_LOWER_DIAG => Some(TriType::LowerDiag),
            sys::GGML_TRI_TYPE_UPPER => Some(TriType::Upper),
            sys::GGML_TRI_TYPE_UPPER_DIAG => Some(TriType::UpperDiag),
            _ => None,
        }
    }

    fn unary(&self) -> Option<Operation> {
        if self.number(0) == sys::GGML_UNARY_OP_XIELU {
            let [alpha_n, alpha_p, beta, eps] = [1, 2, 3, 4].map(|i| self.float(i));
            return Some(Operation::Xielu { alpha_n, alpha_p, beta, eps });
        }
        UnaryOp::ALL.iter().find(|op| op.raw() == self.number(0)).map(|&op| Operation::Unary(op))
    }

    fn glu(&self) -> Option<Operation> {
        let (alpha, limit) = (self.float(2), self.float(3));
        match self.number(0) {
            sys::GGML_GLU_OP_SWIGLU_OAI => Some(Operation::SwigluOai { alpha, limit }),
            sys::GGML_GLU_OP_SWIGLU_CLAMP => Some(Operation::SwigluClamp { limit }),
            n => {
                let op = Glu::ALL.iter().find(|op| op.raw() == n)?;
                Some(Operation::Glu { op: *op, swapped: self.flag(1) })
            }
        }
    }
}

impl Operation {
    pub(super) fn of(t: &OpParams) -> Result<Self, Failure> {
        let p = Params(t.params);
        let unknown = || Failure::new("this crate knows no such operation, or not with these parameters");
        plain(t).or_else(|| with_numbers(t, p)).or_else(|| with_options(t, p)).ok_or_else(unknown)
    }
}

/// Operations without parameters.
fn plain(t: &OpParams) -> Option<Operation> {
    Some(match t.op {
        sys::GGML_OP_ADD => Operation::Add,
        sys::GGML_OP_ADD1 => Operation::Add1,
        sys::GGML_OP_ADD_ID => Operation::AddId,
        sys::GGML_OP_ADD_REL_POS => Operation::AddRelPos,
        sys::GGML_OP_ARGMAX => Operation::Argmax,
        sys::GGML_OP_CONT => Operation::Cont,
        sys::GGML_OP_COS => Operation::Cos,
        sys::GGML_OP_COUNT_EQUAL => Operation::CountEqual,
        sys::GGML_OP_CPY => Operation::Cpy,
        sys::GGML_OP_CROSS_ENTROPY_LOSS => Operation::CrossEntropyLoss,
        sys::GGML_OP_CROSS_ENTROPY_LOSS_BACK => Operation::CrossEntropyLossBack,
        sys::GGML_OP_CUMSUM => Operation::Cumsum,
        sys::GGML_OP_DIAG => Operation::Diag,
        sys::GGML_OP_DIV => Operation::Div,
        sys::GGML_OP_DSV4_HC_POST => Operation::Dsv4HcPost,
        sys::GGML_OP_DUP => Operation::Dup,
        sys::GGML_OP_GET_REL_POS => Operation::GetRelPos,
        sys::GGML_OP_GET_ROWS => Operation::GetRows,
        sys::GGML_OP_GET_ROWS_BACK => Operation::GetRowsBack,
        sys::GGML_OP_LIGHTNING_INDEXER => Operation::LightningIndexer,
        sys::GGML_OP_LOG => Operation::Log,
        sys::GGML_OP_MEAN => Operation::Mean,
        sys::GGML_OP_MUL => Operation::Mul,
        sys::GGML_OP_MUL_MAT_ID => Operation::MulMatId,
        sys::GGML_OP_OPT_STEP_ADAMW => Operation::OptStepAdamw,
        sys::GGML_OP_OPT_STEP_SGD => Operation::OptStepSgd,
        sys::GGML_OP_OUT_PROD => Operation::OutProd,
        sys::GGML_OP_REPEAT => Operation::Repeat,
        sys::GGML_OP_REPEAT_BACK => Operation::RepeatBack,
        sys::GGML_OP_RWKV_WKV6 => Operation::RwkvWkv6,
        sys::GGML_OP_RWKV_WKV7 => Operation::RwkvWkv7,
        sys::GGML_OP_SET_ROWS => Operation::SetRows,
        sys::GGML_OP_SILU_BACK => Operation::SiluBack,
        sys::GGML_OP_SIN => Operation::Sin,
        sys::GGML_OP_SOLVE_TRI => Operation::SolveTri,
        sys::GGML_OP_SQR => Operation::Sqr,
        sys::GGML_OP_SQRT => Operation::Sqrt,
        sys::GGML_OP_SSM_CONV => Operation::SsmConv,
        sys::GGML_OP_SUB => Operation::Sub,
        sys::GGML_OP_SUM => Operation::Sum,
        sys::GGML_OP_SUM_ROWS => Operation::SumRows,
        #[cfg(ggml_0_28)]
        sys::GGML_OP_TOP_K_MASK => Operation::TopKMask,
        _ => return None,
    })
}

/// Operations whose parameters are numbers.
fn with_numbers(t: &OpParams, p: Params) -> Option<Operation> {
    let [n, ..] = t.ne;
    let f = |i| p.float(i);
    Some(match t.op {
        sys::GGML_OP_ARANGE => Operation::Arange { start: f(0), stop: f(1), step: f(2) },
        sys::GGML_OP_CLAMP => Operation::Clamp { min: f(0), max: f(1) },
        sys::GGML_OP_COL2IM_1D => {
            let [stride, outputs, padding] = p.ints(0, 1);
            Operation::Col2im1d { outputs, stride, padding }
        }
        sys::GGML_OP_CONCAT => Operation::Concat { dim: usize::try_from(p.int(0)).ok()? },
        sys::GGML_OP_CONV_TRANSPOSE_1D => Operation::ConvTranspose1d { stride: p.int(0) },
        sys::GGML_OP_CONV_TRANSPOSE_2D => Operation::ConvTranspose2dP0 { stride: p.int(0) },
        sys::GGML_OP_DIAG_MASK_INF => Operation::DiagMaskInf { n_past: p.int(0) },
        sys::GGML_OP_DIAG_MASK_ZERO => Operation::DiagMaskZero { n_past: p.int(0) },
        sys::GGML_OP_DSV4_HC_COMB => Operation::Dsv4HcComb { eps: f(0), n_iter: p.int(1) },
        sys::GGML_OP_DSV4_HC_PRE if p.flag(1) => Operation::Dsv4HcPreGated { scale: f(0) },
        sys::GGML_OP_DSV4_HC_PRE => Operation::Dsv4HcPre,
        sys::GGML_OP_FILL => Operation::Fill { value: f(0) },
        sys::GGML_OP_GATED_DELTA_NET => Operation::GatedDeltaNet { n_snapshots: p.int(0).into() },
        sys::GGML_OP_GATED_LINEAR_ATTN => Operation::GatedLinearAttn { scale: f(0) },
        sys::GGML_OP_GROUP_NORM => Operation::GroupNorm { groups: p.int(0), eps: f(1) },
        sys::GGML_OP_L2_NORM => Operation::L2Norm { eps: f(0) },
        sys::GGML_OP_LEAKY_RELU => Operation::LeakyRelu { slope: f(0) },
        sys::GGML_OP_NORM => Operation::Norm { eps: f(0) },
        sys::GGML_OP_PAD_REFLECT_1D => Operation::PadReflect1d { left: p.int(0), right: p.int(1) },
        sys::GGML_OP_RMS_NORM => Operation::RmsNorm { eps: f(0) },
        sys::GGML_OP_RMS_NORM_BACK => Operation::RmsNormBack { eps: f(0) },
        sys::GGML_OP_ROLL => Operation::Roll { shifts: p.ints(0, 1) },
        sys::GGML_OP_SCALE => Operation::Scale { factor: f(0), bias: f(1) },
        sys::GGML_OP_SOFT_MAX_BACK => Operation::SoftMaxBack { scale: f(0) },
        sys::GGML_OP_SSM_SCAN => Operation::SsmScan { n_snapshots: p.int(0).into() },
        sys::GGML_OP_TIMESTEP_EMBEDDING => Operation::TimestepEmbedding { dim: p.int(0), max_period: p.int(1) },
        sys::GGML_OP_TOP_K => Operation::TopK { k: i32::try_from(n).ok()? },
        sys::GGML_OP_WIN_PART => Operation::WinPart { w: p.int(2) },
        sys::GGML_OP_WIN_UNPART => Operation::WinUnpart { w: p.int(0) },
        _ => return None,
    })
}

/// Operations whose parameters are options.
fn with_options(t: &OpParams, p: Params) -> Option<Operation> {
    let two = p.flag(6);
    // The columns of one dimension have the parameters of two, the second without meaning.
    let one = || Conv::new().with_stride(p.ints(0, 1)).with_padding(p.ints(2, 1)).with_dilation(p.ints(4, 1));
    Some(match t.op {
        sys::GGML_OP_ACC => Operation::Acc(p.part()),
        sys::GGML_OP_ARGSORT => Operation::Argsort(p.order()?),
        sys::GGML_OP_CONV_2D => Operation::Conv2dDirect(p.conv()),
        sys::GGML_OP_CONV_2D_DW => Operation::Conv2dDwDirect(p.conv()),
        sys::GGML_OP_CONV_3D => Operation::Conv3dDirect { inputs: p.int(9), how: p.conv() },
        sys::GGML_OP_FLASH_ATTN_EXT => Operation::FlashAttnExt(p.flash_attn()),
        sys::GGML_OP_GLU => p.glu()?,
        sys::GGML_OP_IM2COL if two => Operation::Im2col(p.conv()),
        sys::GGML_OP_IM2COL => Operation::Im2col1d(one()),
        sys::GGML_OP_IM2COL_3D => Operation::Im2col3d { inputs: p.int(9), how: p.conv() },
        sys::GGML_OP_IM2COL_BACK if two => Operation::Im2colBack(p.conv()),
        sys::GGML_OP_IM2COL_BACK => Operation::Im2col1dBack(one()),
        sys::GGML_OP_MUL_MAT => Operation::MulMat(p.mul_mat()),
        sys::GGML_OP_PAD => Operation::Pad(p.pad()),
        sys::GGML_OP_POOL_1D => Operation::Pool1d(p.pool()?, p.windows()),
        sys::GGML_OP_POOL_2D => Operation::Pool2d(p.pool()?, p.windows()),
        sys::GGML_OP_POOL_2D_BACK => Operation::Pool2dBack(p.pool()?, p.windows()),
        sys::GGML_OP_ROPE => Operation::Rope(p.rope()?),
        sys::GGML_OP_ROPE_BACK => Operation::RopeBack(p.rope()?),
        sys::GGML_OP_SET => Operation::Set(p.part()),
        sys::GGML_OP_SOFT_MAX => Operation::SoftMax(SoftMax::new().with_scale(p.float(0)).with_max_bias(p.float(1))),
        sys::GGML_OP_TRI => Operation::Tri(p.tri()?),
        sys::GGML_OP_UNARY => p.unary()?,
        sys::GGML_OP_UPSCALE => Operation::Interpolate(p.interpolate()?),
        _ => return None,
    })
}
