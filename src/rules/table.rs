//! The table of operations. Each row has what devices and checks need to know of one operation. What CPU kernels accept
//! is in `cpu/`, as a function for each operation.

use super::blas::Blas;
use super::indices::Bound::{self, Result, Source};
use super::indices::Distinct;
use super::indices::Role::{self, Makes, No, RemovesNan};
use super::meta::Rule;
use super::training::Backward;
use super::vulkan::{Limit, Offsets};
use super::{Verdict, operation};
use crate::header::TensorPtr;
use crate::op::{GluOp, Operation as Op, UnaryOp};

/// What the rules know of one operation: a row of the table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// Which operands Vulkan's shader takes at any offset.
    pub(super) offsets: Offsets,
    /// Which other limit Vulkan's shader has.
    pub(super) limit: Limit,
    /// Which of BLAS's two products the operation is, if any.
    pub(super) blas: Option<Blas>,
    /// How a meta device splits the result; `None` if this crate knows no rule.
    pub(super) split: Option<Rule>,
    /// The backward pass of the operation in ggml.
    pub(super) backward: Backward,
    /// How the operation uses or makes indices.
    pub(super) role: Role,
    /// Over which operand the result may lie.
    #[cfg_attr(not(feature = "rpc"), expect(dead_code, reason = "headers of C's are not checked for it"))]
    pub(super) overwrites: Overwrites,
}

/// Over which operand of the same layout a result may lie, apart from operations that write to an operand by design.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Overwrites {
    No,
    /// Any: ggml's allocator gives the result the operand's memory (`ggml_op_can_inplace`).
    Any,
    /// As `Any`. There is a builder in place, too, whose result has the first operand's strides.
    AnyOrFirst,
    /// The first, by a builder in place alone.
    First,
}

/// The row for the operation in a header.
#[inline]
pub(super) fn row_of(t: TensorPtr) -> Verdict<Row> {
    operation(t).map(row)
}

