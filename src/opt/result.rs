//! The results of a training.

use super::loss::LossType;
use crate::error::{Error, Result};

/// A value with its statistical uncertainty.
///
#[doc = include_str!("line.txt")]
/// let mut opt = OptContext::new([a, b], params)?;
/// let graphs = opt.graphs(&ctx, x, y)?;
/// let result = opt.evaluate(&mut sched, &graphs, &data, 0..8, |_| ())?;
/// let loss = result.loss().expect("four batches");
/// println!("{} ± {}", loss.value, loss.uncertainty.unwrap_or(f64::NAN));
/// assert!(loss.value > 0.0 && loss.uncertainty.is_some());
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Estimate {
    /// The estimated value.
    pub value: f64,
    /// One standard deviation; `None` if there are too few data.
    pub uncertainty: Option<f64>,
}

/// The accumulated losses and predictions of batches (`ggml_opt_result_t`).
///
#[doc = include_str!("line.txt")]
/// let mut opt = OptContext::new([a, b], params)?;
/// let graphs = opt.graphs(&ctx, x, y)?;
/// let mut result = OptResult::new();
/// let mut run = opt.alloc(&mut sched, &graphs, true)?;
/// for batch in 0..4 {
///     run.set_batch(&data, batch)?;
///     run.eval(Some(&mut result))?;
/// }
/// assert_eq!((result.nbatches(), result.ndata()), (4, 8));
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_opt_result_t")]
#[doc(alias = "ggml_opt_result_init")]
#[doc(alias = "ggml_opt_result_free")]
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OptResult {
    loss_type: Option<LossType>,
    /// The loss and the number of datapoints of each batch.
    batches: Vec<(f64, f64)>,
    ndata: usize,
    pred: Vec<i32>,
    ncorrect: usize,
}

/// The results of one batch.
pub(super) struct Batch {
    pub(super) loss_type: LossType,
    pub(super) loss: f32,
    pub(super) ndata: usize,
    pub(super) pred: Vec<i32>,
    pub(super) ncorrect: usize,
}

impl OptResult {
    /// Creates a result without batches.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all batches (`ggml_opt_result_reset`).
    #[doc(alias = "ggml_opt_result_reset")]
    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// Fails if batches with another type of loss were added before.
    pub(super) fn check(&self, what: LossType) -> Result<()> {
        match self.loss_type {
            Some(other) if other != what => Err(Error::param(
                "OptRun::eval",
                "result",
                format!("one of {other:?}"),
                format!("the loss is {what:?}"),
            )),
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

    /// The mean loss per datapoint, or the sum of all losses for [`LossType::Sum`] (`ggml_opt_result_loss`). `None`
    /// before the first batch. Batches may differ in size.
    ///
    /// The uncertainty is that of the returned value. For a sum of `n` batches, ggml returns the uncertainty of one
    /// batch, which is √n times smaller: √3.5 for six losses from 0 to 5, where this returns √21.
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

    /// The index of each datapoint's largest output (`ggml_opt_result_pred`). Empty except for
    /// [`LossType::CrossEntropy`].
    #[doc(alias = "ggml_opt_result_pred")]
    pub fn pred(&self) -> &[i32] {
        &self.pred
    }

    /// The number of predictions that match the labels; `None` except for [`LossType::CrossEntropy`].
    pub fn ncorrect(&self) -> Option<usize> {
        (self.loss_type == Some(LossType::CrossEntropy)).then_some(self.ncorrect)
    }

    /// The share of predictions that match the labels (`ggml_opt_result_accuracy`); `None` except for
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
