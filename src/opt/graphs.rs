//! The graphs of an optimisation: loss, gradients, and steps.

use std::rc::Rc;

use super::backward::{self, Parameter};
use super::context::{BuildType, OptContext, OptMemory};
use super::loss::{Loss, LossType};
use crate::callback;
use crate::context::Context;
use crate::context::raw::Pool;
use crate::debug::debug;
use crate::dtype::DType;
use crate::entries::{Kind, StorePool};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::{Owner, TensorPtr};
use crate::rules::training;
use crate::tensor::Tensor;
use crate::weights::State;

/// A model's forward pass, its backward pass and the optimiser's steps, for batches of one shape; created by
/// [`OptContext::graphs`].
///
#[doc = include_str!("line.txt")]
/// let opt = OptContext::new([a, b], params)?;
/// let graphs = opt.graphs(&ctx, x, y)?;
/// assert_eq!((graphs.ndata(), graphs.outputs()), (2, y));
/// assert_eq!(graphs.labels().map(|t| t.ne()), Some(y.ne()));
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_build_backward_expand")]
#[doc(alias = "ggml_graph_get_grad")]
#[doc(alias = "ggml_set_param")]
#[doc(alias = "ggml_set_loss")]
pub struct OptGraphs<'c> {
    // Field order is drop order: the graphs point into all following fields. The graphs' own lifetime is only that of
    // the user's context, so they leave this module only as a borrow of this struct.
    forward: Graph<'c>,
    pub(super) derived: Option<Derived<'c>>,
    pub(super) memory: Rc<OptMemory>,
    pub(super) loss: Loss<'c>,
    pub(super) loss_type: LossType,
    inputs: Option<Tensor<'c>>,
    outputs: Tensor<'c>,
}

/// The graphs that compute gradients and steps. Field order is drop order here, too: the graphs are dropped before the
/// pool and the context.
pub(super) struct Derived<'c> {
    grad: Option<Graph<'c>>,
    opt: Option<Graph<'c>>,
    _backward: Pool,
    _leaves: Context,
    /// The gradient of the loss itself.
    pub(super) one: TensorPtr,
    /// The settings that the optimiser's kernels read.
    pub(super) settings: Option<TensorPtr>,
}

impl OptContext<'_> {
    /// Builds the loss of `outputs`, its gradients (`ggml_build_backward_expand`) and an optimiser step for each
    /// parameter (`ggml_opt_prepare_alloc`). `inputs` is the tensor that data sets are copied into; it may be `None` if
    /// the program sets all inputs itself.
    ///
    /// `outputs` has `ne` = `[per datapoint, datapoints, ...]`. Intermediate results can be read after each batch, too,
    /// if they are marked with [`Context::output`] before this call.
    ///
    /// The graphs can be used for any number of batches. Batches that differ in more than their data need their own
    /// graphs, which share parameters, moments and sums.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] names an operation between parameters and loss without a backward pass (at all, or for
    /// such operands). [`Error::NotPart`] if the loss does not depend on a parameter in a differentiable way, or if
    /// `inputs` is not an input of the outputs. [`Error::Shape`] or [`Error::DType`] if the loss is not defined for
    /// such outputs: they must be `f32`, and a matrix for [`LossType::CrossEntropy`].
    #[doc(alias = "ggml_opt_prepare_alloc")]
    pub fn graphs<'c>(
        &self,
        ctx: &'c Context,
        inputs: impl Into<Option<Tensor<'c>>>,
        outputs: Tensor<'c>,
    ) -> Result<OptGraphs<'c>> {
        const CALL: &str = "OptContext::graphs";
        callback::check_reentry(CALL)?;
        let loss_type = self.params.loss_type;
        let loss = Loss::new(ctx, loss_type, outputs, self.params.opt_period)?;
        if outputs.ptr().owner() == Owner::Graph {
            ctx.output(outputs)?;
        }
        let results: Vec<_> = loss.results().collect();
        let forward = ctx.graph(&results)?;
        let inputs = inputs.into();
        if let Some(t) = inputs {
            let input = forward.entries().position(t.ptr()).and_then(|i| forward.entries().get(i));
            if input.is_none_or(|e| e.kind != Kind::Input) {
                return Err(Error::NotPart { call: CALL, tensor: t.info(), whole: "the inputs of the outputs" });
            }
        }
        let memory = Rc::clone(&self.memory);
        let derives = self.params.build_type > BuildType::Forward;
        let derived = if derives { Some(Derived::new(self, &memory, &results, loss.value)?) } else { None };
        Ok(OptGraphs { forward, derived, memory, loss, loss_type, inputs, outputs })
    }
}

