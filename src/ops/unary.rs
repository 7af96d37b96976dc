//! Element-wise functions.

use crate::op::UnaryOp;
use crate::ops::prelude::*;

macro_rules! unary {
    ($(
        $doc:literal, $x:literal => $y:literal, $name:ident = $c:ident, $alias:literal
        $(, $inplace:ident = $c_inplace:ident, $alias_inplace:literal)?;
    )*) => {
        impl Context {
            $(
                #[doc = concat!($doc, " (`", $alias, "`).")]
                ///
                /// The result has the operand's shape and type.
                ///
                /// ```
                /// # use ggml::prelude::*; let ctx = Context::new();
                /// let x = ctx.input("x", DType::F32, [1])?;
                #[doc = concat!("let y = ctx.", stringify!($name), "(x)?;")]
                /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
                /// # let mut run = sched.alloc(&graph)?;
                #[doc = concat!("run.set(x, &[", $x, "_f32])?;")]
                /// run.compute()?;
                #[doc = concat!("assert!((run.get::<f32>(y)?[0] - ", $y, ").abs() < 1e-3);")]
                /// # Ok::<(), ggml::Error>(())
                /// ```
                ///
                /// # Errors
                ///
                /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`, `f16` or `bf16`;
                /// [`Error::Shape`](crate::Error::Shape) unless its rows are contiguous.
                #[doc(alias = $alias)]
                pub fn $name<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
                    operand(Call { op: entered!(stringify!($name)), operands: &[a] }, a, false)?;
                    build!(self, sys::$c(a))
                }

                $(
                    #[doc = concat!("[`Context::", stringify!($name), "`] in place (`", $alias_inplace, "`).")]
                    ///
                    /// It writes to `a`, which may be a [`State`](crate::State)'s tensor or a result, and returns a
                    /// view of `a`. Operations that read `a` itself, or share its memory, are not ordered after it;
                    /// read the view.
                    ///
                    /// # Errors
                    ///
                    #[doc = concat!("As [`Context::", stringify!($name), "`];")]
                    /// [`Error::Frozen`](crate::Error::Frozen) where `a` lies in weights,
                    /// [`Error::Shape`](crate::Error::Shape) where it lies in an input or holds indices.
                    #[doc(alias = $alias_inplace)]
                    pub fn $inplace<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
                        operand(Call { op: entered!(stringify!($inplace)), operands: &[a] }, a, true)?;
                        build!(self, sys::$c_inplace(a))
                    }
                )?
            )*
        }
    };
}

unary! {
    "Absolute value", "-1.5" => "1.5",
        abs = ggml_abs, "ggml_abs",
        abs_inplace = ggml_abs_inplace, "ggml_abs_inplace";
    "The least integer not below", "1.2" => "2.0",
        ceil = ggml_ceil, "ggml_ceil",
        ceil_inplace = ggml_ceil_inplace, "ggml_ceil_inplace";
    "Cosine, of radians", "0.0" => "1.0",
        cos = ggml_cos, "ggml_cos",
        cos_inplace = ggml_cos_inplace, "ggml_cos_inplace";
    "`x` above 0, else `exp(x) - 1`", "-1.0" => "-0.632",
        elu = ggml_elu, "ggml_elu",
        elu_inplace = ggml_elu_inplace, "ggml_elu_inplace";
    "Exponential", "1.0" => "2.718",
        exp = ggml_exp, "ggml_exp",
        exp_inplace = ggml_exp_inplace, "ggml_exp_inplace";
    "`exp(x) - 1`", "1.0" => "1.718",
        expm1 = ggml_expm1, "ggml_expm1",
        expm1_inplace = ggml_expm1_inplace, "ggml_expm1_inplace";
    "The greatest integer not above", "1.8" => "1.0",
        floor = ggml_floor, "ggml_floor",
        floor_inplace = ggml_floor_inplace, "ggml_floor_inplace";
    "GELU by its tanh approximation; kernels may use a table of 16-bit floats", "1.0" => "0.841",
        gelu = ggml_gelu, "ggml_gelu",
        gelu_inplace = ggml_gelu_inplace, "ggml_gelu_inplace";
    "GELU by the error function", "1.0" => "0.841",
        gelu_erf = ggml_gelu_erf, "ggml_gelu_erf",
        gelu_erf_inplace = ggml_gelu_erf_inplace, "ggml_gelu_erf_inplace";
    "`x * sigmoid(1.702 x)`; kernels may use a table of 16-bit floats", "1.0" => "0.846",
        gelu_quick = ggml_gelu_quick, "ggml_gelu_quick",
        gelu_quick_inplace = ggml_gelu_quick_inplace, "ggml_gelu_quick_inplace";
    "`(x + 3) / 6`, limited to 0 and 1", "1.0" => "0.667", hardsigmoid = ggml_hardsigmoid, "ggml_hardsigmoid";
    "`x * hardsigmoid(x)`", "1.0" => "0.667", hardswish = ggml_hardswish, "ggml_hardswish";
    "Natural logarithm", "2.0" => "0.693",
        log = ggml_log, "ggml_log",
        log_inplace = ggml_log_inplace, "ggml_log_inplace";
    "Negation", "1.5" => "-1.5",
        neg = ggml_neg, "ggml_neg",
        neg_inplace = ggml_neg_inplace, "ggml_neg_inplace";
    "The larger of `x` and 0", "-1.5" => "0.0",
        relu = ggml_relu, "ggml_relu",
        relu_inplace = ggml_relu_inplace, "ggml_relu_inplace";
    "The nearest integer, halves away from 0", "2.5" => "3.0",
        round = ggml_round, "ggml_round",
        round_inplace = ggml_round_inplace, "ggml_round_inplace";
    "Sign: -1, 0 or 1", "-1.5" => "-1.0",
        sgn = ggml_sgn, "ggml_sgn",
        sgn_inplace = ggml_sgn_inplace, "ggml_sgn_inplace";
    "`1 / (1 + exp(-x))`", "0.0" => "0.5",
        sigmoid = ggml_sigmoid, "ggml_sigmoid",
        sigmoid_inplace = ggml_sigmoid_inplace, "ggml_sigmoid_inplace";
    "`x * sigmoid(x)`", "1.0" => "0.731",
        silu = ggml_silu, "ggml_silu",
        silu_inplace = ggml_silu_inplace, "ggml_silu_inplace";
    "Sine, of radians", "1.571" => "1.0",
        sin = ggml_sin, "ggml_sin",
        sin_inplace = ggml_sin_inplace, "ggml_sin_inplace";
    "`log(1 + exp(x))`", "0.0" => "0.693",
        softplus = ggml_softplus, "ggml_softplus",
        softplus_inplace = ggml_softplus_inplace, "ggml_softplus_inplace";
    "Square", "3.0" => "9.0",
        sqr = ggml_sqr, "ggml_sqr",
        sqr_inplace = ggml_sqr_inplace, "ggml_sqr_inplace";
    "Square root", "9.0" => "3.0",
        sqrt = ggml_sqrt, "ggml_sqrt",
        sqrt_inplace = ggml_sqrt_inplace, "ggml_sqrt_inplace";
    "1 above 0, else 0", "1.5" => "1.0",
        step = ggml_step, "ggml_step",
        step_inplace = ggml_step_inplace, "ggml_step_inplace";
    "Hyperbolic tangent", "1.0" => "0.762",
        tanh = ggml_tanh, "ggml_tanh",
        tanh_inplace = ggml_tanh_inplace, "ggml_tanh_inplace";
    "The integer part", "-1.8" => "-1.0",
        trunc = ggml_trunc, "ggml_trunc",
        trunc_inplace = ggml_trunc_inplace, "ggml_trunc_inplace";
}

impl Context {
    /// Applies the function `op` to each element (`ggml_unary`).
    ///
    /// # Errors
    ///
    /// As [`Context::relu`].
    #[doc(alias = "ggml_unary")]
    pub fn unary<'c>(&'c self, a: Tensor<'c>, op: UnaryOp) -> Result<Tensor<'c>> {
        operand(Call { op: entered!("unary"), operands: &[a] }, a, false)?;
        build!(self, sys::ggml_unary(a; op.raw()))
    }

    /// [`Context::unary`] in place (`ggml_unary_inplace`).
    ///
    /// # Errors
    ///
    /// As [`Context::relu_inplace`].
    #[doc(alias = "ggml_unary_inplace")]
    pub fn unary_inplace<'c>(&'c self, a: Tensor<'c>, op: UnaryOp) -> Result<Tensor<'c>> {
        operand(Call { op: entered!("unary_inplace"), operands: &[a] }, a, true)?;
        build!(self, sys::ggml_unary_inplace(a; op.raw()))
    }

    /// The activation `xIELU` (`ggml_xielu`): with `p = softplus(alpha_p)` and `n = beta + softplus(alpha_n)`, the
    /// result is `p x² + beta x` for `x` above 0, else `n (exp(min(x, eps)) - 1 - x) + beta x`.
    ///
    /// # Errors
    ///
    /// As [`Context::leaky_relu`].
    #[doc(alias = "ggml_xielu")]
    pub fn xielu<'c>(&'c self, a: Tensor<'c>, alpha_n: f32, alpha_p: f32, beta: f32, eps: f32) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("xielu"), operands: &[a] };
        operand(call, a, false)?;
        even_rows(call, a)?;
        build!(self, sys::ggml_xielu(a; alpha_n, alpha_p, beta, eps))
    }

    /// The gradient of [`Context::silu`] with respect to its operand `a`, from that of its result, `grad`
    /// (`ggml_silu_back`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let [grad, x] = [ctx.fill(ctx.arange(0.0, 3.0, 1.0)?, 1.0)?, ctx.arange(0.0, 3.0, 1.0)?];
    /// let y = ctx.silu_back(grad, x)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?[0], 0.5); // the slope of silu at 0
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::leaky_relu`], for both; [`Error::Shape`](crate::Error::Shape) and
    /// [`Error::DType`](crate::Error::DType) unless both have the same shape and type.
    #[doc(alias = "ggml_silu_back")]
    pub fn silu_back<'c>(&'c self, grad: Tensor<'c>, a: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("silu_back"), operands: &[grad, a] };
        for t in [grad, a] {
            operand(call, t, false)?;
            even_rows(call, t)?;
        }
        call.shape(grad.shape() == a.shape(), "both operands must have the same shape")?;
        call.dtype(grad.dtype() == a.dtype(), "both operands must have the same type")?;
        build!(self, sys::ggml_silu_back(grad, a))
    }

    /// `x` above 0, else `slope * x` (`ggml_leaky_relu`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let y = ctx.leaky_relu(ctx.arange(-2.0, 2.0, 1.0)?, 0.1)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [-0.2, -0.1, 0.0, 1.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::relu`]; [`Error::Shape`](crate::Error::Shape) unless rows are evenly spaced.
    #[doc(alias = "ggml_leaky_relu")]
    pub fn leaky_relu<'c>(&'c self, a: Tensor<'c>, slope: f32) -> Result<Tensor<'c>> {
        self.leaky(Call { op: entered!("leaky_relu"), operands: &[a] }, a, slope, false)
    }

    /// [`Context::leaky_relu`] in place (`ggml_leaky_relu`).
    ///
    /// # Errors
    ///
    /// As [`Context::leaky_relu`] and [`Context::relu_inplace`].
    pub fn leaky_relu_inplace<'c>(&'c self, a: Tensor<'c>, slope: f32) -> Result<Tensor<'c>> {
        self.leaky(Call { op: entered!("leaky_relu_inplace"), operands: &[a] }, a, slope, true)
    }

    fn leaky<'c>(&'c self, call: Call<'_, 'c>, a: Tensor<'c>, slope: f32, in_place: bool) -> Result<Tensor<'c>> {
        operand(call, a, in_place)?;
        even_rows(call, a)?;
        build!(self, sys::ggml_leaky_relu(a; slope, in_place))
    }
}

/// Checks the operand of an element-wise function.
pub(super) fn operand(call: Call<'_, '_>, a: Tensor<'_>, in_place: bool) -> Result<()> {
    call.dtype(a.dtype().is_float(), "the operand must be f32, f16 or bf16")?;
    call.shape(a.ptr().has_contiguous_rows(), "rows must be contiguous; use `cont`")?;
    if in_place { call.in_place(a, &[]) } else { Ok(()) }
}

/// Checks the operand of a kernel that finds row `i` at `i * nb[1]`.
pub(super) fn even_rows(call: Call<'_, '_>, a: Tensor<'_>) -> Result<()> {
    call.shape(a.ptr().is_contiguous_1(), "rows must be evenly spaced; use `cont`")
}
