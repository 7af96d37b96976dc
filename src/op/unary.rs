//! Element-wise functions.

use ggml_sys as sys;

use super::numbered::functions;

functions! {
    /// An element-wise function (`ggml_unary_op`).
    ///
    /// ggml's `xIELU` has parameters and is not among these: see [`Context::xielu`](crate::Context::xielu).
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::UnaryOp;
    /// # let ctx = Context::new();
    /// let x = ctx.arange(-1.0, 2.0, 1.0)?;
    /// let y = ctx.unary(x, UnaryOp::Relu)?; // the same as `ctx.relu(x)`
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [0.0, 0.0, 1.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[doc(alias = "ggml_unary_op")]
    pub enum UnaryOp: sys::ggml_unary_op {
        Abs = GGML_UNARY_OP_ABS, abs;
        Sgn = GGML_UNARY_OP_SGN, sgn;
        Neg = GGML_UNARY_OP_NEG, neg;
        Step = GGML_UNARY_OP_STEP, step;
        Tanh = GGML_UNARY_OP_TANH, tanh;
        Elu = GGML_UNARY_OP_ELU, elu;
        Relu = GGML_UNARY_OP_RELU, relu;
        Sigmoid = GGML_UNARY_OP_SIGMOID, sigmoid;
        Gelu = GGML_UNARY_OP_GELU, gelu;
        GeluQuick = GGML_UNARY_OP_GELU_QUICK, gelu_quick;
        Silu = GGML_UNARY_OP_SILU, silu;
        HardSwish = GGML_UNARY_OP_HARDSWISH, hardswish;
        HardSigmoid = GGML_UNARY_OP_HARDSIGMOID, hardsigmoid;
        Exp = GGML_UNARY_OP_EXP, exp;
        ExpM1 = GGML_UNARY_OP_EXPM1, expm1;
        SoftPlus = GGML_UNARY_OP_SOFTPLUS, softplus;
        GeluErf = GGML_UNARY_OP_GELU_ERF, gelu_erf;
        Floor = GGML_UNARY_OP_FLOOR, floor;
        Ceil = GGML_UNARY_OP_CEIL, ceil;
        Round = GGML_UNARY_OP_ROUND, round;
        Trunc = GGML_UNARY_OP_TRUNC, trunc;
    }
}
