//! The state of an optimisation across batches: parameters, moments, summed gradients and counters.

use std::rc::Rc;

use super::loss::LossType;
use super::optimizer::Optimizer;
use crate::buffer;
use crate::callback;
use crate::debug::debug;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::header::Owner;
use crate::ops::check::{Call, Entered};
use crate::options::options;
use crate::tensor::Tensor;
use crate::weights::{State, WeightsBuilder};

/// What an [`OptContext`] computes (`ggml_opt_build_type`). Each variant includes the one before.
///
#[doc = include_str!("line.txt")]
/// let opt = OptContext::new([a, b], params.with_build_type(BuildType::Forward))?; // to evaluate only
/// let mut opt = opt;
/// let graphs = opt.graphs(&ctx, x, y)?;
/// assert!(opt.alloc(&mut sched, &graphs, true).is_err(), "there are no gradients");
/// assert_eq!(opt.alloc(&mut sched, &graphs, false)?.build_type(), BuildType::Forward);
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_opt_build_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BuildType {
    /// Computes the outputs and the loss.
    Forward,
    /// Also computes the gradients, summed until [`OptContext::reset`].
    Grad,
    /// Also computes the optimiser's steps.
    Opt,
}

options! {
    /// The options of an [`OptContext`] (`ggml_opt_params`).
    ///
    /// ```
    /// use ggml::opt::{AdamW, LossType, OptParams};
    /// let params = OptParams::new(LossType::CrossEntropy).with_opt_period(4).with_optimizer(AdamW::new().with_alpha(0.01));
    /// ```
    #[doc(alias = "ggml_opt_params")]
    #[doc(alias = "ggml_opt_default_params")]
    #[derive(Debug, Clone, Copy, PartialEq)]
    pub struct OptParams {
        /// Minimises a loss of this type.
        new(loss_type: LossType);
        /// Sets what is computed.
        with_build_type(build_type: BuildType = BuildType::Opt);
        /// Sets the number of batches per step: their gradients are summed, and means are taken over all of them. So a
        /// batch that does not fit into memory can be computed as several.
        with_opt_period(opt_period: u32 = 1);
        /// Sets the optimiser and its parameters.
        with_optimizer(optimizer: Optimizer = Optimizer::default(), into);
    }
}

/// The progress of an optimisation, passed to a schedule.
///
#[doc = include_str!("line.txt")]
/// let decayed = |step: u32| AdamW::new().with_alpha(0.1 / step as f32);
/// let mut opt = OptContext::new([a, b], params)?.with_schedule(|moment| decayed(moment.step).into());
/// let graphs = opt.graphs(&ctx, x, y)?;
/// opt.epoch(&mut sched, &graphs, &data, 8, |_| ())?;
/// assert_eq!(opt.optimizer(), Optimizer::from(decayed(4))); // 4 batches of 2 points
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moment {
    /// The number of the next step, from 1.
    pub step: u32,
    /// The number of the epoch, from 1; 0 outside of [`OptContext::epoch`].
    pub epoch: usize,
}

/// The optimiser and its state across batches (`ggml_opt_context_t`).
///
/// The state consists of the optimiser's moments and the summed gradients. The computations are [`OptGraphs`](super::OptGraphs), which
/// can be used for all batches or built anew for each batch.
///
#[doc = include_str!("line.txt")]
/// let mut opt = OptContext::new([a, b], params)?;
/// let graphs = opt.graphs(&ctx, x, y)?;
/// opt.fit(&mut sched, &graphs, &mut data, Fit::new(200), |_| ())?;
/// assert!((a.read::<f32>()?[0] - 2.0).abs() < 0.1 && (b.read::<f32>()?[0] - 1.0).abs() < 0.1);
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_opt_context_t")]
#[doc(alias = "ggml_opt_init")]
#[doc(alias = "ggml_opt_free")]
pub struct OptContext<'p> {
    pub(super) parameters: Vec<Tensor<'p>>,
    pub(super) params: OptParams,
    schedule: Option<Box<Schedule<'p>>>,
    pub(super) memory: Rc<OptMemory>,
    pub(super) counts: Counts,
}

type Schedule<'p> = dyn FnMut(Moment) -> Optimizer + 'p;