/// The row of an operation: offsets and limit of Vulkan, BLAS, the split on a meta device, the backward pass, indices, and
/// what the result may overwrite.
/// Inline, so that a caller that needs one column computes no other.
#[inline]
#[expect(clippy::too_many_lines, clippy::match_same_arms, reason = "a row for each operation")]
pub(super) fn row(op: Op) -> Row {
    use Backward as B;
    use Distinct as D;
    use Limit as L;
    use Offsets::{Aligned, Any, AnyByte, FirstAny};
    use Overwrites as W;
    use Rule as R;
    match op {
        Op::Acc(_) => new(Any, L::None, None, None, B::Acc, No, W::No),
        Op::Add => new(Any, L::None, None, Some(R::Broadcast), B::Add, No, W::AnyOrFirst),
        Op::Add1 => new(Any, L::None, None, None, B::Add1, No, W::AnyOrFirst),
        Op::AddId => {
            new(Aligned, L::Dimensions12, None, None, B::None, reads(2, Source { slot: 1, axis: 1 }, D::No), W::Any)
        }
        Op::AddRelPos => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Arange { .. } => new(Aligned, L::Flat, None, None, B::None, No, W::No),
        Op::Argmax => new(Aligned, L::None, None, Some(R::Whole), B::None, No, W::No),
        Op::Argsort(_) => new(Aligned, L::None, None, None, B::None, Makes, W::No),
        Op::Clamp { .. } => new(Any, L::None, None, Some(R::Elements), B::None, RemovesNan, W::AnyOrFirst),
        Op::Col2im1d { .. } => new(Aligned, L::Result, None, None, B::None, No, W::No),
        Op::Concat { .. } => new(AnyByte, L::None, None, Some(R::Whole), B::None, No, W::No),
        Op::Cont => new(Any, L::Copies, None, Some(R::Reshape), B::Cont, No, W::No),
        Op::Conv2dDirect(_) => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Conv2dDwDirect(_) => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Conv3dDirect { .. } => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::ConvTranspose1d { .. } => new(Aligned, L::Dimension1, None, None, B::None, No, W::No),
        Op::ConvTranspose2dP0 { .. } => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Cos => new(Any, L::None, None, Some(R::Elements), B::First, No, W::First),
        Op::CountEqual => new(Aligned, L::Flat, None, None, B::None, No, W::No),
        Op::Cpy => new(Any, L::Copies, None, Some(R::Cast), B::Cpy, No, W::No),
        Op::CrossEntropyLoss => new(Aligned, L::None, None, None, B::Loss, No, W::No),
        Op::CrossEntropyLossBack => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Cumsum => new(Aligned, L::Rows, None, Some(R::Whole), B::None, No, W::No),
        Op::Custom => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Diag => new(Any, L::None, None, None, B::None, No, W::No),
        Op::DiagMaskInf { .. } => new(Aligned, L::Rows, None, Some(R::Whole), B::First, No, W::AnyOrFirst),
        Op::DiagMaskZero { .. } => new(Aligned, L::None, None, None, B::First, No, W::AnyOrFirst),
        Op::Div => new(Any, L::None, None, Some(R::Broadcast), B::Div, No, W::AnyOrFirst),
        Op::Dsv4HcComb { .. } => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Dsv4HcPost => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Dsv4HcPre => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Dsv4HcPreGated { .. } => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Dup => new(Any, L::Copies, None, None, B::Same, No, W::First),
        Op::Fill { .. } => new(Aligned, L::None, None, None, B::None, No, W::AnyOrFirst),
        Op::FlashAttnExt(how) => {
            new(Aligned, L::None, None, Some(R::Attention { bias: how.max_bias != 0.0 }), B::None, No, W::No)
        }
        Op::GatedDeltaNet { .. } => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::GatedLinearAttn { .. } => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::GetRelPos => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::GetRows => {
            new(Any, L::None, None, Some(R::Pick), B::GetRows, reads(1, Source { slot: 0, axis: 1 }, D::No), W::No)
        }
        Op::GetRowsBack => new(Aligned, L::None, None, None, B::None, reads(1, Result { axis: 1 }, D::No), W::No),
        Op::Glu { op, .. } => new(Any, L::None, None, Some(R::Glu), B::Glu { swiglu: op == GluOp::Swiglu }, No, W::No),
        Op::GroupNorm { .. } => new(Aligned, L::None, None, Some(R::Whole), B::None, No, W::First),
        Op::Im2col(_) => new(Aligned, L::None, None, Some(R::Whole), B::Im2col { two: true }, No, W::No),
        Op::Im2col1d(_) => new(Aligned, L::None, None, Some(R::Whole), B::Im2col { two: false }, No, W::No),
        Op::Im2col1dBack(_) => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Im2col3d { .. } => new(Aligned, L::Result, None, None, B::None, No, W::No),
        Op::Im2colBack(_) => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Interpolate(_) => new(Any, L::None, None, Some(R::Whole), B::None, No, W::No),
        Op::L2Norm { .. } => new(Any, L::None, None, Some(R::Rows), B::None, No, W::First),
        Op::LeakyRelu { .. } => new(Any, L::None, None, Some(R::Elements), B::None, No, W::First),
        Op::LightningIndexer => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Log => new(Any, L::None, None, Some(R::Elements), B::First, No, W::AnyOrFirst),
        Op::Mean => new(Any, L::None, None, Some(R::Rows), B::Mean, No, W::No),
        Op::Mul => new(Any, L::None, None, Some(R::Broadcast), B::Both, No, W::AnyOrFirst),
        Op::MulMat(how) => new(
            Aligned,
            L::None,
            Some(Blas::Product),
            Some(R::Product),
            B::MulMat { hadamard: how.hadamard },
            No,
            W::No,
        ),
        Op::MulMatId(_) => {
            new(Aligned, L::None, None, None, B::None, reads(2, Source { slot: 0, axis: 2 }, D::Always), W::No)
        }
        Op::None => new(Aligned, L::None, None, Some(R::Whole), B::None, No, W::No),
        Op::Norm { .. } => new(Any, L::None, None, Some(R::Rows), B::None, No, W::First),
        Op::OptStepAdamw => new(Aligned, L::Flat, None, None, B::None, No, W::No),
        Op::OptStepSgd => new(Aligned, L::Flat, None, None, B::None, No, W::No),
        Op::OutProd => new(Any, L::None, Some(Blas::OuterProduct), Some(R::Whole), B::None, No, W::No),
        Op::Pad(_) => new(Any, L::None, None, Some(R::Whole), B::None, No, W::No),
        Op::PadReflect1d { .. } => new(Any, L::None, None, None, B::None, No, W::No),
        Op::Permute { axes } => new(Aligned, L::None, None, Some(R::Permute(axes)), B::Permute(axes), No, W::No),
        Op::Pool1d(..) => new(Aligned, L::Flat, None, None, B::None, No, W::No),
        Op::Pool2d(_, how) => new(Aligned, L::Pool(how), None, Some(R::Whole), B::First, No, W::No),
        Op::Pool2dBack(..) => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Repeat => new(Any, L::None, None, Some(R::Whole), B::First, No, W::No),
        Op::RepeatBack => new(Any, L::None, None, None, B::First, No, W::No),
        Op::Reshape => new(Aligned, L::None, None, Some(R::Reshape), B::First, No, W::No),
        Op::RmsNorm { .. } => new(Any, L::Dimensions123, None, Some(R::Rows), B::First, No, W::AnyOrFirst),
        Op::RmsNormBack { .. } => new(Aligned, L::None, None, None, B::None, No, W::Any),
        Op::Roll { .. } => new(Any, L::None, None, None, B::None, No, W::No),
        Op::Rope(how) => {
            new(FirstAny, L::None, None, Some(R::Rope), B::Rope { offset: how.offset != 0 }, No, W::AnyOrFirst)
        }
        Op::RopeBack(_) => new(FirstAny, L::None, None, None, B::None, No, W::AnyOrFirst),
        Op::RwkvWkv6 => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::RwkvWkv7 => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Scale { .. } => new(Any, L::None, None, Some(R::Elements), B::FirstOfEven, No, W::AnyOrFirst),
        Op::Set(_) => new(Any, L::None, None, None, B::Set, No, W::No),
        Op::SetRows => {
            new(Any, L::None, None, Some(R::SetRows), B::None, reads(1, Result { axis: 1 }, D::Always), W::No)
        }
        Op::SiluBack => new(Aligned, L::Flat, None, None, B::None, No, W::Any),
        Op::Sin => new(Any, L::None, None, Some(R::Elements), B::First, No, W::First),
        Op::SoftMax(how) => {
            let bias = how.max_bias != 0.0;
            new(Aligned, L::LongRows, None, Some(R::SoftMax { bias }), B::SoftMax { bias }, No, W::AnyOrFirst)
        }
        Op::SoftMaxBack { .. } => new(Aligned, L::None, None, None, B::None, No, W::AnyOrFirst),
        Op::SolveTri => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Sqr => new(Any, L::None, None, Some(R::Elements), B::First, No, W::AnyOrFirst),
        Op::Sqrt => new(Any, L::None, None, Some(R::Elements), B::First, No, W::AnyOrFirst),
        Op::SsmConv => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::SsmScan { .. } => {
            new(Aligned, L::None, None, None, B::None, reads(6, Source { slot: 0, axis: 3 }, D::No), W::No)
        }
        Op::Sub => new(Any, L::None, None, Some(R::Broadcast), B::Sub, No, W::AnyOrFirst),
        Op::Sum => new(Any, L::Contiguous, None, Some(R::Whole), B::Sum, No, W::No),
        Op::SumRows => new(Any, L::None, None, Some(R::Rows), B::First, No, W::No),
        Op::SwigluClamp { .. } => new(Any, L::None, None, Some(R::Glu), B::Glu { swiglu: false }, No, W::No),
        Op::SwigluOai { .. } => new(Any, L::None, None, Some(R::Glu), B::Glu { swiglu: false }, No, W::No),
        Op::TimestepEmbedding { .. } => new(Aligned, L::Dimension0, None, None, B::None, No, W::No),
        Op::TopK { .. } => new(Aligned, L::NotOne, None, None, B::None, Makes, W::No),
        Op::TopKMask => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Transpose => new(Aligned, L::None, None, Some(R::Transpose), B::Permute([1, 0, 2, 3]), No, W::No),
        Op::Tri(_) => new(Any, L::None, None, None, B::None, No, W::No),
        Op::Unary(function) => new(Any, L::None, None, Some(R::Elements), backward_of(function), No, W::AnyOrFirst),
        Op::View => new(Aligned, L::None, None, Some(R::View), B::View, No, W::No),
        Op::WinPart { .. } => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::WinUnpart { .. } => new(Aligned, L::None, None, None, B::None, No, W::No),
        Op::Xielu { .. } => new(Any, L::None, None, Some(R::Elements), B::None, No, W::Any),
    }
}

fn backward_of(function: UnaryOp) -> Backward {
    use UnaryOp as F;
    match function {
        F::Sgn | F::Step => Backward::Constant,
        F::Neg => Backward::FirstOfRows,
        F::Abs | F::Relu | F::Silu | F::Exp | F::ExpM1 | F::SoftPlus => Backward::First,
        F::Tanh | F::Elu | F::Sigmoid | F::Gelu | F::GeluQuick | F::HardSwish | F::HardSigmoid | F::GeluErf => {
            Backward::None
        }
        F::Floor | F::Ceil | F::Round | F::Trunc => Backward::None,
    }
}

fn new(
    offsets: Offsets,
    limit: Limit,
    blas: Option<Blas>,
    split: Option<Rule>,
    backward: Backward,
    role: Role,
    overwrites: Overwrites,
) -> Row {
    Row { offsets, limit, blas, split, backward, role, overwrites }
}

fn reads(slot: usize, below: Bound, distinct: Distinct) -> Role {
    Role::Reads { slot, below, distinct }
}
