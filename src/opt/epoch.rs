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
use crate::dtype::Element;
use crate::error::Result;
use crate::ops::check::Call;
use crate::sched::Sched;

/// How far a loop over a data set is, after each batch (`ggml_opt_epoch_callback`).
///
/// It prints itself as a line about the loop (`ggml_opt_epoch_callback_progress_bar`).
#[doc(alias = "ggml_opt_epoch_callback")]
#[doc(alias = "ggml_opt_epoch_callback_progress_bar")]
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Progress<'r> {
    /// Whether it trains; else it evaluates.
    pub train: bool,
    /// The number of the epoch, from 1; 0 outside one.
    pub epoch: u32,
    /// How many batches were computed.
    pub ibatch: usize,
    /// How many there are.
    pub ibatch_max: usize,
    /// What they came to so far.
    pub result: &'r OptResult,
    /// How long it took so far.
    pub elapsed: Duration,
}

impl Progress<'_> {
    /// How long the rest will take if it goes on like this.
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

/// What came of an [`OptContext::epoch`].
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Epoch {
    /// What was trained on, each batch as the parameters were before its step.
    pub train: OptResult,
    /// What was evaluated after that.
    pub eval: OptResult,
}

/// The options of an [`OptContext::fit`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Fit {
    /// How often the data are gone through.
    pub nepoch: u32,
    /// The share of the data that is evaluated instead of trained on, at least 0 and below 1.
    pub val_split: f32,
    /// What the order of the data is drawn by.
    pub seed: u64,
}

impl Default for Fit {
    /// One epoch, without evaluation.
    fn default() -> Self {
        Self { nepoch: 1, val_split: 0.0, seed: 0 }
    }
}

impl OptContext<'_> {
    /// Trains on the data before `idata_split` in their present order, then evaluates the rest (`ggml_opt_epoch`). What does
    /// not fill a batch at the end of either part is left out; batches that don't fill a period are part of the next one.
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) where `idata_split` is beyond the data or inside a shard, or leaves no batch to
    /// train on; else as [`OptContext::evaluate`].
    #[doc(alias = "ggml_opt_epoch")]
    pub fn epoch<D: Element>(
        &mut self,
        sched: &mut Sched,
        graphs: &OptGraphs<'_>,
        dataset: &Dataset<D>,
        idata_split: usize,
        mut progress: impl FnMut(&Progress<'_>),
    ) -> Result<Epoch> {
        let call = call("OptContext::epoch");
        check(call, graphs, dataset, 0..idata_split)?;
        self.counts.epoch = self.counts.epoch.saturating_add(1);
        let train = self.batches(sched, graphs, dataset, true, 0..idata_split, &mut progress)?;
        let eval = self.batches(sched, graphs, dataset, false, idata_split..dataset.ndata(), &mut progress)?;
        Ok(Epoch { train, eval })
    }

    /// Computes outputs and losses of the data in this range of their present order, and changes nothing. What does not fill
    /// a batch at the end is left out.
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) where the range goes beyond the data, begins or ends inside a shard, or has no
    /// room for a batch, where a batch is no whole number of shards, or where the data don't fit the graphs; else as
    /// [`OptContext::alloc`] and [`OptRun::eval`](super::OptRun::eval).
    pub fn evaluate<D: Element>(
        &mut self,
        sched: &mut Sched,
        graphs: &OptGraphs<'_>,
        dataset: &Dataset<D>,
        range: Range<usize>,
        mut progress: impl FnMut(&Progress<'_>),
    ) -> Result<OptResult> {
        check(call("OptContext::evaluate"), graphs, dataset, range.clone())?;
        self.batches(sched, graphs, dataset, false, range, &mut progress)
    }

    /// Goes through the data several times, each time in another order, and returns what the last time came to
    /// (`ggml_opt_fit`). The data that are evaluated are picked once, and no step is made of fewer than
    /// [`OptParams::opt_period`](super::OptParams::opt_period) batches.
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) where an option is out of its range, or leaves too few data for a step; else as
    /// [`OptContext::epoch`].
    #[doc(alias = "ggml_opt_fit")]
    pub fn fit<D: Element>(
        &mut self,
        sched: &mut Sched,
        graphs: &OptGraphs<'_>,
        dataset: &mut Dataset<D>,
        how: Fit,
        mut progress: impl FnMut(&Progress<'_>),
    ) -> Result<Epoch> {
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

        // Gradients of a period that someone else began are not those of a batch of this one.
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

    /// Computes the whole batches of a range.
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

/// Checks that this range of a data set can be put into the graphs, and is a batch at least.
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
