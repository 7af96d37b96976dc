//! Which operations ggml's CPU kernels accept. The CPU device claims nearly everything. A kernel then aborts on a
//! worker thread, where nothing can catch it, or reads out of bounds, so this table decides.

mod attention;
mod backward;
mod conv;
mod copy;
mod elementwise;
mod indexed;
mod matrix;
mod packed;
mod recurrent;
mod rows;
mod set;
mod sort;

/// What the rules of all families of operations use.
mod prelude {
    pub(super) use super::{
        EVEN, FLOATS, MOST, PACKED, ROWS, Refusal, Verdict, countable_whole, need, rows_of, sources,
    };
    pub(super) use crate::dtype::DType;
    pub(super) use crate::header::TensorPtr;
}

use super::{Refusal, Verdict, need};
use crate::dtype::DType;
use crate::header::TensorPtr;
use crate::op::Operation as Op;

pub(crate) use sort::clamps_nan;

/// Whether the CPU has a kernel for the operation `t`; else the reason. Conditions that the operation's builder checks
/// need no check here. For each arm, the builder is the method of the same name in `ops/`.
#[expect(clippy::too_many_lines, reason = "an arm for each operation")]
pub(crate) fn accepts(t: TensorPtr) -> Verdict {
    let op = super::operation(t)?;
    if !t.is_view_op() {
        countable(t)?;
    }
    match op {
        // These operations compute nothing, or their builders check all that kernels, and calls of a closure, need.
        Op::None
        | Op::Reshape
        | Op::View
        | Op::Permute { .. }
        | Op::Transpose
        | Op::Arange { .. }
        | Op::Col2im1d { .. }
        | Op::Conv2dDwDirect(_)
        | Op::Custom
        | Op::Dsv4HcComb { .. }
        | Op::Dsv4HcPost
        | Op::Dsv4HcPre
        | Op::Dsv4HcPreGated { .. }
        | Op::GatedLinearAttn { .. }
        | Op::Interpolate(_)
        | Op::Pad(_)
        | Op::PadReflect1d { .. }
        | Op::RwkvWkv6
        | Op::WinPart { .. }
        | Op::WinUnpart { .. } => Ok(()),
        Op::AddRelPos => attention::add_rel_pos(t),
        Op::FlashAttnExt(how) => attention::flash_attn(t, how),
        Op::GetRelPos => attention::get_rel_pos(t),
        Op::LightningIndexer => attention::lightning_indexer(t),
        Op::CrossEntropyLossBack => backward::cross_entropy_loss_back(t),
        Op::Im2col1dBack(_) | Op::Im2colBack(_) => backward::im2col_back(t),
        Op::OptStepAdamw | Op::OptStepSgd => backward::opt_step(t),
        Op::Pool2dBack(..) => backward::pool_2d_back(t),
        Op::RmsNormBack { .. } => backward::rms_norm_back(t),
        Op::SiluBack => backward::silu_back(t),
        Op::SoftMaxBack { .. } => backward::soft_max_back(t),
        Op::Conv2dDirect(_) => conv::conv_2d(t),
        Op::Conv3dDirect { inputs, .. } => conv::conv_3d(t, inputs),
        Op::ConvTranspose1d { .. } | Op::ConvTranspose2dP0 { .. } => conv::conv_transpose(t),
        Op::Im2col(_) | Op::Im2col1d(_) => conv::im2col(t),
        Op::Im2col3d { .. } => conv::im2col_3d(t),
        Op::Pool1d(..) | Op::Pool2d(..) => conv::pool(t),
        Op::Concat { .. } => copy::concat(t),
        Op::Cont | Op::Cpy | Op::Dup => copy::copies(t),
        Op::Repeat => copy::repeat(t),
        Op::Add => elementwise::add(t),
        Op::Add1 => elementwise::add1(t),
        Op::Clamp { .. } => elementwise::f32_or_f16(t, cfg!(not(ggml_0_28))),
        Op::Cos | Op::Log | Op::Sin | Op::Sqr | Op::Sqrt | Op::Unary(_) => elementwise::function(t),
        Op::Div | Op::Mul | Op::Sub => elementwise::binary(t),
        Op::Fill { .. } => elementwise::fill(t),
        Op::Glu { .. } => elementwise::glu(t),
        Op::LeakyRelu { .. } => elementwise::f32_or_f16(t, true),
        Op::Scale { .. } => elementwise::scale(t),
        Op::SwigluClamp { .. } => elementwise::swiglu_clamp(t),
        Op::SwigluOai { .. } => elementwise::swiglu_oai(t),
        Op::Xielu { .. } => elementwise::xielu(t),
        Op::AddId => indexed::add_id(t),
        Op::GetRows => indexed::get_rows(t),
        Op::GetRowsBack => indexed::get_rows_back(t),
        Op::MulMatId(_) => indexed::mul_mat_id(t),
        Op::SetRows => indexed::set_rows(t),
        Op::MulMat(how) => matrix::mul_mat(t, how),
        Op::OutProd => matrix::out_prod(t),
        Op::SolveTri => matrix::solve_tri(t),
        Op::GatedDeltaNet { .. } => recurrent::gated_delta_net(t),
        Op::RwkvWkv7 => recurrent::rwkv_wkv7(t),
        Op::SsmConv => recurrent::ssm_conv(t),
        Op::SsmScan { .. } => recurrent::ssm_scan(t),
        Op::Argmax
        | Op::Cumsum
        | Op::Diag
        | Op::GroupNorm { .. }
        | Op::Mean
        | Op::RmsNorm { .. }
        | Op::Roll { .. }
        | Op::SumRows
        | Op::TimestepEmbedding { .. } => rows::of_rows(t),
        Op::CountEqual => rows::count_equal(t),
        Op::CrossEntropyLoss => rows::cross_entropy_loss(t),
        Op::DiagMaskInf { .. } | Op::DiagMaskZero { .. } => rows::diag_mask(t),
        Op::L2Norm { .. } | Op::Norm { .. } => rows::norm(t),
        Op::RepeatBack => rows::repeat_back(t),
        Op::Rope(_) | Op::RopeBack(_) => rows::rope(t),
        Op::SoftMax(_) | Op::Tri(_) => rows::contiguous(t),
        Op::TopKMask => rows::top_k_mask(t),
        Op::Sum => rows::sum(t),
        Op::Acc(_) => set::acc(t),
        Op::Set(_) => set::set(t),
        Op::Argsort(_) | Op::TopK { .. } => sort::sort(t),
    }
}

