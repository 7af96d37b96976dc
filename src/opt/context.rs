//! An optimisation: parameters, what an optimiser remembers of each, and how far it has come.

use std::fmt;
use std::rc::Rc;

use super::graphs::OptGraphs;
use super::loss::LossType;
use super::optimizer::Optimizer;
use super::run::OptRun;
use crate::buffer;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::header::Owner;
use crate::ops::check::Call;
use crate::sched::Sched;
use crate::tensor::Tensor;
use crate::weights::{State, WeightsBuilder};

/// What an [`OptContext`] computes (`ggml_opt_build_type`). Each contains the one before.
#[doc(alias = "ggml_opt_build_type")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BuildType {
    /// Outputs and loss.
    Forward,
    /// Gradients, which are added up until [`OptContext::reset`].
    Grad,
    /// Steps of the optimiser.
    Opt,
}

/// What an [`OptContext`] is made from (`ggml_opt_params`).
#[doc(alias = "ggml_opt_params")]
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct OptParams {
    /// What becomes smaller.
    pub loss_type: LossType,
    /// How much is computed.
    pub build_type: BuildType,
    /// After how many batches there is a step: their gradients are added up, and means are those of all of them. A batch
    /// that is too large for the memory is computed as several.
    pub opt_period: u32,
    /// How parameters follow their gradients.
    pub optimizer: Optimizer,
}

impl OptParams {
    /// A step after each batch, by [`AdamW`](super::AdamW) with ggml's own defaults (`ggml_opt_default_params`).
    #[doc(alias = "ggml_opt_default_params")]
    pub fn new(loss_type: LossType) -> Self {
        Self { loss_type, build_type: BuildType::Opt, opt_period: 1, optimizer: Optimizer::default() }
    }
}

/// Where an optimisation is when it asks for the optimiser's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moment {
    /// The number of the step, from 1.
    pub step: u32,
    /// The number of the epoch, from 1; 0 outside [`OptContext::epoch`].
    pub epoch: u32,
}

/// What changes parameters so that a loss becomes smaller (`ggml_opt_context_t`).
///
/// It holds what lasts from batch to batch: the optimiser's moments and the gradients that are added up. The computations
/// are [`OptGraphs`], made once for all batches or anew for each of them.
#[doc(alias = "ggml_opt_context_t")]
#[doc(alias = "ggml_opt_init")]
#[doc(alias = "ggml_opt_free")]
pub struct OptContext<'p> {
    pub(super) parameters: Vec<Tensor<'p>>,
    pub(super) params: OptParams,
    schedule: Option<Box<Schedule<'p>>>,
    pub(super) memory: Rc<Memory>,
    pub(super) counts: Counts,
}

type Schedule<'p> = dyn FnMut(Moment) -> Optimizer + 'p;

/// What lies beside the parameters. Graphs point into it.
pub(super) struct Memory {
    /// For each parameter the means of its gradients and of their squares.
    pub(super) moments: Option<State>,
    /// For each parameter the sum of its gradients.
    pub(super) sums: Option<State>,
}

/// How far an optimisation has come.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) steps: u32,
    /// The batches since the last step.
    pub(super) batches: u32,
    pub(super) epoch: u32,
    /// Whether the last batch failed, so that sums may hold part of its gradients.
    pub(super) failed: bool,
}

const NEW: &str = "OptContext::new";

