//! Running one batch: an optimisation graph with its allocation.

use std::rc::Rc;

use super::context::{BuildType, Counts, OptContext};
use super::dataset::{Dataset, call};
use super::graphs::OptGraphs;
use super::result::{Batch, OptResult};
use crate::callback;
use crate::debug::debug;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::list;
use crate::ops::check::Call;
use crate::run::{Run, Split};
use crate::sched::Sched;
use crate::tensor::Tensor;

/// An allocated graph of an optimisation, which borrows the scheduler; created by [`OptContext::alloc`].
///
#[doc = include_str!("line.txt")]
/// let mut opt = OptContext::new([a, b], params)?;
/// let graphs = opt.graphs(&ctx, x, y)?;
/// let mut run = opt.alloc(&mut sched, &graphs, true)?;
/// run.set_batch(&data, 0)?;
/// let before = run.eval(None)?;
/// let after = run.eval(None)?; // of the same batch, after one step
/// assert!(after < before);
/// # Ok::<(), ggml::Error>(())
/// ```
pub struct OptRun<'s, 'c, 'p> {
    run: Run<'s, 'c>,
    graphs: &'s OptGraphs<'c>,
    opt: &'s mut OptContext<'p>,
    what: BuildType,
}

impl<'p> OptContext<'p> {
    /// Allocates the graph of the next batch (`ggml_opt_alloc`). With `backward` it computes the gradients and, at the
    /// end of a period, a step; otherwise only outputs and loss.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if the graphs belong to another context, or if `backward` is asked of a context without
    /// gradients; otherwise as [`Sched::alloc`].
    #[doc(alias = "ggml_opt_alloc")]
    pub fn alloc<'s, 'c>(
        &'s mut self,
        sched: &'s mut Sched,
        graphs: &'s OptGraphs<'c>,
        backward: bool,
    ) -> Result<OptRun<'s, 'c, 'p>> {
        callback::check_reentry("OptContext::alloc")?;
        let call = call("OptContext::alloc");
        let own = Rc::ptr_eq(&self.memory, &graphs.memory);
        call.param(own, "graphs", format_args!("those of another context"), "they must be made by this one")?;
        let what = self.next(backward);
        let able = !backward || what > BuildType::Forward;
        call.param(able, "backward", true, "its `build_type` is `Forward`")?;
        let Some(graph) = graphs.graph(what) else { return Err(no_graph(what)) };
        let mut run = sched.alloc(graph)?;
        if let Some(derived) = graphs.derived.as_ref().filter(|_| what > BuildType::Forward) {
            // SAFETY: `derived.one` is in a context that `graphs` owns, and `graphs` is borrowed for 's.
            run.set(unsafe { Tensor::new(derived.one) }, &[1.0_f32])?;
        }
        Ok(OptRun { run, graphs, opt: self, what })
    }
}

impl<'p> OptRun<'_, '_, 'p> {
    /// What this run computes.
    pub fn build_type(&self) -> BuildType {
        self.what
    }

    /// Sets an input as a whole, such as images or labels.
    ///
    /// # Errors
    ///
    /// As [`Run::set`].
    pub fn set<T: Element>(&mut self, t: Tensor<'_>, data: &[T]) -> Result<()> {
        callback::check_reentry("OptRun::set")?;
        self.run.set(t, data)
    }

    /// Sets inputs and labels to batch `ibatch` of a data set (`ggml_opt_dataset_get_batch`).
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if the graphs were built without `inputs`, if the inputs' size is not that of the outputs'
    /// number of datapoints, or if the data set's labels don't match the loss's; otherwise as
    /// [`Dataset::get_batch_host`] and [`Run::set`].
    #[doc(alias = "ggml_opt_dataset_get_batch")]
    pub fn set_batch<D: Element>(&mut self, dataset: &Dataset<D>, ibatch: usize) -> Result<()> {
        callback::check_reentry("OptRun::set_batch")?;
        let first = ibatch.saturating_mul(self.graphs.ndata());
        self.set_datapoints(dataset, first)
    }

    /// Sets inputs and labels to the batch that starts with datapoint `first`.
    pub(super) fn set_datapoints<D: Element>(&mut self, dataset: &Dataset<D>, first: usize) -> Result<()> {
        let call = call("OptRun::set_batch");
        let inputs = check_batch(call, self.graphs, dataset)?;
        let mut data = list::filled(D::zeroed(), inputs.elements(), "a batch")?;
        let mut labels = list::filled(0.0, self.graphs.labels().map_or(0, Tensor::elements), "a batch")?;
        dataset.copy(call, first, &mut data, &mut labels)?;
        self.run.set(inputs, &data)?;
        self.graphs.labels().map_or(Ok(()), |t| self.run.set(t, &labels))
    }

