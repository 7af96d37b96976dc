//! What is made smaller: one number from a model's outputs.

use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::ops::check::Call;
use crate::tensor::Tensor;

/// What a training makes smaller (`ggml_opt_loss_type`).
///
/// Any other loss is a computation whose result is one number, with [`LossType::Sum`].
#[doc(alias = "ggml_opt_loss_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LossType {
    /// The mean of all outputs.
    Mean,
    /// The sum of all outputs.
    Sum,
    /// The cross entropy between labels and the softmax of outputs, one column for each datapoint. Labels are
    /// probabilities: those of each datapoint should have the sum 1.
    CrossEntropy,
    /// The mean of the squared differences of labels and outputs.
    MeanSquaredError,
}

impl LossType {
    /// Whether the loss is a mean, so that it does not depend on how many datapoints there are.
    pub(super) fn is_mean(self) -> bool {
        self != Self::Sum
    }
}

/// A loss, and what is computed beside it.
#[derive(Clone, Copy)]
pub(super) struct Loss<'c> {
    /// One number.
    pub(super) value: Tensor<'c>,
    /// What outputs are compared with.
    pub(super) labels: Option<Tensor<'c>>,
    /// For each datapoint, the place of its largest output.
    pub(super) pred: Option<Tensor<'c>>,
    /// How many of these are those of the largest labels.
    pub(super) ncorrect: Option<Tensor<'c>>,
}

impl<'c> Loss<'c> {
    /// Writes down the loss of `outputs`. A mean is divided by `period`: so many are added up.
    pub(super) fn new(ctx: &'c Context, what: LossType, outputs: Tensor<'c>, period: u32) -> Result<Self> {
        let call = Call { op: "OptContext::graphs", operands: &[outputs] };
        call.dtype(outputs.dtype() == DType::F32, "outputs must be f32")?;
        let labels = || ctx.input_like("labels", outputs);
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a factor, which is rounded")]
        let share = |n: usize| (1.0 / (f64::from(period) * n as f64)) as f32;
        let alone = |value| Self { value, labels: None, pred: None, ncorrect: None };
        let with = match what {
            LossType::Mean => alone(ctx.scale(ctx.sum(outputs)?, share(outputs.elements()))?),
            LossType::Sum => alone(ctx.sum(outputs)?),
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
                Self { labels: Some(labels), ..alone(value) }
            }
        };
        with.value.named("loss")?;
        Ok(with)
    }

    /// All that is to be read.
    pub(super) fn results(&self) -> impl Iterator<Item = Tensor<'c>> {
        [Some(self.value), self.pred, self.ncorrect].into_iter().flatten()
    }
}
