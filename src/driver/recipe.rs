//! An operation with its operands, from which it can be built again.

use super::computation::SLOTS;
use super::{Driver, Failure, Node};
use crate::callback;
use crate::context::Context;
use crate::header::{Layout, TensorPtr};
use crate::op::OpParams;
use crate::tensor::Tensor;

/// What a node computes, for use on other threads: its operation, and the types, shapes and strides of its result and
/// operands.
///
/// A driver that computes with ggml builds the operation in a context of its own, on a thread of its own. The operands
/// are laid out as the node's are: a view stays a view.
///
#[doc = include_str!("probe.txt")]
/// use ggml::driver::Recipe;
/// /// Computes a node by ggml's CPU kernels.
/// fn by_ggml(recipe: &Recipe, from: &[Vec<u8>], to: &mut [u8]) -> Result<(), Failure> {
///     let ctx = Context::new();
///     let built = recipe.build(&ctx)?;
///     let graph = ctx.graph([built.result])?;
///     let mut sched = Sched::builder().backend(Backend::cpu()?).build()?;
///     let mut run = sched.alloc(&graph)?;
///     for (slot, input) in built.inputs {
///         run.set_bytes(input, &from[slot])?; // just as `on_host` lent them
///     }
///     run.compute()?;
///     recipe.store(&run.get_bytes(built.result)?, to)
/// }
/// fn compute(nodes: Nodes<'_, Probe>) -> Result<(), Failure> {
///     for mut node in nodes {
///         let recipe = node.recipe();
///         node.on_host(|to, from| {
///             let from: Vec<_> = from.iter().map(|bytes| bytes.to_vec()).collect();
///             std::thread::scope(|scope| scope.spawn(|| by_ggml(&recipe, &from, to)).join()).unwrap()
///         })??;
///     }
///     Ok(())
/// }
/// assert_eq!(squares("recipe", |node| node.rebuilds().is_ok(), compute)?, [9.0, 16.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    params: OpParams,
    result: Layout,
    sources: [Option<Layout>; SLOTS],
}

/// What [`Recipe::build`] has built.
///
/// ```
/// use ggml::driver::{Failure, Recipe};
/// use ggml::prelude::*;
/// /// How many bytes of operands a node reads.
/// fn bytes_read(recipe: &Recipe) -> Result<usize, Failure> {
///     let ctx = Context::new();
///     let built = recipe.build(&ctx)?;
///     Ok(built.inputs.iter().map(|(_slot, input)| input.nbytes()).sum())
/// }
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Rebuilt<'c> {
    /// The result. It has the type and shape of the node's result, but not always its strides: see [`Recipe::store`].
    pub result: Tensor<'c>,
    /// The inputs that the result depends on, each with its slot. An input takes the bytes that [`Node::on_host`] lends
    /// for that slot.
    pub inputs: Vec<(usize, Tensor<'c>)>,
}

impl<D: Driver> Node<'_, D> {
    /// What the node computes, to build it again elsewhere.
    pub fn recipe(&self) -> Recipe {
        let t = self.result().tensor().ptr();
        // The second source of a cast is the cast itself. It is left out, because it is no operand.
        let sources = t.slots().map(|source| source.filter(|source| *source != t).map(TensorPtr::layout));
        Recipe { params: self.params(), result: t.layout(), sources }
    }

    /// Checks that the operation can be built again ([`Recipe::build`]), for drivers that compute with ggml.
    /// [`Driver::supports`] may call this, but nothing else of ggml.
    ///
    /// # Errors
    ///
    /// Those of the builder, and those of [`OpParams::operation`].
    pub fn rebuilds(&self) -> Result<(), Failure> {
        let recipe = self.recipe();
        // This may run inside any call of C: it runs no code of the driver, and nobody else sees the context.
        callback::allow_reentry(|| recipe.build(&Context::new()).map(drop))
    }
}

impl Recipe {
    #[cfg(feature = "rpc")]
    pub(crate) fn new(params: OpParams, result: Layout, sources: &[Option<Layout>; SLOTS]) -> Self {
        Self { params, result, sources: *sources }
    }

    /// The operation with its parameters, as ggml keeps it.
    pub fn params(&self) -> OpParams {
        self.params
    }

