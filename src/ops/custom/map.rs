//! Custom operations whose result has the shape and the type of the first operand.

use ggml_sys as sys;

use super::{CustomOp, CustomOptions, Rows, RowsMut, call, is};
use crate::dtype::Element;
use crate::ops::prelude::*;

/// Calls `Context::closure` with a builder of C, the builder's operands, and the function of `call.rs` that C calls for
/// the closure.
macro_rules! closure {
    ($ctx:ident, $call:expr, $target:expr, $op:expr, sys::$f:ident($($operand:ident),*), $run:ident) => {
        $ctx.closure(stringify!($f), $call, $target, &$op, |c, n_tasks, user| {
            // SAFETY: the context is live and has room; the operands are live for 'c; `Context::closure` has checked
            // that a target may be written. The result keeps the operands, and `user`, the closure, which
            // `Context::closure` keeps as long as the context.
            unsafe { sys::$f(c $(, $operand.as_ptr())*, Some(call::$run), n_tasks, user) }
        })
    };
}

impl Context {
    /// A tensor like `a`, computed from it by a closure (`ggml_map_custom1`): see [`Context::custom`].
    ///
    /// ```
    /// use ggml::prelude::*;
    /// use ggml::ops::CustomOptions;
    /// # fn main() -> ggml::Result<()> {
    /// let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [3])?;
    /// let y = ctx.map_custom1::<f32>(x, CustomOptions::new(), |out, x| {
    ///     for (i, row) in out {
    ///         row.iter_mut().zip(x.row(i)).for_each(|(y, x)| *y = x.cbrt());
    ///     }
    /// })?;
    /// # let graph = ctx.graph([y])?;
    /// # let mut sched = Sched::builder().backend(Backend::cpu()?).build()?;
    /// # let mut run = sched.alloc(&graph)?;
    /// # run.set(x, &[1.0_f32, 8.0, 27.0])?;
    /// # run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [1.0, 2.0, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ElementType`](crate::Error::ElementType) unless `a` is of `T`; else as [`Context::custom`].
    #[doc(alias = "ggml_map_custom1")]
    pub fn map_custom1<'c, T: Element>(
        &'c self,
        a: Tensor<'c>,
        how: CustomOptions,
        f: impl Fn(RowsMut<'_, T>, Rows<'_, T>) + Send + Sync + 'static,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("map_custom1"), operands: &[a] };
        is::<T>(call, a)?;
        let f = move |out: RowsMut<'_, T>, operands: super::Operands<'_>| f(out, operands.rows(0));
        closure!(self, call, None, CustomOp::new(how, f), sys::ggml_map_custom1(a), map_custom1)
    }

    /// Changes `a` in place by a closure, and returns a view of `a` (`ggml_map_custom1_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::custom_inplace`].
    #[doc(alias = "ggml_map_custom1_inplace")]
    pub fn map_custom1_inplace<'c, T: Element>(
        &'c self,
        a: Tensor<'c>,
        how: CustomOptions,
        f: impl Fn(RowsMut<'_, T>) + Send + Sync + 'static,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("map_custom1_inplace"), operands: &[a] };
        let f = move |out: RowsMut<'_, T>, _: super::Operands<'_>| f(out);
        closure!(self, call, Some(a), CustomOp::new(how, f), sys::ggml_map_custom1_inplace(a), map_custom1)
    }

    /// A tensor of the shape and type of `a`, computed from `a` and `b` by a closure (`ggml_map_custom2`): see
    /// [`Context::custom`]. `b` may have any shape.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::CustomOptions;
    /// # let ctx = Context::new();
    /// let (a, b) = (ctx.arange(3.0, 6.0, 1.0)?, ctx.arange(0.0, 3.0, 1.0)?);
    /// let y = ctx.map_custom2::<f32, f32>(a, b, CustomOptions::new(), |out, a, b| {
    ///     for (i, row) in out {
    ///         row.iter_mut().zip(a.row(i)).zip(b.row(i)).for_each(|((y, a), b)| *y = a.powf(*b));
    ///     }
    /// })?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [1.0, 4.0, 25.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ElementType`](crate::Error::ElementType) unless `a` is of `T` and `b` of `B`; else as [`Context::custom`].
    #[doc(alias = "ggml_map_custom2")]
    pub fn map_custom2<'c, T: Element, B: Element>(
        &'c self,
        a: Tensor<'c>,
        b: Tensor<'c>,
        how: CustomOptions,
        f: impl Fn(RowsMut<'_, T>, Rows<'_, T>, Rows<'_, B>) + Send + Sync + 'static,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("map_custom2"), operands: &[a, b] };
        is::<T>(call, a)?;
        is::<B>(call, b)?;
        let f = move |out: RowsMut<'_, T>, operands: super::Operands<'_>| f(out, operands.rows(0), operands.rows(1));
        closure!(self, call, None, CustomOp::new(how, f), sys::ggml_map_custom2(a, b), map_custom2)
    }

    /// Changes `a` in place by a closure that reads `b`, and returns a view of `a` (`ggml_map_custom2_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::custom_inplace`].
    #[doc(alias = "ggml_map_custom2_inplace")]
    pub fn map_custom2_inplace<'c, T: Element, B: Element>(
        &'c self,
        a: Tensor<'c>,
        b: Tensor<'c>,
        how: CustomOptions,
        f: impl Fn(RowsMut<'_, T>, Rows<'_, B>) + Send + Sync + 'static,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("map_custom2_inplace"), operands: &[a, b] };
        is::<B>(call, b)?;
        let f = move |out: RowsMut<'_, T>, operands: super::Operands<'_>| f(out, operands.rows(0));
        closure!(self, call, Some(a), CustomOp::new(how, f), sys::ggml_map_custom2_inplace(a, b), map_custom2)
    }

    /// A tensor of the shape and type of `a`, computed from `a`, `b` and `d` by a closure (`ggml_map_custom3`): see
    /// [`Context::custom`]. `b` and `d` may have any shape.
    ///
    /// # Errors
    ///
    /// [`Error::ElementType`](crate::Error::ElementType) unless `a` is of `T`, `b` of `B` and `d` of `D`; else as
    /// [`Context::custom`].
    #[doc(alias = "ggml_map_custom3")]
    pub fn map_custom3<'c, T: Element, B: Element, D: Element>(
        &'c self,
        a: Tensor<'c>,
        b: Tensor<'c>,
        d: Tensor<'c>,
        how: CustomOptions,
        f: impl Fn(RowsMut<'_, T>, Rows<'_, T>, Rows<'_, B>, Rows<'_, D>) + Send + Sync + 'static,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("map_custom3"), operands: &[a, b, d] };
        is::<T>(call, a)?;
        is::<B>(call, b)?;
        is::<D>(call, d)?;
        let f = move |out: RowsMut<'_, T>, operands: super::Operands<'_>| {
            f(out, operands.rows(0), operands.rows(1), operands.rows(2));
        };
        closure!(self, call, None, CustomOp::new(how, f), sys::ggml_map_custom3(a, b, d), map_custom3)
    }

    /// Changes `a` in place by a closure that reads `b` and `d`, and returns a view of `a`
    /// (`ggml_map_custom3_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::custom_inplace`].
    #[doc(alias = "ggml_map_custom3_inplace")]
    pub fn map_custom3_inplace<'c, T: Element, B: Element, D: Element>(
        &'c self,
        a: Tensor<'c>,
        b: Tensor<'c>,
        d: Tensor<'c>,
        how: CustomOptions,
        f: impl Fn(RowsMut<'_, T>, Rows<'_, B>, Rows<'_, D>) + Send + Sync + 'static,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("map_custom3_inplace"), operands: &[a, b, d] };
        is::<B>(call, b)?;
        is::<D>(call, d)?;
        let f = move |out: RowsMut<'_, T>, operands: super::Operands<'_>| f(out, operands.rows(0), operands.rows(1));
        closure!(self, call, Some(a), CustomOp::new(how, f), sys::ggml_map_custom3_inplace(a, b, d), map_custom3)
    }
}
