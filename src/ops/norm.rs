//! Normalisation of rows.

use ggml_sys as sys;

use super::check::Call;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// The type of the builders in this file's table: they take a tensor and a small number.
type Builder = unsafe extern "C-unwind" fn(*mut sys::ggml_context, *mut sys::ggml_tensor, f32) -> *mut sys::ggml_tensor;

macro_rules! norm {
    ($($name:ident = $c:ident, $alias:literal, $doc:literal;)*) => {
        impl Context {
            $(
                #[doc = concat!($doc, " (`", $alias, "`).")]
                ///
                /// # Errors
                ///
                /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`; [`Error::Shape`](crate::Error::Shape) unless
                /// the elements of its rows lie side by side; [`Error::Param`](crate::Error::Param) unless `eps` is finite
                /// and not negative.
                #[doc(alias = $alias)]
                pub fn $name<'c>(&'c self, a: Tensor<'c>, eps: f32) -> Result<Tensor<'c>> {
                    self.normalised(stringify!($name), $alias, sys::$c, a, eps)
                }
            )*
        }
    };
}

norm! {
    norm = ggml_norm, "ggml_norm", "Each row less its mean, by the root of its variance plus `eps`";
    rms_norm = ggml_rms_norm, "ggml_rms_norm", "Each row by the root of its mean square plus `eps`";
    l2_norm = ggml_l2_norm, "ggml_l2_norm", "Each row by its length, or by `eps` where that is larger";
}

impl Context {
    fn normalised<'c>(
        &'c self,
        op: &'static str,
        call: &'static str,
        f: Builder,
        a: Tensor<'c>,
        eps: f32,
    ) -> Result<Tensor<'c>> {
        operand(Call { op, operands: &[a] }, a, eps)?;
        self.build(call, &[a], |c| {
            // SAFETY: `f` is one of the table above, which assert nothing themselves. The context is live and has room;
            // `a` is live for 'c. The result keeps it as source.
            unsafe { f(c, a.as_ptr(), eps) }
        })
    }

    /// [`Context::norm`] over groups of channels, the third dimension (`ggml_group_norm`).
    ///
    /// # Errors
    ///
    /// As [`Context::norm`]; [`Error::Param`](crate::Error::Param) unless the third dimension is a multiple of `groups`.
    #[doc(alias = "ggml_group_norm")]
    pub fn group_norm<'c>(&'c self, a: Tensor<'c>, groups: i32, eps: f32) -> Result<Tensor<'c>> {
        let call = Call { op: "group_norm", operands: &[a] };
        operand(call, a, eps)?;
        let [_, _, channels, _] = a.ne();
        let divides = groups > 0 && channels % i64::from(groups) == 0 && i32::try_from(channels).is_ok();
        call.param(divides, "groups", groups, format!("it must divide the number of channels, {channels}"))?;
        self.build("ggml_group_norm", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c; there is at least one group and none is empty.
            // The result keeps `a` as source.
            unsafe { sys::ggml_group_norm(c, a.as_ptr(), groups, eps) }
        })
    }
}

fn operand(call: Call<'_, '_>, a: Tensor<'_>, eps: f32) -> Result<()> {
    call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
    call.shape(a.ptr().has_contiguous_rows(), "the elements of a row must lie side by side; use `cont`")?;
    call.param(eps.is_finite() && eps >= 0.0, "eps", eps, "it must be finite and not negative")
}
