//! What a training has come to.

use super::loss::LossType;
use crate::error::{Error, Result};

/// A number with the uncertainty that comes from having seen so few data.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// One standard deviation; `None` where there is not enough to tell.
    pub uncertainty: Option<f64>,
}

/// Losses and predictions of a number of batches (`ggml_opt_result_t`).
#[doc(alias = "ggml_opt_result_t")]
#[doc(alias = "ggml_opt_result_init")]
#[doc(alias = "ggml_opt_result_free")]
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OptResult {
    loss_type: Option<LossType>,
    /// The loss of each batch, and how many datapoints it had.
    batches: Vec<(f64, f64)>,
    ndata: usize,
    pred: Vec<i32>,
    ncorrect: usize,
}

/// What was computed of one batch.
pub(super) struct Batch {
    pub(super) loss_type: LossType,
    pub(super) loss: f32,
    pub(super) ndata: usize,
    pub(super) pred: Vec<i32>,
    pub(super) ncorrect: usize,
}

impl OptResult {
    /// The result of no batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all batches (`ggml_opt_result_reset`).
    #[doc(alias = "ggml_opt_result_reset")]
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Fails where losses of this kind can't be added to those that are there.
    pub(super) fn check(&self, what: LossType) -> Result<()> {
        match self.loss_type {
            Some(other) if other != what => Err(Error::Param {
                op: "OptRun::eval",
                name: "result",
                value: format!("one of {other:?}").into(),
                expected: format!("the loss is {what:?}").into(),
            }),
            _ => Ok(()),
        }
    }

    pub(super) fn add(&mut self, batch: Batch) {
        self.loss_type = Some(batch.loss_type);
        self.batches.push((batch.loss.into(), float(batch.ndata)));
        self.ndata += batch.ndata;
        self.pred.extend(batch.pred);
        self.ncorrect += batch.ncorrect;
    }

    /// The number of datapoints (`ggml_opt_result_ndata`).
    #[doc(alias = "ggml_opt_result_ndata")]
    pub fn ndata(&self) -> usize {
        self.ndata
    }

    /// The number of batches.
    pub fn nbatches(&self) -> usize {
        self.batches.len()
    }

    /// The mean loss of a datapoint, or for [`LossType::Sum`] the sum of all losses (`ggml_opt_result_loss`); `None` before
    /// the first batch. Batches may have been of different sizes.
    #[doc(alias = "ggml_opt_result_loss")]
    pub fn loss(&self) -> Option<Estimate> {
        let is_mean = self.loss_type?.is_mean();
        let n = float(self.batches.len());
        let weight = |ndata: f64| if is_mean { ndata } else { 1.0 };
        let weights: f64 = self.batches.iter().map(|&(_, ndata)| weight(ndata)).sum();
        let mean = self.batches.iter().map(|&(loss, ndata)| loss * weight(ndata)).sum::<f64>() / weights;
        let square = |&(loss, ndata): &(f64, f64)| (loss - mean).powi(2) * weight(ndata);
        let variance = self.batches.iter().map(square).sum::<f64>() / weights;
        let uncertainty = (variance / (n - 1.0)).sqrt();
        let (value, uncertainty) = if is_mean { (mean, uncertainty) } else { (mean * n, uncertainty * n) };
        Some(Estimate { value, uncertainty: (n > 1.0).then_some(uncertainty) })
    }

    /// For each datapoint, the place of its largest output (`ggml_opt_result_pred`). Nothing but for
    /// [`LossType::CrossEntropy`].
    #[doc(alias = "ggml_opt_result_pred")]
    pub fn pred(&self) -> &[i32] {
        &self.pred
    }

    /// How many of the predictions are those of the labels; `None` but for [`LossType::CrossEntropy`].
    pub fn ncorrect(&self) -> Option<usize> {
        (self.loss_type == Some(LossType::CrossEntropy)).then_some(self.ncorrect)
    }

    /// The share of predictions that are those of the labels (`ggml_opt_result_accuracy`); `None` but for
    /// [`LossType::CrossEntropy`].
    #[doc(alias = "ggml_opt_result_accuracy")]
    pub fn accuracy(&self) -> Option<Estimate> {
        let n = float(self.ndata);
        let value = float(self.ncorrect()?) / n;
        let uncertainty = (value * (1.0 - value) / (n - 1.0)).sqrt();
        Some(Estimate { value, uncertainty: (self.ndata > 1).then_some(uncertainty) })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of datapoints")]
fn float(n: usize) -> f64 {
    n as f64
}
