//! Loops over data sets.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::context::OptContext;
use super::dataset::{Dataset, call};
use super::graphs::OptGraphs;
use super::result::{Estimate, OptResult};
use super::rng::Rng;
use super::run::check_batch;
use crate::callback;
use crate::dtype::Element;
use crate::error::Result;
use crate::ops::check::Call;
use crate::options::options;
use crate::sched::Sched;

/// The progress of a loop over a data set, reported after each batch (`ggml_opt_epoch_callback`).
///
/// `Display` prints the progress as one line (`ggml_opt_epoch_callback_progress_bar`).
///
#[doc = include_str!("line.txt")]
/// let mut opt = OptContext::new([a, b], params)?;
/// let graphs = opt.graphs(&ctx, x, y)?;
/// let mut batches = 0;
/// opt.epoch(&mut sched, &graphs, &data, 6, |progress| {
///     println!("{progress}");
///     batches += 1;
/// })?;
/// assert_eq!(batches, 3 + 1); // to train and to evaluate
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_opt_epoch_callback")]
#[doc(alias = "ggml_opt_epoch_callback_progress_bar")]
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Progress<'r> {
    /// Whether the loop trains; otherwise it evaluates.
    pub train: bool,
    /// The number of the epoch, from 1; 0 outside of an epoch.
    pub epoch: usize,
    /// The number of batches computed so far.
    pub ibatch: usize,
    /// The total number of batches.
    pub ibatch_max: usize,
    /// The results so far.
    pub result: &'r OptResult,
    /// The time since the loop began.
    pub elapsed: Duration,
}

impl Progress<'_> {
    /// The estimated remaining time.
    pub fn eta(&self) -> Duration {
        let per_batch = self.elapsed.checked_div(u32::try_from(self.ibatch).unwrap_or(u32::MAX)).unwrap_or_default();
        let left = self.ibatch_max.saturating_sub(self.ibatch);
        per_batch.saturating_mul(u32::try_from(left).unwrap_or(u32::MAX))
    }
}

impl fmt::Display for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const WIDTH: usize = 8;
        let what = if self.train { "train" } else { "val" };
        let done = WIDTH * self.ibatch / self.ibatch_max.max(1);
        write!(f, "{what:<5} [{:<WIDTH$}] ", "#".repeat(done))?;
        write!(f, "batch={}/{} data={} ", self.ibatch, self.ibatch_max, self.result.ndata())?;
        let mut number = |name, estimate: Option<Estimate>, factor: f64, digits: usize, unit| {
            let Some(Estimate { value, uncertainty }) = estimate else { return Ok(()) };
            write!(f, "{name}={:.digits$}", factor * value)?;
            uncertainty.map_or(Ok(()), |u| write!(f, "±{:.digits$}", factor * u))?;
            write!(f, "{unit} ")
        };
        number("loss", self.result.loss(), 1.0, 5, "")?;
        number("acc", self.result.accuracy(), 100.0, 2, "%")?;
        write!(f, "t={} ETA={}", Clock(self.elapsed), Clock(self.eta()))
    }
}

/// Prints hours, minutes and seconds.
struct Clock(Duration);

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.0.as_secs();
        write!(f, "{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
    }
}

/// The results of an [`OptContext::epoch`].
///
#[doc = include_str!("line.txt")]
/// let mut opt = OptContext::new([a, b], params)?;
/// let graphs = opt.graphs(&ctx, x, y)?;
/// let epoch = opt.epoch(&mut sched, &graphs, &data, 6, |_| ())?;
/// assert_eq!((epoch.train.ndata(), epoch.eval.ndata()), (6, 2));
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Epoch {
    /// The training results. Those of each batch are from before its step.
    pub train: OptResult,
    /// The evaluation results.
    pub eval: OptResult,
}

options! {
    /// The options of an [`OptContext::fit`].
    ///
    /// ```
    /// use ggml::opt::Fit;
    /// let how = Fit::new(10).with_val_split(0.2).with_seed(7);
    /// ```
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct Fit {
        /// Trains for `nepoch` epochs.
        new(nepoch: usize);
        /// Sets the share of the data that is held out of training and evaluated after each epoch, at least 0 and below
        /// 1: 0.2 is a fifth. All data are shuffled before the share is taken. The share grows until the number of the
        /// other datapoints is a multiple of what a step takes.
        with_val_split(val_split: f32 = 0.0);
        /// Sets the seed of the shuffles.
        with_seed(seed: u64 = 0);
    }
}

