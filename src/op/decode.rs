//! Decodes operations from their headers, which have the parameters by index, and ggml's numbers for operations.

use ggml_sys as sys;

use super::{
    ConvOptions, FlashAttnOptions, InterpolateMode, InterpolateOptions, MulMatOptions, OpParams, PadOptions,
    PoolOptions, Prec, RopeMode, RopeOptions, SetOptions, SoftMaxOptions,
};

/// Defines [`Operation`](super::Operation), and makes it of [`OpParams`]. Each row has a variant, with a value for each
/// parameter, and the `GGML_OP_…` for which the variant stands, if need be under a condition. Values and conditions are
/// expressions of the parameters, `p`; where one ends in `?`, a `None` makes the result `None`.
macro_rules! operations {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident: |$p:ident| {
            $(
                $(#[$about:meta])*
                $variant:ident $(($($type:ty = $value:expr),*))? $({ $($field:ident: $of:ty = $parameter:expr),* })?
                    = $(#[$when:meta])* $($op:ident)|+ $(if $condition:expr)?;
            )*
        }
    ) => {
        $(#[$attribute])*
        pub enum $name {
            $($(#[$about])* $variant $(($($type),*))? $({ $($field: $of),* })?,)*
        }

        impl OpParams {
            /// The operation; `None` if [`Operation`] doesn't know it, or if no builder makes these parameters.
            #[inline]
            pub(crate) fn decode(&self) -> Option<$name> {
                let $p = self;
                Some(match self.op {
                    $(
                        $(#[$when])*
                        $(sys::$op)|+ $(if $condition)? => {
                            $name::$variant $(($($value),*))? $({ $($field: $parameter),* })?
                        }
                    )*
                    _ => return None,
                })
            }
        }
    };
}
pub(super) use operations;

impl OpParams {
    pub(super) fn int(&self, i: usize) -> i32 {
        self.params.get(i).copied().unwrap_or(0)
    }

    pub(super) fn number(&self, i: usize) -> u32 {
        self.int(i).cast_unsigned()
    }

    pub(super) fn float(&self, i: usize) -> f32 {
        f32::from_bits(self.number(i))
    }

    /// Whether the first parameter equals this number.
    pub(super) fn is(&self, number: u32) -> bool {
        self.number(0) == number
    }

    pub(super) fn size(&self, i: usize) -> Option<usize> {
        usize::try_from(self.int(i)).ok()
    }

    /// The length of a row of the result.
    pub(super) fn row_length(&self) -> Option<i32> {
        let [n, ..] = self.ne;
        i32::try_from(n).ok()
    }

    pub(super) fn flag(&self, i: usize) -> bool {
        self.int(i) != 0
    }

    /// `N` integers among the parameters, from index `first` on, `step` apart.
    pub(super) fn ints<const N: usize>(&self, first: usize, step: usize) -> [i32; N] {
        std::array::from_fn(|i| self.int(first + i * step))
    }

    pub(super) fn conv<const N: usize>(&self) -> ConvOptions<N> {
        let [stride, padding, dilation] = [0, N, 2 * N].map(|first| self.ints(first, 1));
        ConvOptions::new().with_stride(stride).with_padding(padding).with_dilation(dilation)
    }

    pub(super) fn windows<const N: usize>(&self) -> PoolOptions<N> {
        let [window, stride, padding] = [1, 1 + N, 1 + 2 * N].map(|first| self.ints(first, 1));
        PoolOptions::new(window).with_stride(stride).with_padding(padding)
    }

    /// A precision among the parameters: `Some(None)` if it is left to the device, `None` if this crate doesn't know
    /// it.
    #[expect(clippy::option_option, reason = "an option that may be unknown")]
    pub(super) fn prec(&self, i: usize) -> Option<Option<Prec>> {
        if self.flag(i) { Prec::of(self.number(i)).map(Some) } else { Some(None) }
    }

    pub(super) fn part(&self) -> SetOptions {
        let [strides @ .., offset] = self.ints::<4>(0, 1).map(|n| usize::try_from(n).unwrap_or(0));
        SetOptions::new(offset).with_strides(strides)
    }

    pub(super) fn mul_mat(&self) -> Option<MulMatOptions> {
        let hadamard = match self.number(1) {
            0 => false,
            sys::GGML_HINT_SRC0_IS_HADAMARD => true,
            _ => return None,
        };
        Some(MulMatOptions::new().with_acc(self.prec(0)?).with_src(self.prec(3)?).with_hadamard(hadamard))
    }

    /// The parameters of a 1-d `im2col`, which ggml stores among those of a 2-d one.
    pub(super) fn conv_1d(&self) -> ConvOptions<1> {
        ConvOptions::new().with_stride(self.ints(0, 1)).with_padding(self.ints(2, 1)).with_dilation(self.ints(4, 1))
    }

    pub(super) fn soft_max(&self) -> SoftMaxOptions<'static> {
        SoftMaxOptions::new().with_scale(self.float(0)).with_max_bias(self.float(1))
    }

    pub(super) fn flash_attn(&self) -> Option<FlashAttnOptions<'static>> {
        let how = FlashAttnOptions::new(self.float(0)).with_max_bias(self.float(1)).with_logit_softcap(self.float(2));
        Some(how.with_acc(self.prec(3)?).with_n_kv_max(self.int(4)))
    }

    pub(super) fn axis(&self, i: usize) -> Option<usize> {
        self.size(i).filter(|&axis| axis < 4)
    }

    pub(super) fn rope(&self) -> Option<RopeOptions<'static>> {
        let how = RopeOptions::new(self.int(1), RopeMode::of(self.number(2))?)
            .with_n_ctx_orig(self.int(4))
            .with_freq_base(self.float(5));
        let how = how.with_freq_scale(self.float(6)).with_ext_factor(self.float(7)).with_attn_factor(self.float(8));
        let how = how.with_beta_fast(self.float(9)).with_beta_slow(self.float(10));
        Some(how.with_sections(self.ints(11, 1)).with_offset(self.int(15)))
    }

    pub(super) fn interpolate(&self) -> Option<InterpolateOptions> {
        let flag = |flag| self.number(0) & flag != 0;
        let (align, antialias) = (sys::GGML_SCALE_FLAG_ALIGN_CORNERS, sys::GGML_SCALE_FLAG_ANTIALIAS);
        let mode = InterpolateMode::of(self.number(0) & !(align | antialias))?;
        Some(InterpolateOptions::new(mode).with_align_corners(flag(align)).with_antialias(flag(antialias)))
    }

    pub(super) fn pad(&self) -> PadOptions {
        PadOptions::new().with_left(self.ints(0, 2)).with_right(self.ints(1, 2)).with_circular(self.flag(8))
    }

    pub(super) fn is_limited_glu(&self) -> bool {
        self.is(sys::GGML_GLU_OP_SWIGLU_OAI) || self.is(sys::GGML_GLU_OP_SWIGLU_CLAMP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Operation;

    #[test]
    fn every_operation_of_ggml_is_decoded() {
        let decoded = |&op: &sys::ggml_op| OpParams { op, params: [0; 16], ne: [1; 4] }.decode().is_some();
        let unknown: Vec<_> = (0..sys::GGML_OP_COUNT).filter(|op| !decoded(op)).collect();
        // This operation is not decoded: its builder ends the process.
        assert_eq!(unknown, [sys::GGML_OP_FLASH_ATTN_BACK]);
    }

    #[test]
    fn parameters_that_no_builder_makes_are_refused() {
        let with = |op, params: &[(usize, f32)]| {
            let mut all = [0; 16];
            for &(i, x) in params {
                all[i] = x.to_bits().cast_signed();
            }
            OpParams { op, params: all, ne: [1; 4] }.decode()
        };
        let back = |max_bias| with(sys::GGML_OP_SOFT_MAX_BACK, &[(0, 0.5), (1, max_bias)]);
        assert!(matches!(back(0.0), Some(Operation::SoftMaxBack { scale: 0.5 })));
        assert!(back(8.0).is_none() && back(f32::NAN).is_none());
        assert!(with(sys::GGML_OP_COUNT, &[]).is_none());
        assert!(with(sys::GGML_OP_MUL_MAT, &[(1, 1e9)]).is_none(), "a hint that this crate doesn't know");
    }
}
