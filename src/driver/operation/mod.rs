//! Operations with typed parameters: the one place that decodes what builders put into `op_params`.

mod build;
mod decode;

use crate::ops::{
    Conv1d, Conv2d, Conv3d, FlashAttn, Glu, Interpolate, MulMat, Pad, Part, Pool, Pool1d, Pool2d, Rope, SoftMax,
    SortOrder, TriType, UnaryOp,
};

use ggml_sys as sys;

use crate::driver::Failure;
use crate::header::TensorPtr;
use crate::tensor::Tensor;

/// An operation as ggml keeps it, for other threads: an [`Operation`] may name tensors, so it stays on its thread.
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
    pub(super) fn of(t: TensorPtr) -> Self {
        Self { op: t.op(), params: t.op_params(), ne: t.ne() }
    }

    /// Decodes the operation.
    ///
    /// # Errors
    ///
    /// A failure for an operation that [`Operation`] doesn't know, or parameters that no builder makes.
    pub fn operation(&self) -> Result<Operation, Failure> {
        Operation::of(self)
    }
}

impl From<Tensor<'_>> for OpParams {
    fn from(t: Tensor<'_>) -> Self {
        Self::of(t.ptr())
    }
}

/// An operation with its parameters, as its builder in [`Context`](crate::Context) takes them. Operands that are options
/// of a builder, such as a mask, are `None` here: they are among the node's sources.
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
pub enum Operation {
    Acc(Part),
    Add,
    Add1,
    AddId,
    AddRelPos,
    Arange {
        start: f32,
        stop: f32,
        step: f32,
    },
    Argmax,
    Argsort(SortOrder),
    Clamp {
        min: f32,
        max: f32,
    },
    Col2im1d {
        outputs: i32,
        stride: i32,
        padding: i32,
    },
    Concat {
        dim: usize,
    },
    Cont,
    Conv2dDirect(Conv2d),
    Conv2dDwDirect(Conv2d),
    Conv3dDirect {
        inputs: i32,
        how: Conv3d,
    },
    ConvTranspose1d {
        stride: i32,
    },
    ConvTranspose2dP0 {
        stride: i32,
    },
    Cos,
    CountEqual,
    Cpy,
    CrossEntropyLoss,
    CrossEntropyLossBack,
    Cumsum,
    Diag,
    DiagMaskInf {
        n_past: i32,
    },
    DiagMaskZero {
        n_past: i32,
    },
    Div,
    Dsv4HcComb {
        eps: f32,
        n_iter: i32,
    },
    Dsv4HcPost,
    Dsv4HcPre,
    Dsv4HcPreGated {
        scale: f32,
    },
    Dup,
    Fill {
        value: f32,
    },
    FlashAttnExt(FlashAttn<'static>),
    GatedDeltaNet {
        n_snapshots: i64,
    },
    GatedLinearAttn {
        scale: f32,
    },
    GetRelPos,
    GetRows,
    GetRowsBack,
    Glu {
        op: Glu,
        swapped: bool,
    },
    GroupNorm {
        groups: i32,
        eps: f32,
    },
    Im2col(Conv2d),
    Im2col1d(Conv1d),
    Im2col1dBack(Conv1d),
    Im2col3d {
        inputs: i32,
        how: Conv3d,
    },
    Im2colBack(Conv2d),
    Interpolate(Interpolate),
    L2Norm {
        eps: f32,
    },
    LeakyRelu {
        slope: f32,
    },
    LightningIndexer,
    Log,
    Mean,
    Mul,
    MulMat(MulMat),
    MulMatId,
    Norm {
        eps: f32,
    },
    OptStepAdamw,
    OptStepSgd,
    OutProd,
    Pad(Pad),
    PadReflect1d {
        left: i32,
        right: i32,
    },
    Pool1d(Pool, Pool1d),
    Pool2d(Pool, Pool2d),
    Pool2dBack(Pool, Pool2d),
    Repeat,
    RepeatBack,
    RmsNorm {
        eps: f32,
    },
    RmsNormBack {
        eps: f32,
    },
    Roll {
        shifts: [i32; 4],
    },
    Rope(Rope<'static>),
    RopeBack(Rope<'static>),
    RwkvWkv6,
    RwkvWkv7,
    Scale {
        factor: f32,
        bias: f32,
    },
    Set(Part),
    SetRows,
    SiluBack,
    Sin,
    SoftMax(SoftMax<'static>),
    SoftMaxBack {
        scale: f32,
    },
    SolveTri,
    Sqr,
    Sqrt,
    SsmConv,
    SsmScan {
        n_snapshots: i64,
    },
    Sub,
    Sum,
    SumRows,
    SwigluClamp {
        limit: f32,
    },
    SwigluOai {
        alpha: f32,
        limit: f32,
    },
    TimestepEmbedding {
        dim: i32,
        max_period: i32,
    },
    TopK {
        k: i32,
    },
    TopKMask,
    Tri(TriType),
    Unary(UnaryOp),
    WinPart {
        w: i32,
    },
    WinUnpart {
        w: i32,
    },
    /// `alpha_n` and `alpha_p` as ggml keeps them: `beta + softplus(alpha_n)` and `softplus(alpha_p)`.
    Xielu {
        alpha_n: f32,
        alpha_p: f32,
        beta: f32,
        eps: f32,
    },
}
