//! The options of matrix products, and precisions.

use ggml_sys as sys;

use super::numbered::numbered;
use crate::options::options;

numbered! {
    /// The least precision that a device must use (`ggml_prec`).
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::{MulMatOptions, Prec};
    /// # let ctx = Context::new();
    /// let [a, b] = [ctx.input("a", DType::F16, [64, 8])?, ctx.input("b", DType::F32, [64, 2])?];
    /// let sums = MulMatOptions::new().with_acc(Prec::F32); // for a model whose sums exceed 65504
    /// assert_eq!(ctx.mul_mat_ext(a, b, sums)?.ne(), [8, 2, 1, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[doc(alias = "ggml_prec")]
    #[non_exhaustive]
    pub enum Prec: sys::ggml_prec {
        /// 32-bit floats (`f32`).
        F32 = GGML_PREC_F32;
        /// 16-bit brain floats (`bf16`).
        BF16 = GGML_PREC_BF16;
        /// 16-bit IEEE floats (`f16`).
        F16 = GGML_PREC_F16;
        /// Blocks of 8-bit numbers.
        Q8 = GGML_PREC_Q8;
        /// Blocks of 4-bit numbers.
        Q4 = GGML_PREC_Q4;
    }
}

options! {
    /// The options of [`Context::mul_mat_ext`](crate::Context::mul_mat_ext) and [`Context::mul_mat_id_ext`](crate::Context::mul_mat_id_ext). The CPU ignores the precisions.
    ///
    /// ```
    /// use ggml::{ops::{MulMatOptions, Prec}, prelude::*};
    /// let ctx = Context::new();
    /// let [a, b] = [ctx.input("a", DType::F16, [4, 3])?, ctx.input("b", DType::F32, [4, 2])?];
    /// assert_eq!(ctx.mul_mat_ext(a, b, MulMatOptions::new().with_acc(Prec::F32))?.ne(), [3, 2, 1, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy)]
    pub struct MulMatOptions {
        /// Leaves all precisions to the device.
        new();
        /// Sets the least precision of the accumulator; `None` leaves it to the device.
        with_acc(acc: Option<Prec> = None, into);
        /// Sets the least precision to which the second operand may be rounded; `None` leaves it to the device.
        with_src(src: Option<Prec> = None, into);
        /// Sets whether the first operand is a Hadamard matrix in Sylvester's order, divided by the square root of its
        /// size. Devices may then transform the second operand without reading the first.
        with_hadamard(hadamard: bool = false);
    }
}
