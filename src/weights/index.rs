//! Indices of tensors in weights and states: what a struct keeps that owns these, since a handle would borrow them.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{State, Weights};
use crate::error::Result;
use crate::tensor::Tensor;

/// Tells all weights and states of the process apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id(usize);

impl Default for Id {
    /// One that no other has.
    fn default() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Which tensor, and of whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) owner: Id,
    pub(super) i: usize,
}

/// A tensor of [`Weights`], found by name once; made by [`Weights::index`].
///
/// Unlike a [`Tensor`] it borrows nothing, so a struct can hold it beside the weights. It is of use with these weights
/// only, wherever they are moved to.
///
/// ```
/// # use ggml::prelude::*;
/// # let mut builder = WeightsBuilder::new();
/// # builder.tensor("norm", DType::F32, [4])?;
/// # let weights = builder.place(Device::cpu()?)?;
/// struct Model {
///     norm: WeightIndex,
///     weights: Weights,
/// }
/// let model = Model { norm: weights.index("norm")?, weights };
/// assert_eq!(model.weights.at(model.norm).name(), "norm");
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeightIndex(Place);

/// A tensor of a [`State`], found by name once; made by [`State::index`].
///
/// Unlike a [`Tensor`] it borrows nothing, so a struct can hold it beside the state. It is of use with this state only,
/// wherever it is moved to.
///
/// ```
/// # use ggml::prelude::*;
/// # let mut builder = WeightsBuilder::new();
/// # builder.tensor("keys", DType::F16, [64, 256])?;
/// # let state = builder.place_state(Device::cpu()?)?;
/// struct Cache {
///     keys: StateIndex,
///     state: State,
/// }
/// let cache = Cache { keys: state.index("keys")?, state };
/// assert_eq!(cache.state.at(cache.keys).ne(), [64, 256, 1, 1]);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StateIndex(Place);

impl Weights {
    /// The index of the tensor with this name, for [`Weights::at`]. A model that owns its weights looks names up once:
    ///
    /// ```
    /// use ggml::prelude::*;
    ///
    /// struct Mlp {
    ///     weights: Weights,
    ///     layers: Vec<[WeightIndex; 2]>,
    ///     ctx: Context,
    ///     sched: Sched,
    /// }
    ///
    /// impl Mlp {
    ///     fn new(weights: Weights, layers: usize) -> ggml::Result<Self> {
    ///         let layer = |i| Ok([weights.index(&format!("w{i}"))?, weights.index(&format!("b{i}"))?]);
    ///         let layers = (0..layers).map(layer).collect::<ggml::Result<_>>()?;
    ///         Ok(Self { weights, layers, ctx: Context::new(), sched: Sched::best()? })
    ///     }
    ///
    ///     fn forward(&mut self, x: &[f32]) -> ggml::Result<Vec<f32>> {
    ///         self.ctx.reset();
    ///         let (ctx, weights) = (&self.ctx, &self.weights);
    ///         let input = ctx.input("x", DType::F32, [x.len()])?;
    ///         let output = self.layers.iter().try_fold(input, |x, &[w, b]| {
    ///             ctx.relu(ctx.add(ctx.mul_mat(weights.at(w), x)?, weights.at(b))?)
    ///         })?;
    ///         let graph = ctx.graph([output])?;
    ///         let mut run = self.sched.alloc(&graph)?;
    ///         run.set(input, x)?;
    ///         run.compute()?;
    ///         run.get(output)
    ///     }
    /// }
    ///
    /// # fn main() -> ggml::Result<()> {
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("w0", DType::F32, [3, 2])?.tensor("b0", DType::F32, [2])?;
    /// let mut weights = builder.place(Device::best()?)?;
    /// weights.set("w0", &[1.0_f32, 0.0, 0.0, 0.0, 0.0, -1.0])?;
    /// weights.set("b0", &[0.5_f32, 0.5])?;
    /// let mut mlp = Mlp::new(weights, 1)?;
    /// assert_eq!(mlp.forward(&[1.0, 2.0, 3.0])?, [1.5, 0.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoSuch`](crate::Error::NoSuch) lists the names there are.
    pub fn index(&self, name: &str) -> Result<WeightIndex> {
        self.0.index(name).map(WeightIndex)
    }

    /// The tensor at an index, as an operand. It costs an access to a slice; no name is looked up.
    ///
    /// # Panics
    ///
    /// Where the index is of other weights, even if those have the same names and shapes.
    #[inline]
    #[track_caller]
    pub fn at(&self, index: WeightIndex) -> Tensor<'_> {
        self.0.at(index.0).unwrap_or_else(|| other("Weights"))
    }
}

impl State {
    /// The index of the tensor with this name, for [`State::at`]: see [`Weights::index`].
    ///
    /// ```
    /// use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("keys", DType::F32, [2, 3])?;
    /// let cache = builder.place_state(Device::cpu()?)?;
    /// let keys = cache.index("keys")?;
    /// cache.fill_with("keys", 1.0_f32)?;
    /// assert_eq!(cache.at(keys).read::<f32>()?, [1.0; 6]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoSuch`](crate::Error::NoSuch) lists the names there are.
    pub fn index(&self, name: &str) -> Result<StateIndex> {
        self.0.index(name).map(StateIndex)
    }

    /// The tensor at an index, as an operand. It costs an access to a slice; no name is looked up.
    ///
    /// # Panics
    ///
    /// Where the index is of another state, even if that has the same names and shapes.
    #[inline]
    #[track_caller]
    pub fn at(&self, index: StateIndex) -> Tensor<'_> {
        self.0.at(index.0).unwrap_or_else(|| other("State"))
    }
}

#[cold]
#[track_caller]
#[expect(clippy::panic, reason = "as of a slice: the program is wrong")]
fn other(owner: &str) -> ! {
    panic!("{owner}::at: the index is not of this object; make it with the `index` of the same one")
}