    /// Builds the operation, with inputs as its operands.
    ///
    /// # Errors
    ///
    /// As [`OpParams::operation`] and [`Operation::build`](super::Operation::build).
    pub fn build<'c>(&self, ctx: &'c Context) -> Result<Rebuilt<'c>, Failure> {
        let mut inputs = [None; SLOTS];
        let mut operands = [None; SLOTS];
        for ((input, operand), layout) in inputs.iter_mut().zip(&mut operands).zip(self.sources) {
            let Some(layout) = layout else { continue };
            let (leaf, view) = lay_out(ctx, layout)?;
            (*input, *operand) = (Some(leaf), Some(view));
        }
        let result = self.params.operation()?.build(ctx, &operands, self.result.dtype, self.result.ne)?;
        if (result.dtype(), result.ne()) != (self.result.dtype, self.result.ne) {
            let (is, was) = ((result.dtype(), result.ne()), (self.result.dtype, self.result.ne));
            return Err(Failure::new(format!("the operation was built again with a result of {is:?}, not {was:?}")));
        }
        // Some operands are used for their shape only. They need no values, so they are left out.
        let is_used = |(_, input): &(usize, Tensor<'c>)| depends(result.ptr(), input.ptr());
        let inputs = inputs.into_iter().enumerate().filter_map(|(slot, input)| Some((slot, input?)));
        Ok(Rebuilt { result, inputs: inputs.filter(is_used).collect() })
    }

    /// Writes the elements of a result to the bytes that [`Node::on_host`] lends of the node's result, by its strides.
    /// `result` has them in order and without gaps, as [`Run::get_bytes`](crate::Run::get_bytes) returns them.
    ///
    /// # Errors
    ///
    /// A failure unless both have the sizes of the node's result.
    pub fn store(&self, result: &[u8], to: &mut [u8]) -> Result<(), Failure> {
        let layout = self.result;
        let fits =
            Layout::packed(layout.dtype, layout.ne).span() == Some(result.len()) && layout.span() == Some(to.len());
        if !fits {
            let text = format!("{} bytes are not the result's, or {} not those of its memory", result.len(), to.len());
            return Err(Failure::new(text));
        }
        let mut rest = result;
        layout.pieces(|range| {
            let now = rest.split_off(..range.len()).unwrap_or_default();
            if let Some(to) = to.get_mut(range) {
                to.copy_from_slice(now);
            }
        });
        Ok(())
    }
}

/// Makes an input with the bytes of a tensor of this layout, and a tensor of this layout: the input itself if the
/// layout is packed, or else a view of the input.
fn lay_out(ctx: &Context, layout: Layout) -> Result<(Tensor<'_>, Tensor<'_>), Failure> {
    let Layout { dtype, ne, nb } = layout;
    if layout.is_packed() {
        let input = ctx.input("", dtype, ne)?;
        return Ok((input, input));
    }
    if ne.contains(&0) {
        return Err(Failure::new(format!("the operand of {ne:?} is empty: every dimension must be at least 1")));
    }
    let odd = || Failure::new(format!("no view has the strides {nb:?}"));
    let (unit, block) = (dtype.type_size(), dtype.block_size());
    // `view` takes only a first dimension without gaps. So the dimension without gaps is swapped to the front here, and
    // swapped back after `view`.
    let first = nb.iter().position(|&nb| nb == unit).ok_or_else(odd)?;
    let mut axes = [0, 1, 2, 3];
    axes.swap(0, first);
    let in_order = layout.permuted(axes);
    let units =
        layout.span().map(|n| n / unit).and_then(|n| i64::try_from(n).ok()?.checked_mul(block)).ok_or_else(odd)?;
    let input = ctx.input("", dtype, [units])?;
    let [_, strides @ ..] = in_order.nb;
    let view = ctx.view(input, in_order.ne, strides, 0)?;
    // Swaps the dimension without gaps back to its place.
    let view = if first == 0 { view } else { ctx.permute(view, axes)? };
    Ok((input, view))
}

/// Whether `t` is computed from `input`.
fn depends(t: TensorPtr, input: TensorPtr) -> bool {
    t == input || t.sources().chain(t.view_src()).any(|source| source != t && depends(source, input))
}
