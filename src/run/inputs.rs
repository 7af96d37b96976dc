//! Computes a graph once: inputs in, a run with results out.

use super::Run;
use crate::alloc::GraphAllocator;
use crate::backend::Backend;
use crate::callback;
use crate::dtype::Element;
use crate::error::Result;
use crate::graph::Graph;
use crate::sched::Sched;
use crate::tensor::Tensor;

/// Values of inputs, for [`Sched::run`]: a pair of a tensor and its elements, or a tuple, an array or a vector of such
/// pairs; `()` where a graph has no inputs.
///
/// Implement it for a struct with the inputs of a model.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::run::Inputs;
///
/// struct Picked<'c, 'd> {
///     table: (Tensor<'c>, &'d [f32]),
///     rows: (Tensor<'c>, &'d [i32]),
/// }
///
/// impl Inputs for Picked<'_, '_> {
///     fn set(self, run: &mut Run<'_, '_>) -> ggml::Result<()> {
///         (self.table, self.rows).set(run)
///     }
/// }
///
/// let ctx = Context::new();
/// let (table, rows) = (ctx.input("table", DType::F32, [1, 3])?, ctx.input("rows", DType::I32, [2])?);
/// let picked = ctx.get_rows(table, rows)?;
/// let graph = ctx.graph([picked])?;
/// let inputs = Picked { table: (table, &[1.0, 2.0, 3.0]), rows: (rows, &[2, 0]) };
/// assert_eq!(Sched::best()?.run(&graph, inputs)?.get::<f32>(picked)?, [3.0, 1.0]);
/// # Ok::<(), ggml::Error>(())
/// ```
pub trait Inputs {
    /// Sets these inputs.
    ///
    /// # Errors
    ///
    /// As [`Run::set`].
    fn set(self, run: &mut Run<'_, '_>) -> Result<()>;
}

impl<T: Element> Inputs for (Tensor<'_>, &[T]) {
    fn set(self, run: &mut Run<'_, '_>) -> Result<()> {
        run.set(self.0, self.1)
    }
}

impl<T: Element, const N: usize> Inputs for (Tensor<'_>, &[T; N]) {
    fn set(self, run: &mut Run<'_, '_>) -> Result<()> {
        run.set(self.0, self.1)
    }
}

impl<T: Element> Inputs for (Tensor<'_>, &Vec<T>) {
    fn set(self, run: &mut Run<'_, '_>) -> Result<()> {
        run.set(self.0, self.1)
    }
}

impl<I: Inputs, const N: usize> Inputs for [I; N] {
    fn set(self, run: &mut Run<'_, '_>) -> Result<()> {
        self.into_iter().try_for_each(|input| input.set(run))
    }
}

impl<I: Inputs> Inputs for Vec<I> {
    fn set(self, run: &mut Run<'_, '_>) -> Result<()> {
        self.into_iter().try_for_each(|input| input.set(run))
    }
}

macro_rules! tuples {
    ($(($($input:ident)*))*) => {
        $(
            impl<$($input: Inputs),*> Inputs for ($($input,)*) {
                #[allow(non_snake_case, unused_variables, reason = "the types' names; one tuple is empty")]
                fn set(self, run: &mut Run<'_, '_>) -> Result<()> {
                    let ($($input,)*) = self;
                    $($input.set(run)?;)*
                    Ok(())
                }
            }
        )*
    };
}

tuples! { () (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }

impl Sched {
    /// Computes `graph` once: allocates it ([`Sched::alloc`]), sets its inputs ([`Run::set`]) and computes
    /// ([`Run::compute`]). Results are read from the returned run, which can also compute again.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let (x, w) = (ctx.input("x", DType::F32, [2])?, ctx.input("w", DType::F32, [2])?);
    /// let y = ctx.mul(x, w)?;
    /// let graph = ctx.graph([y])?;
    /// let mut sched = Sched::best()?;
    /// assert_eq!(sched.run(&graph, ((x, &[1.0_f32, 2.0]), (w, &[3.0_f32, 4.0])))?.get::<f32>(y)?, [3.0, 8.0]);
    ///
    /// let doubled = ctx.graph([ctx.add(x, x)?])?;
    /// let numbers: Vec<f32> = vec![1.0, 2.0];
    /// let run = sched.run(&doubled, (x, &numbers))?;
    /// # drop(run);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Sched::alloc`], [`Run::set`] and [`Run::compute`]; [`Error::InputNotSet`](crate::Error::InputNotSet) if an
    /// input of the graph is missing.
    pub fn run<'s, 'c>(&'s mut self, graph: &'s Graph<'c>, inputs: impl Inputs) -> Result<Run<'s, 'c>> {
        callback::check_reentry("Sched::run")?;
        computed(self.alloc(graph)?, inputs)
    }
}

impl GraphAllocator {
    /// Computes `graph` once on `backend`, as [`Sched::run`] does.
    ///
    /// # Errors
    ///
    /// As [`GraphAllocator::alloc`], [`Run::set`] and [`Run::compute`].
    pub fn run<'s, 'c>(
        &'s mut self,
        graph: &'s Graph<'c>,
        backend: &'s mut Backend,
        inputs: impl Inputs,
    ) -> Result<Run<'s, 'c>> {
        callback::check_reentry("GraphAllocator::run")?;
        computed(self.alloc(graph, backend)?, inputs)
    }
}

fn computed<'s, 'c>(mut run: Run<'s, 'c>, inputs: impl Inputs) -> Result<Run<'s, 'c>> {
    inputs.set(&mut run)?;
    run.compute()?;
    Ok(run)
}
