//! Indices of tensors in weights and states. A struct can own both, because an index doesn't borrow the tensors as a
//! handle does.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{State, Weights};
use crate::error::Result;
use crate::tensor::Tensor;

/// An id that differs for all weights and states of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id(usize);

impl Default for Id {
    /// An id that no other weights or state have.
    fn default() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The index of a tensor in [`Weights`] or a [`State`]. [`WeightsBuilder::tensor`](crate::WeightsBuilder::tensor)
/// returns it, and [`Weights::index`] does for the tensors of a file.
///
/// Unlike a [`Tensor`] it borrows nothing, so a struct can hold it beside the weights. It is valid only for the weights
/// or the state that the builder made, wherever they are moved.
///
/// ```
/// # use ggml::prelude::*;
/// struct Model {
///     norm: LeafIndex,
///     weights: Weights,
/// }
/// let mut builder = WeightsBuilder::new();
/// let norm = builder.tensor("norm", DType::F32, [4])?;
/// let model = Model { norm, weights: builder.place(Device::cpu()?)? };
/// assert_eq!(model.weights.at(model.norm).name(), "norm");
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeafIndex {
    pub(super) owner: Id,
    pub(super) i: usize,
}

/// Which tensor of weights or a state is meant: its [`LeafIndex`], or its name.
///
/// ```
/// # use ggml::prelude::*;
/// let mut builder = WeightsBuilder::new();
/// let norm = builder.tensor("norm", DType::F32, [2])?;
/// let mut weights = builder.place(Device::cpu()?)?;
/// weights.set(norm, &[1.0_f32, 2.0])?;
/// assert_eq!(weights.element::<f32>("norm", [1, 0, 0, 0])?, 2.0);
/// # Ok::<(), ggml::Error>(())
/// ```
pub trait LeafKey: Key {}

impl<K: Key> LeafKey for K {}

mod sealed {
    use super::LeafIndex;

    #[expect(unnameable_types, reason = "that is what seals the trait")]
    pub trait Key {
        fn which<'k>(self) -> Which<'k>
        where
            Self: 'k;
    }

    #[expect(unnameable_types, reason = "only this module's trait returns it")]
    #[derive(Debug, Clone, Copy)]
    pub enum Which<'a> {
        Index(LeafIndex),
        Name(&'a str),
    }

    impl Key for LeafIndex {
        fn which<'k>(self) -> Which<'k>
        where
            Self: 'k,
        {
            Which::Index(self)
        }
    }

    impl<N: AsRef<str> + ?Sized> Key for &N {
        fn which<'k>(self) -> Which<'k>
        where
            Self: 'k,
        {
            Which::Name(self.as_ref())
        }
    }
}

pub(super) use sealed::{Key, Which};

/// The methods that weights and states both have. The documentation of `index` has an example of its own for each.
macro_rules! indexed {
    ($($(#[$about:meta])* $t:ident;)*) => {
        $(
            impl $t {
                $(#[$about])*
                pub fn index(&self, name: &str) -> Result<LeafIndex> {
                    self.0.index(name)
                }

                /// The tensor at an index, as an operand. It costs an access to a slice; no name is looked up.
                ///
                /// # Panics
                ///
                /// If the index belongs to other weights or another state, even with the same names and shapes.
                #[inline]
                #[track_caller]
                pub fn at(&self, index: LeafIndex) -> Tensor<'_> {
                    self.0.at(index).unwrap_or_else(|| other(stringify!($t)))
                }
            }
        )*
    };
}

indexed! {
    /// The index of the tensor with this name, for [`Weights::at`]. A model that owns its weights looks names up once:
    ///
    /// ```
    /// use ggml::prelude::*;
    ///
    /// struct Mlp {
    ///     weights: Weights,
    ///     layers: Vec<[LeafIndex; 2]>,
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
    ///         self.sched.run(&graph, (input, x))?.get(output)
    ///     }
    /// }
    ///
    /// # fn main() -> ggml::Result<()> {
    /// let mut builder = WeightsBuilder::new();
    /// builder.tensor("w0", DType::F32, [3, 2])?;
    /// builder.tensor("b0", DType::F32, [2])?;
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
    Weights;

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
    State;
}

#[cold]
#[track_caller]
#[expect(clippy::panic, reason = "as of a slice: the program is wrong")]
fn other(owner: &str) -> ! {
    panic!("{owner}::at: the index is not of this object; take it from its builder, or from its own `index`")
}
