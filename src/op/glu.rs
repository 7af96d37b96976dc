//! The functions of gated linear units.

use ggml_sys as sys;

use super::numbered::functions;

functions! {
    /// The function of the gate (`ggml_glu_op`).
    ///
    /// Functions with parameters have methods of their own: [`Context::swiglu_oai`](crate::Context::swiglu_oai), [`Context::swiglu_clamp`](crate::Context::swiglu_clamp).
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::GluOp;
    /// # let ctx = Context::new();
    /// let x = ctx.arange(1.0, 5.0, 1.0)?; // halves 1, 2 and 3, 4
    /// let y = ctx.glu(x, GluOp::Reglu, false)?; // relu of the first half, times the second
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [3.0, 8.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[doc(alias = "ggml_glu_op")]
    pub enum GluOp: sys::ggml_glu_op {
        Reglu = GGML_GLU_OP_REGLU, relu;
        Geglu = GGML_GLU_OP_GEGLU, gelu;
        Swiglu = GGML_GLU_OP_SWIGLU, silu;
        GegluErf = GGML_GLU_OP_GEGLU_ERF, gelu_erf;
        GegluQuick = GGML_GLU_OP_GEGLU_QUICK, gelu_quick;
    }
}
