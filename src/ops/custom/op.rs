//! Custom operations that are made once, and the closures of their uses.

use std::marker::PhantomData;
use std::sync::Arc;

use super::call::{self, Body, Closure};
use super::{CustomOptions, Operands, RowsMut};
use crate::debug::debug;
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::lock::Lock;

/// A custom operation that is made once, for any number of graphs and contexts: see
/// [`Context::custom`](crate::Context::custom). If a context is reset and the same graph is built in it again, nothing
/// is allocated.
///
/// ```
/// use ggml::prelude::*;
/// use ggml::ops::{CustomOp, CustomOptions};
/// let double = CustomOp::<f32>::new(CustomOptions::new(), |out, operands| {
///     for (i, row) in out {
///         row.iter_mut().zip(operands.rows::<f32>(0).row(i)).for_each(|(y, x)| *y = 2.0 * x);
///     }
/// });
/// let mut ctx = Context::new();
/// for _ in 0..2 {
///     ctx.reset();
///     let x = ctx.arange(0.0, 3.0, 1.0)?;
///     let y = ctx.custom_op(&double, &[ctx.custom_op(&double, &[x], [3])?], [3])?;
/// #   let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// #   let mut run = sched.alloc(&graph)?; run.compute()?;
///     // …
///     assert_eq!(run.get::<f32>(y)?, [0.0, 4.0, 8.0]);
/// }
/// # Ok::<(), ggml::Error>(())
/// ```
pub struct CustomOp<T> {
    body: Body,
    how: CustomOptions,
    home: Arc<Home>,
    life: PhantomData<fn(T)>,
}

impl<T: Element> CustomOp<T> {
    /// An operation computed by a closure, which is called as [`Context::custom`](crate::Context::custom) says. The
    /// closure lives as long as this, and the contexts in which it was used.
    pub fn new(how: CustomOptions, f: impl Fn(RowsMut<'_, T>, Operands<'_>) + Send + Sync + 'static) -> Self {
        Self { body: call::body(f), how, home: Arc::default(), life: PhantomData }
    }

    pub(super) fn how(&self) -> CustomOptions {
        self.how
    }

    /// A closure for one operation. Each operation in place has a `CustomOp` of its own, so all free closures of one
    /// `CustomOp` have the same `in_place`.
    pub(super) fn closure(&self, in_place: bool) -> Result<Arc<Closure>> {
        let mut closures = self.home.0.lock();
        if let Some(closure) = closures.free.pop() {
            return Ok(closure);
        }
        let more = closures.made + 1;
        closures.free.try_reserve(more).map_err(|_| Error::no_memory("closures"))?;
        closures.made = more;
        Ok(Arc::new(Closure::new(Arc::clone(&self.body), self.how, in_place, Arc::downgrade(&self.home))))
    }
}

debug!(CustomOp<; T>, |this| how = &this.how);

/// The closures of a custom operation that no context uses at present.
#[derive(Default)]
pub(super) struct Home(Lock<Closures>);

impl Home {
    pub(super) fn give_back(&self, closure: Arc<Closure>) {
        self.0.lock().free.push(closure);
    }
}

#[derive(Default)]
struct Closures {
    /// The closures that no context uses. The list has room for all that were made.
    free: Vec<Arc<Closure>>,
    made: usize,
}
