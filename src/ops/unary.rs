//! Functions of each element.

use ggml_sys as sys;

use super::check::{Call, is_float, is_packed};
use crate::context::Context;
use crate::error::Result;
use crate::tensor::Tensor;

/// The type of all builders in this file's table: they take a tensor and make one of its shape and type.
type Builder = unsafe extern "C-unwind" fn(*mut sys::ggml_context, *mut sys::ggml_tensor) -> *mut sys::ggml_tensor;

macro_rules! unary {
    ($($name:ident = $c:ident, $alias:literal, $doc:literal;)*) => {
        impl Context {
            $(
                #[doc = concat!($doc, " (`", $alias, "`).")]
                ///
                /// The result has the operand's shape and type.
                ///
                /// # Errors
                ///
                /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`, `f16` or `bf16`;
                /// [`Error::Shape`](crate::Error::Shape) unless the elements of its rows lie side by side.
                #[doc(alias = $alias)]
                pub fn $name<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
                    self.unary(stringify!($name), $alias, sys::$c, a)
                }
            )*
        }
    };
}

unary! {
    abs = ggml_abs, "ggml_abs", "Absolute value";
    ceil = ggml_ceil, "ggml_ceil", "The least integer not below";
    cos = ggml_cos, "ggml_cos", "Cosine, of radians";
    elu = ggml_elu, "ggml_elu", "`x` above 0, else `exp(x) - 1`";
    exp = ggml_exp, "ggml_exp", "Exponential";
    expm1 = ggml_expm1, "ggml_expm1", "`exp(x) - 1`";
    floor = ggml_floor, "ggml_floor", "The greatest integer not above";
    gelu = ggml_gelu, "ggml_gelu", "GELU by its tanh approximation; kernels may use a table of 16-bit floats";
    gelu_erf = ggml_gelu_erf, "ggml_gelu_erf", "GELU by the error function";
    gelu_quick = ggml_gelu_quick, "ggml_gelu_quick", "`x * sigmoid(1.702 x)`; kernels may use a table of 16-bit floats";
    hardsigmoid = ggml_hardsigmoid, "ggml_hardsigmoid", "`(x + 3) / 6`, limited to 0 and 1";
    hardswish = ggml_hardswish, "ggml_hardswish", "`x * hardsigmoid(x)`";
    log = ggml_log, "ggml_log", "Natural logarithm";
    neg = ggml_neg, "ggml_neg", "Negation";
    relu = ggml_relu, "ggml_relu", "The larger of `x` and 0";
    round = ggml_round, "ggml_round", "The nearest integer, halves away from 0";
    sgn = ggml_sgn, "ggml_sgn", "Sign: -1, 0 or 1";
    sigmoid = ggml_sigmoid, "ggml_sigmoid", "`1 / (1 + exp(-x))`";
    silu = ggml_silu, "ggml_silu", "`x * sigmoid(x)`";
    sin = ggml_sin, "ggml_sin", "Sine, of radians";
    softplus = ggml_softplus, "ggml_softplus", "`log(1 + exp(x))`";
    sqr = ggml_sqr, "ggml_sqr", "Square";
    sqrt = ggml_sqrt, "ggml_sqrt", "Square root";
    step = ggml_step, "ggml_step", "1 above 0, else 0";
    tanh = ggml_tanh, "ggml_tanh", "Hyperbolic tangent";
    trunc = ggml_trunc, "ggml_trunc", "The integer part";
}

impl Context {
    fn unary<'c>(&'c self, op: &'static str, call: &'static str, f: Builder, a: Tensor<'c>) -> Result<Tensor<'c>> {
        unary_operand(Call { op, operands: &[a] })?;
        self.build(call, &[a], |c| {
            // SAFETY: `f` is one of the table above. The context is live and has room; `a` is live for 'c, and has rows
            // without gaps, all that these assert. The result keeps it as source.
            unsafe { f(c, a.as_ptr()) }
        })
    }

    /// `x` above 0, else `slope * x` (`ggml_leaky_relu`).
    ///
    /// # Errors
    ///
    /// As [`Context::relu`]; [`Error::Shape`](crate::Error::Shape) unless all rows are equally far apart.
    #[doc(alias = "ggml_leaky_relu")]
    pub fn leaky_relu<'c>(&'c self, a: Tensor<'c>, slope: f32) -> Result<Tensor<'c>> {
        let call = Call { op: "leaky_relu", operands: &[a] };
        unary_operand(call)?;
        even_rows(call)?;
        self.build("ggml_leaky_relu", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c; its row i is at i * nb[1], where the kernel looks
            // for it (H10). The result keeps it as source.
            unsafe { sys::ggml_leaky_relu(c, a.as_ptr(), slope, false) }
        })
    }

    /// `x * factor` (`ggml_scale`).
    ///
    /// # Errors
    ///
    /// As [`Context::scale_bias`].
    #[doc(alias = "ggml_scale")]
    pub fn scale<'c>(&'c self, a: Tensor<'c>, factor: f32) -> Result<Tensor<'c>> {
        self.scaled("scale", a, factor, 0.0)
    }

    /// `x * factor + bias` (`ggml_scale_bias`).
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`, `f16` or `bf16`, [`Error::Shape`](crate::Error::Shape)
    /// unless it has the strides of a new tensor.
    #[doc(alias = "ggml_scale_bias")]
    pub fn scale_bias<'c>(&'c self, a: Tensor<'c>, factor: f32, bias: f32) -> Result<Tensor<'c>> {
        self.scaled("scale_bias", a, factor, bias)
    }

    fn scaled<'c>(&'c self, op: &'static str, a: Tensor<'c>, factor: f32, bias: f32) -> Result<Tensor<'c>> {
        let call = Call { op, operands: &[a] };
        unary_operand(call)?;
        call.shape(is_packed(a.ptr()), "the operand must have the strides of a new tensor; use `cont`")?;
        self.build("ggml_scale_bias", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c and laid out as C asserts. The result keeps it as
            // source.
            unsafe { sys::ggml_scale_bias(c, a.as_ptr(), factor, bias) }
        })
    }

    /// `x`, limited to `min` and `max` (`ggml_clamp`).
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) unless `min <= max`; else as [`Context::leaky_relu`].
    #[doc(alias = "ggml_clamp")]
    pub fn clamp<'c>(&'c self, a: Tensor<'c>, min: f32, max: f32) -> Result<Tensor<'c>> {
        let call = Call { op: "clamp", operands: &[a] };
        unary_operand(call)?;
        even_rows(call)?;
        call.param(min <= max, "min", min, format!("it must not be above `max`, {max}"))?;
        self.build("ggml_clamp", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c; its row i is at i * nb[1], where the kernel looks
            // for it. The result keeps it as source.
            unsafe { sys::ggml_clamp(c, a.as_ptr(), min, max) }
        })
    }
}

/// What functions of each element need.
fn unary_operand(call: Call<'_, '_>) -> Result<()> {
    for a in call.operands {
        call.dtype(is_float(a.dtype()), "the operand must be f32, f16 or bf16")?;
        call.shape(a.ptr().has_contiguous_rows(), "the elements of a row must lie side by side; use `cont`")?;
    }
    Ok(())
}

/// For kernels that find row i at i * nb[1].
fn even_rows(call: Call<'_, '_>) -> Result<()> {
    let even = call.operands.iter().all(|a| a.ptr().is_contiguous_1());
    call.shape(even, "all rows must be equally far apart; use `cont`")
}
