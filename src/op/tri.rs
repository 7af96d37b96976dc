//! The triangles of a matrix.

use ggml_sys as sys;

use super::numbered::numbered;

numbered! {
    /// The triangle of a square matrix that [`Context::tri`](crate::Context::tri) keeps. Rows are dimension 1, columns dimension 0.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::TriType;
    /// # let ctx = Context::new();
    /// let x = ctx.reshape(ctx.arange(1.0, 5.0, 1.0)?, [2, 2])?; // rows 1, 2 and 3, 4
    /// let [below, above] = [ctx.tri(x, TriType::LowerDiag)?, ctx.tri(x, TriType::Upper)?];
    /// # let (graph, mut sched) = (ctx.graph([below, above])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(below)?, [1.0, 0.0, 3.0, 4.0]);
    /// assert_eq!(run.get::<f32>(above)?, [0.0, 2.0, 0.0, 0.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[doc(alias = "ggml_tri_type")]
    #[non_exhaustive]
    pub enum TriType: sys::ggml_tri_type {
        /// The elements below the diagonal.
        Lower = GGML_TRI_TYPE_LOWER;
        /// The diagonal and the elements below it.
        LowerDiag = GGML_TRI_TYPE_LOWER_DIAG;
        /// The elements above the diagonal.
        Upper = GGML_TRI_TYPE_UPPER;
        /// The diagonal and the elements above it.
        UpperDiag = GGML_TRI_TYPE_UPPER_DIAG;
    }
}
