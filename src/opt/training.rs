//! A training: a graph that computes a loss, its gradients and a step of the optimiser.

use std::fmt;

use crate::buffer;
use crate::context::Context;
use crate::context::pool::Pool;
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::graph::{Graph, Spares};
use crate::ops::check::Call;
use crate::sched::{Allocated, Sched, Split};
use crate::tensor::Tensor;
use crate::tensor::ptr::{Owner, TensorPtr};
use crate::weights::{State, WeightsBuilder};

use super::backward::{self, Backward, Parameter};
use super::derivable;
use super::optimizer::Optimizer;

/// What changes parameters so that a loss becomes smaller: the loss's graph, its gradients (`ggml_build_backward_expand`)
/// and a step of the optimiser for each parameter (`ggml_opt_step_adamw`, `ggml_opt_step_sgd`).
///
/// The optimiser's moments live here, so they last from one [`Training::start`] to the next.
#[doc(alias = "ggml_build_backward_expand")]
#[doc(alias = "ggml_graph_get_grad")]
#[doc(alias = "ggml_set_param")]
#[doc(alias = "ggml_set_loss")]
#[doc(alias = "ggml_opt_context_t")]
pub struct Training<'c> {
    // Field order is drop order: the graph points into all that follows. Its own lifetime is that of the user's context,
    // so it never leaves this module but by a borrow of the training.
    graph: Graph<'c>,
    _backward: Pool,
    _moments: Option<State>,
    _inputs: Context,
    loss: TensorPtr,
    one: TensorPtr,
    settings: TensorPtr,
    optimizer: Optimizer,
    steps: u32,
}

impl<'c> Training<'c> {
    /// A training of `parameters`, tensors of a [`State`], that makes the number `loss` smaller. What `keep` names can be
    /// read after each step.
    ///
    /// ggml passes a gradient back through `permute` and `transpose` without copying it. Where what comes before them can't
    /// take it so, this call or [`Training::start`] says that it needs a contiguous operand: a `reshape` to the same shape,
    /// put before the `permute`, copies the gradient.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] names the operation between parameters and loss that has no backward pass;
    /// [`Error::NotPart`] where the loss can't be derived by a parameter; [`Error::Shape`] unless the loss is one number;
    /// [`Error::DType`] unless it and the parameters are `f32`; [`Error::Frozen`] where a parameter lies in weights;
    /// [`Error::Duplicate`]; [`Error::Param`] where the optimiser's parameters are out of their ranges; [`Error::Ggml`] where
    /// ggml refuses the strides of a gradient, see above.
    pub fn new(
        ctx: &'c Context,
        loss: Tensor<'c>,
        keep: impl AsRef<[Tensor<'c>]>,
        parameters: impl AsRef<[Tensor<'c>]>,
        optimizer: impl Into<Optimizer>,
    ) -> Result<Self> {
        let (keep, parameters, optimizer) = (keep.as_ref(), parameters.as_ref(), optimizer.into());
        optimizer.check()?;
        check_operands(loss, parameters)?;
        let forward = ctx.graph([loss])?;
        let values: Vec<_> = parameters.iter().map(|t| t.ptr()).collect();
        derivable::check(&forward, &values)?;
        for &t in keep.iter().filter(|t| t.ptr().owner() == Owner::Graph) {
            ctx.output(t)?;
        }

        let inputs = Context::new();
        let one = inputs.input("gradient of the loss", DType::F32, loss.shape())?.ptr();
        let settings = inputs.input("optimizer", DType::F32, [optimizer.n_values()])?.ptr();
        let moments = moments(&values, optimizer)?;
        let mut of_each = moments.iter().flat_map(State::iter).map(Tensor::ptr);
        let with_moments = values.iter().map(|&value| {
            let moments = of_each.next().zip(of_each.next()).map(|(m, v)| [m, v]);
            Parameter { value, moments }
        });
        let with_moments: Vec<_> = with_moments.collect();
        drop(of_each);
        let Backward { pool, gradients, steps } = backward::build(&forward, &with_moments, optimizer, one, settings)?;

        // A step overwrites a parameter that gradients of other parameters are computed from: all gradients come first.
        let results = keep.iter().map(|t| t.ptr()).chain([loss.ptr()]).chain(gradients).chain(steps);
        let results: Vec<_> = results
            .map(|ptr| {
                // SAFETY: the user's tensors live for 'c. All others live as long as the training, which outlives all uses
                // of the graph: see `graph`.
                unsafe { Tensor::new(ptr) }
            })
            .collect();
        let graph = Graph::new(&Spares::default(), &results)?;
        Ok(Self {
            graph,
            _backward: pool,
            _moments: moments,
            _inputs: inputs,
            loss: loss.ptr(),
            one,
            settings,
            optimizer,
            steps: 0,
        })
    }

    /// The optimiser.
    pub fn optimizer(&self) -> Optimizer {
        self.optimizer
    }

    /// Changes the optimiser's parameters, such as the learning rate, from the next step on.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] where one is out of its range, or where it is another kind of optimiser.
    pub fn set_optimizer(&mut self, optimizer: impl Into<Optimizer>) -> Result<()> {
        self.optimizer.replace(optimizer.into())
    }

    /// How many steps were made.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Gives the training memory, as [`Sched::alloc`] does to a graph.
    ///
    /// # Errors
    ///
    /// As [`Sched::alloc`].
    pub fn start<'s>(&'s mut self, sched: &'s mut Sched) -> Result<Running<'s, 'c>> {
        let mut run = sched.alloc(&self.graph)?;
        // SAFETY: the training, which owns the tensor, is borrowed for 's.
        let one = unsafe { Tensor::new(self.one) };
        run.set(one, &[1.0_f32])?;
        let (loss, settings) = (self.loss, self.settings);
        Ok(Running { run, loss, settings, optimizer: &mut self.optimizer, steps: &mut self.steps })
    }
}

impl fmt::Debug for Training<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Training")
            .field("graph", &self.graph)
            .field("optimizer", &self.optimizer)
            .field("steps", &self.steps)
            .finish_non_exhaustive()
    }
}

