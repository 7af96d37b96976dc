//! Operations with typed parameters, in one table. Three files match on [`Operation`] without a wildcard, so a new
//! operation does not compile until they decide about it: `rules/table.rs`, `rules/cpu/mod.rs` and
//! `driver/operation.rs`. CONTRIBUTING.md says how to add one.

mod attention;
mod conv;
mod decode;
mod glu;
mod matmul;
mod numbered;
mod pad;
mod pool;
mod resize;
mod rope;
mod set;
mod sort;
mod tri;
mod unary;

use ggml_sys as sys;

use crate::header::TensorPtr;
use crate::tensor::Tensor;
use decode::operations;

#[cfg(ggml_0_28)]
pub use attention::TopKMaskOptions;
pub use attention::{FlashAttnOptions, SoftMaxOptions};
pub use conv::{Conv1dOptions, Conv2dOptions, Conv3dOptions, ConvOptions};
pub use glu::GluOp;
pub use matmul::{MulMatOptions, Prec};
pub use pad::PadOptions;
pub use pool::{Pool1dOptions, Pool2dOptions, PoolOp, PoolOptions};
pub use resize::{InterpolateMode, InterpolateOptions};
pub use rope::{RopeMode, RopeOptions};
pub use set::SetOptions;
pub use sort::SortOrder;
pub use tri::TriType;
pub use unary::UnaryOp;

/// An operation with its parameters as ggml stores them. Unlike an [`Operation`], which may name tensors, it can be
/// sent to other threads.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::driver::{OpParams, Operation};
/// # let ctx = Context::new();
/// let params = OpParams::from(ctx.scale(ctx.input("x", DType::F32, [2])?, 0.5)?);
/// let halves = move || matches!(params.operation(), Ok(Operation::Scale { factor, .. }) if factor == 0.5);
/// assert!(std::thread::spawn(halves).join().unwrap());
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpParams {
    op: sys::ggml_op,
    params: [i32; 16],
    ne: [i64; 4],
}

impl OpParams {
    pub(crate) fn of(t: TensorPtr) -> Self {
        Self { op: t.op(), params: t.op_params(), ne: t.ne() }
    }

    #[cfg(feature = "rpc")]
    pub(crate) fn new(op: sys::ggml_op, params: [i32; 16], ne: [i64; 4]) -> Self {
        Self { op, params, ne }
    }

    #[cfg(feature = "rpc")]
    pub(crate) fn op(&self) -> sys::ggml_op {
        self.op
    }

    #[cfg(feature = "rpc")]
    pub(crate) fn params(&self) -> [i32; 16] {
        self.params
    }
}

impl From<Tensor<'_>> for OpParams {
    fn from(t: Tensor<'_>) -> Self {
        Self::of(t.ptr())
    }
}