/// The first `N` sources, or a refusal if one is missing.
fn sources<const N: usize>(t: TensorPtr) -> Verdict<[TensorPtr; N]> {
    let found = t.slots().first_chunk::<N>().copied().unwrap_or([None; N]);
    need(found.iter().all(Option::is_some), "the operation lacks an operand")?;
    Ok(found.map(|src| src.unwrap_or(t)))
}

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];
const ROWS: &str = "the CPU kernel needs contiguous rows; use `cont`";
const EVEN: &str = "the CPU kernel needs evenly spaced rows; use `cont`";
const PACKED: &str = "the CPU kernel needs an operand with the strides of a new tensor; use `cont`";

fn rows_of(t: TensorPtr, types: &[DType], otherwise: &'static str) -> Verdict {
    need(types.contains(&t.dtype()), otherwise)?;
    need(t.has_dense_rows(), ROWS)
}

/// The exclusive upper bound of the number of elements in a row, and of the number of rows. Kernels count both in 32
/// bits, and add the width of a vector or the number of threads (H38).
const MOST: i64 = (1 << 31) - (1 << 16);

fn countable(t: TensorPtr) -> Verdict {
    let fits = |t: TensorPtr| {
        let [n0, n1, n2, n3] = t.ne();
        let rows = n1.checked_mul(n2).and_then(|n| n.checked_mul(n3));
        [Some(n0), rows].iter().all(|n| n.is_some_and(|n| n < MOST))
    };
    need(t.sources().chain([t]).all(fits), "the CPU kernels take less than 2^31 - 2^16 rows, or elements of a row")
}

/// Whether a kernel can count all elements of a tensor (or blocks, for block types) in 32 bits, as if they were one
/// row.
fn countable_whole(t: TensorPtr) -> bool {
    let [n0, n1, n2, n3] = t.ne();
    let count = [n1, n2, n3].into_iter().try_fold(n0 / t.dtype().block_size(), i64::checked_mul);
    count.is_some_and(|n| n < MOST)
}