impl OptContext<'_> {
    /// Trains on the first `idata_split` datapoints of the current order, then evaluates the rest (`ggml_opt_epoch`).
    /// An incomplete batch at the end of either part is skipped; an incomplete period continues in the next epoch.
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) if `idata_split` is out of bounds, inside a shard, or less than a batch;
    /// otherwise as [`OptContext::evaluate`].
    #[doc(alias = "ggml_opt_epoch")]
    pub fn epoch<D: Element>(
        &mut self,
        sched: &mut Sched,
        graphs: &OptGraphs<'_>,
        dataset: &Dataset<D>,
        idata_split: usize,
        mut progress: impl FnMut(&Progress<'_>),
    ) -> Result<Epoch> {
        callback::check_reentry("OptContext::epoch")?;
        let call = call("OptContext::epoch");
        check(call, graphs, dataset, 0..idata_split)?;
        self.counts.epoch = self.counts.epoch.saturating_add(1);
        let train = self.batches(sched, graphs, dataset, true, 0..idata_split, &mut progress)?;
        let eval = self.batches(sched, graphs, dataset, false, idata_split..dataset.ndata(), &mut progress)?;
        Ok(Epoch { train, eval })
    }

    /// Computes outputs and losses of a range of the current order, without changing parameters. An incomplete batch at
    /// the end is skipped.
    ///
    #[doc = include_str!("line.txt")]
    /// let mut opt = OptContext::new([a, b], params)?;
    /// let graphs = opt.graphs(&ctx, x, y)?;
    /// let all = opt.evaluate(&mut sched, &graphs, &data, 0..8, |_| ())?;
    /// assert_eq!((all.nbatches(), opt.steps()), (4, 0));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) if the range is out of bounds, starts or ends inside a shard, or is
    /// smaller than a batch; if a batch is not a multiple of the shard size; or if the data don't fit the graphs;
    /// otherwise as [`OptContext::alloc`] and [`OptRun::eval`](super::OptRun::eval).
    pub fn evaluate<D: Element>(
        &mut self,
        sched: &mut Sched,
        graphs: &OptGraphs<'_>,
        dataset: &Dataset<D>,
        range: Range<usize>,
        mut progress: impl FnMut(&Progress<'_>),
    ) -> Result<OptResult> {
        callback::check_reentry("OptContext::evaluate")?;
        check(call("OptContext::evaluate"), graphs, dataset, range.clone())?;
        self.batches(sched, graphs, dataset, false, range, &mut progress)
    }

    /// Trains for several epochs with a new order each, and returns the results of the last one (`ggml_opt_fit`). The
    /// evaluation data are chosen once. The training data are a multiple of
    /// [`OptParams::with_opt_period`](super::OptParams::with_opt_period) batches.
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) if an option is out of range, or leaves fewer data than a step needs;
    /// otherwise as [`OptContext::epoch`].
    #[doc(alias = "ggml_opt_fit")]
    pub fn fit<D: Element>(
        &mut self,
        sched: &mut Sched,
        graphs: &OptGraphs<'_>,
        dataset: &mut Dataset<D>,
        how: Fit,
        mut progress: impl FnMut(&Progress<'_>),
    ) -> Result<Epoch> {
        callback::check_reentry("OptContext::fit")?;
        let call = call("OptContext::fit");
        let Fit { nepoch, val_split, seed } = how;
        call.param(nepoch > 0, "nepoch", nepoch, "it must be above 0")?;
        call.param((0.0..1.0).contains(&val_split), "val_split", val_split, "it must be at least 0 and below 1")?;
        let period = usize::try_from(self.params.opt_period).unwrap_or(usize::MAX);
        let step = graphs.ndata().saturating_mul(period);
        let nsteps = dataset.ndata() / step;
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a number, rounded as C does it"
        )]
        let nsteps = nsteps.min(((1.0 - val_split) * nsteps as f32) as usize);
        let split = nsteps * step;
        let least = format!("a step takes {step} of {} datapoints", dataset.ndata());
        call.param(split > 0, "val_split", val_split, least)?;
        check(call, graphs, dataset, 0..split)?;

        // Gradients of an unfinished period from earlier calls must not contribute to the first step.
        self.reset(false)?;
        let mut rng = Rng::new(seed);
        dataset.shuffle(&mut rng, dataset.ndata())?;
        let mut last = Epoch::default();
        for _ in 0..nepoch {
            dataset.shuffle(&mut rng, split)?;
            last = self.epoch(sched, graphs, dataset, split, &mut progress)?;
        }
        Ok(last)
    }

    /// Computes the complete batches in a range of the data set.
    fn batches<D: Element>(
        &mut self,
        sched: &mut Sched,
        graphs: &OptGraphs<'_>,
        dataset: &Dataset<D>,
        train: bool,
        range: Range<usize>,
        progress: &mut impl FnMut(&Progress<'_>),
    ) -> Result<OptResult> {
        let (started, mut result) = (Instant::now(), OptResult::new());
        let (epoch, batch) = (self.counts.epoch, graphs.ndata());
        let ibatch_max = range.len() / batch;
        for (i, first) in range.step_by(batch).take(ibatch_max).enumerate() {
            let mut run = self.alloc(sched, graphs, train)?;
            run.set_datapoints(dataset, first)?;
            run.eval(Some(&mut result))?;
            let (ibatch, elapsed) = (i + 1, started.elapsed());
            progress(&Progress { train, epoch, ibatch, ibatch_max, result: &result, elapsed });
        }
        Ok(result)
    }
}

/// Checks that this range of a data set fits the graphs and contains at least one batch.
fn check<D: Element>(
    call: Call<'_, '_>,
    graphs: &OptGraphs<'_>,
    dataset: &Dataset<D>,
    range: Range<usize>,
) -> Result<()> {
    check_batch(call, graphs, dataset)?;
    let (n, shard, batch) = (dataset.ndata(), dataset.ndata_shard(), graphs.ndata());
    let fits = range.end <= n && [range.start, range.end].iter().all(|i| i.is_multiple_of(shard));
    let expected = format!("there are {n} datapoints, in shards of {shard}");
    call.param(fits, "range", &range, expected)?;
    let expected = format!("a batch has {batch} datapoints, and there must be one at least");
    call.param(range.len() >= batch, "range", &range, expected)
}