impl<'p> OptContext<'p> {
    /// An optimisation of `parameters`, which are tensors of a [`State`].
    ///
    /// # Errors
    ///
    /// [`Error::Param`] where there is no parameter (but for [`BuildType::Forward`]), where the period is 0, or where a
    /// parameter of the optimiser is out of its range; [`Error::Frozen`] where a parameter lies in weights;
    /// [`Error::NotPart`] where it lies in no state; [`Error::Shape`] where it is a view; [`Error::DType`] unless it is
    /// `f32`; [`Error::Duplicate`]; [`Error::OutOfMemory`].
    pub fn new(parameters: impl AsRef<[Tensor<'p>]>, params: OptParams) -> Result<Self> {
        let parameters = parameters.as_ref().to_vec();
        let call = Call { op: NEW, operands: &parameters };
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
        let memory = Rc::new(Memory { moments: zeros(&parameters, moments)?, sums: zeros(&parameters, sums)? });
        Ok(Self { parameters, params, schedule: None, memory, counts: Counts::default() })
    }

    /// Asks for the optimiser's parameters before each step (`ggml_opt_get_optimizer_params`), in place of
    /// [`OptParams::optimizer`]: a learning rate that falls, for instance. The kind of optimiser stays.
    #[doc(alias = "ggml_opt_get_optimizer_params")]
    #[must_use]
    pub fn with_schedule(self, schedule: impl FnMut(Moment) -> Optimizer + 'p) -> Self {
        Self { schedule: Some(Box::new(schedule)), ..self }
    }

    /// Writes down the loss of `outputs`, its gradients (`ggml_build_backward_expand`) and a step of the optimiser for each
    /// parameter (`ggml_opt_prepare_alloc`). `inputs` is what data sets are put into; a computation that is fed by hand
    /// needs to name none.
    ///
    /// The second dimension of `outputs` is the number of datapoints. What they are computed from can be read after each
    /// batch, too, if it is marked before, by [`Context::output`].
    ///
    /// The graphs can be used for any number of batches. For batches that differ in more than their data, there may be any
    /// number of graphs: parameters, moments and sums are the same.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] names the operation between parameters and loss that has no backward pass, or none for
    /// operands like these. [`Error::NotPart`] where the loss can't be derived by a parameter, or `inputs` is no input of
    /// the outputs. [`Error::Shape`] or [`Error::DType`] where the loss can't be had of such outputs: they must be `f32`,
    /// and a matrix for [`LossType::CrossEntropy`].
    #[doc(alias = "ggml_opt_prepare_alloc")]
    pub fn graphs<'c>(
        &self,
        ctx: &'c Context,
        inputs: impl Into<Option<Tensor<'c>>>,
        outputs: Tensor<'c>,
    ) -> Result<OptGraphs<'c>> {
        OptGraphs::new(self, ctx, inputs.into(), outputs)
    }

    /// Gives the graph of the next batch memory (`ggml_opt_alloc`): with `backward`, the one that computes gradients and,
    /// if it is time for it, steps; else the one that computes outputs and loss only.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] where the graphs are those of another context, or where this one computes no gradients; else as
    /// [`Sched::alloc`].
    #[doc(alias = "ggml_opt_alloc")]
    pub fn alloc<'s, 'c>(
        &'s mut self,
        sched: &'s mut Sched,
        graphs: &'s OptGraphs<'c>,
        backward: bool,
    ) -> Result<OptRun<'s, 'c, 'p>> {
        OptRun::new(self, sched, graphs, backward)
    }

    /// Which graph the next batch needs.
    pub(super) fn next(&self, backward: bool) -> BuildType {
        match self.params.build_type {
            _ if !backward => BuildType::Forward,
            BuildType::Opt if self.counts.batches + 1 < self.params.opt_period => BuildType::Grad,
            most => most,
        }
    }

    /// Begins anew (`ggml_opt_reset`): gradients that were added up are forgotten, and with `optimizer` its moments and the
    /// number of steps as well. Parameters stay as they are.
    ///
    /// # Errors
    ///
    /// [`Error::Ggml`] or [`Error::RpcLost`] where a device fails.
    #[doc(alias = "ggml_opt_reset")]
    pub fn reset(&mut self, optimizer: bool) -> Result<()> {
        (self.counts.batches, self.counts.failed) = (0, false);
        self.memory.sums.as_ref().map_or(Ok(()), |sums| sums.clear_bytes(0))?;
        if optimizer {
            self.counts = Counts::default();
            self.memory.moments.as_ref().map_or(Ok(()), |moments| moments.clear_bytes(0))?;
        }
        Ok(())
    }

    /// The optimiser, as it was in the last step (`ggml_opt_context_optimizer_type`).
    #[doc(alias = "ggml_opt_context_optimizer_type")]
    pub fn optimizer(&self) -> Optimizer {
        self.params.optimizer
    }

    /// Changes the optimiser's parameters, such as the learning rate, from the next step on
    /// (`ggml_opt_get_constant_optimizer_params`). A schedule that there was is gone.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] where one is out of its range, or where it is another kind of optimiser.
    #[doc(alias = "ggml_opt_get_constant_optimizer_params")]
    pub fn set_optimizer(&mut self, optimizer: impl Into<Optimizer>) -> Result<()> {
        self.params.optimizer.replace(optimizer.into())?;
        self.schedule = None;
        Ok(())
    }

    /// Asks the schedule, if there is one, and returns what the kernels of the next step read.
    pub(super) fn settings(&mut self) -> Result<Vec<f32>> {
        let step = self.counts.steps.saturating_add(1);
        if let Some(schedule) = &mut self.schedule {
            self.params.optimizer.replace(schedule(Moment { step, epoch: self.counts.epoch }))?;
        }
        Ok(self.params.optimizer.values(step))
    }

    /// How many steps were made.
    pub fn steps(&self) -> u32 {
        self.counts.steps
    }

    /// What it was made from.
    pub fn params(&self) -> OptParams {
        self.params
    }

    /// The sum of the gradients of a parameter (`ggml_opt_grad_acc`), which [`Tensor::read`] reads: of all batches since the
    /// last [`OptContext::reset`], or of those of the present period. `None` where gradients are not added up, and for what
    /// is no parameter.
    #[doc(alias = "ggml_opt_grad_acc")]
    pub fn grad_acc(&self, parameter: Tensor<'_>) -> Option<Tensor<'_>> {
        let i = self.parameters.iter().position(|&p| p == parameter)?;
        self.memory.sums.as_ref()?.iter().nth(i)
    }
}

impl fmt::Debug for OptContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OptContext")
            .field("parameters", &self.parameters)
            .field("params", &self.params)
            .field("steps", &self.counts.steps)
            .finish_non_exhaustive()
    }
}

fn check_parameters(parameters: &[Tensor<'_>]) -> Result<()> {
    for (i, &t) in parameters.iter().enumerate() {
        let call = Call { op: NEW, operands: &[t] };
        match t.ptr().owner() {
            Owner::State => {}
            Owner::Weights | Owner::Packed => return Err(Error::Frozen { op: NEW, tensor: t.info() }),
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

/// Tensors of these names for each parameter, all zero, in memory of the parameter's kind.
fn zeros(parameters: &[Tensor<'_>], names: &[&str]) -> Result<Option<State>> {
    let mut builder = WeightsBuilder::new();
    let mut types = Vec::new();
    for (i, &t) in parameters.iter().enumerate() {
        // Their own names may be those of two states, or take all the room that there is.
        for name in names {
            builder.tensor(&format!("{name} {i}"), DType::F32, t.shape())?;
            types.push(buffer::type_of(t.ptr()).ok_or(Error::Poisoned { object: "state" })?);
        }
    }
    let mut types = types.into_iter();
    let Some(last) = types.clone().next_back() else { return Ok(None) };
    builder.place_state_with(|_| types.next().unwrap_or(last)).map(Some)
}