operations! {
    /// An operation with its parameters, as its builder in [`Context`](crate::Context) takes them. Operands that are
    /// options of a builder, such as a mask, are `None` here: they are among the node's sources.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::driver::{Failure, OpParams};
    /// # let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [4])?;
    /// let y = ctx.scale_bias(x, 2.0, 1.0)?;
    /// let operation = OpParams::from(y).operation()?;
    /// let again = operation.build(&ctx, &[Some(x)], y.dtype(), y.ne())?; // the same, of any operands
    /// assert_eq!(again.op(), y.op());
    /// # Ok::<(), Failure>(())
    /// ```
    #[derive(Debug, Clone, Copy)]
    #[non_exhaustive]
    #[expect(missing_docs, reason = "each is the builder's of its name, with the builder's parameters")]
    pub enum Operation: |p| {
        Acc(SetOptions = p.part()) = GGML_OP_ACC;
        Add = GGML_OP_ADD;
        Add1 = GGML_OP_ADD1;
        AddId = GGML_OP_ADD_ID;
        AddRelPos = GGML_OP_ADD_REL_POS;
        Arange { start: f32 = p.float(0), stop: f32 = p.float(1), step: f32 = p.float(2) } = GGML_OP_ARANGE;
        Argmax = GGML_OP_ARGMAX;
        Argsort(SortOrder = SortOrder::of(p.number(0))?) = GGML_OP_ARGSORT;
        Clamp { min: f32 = p.float(0), max: f32 = p.float(1) } = GGML_OP_CLAMP;
        Col2im1d { outputs: i32 = p.int(1), stride: i32 = p.int(0), padding: i32 = p.int(2) } = GGML_OP_COL2IM_1D;
        Concat { dim: usize = p.size(0)? } = GGML_OP_CONCAT;
        Cont = GGML_OP_CONT;
        Conv2dDirect(Conv2dOptions = p.conv()) = GGML_OP_CONV_2D;
        Conv2dDwDirect(Conv2dOptions = p.conv()) = GGML_OP_CONV_2D_DW;
        Conv3dDirect { inputs: i32 = p.int(9), how: Conv3dOptions = p.conv() } = GGML_OP_CONV_3D;
        ConvTranspose1d { stride: i32 = p.int(0) } = GGML_OP_CONV_TRANSPOSE_1D;
        ConvTranspose2dP0 { stride: i32 = p.int(0) } = GGML_OP_CONV_TRANSPOSE_2D;
        Cos = GGML_OP_COS;
        CountEqual = GGML_OP_COUNT_EQUAL;
        Cpy = GGML_OP_CPY;
        CrossEntropyLoss = GGML_OP_CROSS_ENTROPY_LOSS;
        CrossEntropyLossBack = GGML_OP_CROSS_ENTROPY_LOSS_BACK;
        Cumsum = GGML_OP_CUMSUM;
        /// A closure of the user.
        Custom = GGML_OP_CUSTOM | GGML_OP_MAP_CUSTOM1 | GGML_OP_MAP_CUSTOM2 | GGML_OP_MAP_CUSTOM3;
        Diag = GGML_OP_DIAG;
        DiagMaskInf { n_past: i32 = p.int(0) } = GGML_OP_DIAG_MASK_INF;
        DiagMaskZero { n_past: i32 = p.int(0) } = GGML_OP_DIAG_MASK_ZERO;
        Div = GGML_OP_DIV;
        Dsv4HcComb { eps: f32 = p.float(0), n_iter: i32 = p.int(1) } = GGML_OP_DSV4_HC_COMB;
        Dsv4HcPost = GGML_OP_DSV4_HC_POST;
        Dsv4HcPre = GGML_OP_DSV4_HC_PRE if !p.flag(1);
        Dsv4HcPreGated { scale: f32 = p.float(0) } = GGML_OP_DSV4_HC_PRE if p.flag(1);
        Dup = GGML_OP_DUP;
        Fill { value: f32 = p.float(0) } = GGML_OP_FILL;
        FlashAttnExt(FlashAttnOptions<'static> = p.flash_attn()?) = GGML_OP_FLASH_ATTN_EXT;
        GatedDeltaNet { n_snapshots: i64 = p.int(0).into() } = GGML_OP_GATED_DELTA_NET;
        GatedLinearAttn { scale: f32 = p.float(0) } = GGML_OP_GATED_LINEAR_ATTN;
        GetRelPos = GGML_OP_GET_REL_POS;
        GetRows = GGML_OP_GET_ROWS;
        GetRowsBack = GGML_OP_GET_ROWS_BACK;
        Glu { op: GluOp = GluOp::of(p.number(0))?, swapped: bool = p.flag(1) } = GGML_OP_GLU if !p.is_limited_glu();
        GroupNorm { groups: i32 = p.int(0), eps: f32 = p.float(1) } = GGML_OP_GROUP_NORM;
        // A 1-d `im2col` has the parameters of a 2-d one. Those of the second dimension have no meaning then.
        Im2col(Conv2dOptions = p.conv()) = GGML_OP_IM2COL if p.flag(6);
        Im2col1d(Conv1dOptions = p.conv_1d()) = GGML_OP_IM2COL if !p.flag(6);
        Im2col1dBack(Conv1dOptions = p.conv_1d()) = GGML_OP_IM2COL_BACK if !p.flag(6);
        Im2col3d { inputs: i32 = p.int(9), how: Conv3dOptions = p.conv() } = GGML_OP_IM2COL_3D;
        Im2colBack(Conv2dOptions = p.conv()) = GGML_OP_IM2COL_BACK if p.flag(6);
        Interpolate(InterpolateOptions = p.interpolate()?) = GGML_OP_UPSCALE;
        L2Norm { eps: f32 = p.float(0) } = GGML_OP_L2_NORM;
        LeakyRelu { slope: f32 = p.float(0) } = GGML_OP_LEAKY_RELU;
        LightningIndexer = GGML_OP_LIGHTNING_INDEXER;
        Log = GGML_OP_LOG;
        Mean = GGML_OP_MEAN;
        Mul = GGML_OP_MUL;
        MulMat(MulMatOptions = p.mul_mat()?) = GGML_OP_MUL_MAT;
        MulMatId(MulMatOptions = p.mul_mat()?) = GGML_OP_MUL_MAT_ID;
        /// A leaf: no operation.
        None = GGML_OP_NONE;
        Norm { eps: f32 = p.float(0) } = GGML_OP_NORM;
        OptStepAdamw = GGML_OP_OPT_STEP_ADAMW;
        OptStepSgd = GGML_OP_OPT_STEP_SGD;
        OutProd = GGML_OP_OUT_PROD;
        Pad(PadOptions = p.pad()) = GGML_OP_PAD;
        PadReflect1d { left: i32 = p.int(0), right: i32 = p.int(1) } = GGML_OP_PAD_REFLECT_1D;
        /// Dimension `i` of the operand becomes dimension `axes[i]` of the result.
        Permute { axes: [usize; 4] = [p.axis(0)?, p.axis(1)?, p.axis(2)?, p.axis(3)?] } = GGML_OP_PERMUTE;
        Pool1d(PoolOp = PoolOp::of(p.number(0))?, Pool1dOptions = p.windows()) = GGML_OP_POOL_1D;
        Pool2d(PoolOp = PoolOp::of(p.number(0))?, Pool2dOptions = p.windows()) = GGML_OP_POOL_2D;
        Pool2dBack(PoolOp = PoolOp::of(p.number(0))?, Pool2dOptions = p.windows()) = GGML_OP_POOL_2D_BACK;
        Repeat = GGML_OP_REPEAT;
        RepeatBack = GGML_OP_REPEAT_BACK;
        Reshape = GGML_OP_RESHAPE;
        RmsNorm { eps: f32 = p.float(0) } = GGML_OP_RMS_NORM;
        RmsNormBack { eps: f32 = p.float(0) } = GGML_OP_RMS_NORM_BACK;
        Roll { shifts: [i32; 4] = p.ints(0, 1) } = GGML_OP_ROLL;
        Rope(RopeOptions<'static> = p.rope()?) = GGML_OP_ROPE;
        RopeBack(RopeOptions<'static> = p.rope()?) = GGML_OP_ROPE_BACK;
        RwkvWkv6 = GGML_OP_RWKV_WKV6;
        RwkvWkv7 = GGML_OP_RWKV_WKV7;
        Scale { factor: f32 = p.float(0), bias: f32 = p.float(1) } = GGML_OP_SCALE;
        Set(SetOptions = p.part()) = GGML_OP_SET;
        SetRows = GGML_OP_SET_ROWS;
        SiluBack = GGML_OP_SILU_BACK;
        Sin = GGML_OP_SIN;
        SoftMax(SoftMaxOptions<'static> = p.soft_max()) = GGML_OP_SOFT_MAX;
        // Builders never set the parameter `max_bias` of this operation, and no device supports it.
        SoftMaxBack { scale: f32 = p.float(0) } = GGML_OP_SOFT_MAX_BACK if p.float(1) == 0.0;
        SolveTri = GGML_OP_SOLVE_TRI;
        Sqr = GGML_OP_SQR;
        Sqrt = GGML_OP_SQRT;
        SsmConv = GGML_OP_SSM_CONV;
        SsmScan { n_snapshots: i64 = p.int(0).into() } = GGML_OP_SSM_SCAN;
        Sub = GGML_OP_SUB;
        Sum = GGML_OP_SUM;
        SumRows = GGML_OP_SUM_ROWS;
        SwigluClamp { limit: f32 = p.float(3) } = GGML_OP_GLU if p.is(sys::GGML_GLU_OP_SWIGLU_CLAMP);
        SwigluOai { alpha: f32 = p.float(2), limit: f32 = p.float(3) } = GGML_OP_GLU if p.is(sys::GGML_GLU_OP_SWIGLU_OAI);
        TimestepEmbedding { dim: i32 = p.int(0), max_period: i32 = p.int(1) } = GGML_OP_TIMESTEP_EMBEDDING;
        TopK { k: i32 = p.row_length()? } = GGML_OP_TOP_K;
        TopKMask = #[cfg(ggml_0_28)] GGML_OP_TOP_K_MASK;
        Transpose = GGML_OP_TRANSPOSE;
        Tri(TriType = TriType::of(p.number(0))?) = GGML_OP_TRI;
        Unary(UnaryOp = UnaryOp::of(p.number(0))?) = GGML_OP_UNARY if !p.is(sys::GGML_UNARY_OP_XIELU);
        View = GGML_OP_VIEW;
        WinPart { w: i32 = p.int(2) } = GGML_OP_WIN_PART;
        WinUnpart { w: i32 = p.int(0) } = GGML_OP_WIN_UNPART;
        /// The fields `alpha_n` and `alpha_p` are what ggml stores: `beta + softplus(alpha_n)` and `softplus(alpha_p)`,
        /// by the builder's `alpha_n` and `alpha_p`.
        Xielu { alpha_n: f32 = p.float(1), alpha_p: f32 = p.float(2), beta: f32 = p.float(3), eps: f32 = p.float(4) }
            = GGML_OP_UNARY if p.is(sys::GGML_UNARY_OP_XIELU);
    }
}

impl Operation {
    /// The operation in a header; `None` where [`OpParams::decode`] returns that.
    #[inline]
    pub(crate) fn of(t: TensorPtr) -> Option<Self> {
        OpParams::of(t).decode()
    }
}
