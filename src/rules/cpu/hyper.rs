//! Hyper-connections: all kernels walk their operands by all strides, and the builders see to types and shapes.

use ggml_sys as sys;

use super::Verdict;
use crate::header::TensorPtr;

pub(super) fn accepts(t: TensorPtr) -> Option<Verdict> {
    let known = [sys::GGML_OP_DSV4_HC_COMB, sys::GGML_OP_DSV4_HC_PRE, sys::GGML_OP_DSV4_HC_POST];
    known.contains(&t.op()).then_some(Ok(()))
}