/// The tensors of an optimiser besides the parameters. Graphs point to these tensors.
pub(super) struct OptMemory {
    /// The running means of the gradients and of their squares, for each parameter.
    pub(super) moments: Option<State>,
    /// The sum of the gradients, for each parameter.
    pub(super) sums: Option<State>,
}

/// Counters of an optimisation.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) steps: u32,
    /// The number of batches since the last step.
    pub(super) batches: u32,
    pub(super) epoch: usize,
    /// Whether the last batch failed, so that the sums may contain part of its gradients.
    pub(super) failed: bool,
}

const NEW: &str = "OptContext::new";

impl<'p> OptContext<'p> {
    /// Creates an optimisation of `parameters`, which are tensors of a [`State`].
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if there is no parameter (except for [`BuildType::Forward`]), the period is 0, or a parameter
    /// of the optimiser is out of range; [`Error::Frozen`] if a parameter belongs to weights; [`Error::NotPart`] if it
    /// belongs to no state; [`Error::Shape`] if it is a view; [`Error::DType`] if it is not `f32`;
    /// [`Error::Duplicate`]; [`Error::OutOfMemory`].
    pub fn new(parameters: impl AsRef<[Tensor<'p>]>, params: OptParams) -> Result<Self> {
        callback::check_reentry("OptContext::new")?;
        let parameters = parameters.as_ref().to_vec();
        let call = Call { op: Entered::other(NEW), operands: &parameters };
        params.optimizer.check()?;
        call.param(params.opt_period > 0, "opt_period", params.opt_period, "it must be above 0")?;
        let forward = params.build_type == BuildType::Forward;
        call.param(!parameters.is_empty() || forward, "parameters", "empty", "there must be one at least")?;
        check_parameters(&parameters)?;
        let steps = params.build_type == BuildType::Opt;
        let moments: &[_] =
            if matches!((steps, params.optimizer), (true, Optimizer::AdamW(_))) { &["mean", "variance"] } else { &[] };
        let adds = params.build_type == BuildType::Grad || (steps && params.opt_period > 1);
        let sums: &[_] = if adds { &["gradient"] } else { &[] };
        let memory = Rc::new(OptMemory { moments: zeros(&parameters, moments)?, sums: zeros(&parameters, sums)? });
        Ok(Self { parameters, params, schedule: None, memory, counts: Counts::default() })
    }

    /// Sets a closure that returns the optimiser's parameters for each step (`ggml_opt_get_optimizer_params`), instead
    /// of [`OptParams::with_optimizer`]; for example a decaying learning rate. It can't change the type of optimiser.
    #[doc(alias = "ggml_opt_get_optimizer_params")]
    #[must_use]
    pub fn with_schedule(self, schedule: impl FnMut(Moment) -> Optimizer + 'p) -> Self {
        Self { schedule: Some(Box::new(schedule)), ..self }
    }

    /// The kind of graph that the next batch needs, with or without a backward pass.
    pub(super) fn next(&self, backward: bool) -> BuildType {
        match self.params.build_type {
            _ if !backward => BuildType::Forward,
            BuildType::Opt if self.counts.batches + 1 < self.params.opt_period => BuildType::Grad,
            most => most,
        }
    }

    /// Discards the summed gradients and, with `optimizer`, also the moments and the number of steps
    /// (`ggml_opt_reset`). Parameters keep their values.
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] or [`Error::RpcLost`] if a device fails.
    #[doc(alias = "ggml_opt_reset")]
    pub fn reset(&mut self, optimizer: bool) -> Result<()> {
        callback::check_reentry("OptContext::reset")?;
        (self.counts.batches, self.counts.failed) = (0, false);
        self.memory.sums.as_ref().map_or(Ok(()), |sums| sums.clear_bytes(0))?;
        if optimizer {
            self.counts = Counts::default();
            self.memory.moments.as_ref().map_or(Ok(()), |moments| moments.clear_bytes(0))?;
        }
        Ok(())
    }

    /// The optimiser with the parameters of the last step (`ggml_opt_context_optimizer_type`).
    #[doc(alias = "ggml_opt_context_optimizer_type")]
    pub fn optimizer(&self) -> Optimizer {
        self.params.optimizer
    }

