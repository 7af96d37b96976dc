//! Recurrences over tokens: state spaces, RWKV, linear attention. Each takes the state of every sequence as an operand,
//! and appends the new states to its outputs.

use crate::ops::prelude::*;

mod delta;
mod linear;
mod rwkv;
mod ssm;

pub use delta::GatedDeltaNetOperands;
pub use linear::GatedLinearAttnOperands;
pub use rwkv::{RwkvWkv6Operands, RwkvWkv7Operands};
pub use ssm::SsmScanOperands;

/// Checks `n`, the number of states to return, the last one first. There is a state after each token, and the kernel
/// would not write more states than tokens.
fn snapshots(call: Call<'_, '_>, n: i64, tokens: i64) -> Result<()> {
    let fits = n >= 1 && n <= tokens && i32::try_from(n).is_ok();
    call.param(fits, "n_snapshots", n, "it must be at least 1, and no more than the tokens of a sequence")
}

/// Checks a recurrence: its operands `tokens`, each `[size, heads, n]`, its `state` `[size * size * heads, sequences]`,
/// and its result `[size * heads, n + size * sequences]`.
fn over_heads(call: Call<'_, '_>, tokens: &[Tensor<'_>], state: Tensor<'_>) -> Result<()> {
    const SAME: &str = "all operands except states must have the same shape, [size, heads, tokens]";
    call.all_f32(call.operands)?;
    call.all_contiguous(call.operands)?;
    let Some(&first) = tokens.first() else { return Ok(()) };
    let [size, heads, n, batches] = first.ne();
    call.shape(batches == 1 && tokens.iter().all(|t| t.shape() == first.shape()), SAME)?;
    let [_, sequences, ..] = state.ne();
    // The kernel takes `n / sequences` tokens per sequence, rounded down, so `sequences` must divide `n`.
    call.shape(n % sequences == 0, "the sequences (second dimension of the state) must divide the tokens")?;
    let width = size.checked_mul(heads);
    let whole = width.and_then(|w| w.checked_mul(size)).and_then(|n| n.checked_mul(sequences));
    let fits = whole.is_some_and(|n| i64::try_from(state.elements()) == Ok(n));
    call.shape(fits, "the state must have size * size * heads elements for each sequence")?;
    let rows = size.checked_mul(sequences).and_then(|rows| rows.checked_add(n));
    call.result([width.unwrap_or(i64::MAX), rows.unwrap_or(i64::MAX), 1, 1], DType::F32)
}