fn check_operands(loss: Tensor<'_>, parameters: &[Tensor<'_>]) -> Result<()> {
    const NAME: &str = "Training::new";
    let call = Call { op: NAME, operands: &[loss] };
    call.shape(loss.elements() == 1, "the loss must be one number; use `sum`")?;
    call.dtype(loss.dtype() == DType::F32, "the loss must be f32")?;
    let none = parameters.is_empty();
    call.param(!none, "parameters", "empty", "there must be one at least")?;
    for (i, &t) in parameters.iter().enumerate() {
        let call = Call { op: NAME, operands: &[t] };
        match t.ptr().owner() {
            Owner::State => {}
            Owner::Weights | Owner::Packed => return Err(Error::Frozen { op: NAME, tensor: t.info() }),
            Owner::Graph => {
                return Err(Error::NotPart { call: NAME, tensor: t.info(), whole: "a state; see `place_state`" });
            }
        }
        call.shape(!t.is_view(), "a parameter must be a whole tensor of a state, no view of one")?;
        call.dtype(t.dtype() == DType::F32, "parameters must be f32")?;
        if parameters.iter().take(i).any(|&other| other == t) {
            return Err(Error::Duplicate { call: NAME, what: "parameter", name: t.name().into() });
        }
    }
    Ok(())
}

/// Two tensors for each parameter, all zero, in memory of the parameter's kind.
fn moments(parameters: &[TensorPtr], optimizer: Optimizer) -> Result<Option<State>> {
    let Optimizer::AdamW(_) = optimizer else { return Ok(None) };
    let mut builder = WeightsBuilder::new();
    let mut types = Vec::new();
    for (i, &t) in parameters.iter().enumerate() {
        // Their own names may be those of two states, or take all the room that there is.
        for moment in ["mean", "variance"] {
            builder.tensor(&format!("{moment} {i}"), DType::F32, t.ne())?;
            types.push(buffer::type_of(t).ok_or(Error::Poisoned { object: "state" })?);
        }
    }
    let mut types = types.into_iter();
    let Some(last) = types.clone().next_back() else { return Ok(None) };
    builder.place_state_with(|_| types.next().unwrap_or(last)).map(Some)
}

/// A [`Training`] with memory, for as long as it borrows the scheduler.
pub struct Running<'s, 'c> {
    run: Allocated<'s, 'c>,
    loss: TensorPtr,
    settings: TensorPtr,
    optimizer: &'s mut Optimizer,
    steps: &'s mut u32,
}

impl Running<'_, '_> {
    /// Sets the whole of an input, such as images or labels.
    ///
    /// # Errors
    ///
    /// As [`Allocated::set`].
    pub fn set<T: Element>(&mut self, t: Tensor<'_>, data: &[T]) -> Result<()> {
        self.run.set(t, data)
    }

    /// As [`Training::set_optimizer`], between two steps.
    ///
    /// # Errors
    ///
    /// As [`Training::set_optimizer`].
    pub fn set_optimizer(&mut self, optimizer: impl Into<Optimizer>) -> Result<()> {
        self.optimizer.replace(optimizer.into())
    }

    /// Computes loss and gradients from the inputs, moves the parameters by one step, and returns the loss as it was
    /// before it.
    ///
    /// # Errors
    ///
    /// As [`Allocated::compute`]. Where a device fails, some parameters may have moved and others not.
    pub fn step(&mut self) -> Result<f32> {
        let next = self.steps.saturating_add(1);
        // SAFETY: the training, which owns the tensor, is borrowed as long as `self` lives.
        let settings = unsafe { Tensor::new(self.settings) };
        self.run.set(settings, &self.optimizer.values(next))?;
        self.run.compute()?;
        *self.steps = next;
        // SAFETY: a tensor of the user's context, which outlives the training.
        let loss = unsafe { Tensor::new(self.loss) };
        let mut value = [0.0_f32];
        self.run.get_into(loss, &mut value)?;
        let [value] = value;
        Ok(value)
    }

    /// Reads a tensor that was named to [`Training::new`], as it was in the last step.
    ///
    /// # Errors
    ///
    /// As [`Allocated::get`].
    pub fn get<T: Element>(&self, t: Tensor<'_>) -> Result<Vec<T>> {
        self.run.get(t)
    }

    /// [`Running::get`] of a contiguous tensor into memory that is there already.
    ///
    /// # Errors
    ///
    /// As [`Allocated::get_into`].
    pub fn get_into<T: Element>(&self, t: Tensor<'_>, out: &mut [T]) -> Result<()> {
        self.run.get_into(t, out)
    }

    /// The parts that forward pass, backward pass and steps were split into.
    pub fn splits(&self) -> Vec<Split<'_>> {
        self.run.splits()
    }
}

impl fmt::Debug for Running<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("run", &self.run).field("steps", &self.steps).finish_non_exhaustive()
    }
}