    /// Sets the optimiser's parameters, such as the learning rate, from the next step on
    /// (`ggml_opt_get_constant_optimizer_params`). Removes a schedule.
    ///
    #[doc = include_str!("line.txt")]
    /// let mut opt = OptContext::new([a, b], params)?;
    /// opt.set_optimizer(AdamW::new().with_alpha(0.001))?;
    /// assert!(opt.set_optimizer(Sgd::new()).is_err(), "its moments are those of AdamW");
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`] if a parameter is out of range, or if `optimizer` is of another type.
    #[doc(alias = "ggml_opt_get_constant_optimizer_params")]
    pub fn set_optimizer(&mut self, optimizer: impl Into<Optimizer>) -> Result<()> {
        self.params.optimizer.replace(optimizer.into())?;
        self.schedule = None;
        Ok(())
    }

    /// Calls the schedule, if any, and returns the values that the kernels of the next step read.
    pub(super) fn settings(&mut self) -> Result<Vec<f32>> {
        let step = self.counts.steps.saturating_add(1);
        if let Some(schedule) = &mut self.schedule {
            self.params.optimizer.replace(schedule(Moment { step, epoch: self.counts.epoch }))?;
        }
        Ok(self.params.optimizer.values(step))
    }

    /// The number of steps so far.
    pub fn steps(&self) -> u32 {
        self.counts.steps
    }

    /// The summed gradients of a parameter (`ggml_opt_grad_acc`), for [`Tensor::read`]: of all batches since the last
    /// [`OptContext::reset`], or of the current period. `None` if gradients are not summed, or if the tensor is not a
    /// parameter.
    ///
    #[doc = include_str!("line.txt")]
    /// let mut opt = OptContext::new([a, b], params.with_build_type(BuildType::Grad))?;
    /// let graphs = opt.graphs(&ctx, x, y)?;
    /// let mut run = opt.alloc(&mut sched, &graphs, true)?;
    /// run.set_batch(&data, 0)?;
    /// run.eval(None)?;
    /// drop(run);
    /// assert!(opt.grad_acc(b).unwrap().read::<f32>()?[0] < 0.0); // more of b makes the loss smaller
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[doc(alias = "ggml_opt_grad_acc")]
    pub fn grad_acc(&self, parameter: Tensor<'_>) -> Option<Tensor<'_>> {
        let i = self.parameters.iter().position(|&p| p == parameter)?;
        self.memory.sums.as_ref()?.iter().nth(i)
    }
}

debug!(OptContext<'_>, |this| parameters = &this.parameters, params = &this.params, steps = &this.counts.steps);

fn check_parameters(parameters: &[Tensor<'_>]) -> Result<()> {
    for (i, &t) in parameters.iter().enumerate() {
        let call = Call { op: Entered::other(NEW), operands: &[t] };
        match t.ptr().owner() {
            Owner::State => {}
            Owner::Weights | Owner::Packed => return Err(Error::Frozen { call: NEW, tensor: t.info() }),
            Owner::Graph => {
                return Err(Error::NotPart { call: NEW, tensor: t.info(), whole: "a state; see `place_state`" });
            }
        }
        call.shape(!t.is_view(), "a parameter must be a whole tensor of a state, no view of one")?;
        call.dtype(t.dtype() == DType::F32, "parameters must be f32")?;
        if parameters.iter().take(i).any(|&other| other == t) {
            return Err(Error::Duplicate { call: NEW, what: "parameter", name: t.name().into() });
        }
    }
    Ok(())
}

/// Zeroed tensors for each parameter, one per name, in the parameter's buffer type.
fn zeros(parameters: &[Tensor<'_>], names: &[&str]) -> Result<Option<State>> {
    let mut builder = WeightsBuilder::new();
    let mut types = Vec::new();
    for (i, &t) in parameters.iter().enumerate() {
        // Tensors get numbers, not names made from the parameters' own: those may coincide between two states, or be
        // too long for a suffix.
        for name in names {
            builder.tensor(&format!("{name} {i}"), DType::F32, t.shape())?;
            types.push(buffer::type_of(t.ptr()).ok_or(Error::Poisoned { object: "state" })?);
        }
    }
    if types.is_empty() { Ok(None) } else { builder.place_state_each(types).map(Some) }
}
