//! Reads results as numbers that can be compared.

use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::header::TensorPtr;
use crate::list;
use crate::quant::Quantize as _;
use crate::tensor::transfer;

/// How out-of-memory errors name what the memory was for.
const COMPARED: &str = "numbers to compare";

/// A tensor's elements as `f64`, dequantised.
pub(super) fn of(call: &'static str, t: TensorPtr) -> Result<Vec<f64>> {
    fn all<T: Element>(call: &'static str, t: TensorPtr, f: impl Fn(T) -> f64) -> Result<Vec<f64>> {
        list::collect(transfer::read(call, t)?.into_iter().map(f), COMPARED)
    }
    match t.dtype() {
        DType::F32 => all(call, t, |x: f32| x.into()),
        DType::F64 => all(call, t, |x: f64| x),
        DType::F16 => all(call, t, half::f16::to_f64),
        DType::BF16 => all(call, t, half::bf16::to_f64),
        DType::I8 => all(call, t, |x: i8| x.into()),
        DType::I16 => all(call, t, |x: i16| x.into()),
        DType::I32 => all(call, t, |x: i32| x.into()),
        #[expect(clippy::cast_precision_loss, reason = "numbers beyond 2^53 differ by more than that, or are equal")]
        DType::I64 => all(call, t, |x: i64| x as f64),
        blocks => {
            let whole = if t.is_contiguous() { t } else { t.root() };
            let numbers = blocks.dequantize(&transfer::read_raw(call, whole)?)?;
            list::collect(numbers.into_iter().map(f64::from), COMPARED)
        }
    }
}