impl<'c> OptGraphs<'c> {
    /// The graph that computes `what` of a training step, if training was prepared for that.
    pub(super) fn graph(&self, what: BuildType) -> Option<&Graph<'c>> {
        match what {
            BuildType::Forward => Some(&self.forward),
            BuildType::Grad => self.derived.as_ref()?.grad.as_ref(),
            BuildType::Opt => self.derived.as_ref()?.opt.as_ref(),
        }
    }

    /// The tensor into which data are copied, if there is one (`ggml_opt_inputs`).
    #[doc(alias = "ggml_opt_inputs")]
    pub fn inputs(&self) -> Option<Tensor<'c>> {
        self.inputs
    }

    /// The outputs from which the loss is computed (`ggml_opt_outputs`).
    #[doc(alias = "ggml_opt_outputs")]
    pub fn outputs(&self) -> Tensor<'c> {
        self.outputs
    }

    /// The label input, shaped like the outputs; `None` for losses without labels (`ggml_opt_labels`).
    #[doc(alias = "ggml_opt_labels")]
    pub fn labels(&self) -> Option<Tensor<'c>> {
        self.loss.labels
    }

    /// The scalar loss (`ggml_opt_loss`). A mean is divided by
    /// [`OptParams::with_opt_period`](super::OptParams::with_opt_period).
    #[doc(alias = "ggml_opt_loss")]
    pub fn loss(&self) -> Tensor<'c> {
        self.loss.value
    }

    /// The index of each datapoint's largest output (`ggml_opt_pred`); only for [`LossType::CrossEntropy`].
    #[doc(alias = "ggml_opt_pred")]
    pub fn pred(&self) -> Option<Tensor<'c>> {
        self.loss.pred
    }

    /// The number of predictions that match the labels (`ggml_opt_ncorrect`); only for [`LossType::CrossEntropy`].
    #[doc(alias = "ggml_opt_ncorrect")]
    pub fn ncorrect(&self) -> Option<Tensor<'c>> {
        self.loss.ncorrect
    }

    /// The number of datapoints per batch.
    pub fn ndata(&self) -> usize {
        let [_, n, ..] = self.outputs.ne();
        usize::try_from(n).unwrap_or(0)
    }
}

impl<'c> Derived<'c> {
    /// Builds the graphs of gradients and steps. `results` are the results of the forward pass.
    fn new(opt: &OptContext<'_>, memory: &OptMemory, results: &[Tensor<'c>], loss: Tensor<'c>) -> Result<Self> {
        // The graph must end with the loss, and have no nodes that the loss doesn't need.
        let forward = Graph::new(&StorePool::default(), &[loss])?;
        let values: Vec<_> = opt.parameters.iter().map(|t| t.ptr()).collect();
        training::check(forward.entries(), &values)?;

        let leaves = Context::new();
        let leaf = |name, n: i64| Ok::<_, Error>(leaves.input(name, DType::F32, [n])?.ptr());
        let one = leaf("gradient of the loss", 1)?;
        let steps = opt.params.build_type == BuildType::Opt;
        let optimizer = Some(opt.params.optimizer).filter(|_| steps);
        let settings = optimizer.map(|o| leaf("optimizer", o.n_values())).transpose()?;
        let mut moments = memory.moments.iter().flat_map(State::iter).map(Tensor::ptr);
        let mut sums = memory.sums.iter().flat_map(State::iter).map(Tensor::ptr);
        let parameters = values.iter().map(|&value| {
            let moments = moments.next().zip(moments.next()).map(|(m, v)| [m, v]);
            Parameter { value, sum: sums.next(), moments }
        });
        let parameters: Vec<_> = parameters.collect();
        let built = backward::build(&forward, &parameters, optimizer.zip(settings), one)?;

        let handle = |ptr: &TensorPtr| {
            // SAFETY: the tensor is in `built.pool`; `Self` keeps it and outlives its graphs, lent by reference only.
            // It refers to the user's tensors (live for 'c), to `leaves`, and to `memory`, which `OptGraphs` keeps.
            unsafe { Tensor::new(*ptr) }
        };
        // A step overwrites a parameter that other parameters' gradients may depend on, so all gradients come first.
        let mut results = results.to_vec();
        results.extend(built.gradients.iter().map(handle));
        let grad =
            if !steps || opt.params.opt_period > 1 { Some(Graph::new(&StorePool::default(), &results)?) } else { None };
        results.extend(built.steps.iter().map(handle));
        let opt = if steps { Some(Graph::new(&StorePool::default(), &results)?) } else { None };
        Ok(Self { grad, opt, _backward: built.pool, _leaves: leaves, one, settings })
    }
}

debug!(
    OptGraphs<'_>,
    |this| forward = &this.forward,
    grad = &this.graph(BuildType::Grad),
    opt = &this.graph(BuildType::Opt)
);
