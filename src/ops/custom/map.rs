//! Custom operations whose result has the shape and the type of the first operand.

use ggml_sys as sys;

use super::{Custom, CustomOp, Rows, RowsMut, call, is};
use crate::context::Context;
use crate::dtype::Element;
use crate::error::Result;
use crate::ops::check::Call;
use crate::tensor::Tensor;

impl Context {
    /// A tensor like `a`, computed from it by a closure (`ggml_map_custom1`): see [`Context::custom`].
    ///
    /// ```
    /// use ggml::prelude::*;
    /// use ggml::Custom;
    /// # fn main() -> ggml::Result<()> {
    /// let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [3])?;
    /// let y = ctx.map_custom1::<f32>(x, Custom::new(), |out, x| {
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
        how: Custom,
        f: impl Fn(RowsMut<'_, T>, Rows<'_, T>) + Send + Sync + 'static,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: "map_custom1", operands: &[a] };
        is::<T>(call, a)?;
        let f = move |out: RowsMut<'_, T>, operands: super::Operands<'_>| f(out, operands.rows(0));
        self.closure("ggml_map_custom1", call, None, &CustomOp::new(how, f), |c, n_tasks, user| {
            // SAFETY: the context is live and has room; `a` is live for 'c. The result keeps it, and `user`, the
            // closure, which `Context::closure` keeps as long as the context.
            unsafe { sys::ggml_map_custom1(c, a.as_ptr(), Some(call::map_custom1), n_tasks, user) }
        })
    }

    /// Changes `a` in place by a closure, and returns a view of it (`ggml_map_custom1_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::custom_inplace`].
    #[doc(alias = "ggml_map_custom1_inplace")]
    pub fn map_custom1_inplace<'c, T: Element>(
        &'c self,
        a: Tensor<'c>,
        how: Custom,
        f: impl Fn(RowsMut<'_, T>) + Send + Sync + 'static,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: "map_custom1_inplace", operands: &[a] };
        let f = move |out: RowsMut<'_, T>, _: super::Operands<'_>| f(out);
        self.closure("ggml_map_custom1_inplace", call, Some(a), &CustomOp::new(how, f), |c, n_tasks, user| {
            // SAFETY: as for `ggml_map_custom1`; `Context::closure` has checked that `a` may be written.
            unsafe { sys::ggml_map_custom1_inplace(c, a.as_ptr(), Some(call::map_custom1), n_tasks, user) }
        })
    }

    /// A tensor of the shape and type of `a`, computed from `a` and `b` by a closure (`ggml_map_custom2`): see
    /// [`Context::custom`]. `b` may have any shape.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::Custom;
    /// # let ctx = Context::new();
    /// let (a, b) = (ctx.arange(3.0, 6.0, 1.0)?, ctx.arange(0.0, 3.0, 1.0)?);
    /// let y = ctx.map_custom2::<f32, f32>(a, b, Custom::new(), |out, a, b| {
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
        how: Custom,
        f: impl Fn(RowsMut<'_, T>, Rows<'_, T>, Rows<'_, B>) + Send + Sync + 'static,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: "map_custom2", operands: &[a, b] };
        is::<T>(call, a)?;
        is::<B>(call, b)?;
        let f = move |out: RowsMut<'_, T>, operands: super::Operands<'_>| f(out, operands.rows(0), operands.rows(1));
        self.closure("ggml_map_custom2", call, None, &CustomOp::new(how, f), |c, n_tasks, user| {
            // SAFETY: as for `ggml_map_custom1`, with both operands live for 'c.
            unsafe { sys::ggml_map_custom2(c, a.as_ptr(), b.as_ptr(), Some(call::map_custom2), n_tasks, user) }
        })
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
        how: Custom,
        f: impl Fn(RowsMut<'_, T>, Rows<'_, B>) + Send + Sync + 'static,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: "map_custom2_inplace", operands: &[a, b] };
        is::<B>(call, b)?;
        let f = move |out: RowsMut<'_, T>, operands: super::Operands<'_>| f(out, operands.rows(0));
        self.closure("ggml_map_custom2_inplace", call, Some(a), &CustomOp::new(how, f), |c, n_tasks, user| {
            // SAFETY: as for `ggml_map_custom1`; `Context::closure` has checked that `a` may be written.
            unsafe { sys::ggml_map_custom2_inplace(c, a.as_ptr(), b.as_ptr(), Some(call::map_custom2), n_tasks, user) }
        })
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
        how: Custom,
        f: impl Fn(RowsMut<'_, T>, Rows<'_, T>, Rows<'_, B>, Rows<'_, D>) + Send + Sync + 'static,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: "map_custom3", operands: &[a, b, d] };
        is::<T>(call, a)?;
        is::<B>(call, b)?;
        is::<D>(call, d)?;
        let f = move |out: RowsMut<'_, T>, operands: super::Operands<'_>| {
            f(out, operands.rows(0), operands.rows(1), operands.rows(2));
        };
        self.closure("ggml_map_custom3", call, None, &CustomOp::new(how, f), |c, n_tasks, user| {
            let (a, b, d) = (a.as_ptr(), b.as_ptr(), d.as_ptr());
            // SAFETY: as for `ggml_map_custom1`, with all operands live for 'c.
            unsafe { sys::ggml_map_custom3(c, a, b, d, Some(call::map_custom3), n_tasks, user) }
        })
    }

    /// Changes `a` in place by a closure that reads `b` and `d`; returns a view (`ggml_map_custom3_inplace`).
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
        how: Custom,
        f: impl Fn(RowsMut<'_, T>, Rows<'_, B>, Rows<'_, D>) + Send + Sync + 'static,
    ) -> Result<Tensor<'c>> {
        let call = Call { op: "map_custom3_inplace", operands: &[a, b, d] };
        is::<B>(call, b)?;
        is::<D>(call, d)?;
        let f = move |out: RowsMut<'_, T>, operands: super::Operands<'_>| f(out, operands.rows(0), operands.rows(1));
        self.closure("ggml_map_custom3_inplace", call, Some(a), &CustomOp::new(how, f), |c, n_tasks, user| {
            let (a, b, d) = (a.as_ptr(), b.as_ptr(), d.as_ptr());
            // SAFETY: as for `ggml_map_custom1`; `Context::closure` has checked that `a` may be written.
            unsafe { sys::ggml_map_custom3_inplace(c, a, b, d, Some(call::map_custom3), n_tasks, user) }
        })
    }
}