    /// Computes the batch (`ggml_opt_eval`): outputs and loss and, depending on the allocated graph, gradients and an
    /// optimiser step. Returns the loss from before the step, and adds it to `result`.
    ///
    /// It can be called again for another batch, unless that batch needs another graph: if gradients of several batches
    /// are summed, `alloc` must be called for each.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if the next batch needs another graph, if the schedule returned invalid parameters, or if
    /// `result` is for another type of loss; otherwise as [`Run::compute`]. After a failed computation some parameters
    /// may be updated and others not; the summed gradients are discarded before the next batch.
    #[doc(alias = "ggml_opt_eval")]
    pub fn eval(&mut self, result: Option<&mut OptResult>) -> Result<f32> {
        callback::check_reentry("OptRun::eval")?;
        let loss_type = self.graphs.loss_type;
        result.as_deref().map_or(Ok(()), |r| r.check(loss_type))?;
        let backward = self.what > BuildType::Forward;
        if self.what != self.opt.next(backward) {
            return Err(no_graph(self.what));
        }
        let settings = self.graphs.derived.as_ref().and_then(|d| d.settings);
        if let Some(settings) = settings.filter(|_| self.what == BuildType::Opt) {
            // SAFETY: `settings` is in a context that `self.graphs` owns, which is borrowed as long as `self` lives.
            let settings = unsafe { Tensor::new(settings) };
            self.run.set(settings, &self.opt.settings()?)?;
        }
        self.compute(backward)?;
        let mut loss = [0.0_f32];
        self.run.get_into(self.graphs.loss(), &mut loss)?;
        let [mut loss] = loss;
        if loss_type.is_mean() {
            #[expect(clippy::cast_precision_loss, reason = "a factor")]
            let period = self.opt.params.opt_period as f32;
            loss *= period;
        }
        if let Some(result) = result {
            let pred = self.graphs.pred().map_or(Ok(Vec::new()), |t| self.run.get(t))?;
            let ncorrect: Vec<i64> = self.graphs.ncorrect().map_or(Ok(Vec::new()), |t| self.run.get(t))?;
            let ncorrect = ncorrect.first().and_then(|&n| usize::try_from(n).ok()).unwrap_or(0);
            result.add(Batch { loss_type, loss, ndata: self.graphs.ndata(), pred, ncorrect });
        }
        Ok(loss)
    }

    /// Computes the graph and updates the counters.
    fn compute(&mut self, backward: bool) -> Result<()> {
        if !backward {
            return self.run.compute();
        }
        let opt = &mut *self.opt;
        let before = opt.counts;
        let in_periods = opt.params.build_type == BuildType::Opt;
        if before.failed || (in_periods && before.batches == 0) {
            opt.memory.sums.as_ref().map_or(Ok(()), |sums| sums.clear_bytes(0))?;
        }
        // The counters assume failure until success is certain, so that a panic of a closure counts as a failure, too.
        opt.counts = Counts { batches: 0, failed: true, ..before };
        let done = self.run.compute();
        if matches!(done, Err(Error::InputNotSet { .. })) {
            opt.counts = before; // nothing was computed
        }
        done?;
        let (steps, batches) = match self.what {
            BuildType::Opt => (before.steps.saturating_add(1), 0),
            _ => (before.steps, before.batches + u32::from(in_periods)),
        };
        opt.counts = Counts { steps, batches, failed: false, ..before };
        Ok(())
    }

    /// Reads outputs, or a tensor that was marked with [`Context::output`](crate::Context::output) before the graphs
    /// were built, as computed in the last batch.
    ///
    /// # Errors
    ///
    /// As [`Run::get`].
    pub fn get<T: Element>(&self, t: Tensor<'_>) -> Result<Vec<T>> {
        callback::check_reentry("OptRun::get")?;
        self.run.get(t)
    }

    /// Reads a contiguous tensor as [`OptRun::get`] does, into an existing slice.
    ///
    /// # Errors
    ///
    /// As [`Run::get_into`].
    pub fn get_into<T: Element>(&self, t: Tensor<'_>, out: &mut [T]) -> Result<()> {
        callback::check_reentry("OptRun::get_into")?;
        self.run.get_into(t, out)
    }

    /// The splits of the graph.
    ///
    /// # Errors
    ///
    /// As [`Run::splits`].
    pub fn splits(&self) -> Result<Vec<Split<'_>>> {
        self.run.splits()
    }

    /// The optimisation to which this run belongs.
    pub fn opt(&self) -> &OptContext<'p> {
        self.opt
    }
}

/// Checks that a data set fits the graphs, and returns the tensor into which data are copied.
pub(super) fn check_batch<'c, D: Element>(
    call: Call<'_, '_>,
    graphs: &OptGraphs<'c>,
    dataset: &Dataset<D>,
) -> Result<Tensor<'c>> {
    let named = graphs.inputs().ok_or_else(|| {
        Error::param(
            call.op.name(),
            "inputs",
            "not named",
            "data can only be put into what is named to `OptContext::graphs`",
        )
    });
    let inputs = named?;
    let ndata = graphs.ndata();
    let fits = |elements: usize, each: usize| each.checked_mul(ndata) == Some(elements);
    let expected = format!("inputs have {} elements, and outputs {ndata} datapoints", inputs.elements());
    call.param(fits(inputs.elements(), dataset.ne_datapoint()), "ne_datapoint", dataset.ne_datapoint(), expected)?;
    let of_label = graphs.labels().map_or(0, Tensor::elements);
    let expected = format!("the loss takes {of_label} elements of labels for {ndata} datapoints");
    call.param(fits(of_label, dataset.ne_label()), "ne_label", dataset.ne_label(), expected)?;
    Ok(inputs)
}

fn no_graph(what: BuildType) -> Error {
    Error::param("OptRun::eval", "batch", format!("{what:?}"), "the next batch needs another graph; call `alloc` again")
}

debug!(OptRun<'_, '_, '_>, |this| run = &this.run, what = &this.what);
