//! The directions of a sort.

use ggml_sys as sys;

use super::numbered::numbered;

numbered! {
    /// The direction of a sort.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::SortOrder;
    /// # let ctx = Context::new();
    /// let x = ctx.arange(0.0, 3.0, 1.0)?;
    /// let [up, down] = [ctx.argsort(x, SortOrder::Asc)?, ctx.argsort(x, SortOrder::Desc)?];
    /// # let (graph, mut sched) = (ctx.graph([up, down])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!((run.get::<i32>(up)?, run.get::<i32>(down)?), (vec![0, 1, 2], vec![2, 1, 0]));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[doc(alias = "ggml_sort_order")]
    #[non_exhaustive]
    pub enum SortOrder: sys::ggml_sort_order {
        /// The smallest element comes first.
        Asc = GGML_SORT_ORDER_ASC;
        /// The largest element comes first.
        Desc = GGML_SORT_ORDER_DESC;
    }
}
