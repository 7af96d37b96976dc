//! Losses: one number from a model's outputs.

use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::check::{Call, Entered};
use crate::tensor::Tensor;

/// The loss to minimise (`ggml_opt_loss_type`).
///
/// For any other loss, compute it as an output with one element and use [`LossType::Sum`].
///
#[doc = include_str!("line.txt")]
/// // A loss of one's own: the mean absolute difference.
/// let labels = ctx.input_like("labels", y)?;
/// let loss = ctx.scale(ctx.sum(ctx.abs(ctx.sub(labels, y)?)?)?, 0.5)?;
/// let opt = OptContext::new([a, b], OptParams::new(LossType::Sum))?;
/// let graphs = opt.graphs(&ctx, None, loss)?;
/// assert_eq!(graphs.labels(), None);
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_opt_loss_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossType {
    /// The mean of all outputs is the loss.
    Mean,
    /// The sum of all outputs is the loss.
    Sum,
    /// The cross entropy of the labels and the softmax of the outputs; one column (`ne[0]`) per datapoint. Labels are
    /// probabilities and should sum to 1 per datapoint.
    CrossEntropy,
    /// The mean squared difference of labels and outputs.
    MeanSquaredError,
}

impl LossType {
    /// Whether the loss is a mean, and so independent of the number of datapoints.
    pub(super) fn is_mean(self) -> bool {
        self != Self::Sum
    }
}

/// A loss and the tensors computed with it.
#[derive(Clone, Copy)]
pub(super) struct Loss<'c> {
    /// The loss, a tensor of one element.
    pub(super) value: Tensor<'c>,
    /// The input for the labels; `None` for losses without labels.
    pub(super) labels: Option<Tensor<'c>>,
    /// The index of each datapoint's largest output.
    pub(super) pred: Option<Tensor<'c>>,
    /// The number of predictions that match the largest label.
    pub(super) ncorrect: Option<Tensor<'c>>,
}

impl<'c> Loss<'c> {
    /// Builds the loss of `outputs`. A mean is divided by `period`, the number of batches whose gradients are summed.
    pub(super) fn new(ctx: &'c Context, what: LossType, outputs: Tensor<'c>, period: u32) -> Result<Self> {
        let call = Call { op: Entered::other("OptContext::graphs"), operands: &[outputs] };
        call.dtype(outputs.dtype() == DType::F32, "outputs must be f32")?;
        let labels = || ctx.input_like("labels", outputs);
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a factor, which is rounded")]
        let share = |n: usize| (1.0 / (f64::from(period) * n as f64)) as f32;
        let unlabelled = |value| Self { value, labels: None, pred: None, ncorrect: None };
        let with = match what {
            LossType::Mean => unlabelled(ctx.scale(ctx.sum(outputs)?, share(outputs.elements()))?),
            LossType::Sum => unlabelled(ctx.sum(outputs)?),
            LossType::CrossEntropy => {
                let labels = labels()?;
                let pred = ctx.argmax(outputs)?.named("pred")?;
                let ncorrect = ctx.count_equal(pred, ctx.argmax(labels)?)?.named("ncorrect")?;
                let entropy = ctx.cross_entropy_loss(outputs, labels)?;
                let value = if period == 1 { entropy } else { ctx.scale(entropy, share(1))? };
                Self { value, labels: Some(labels), pred: Some(pred), ncorrect: Some(ncorrect) }
            }
            LossType::MeanSquaredError => {
                let labels = labels()?;
                let squares = ctx.sqr(ctx.sub(outputs, labels)?)?;
                let value = ctx.scale(ctx.sum(squares)?, share(outputs.elements()))?;
                Self { labels: Some(labels), ..unlabelled(value) }
            }
        };
        with.value.named("loss")?;
        Ok(with)
    }

    /// The tensors to read after a computation.
    pub(super) fn results(&self) -> impl Iterator<Item = Tensor<'c>> {
        [Some(self.value), self.pred, self.ncorrect].into_iter().flatten()
    }
}
