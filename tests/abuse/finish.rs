//! Inputs are set, and results read.

use ggml::Result;
use ggml::prelude::*;
use testkit::encode::encode;

use crate::bench::{Bench, Input};
use crate::leaves::Leaves;
use crate::program::World;
use crate::stats::Stats;
use crate::typed::typed;

/// What a computation gave.
pub(crate) struct Computed {
    /// The bytes of each output.
    pub(crate) values: Vec<Vec<u8>>,
    /// The inputs that did not get their values, since they are out of range.
    pub(crate) tainted: u128,
}

/// Sets all inputs; those that did not get their values, since they are out of range. `None` where one could not be set at
/// all.
pub(crate) fn give(
    stats: &mut Stats,
    rng: &mut fastrand::Rng,
    bench: &Bench<'_>,
    run: &mut Run<'_, '_>,
) -> Option<u128> {
    let mut tainted = 0;
    for input in &bench.inputs {
        match set(rng, run, input.t, &input.bytes) {
            Ok(()) | Err(Error::NotPart { .. }) => {}
            Err(e @ (Error::Index { .. } | Error::Repeated { .. })) => {
                stats.refuse(&e);
                tainted |= input.root;
                if other_indices(input).iter().all(|other| run.set_bytes(input.t, other).is_err()) {
                    return None;
                }
            }
            Err(e) => panic!("setting {:?}: {e}", input.t),
        }
    }
    Some(tainted)
}

/// Computes, and reads what comes of it.
pub(crate) fn finish(
    world: &mut World,
    rng: &mut fastrand::Rng,
    bench: &Bench<'_>,
    run: &mut Run<'_, '_>,
    outputs: &[Tensor<'_>],
    leaves: &Leaves,
) -> Option<Computed> {
    let tainted = give(&mut world.stats, rng, bench, run)?;
    leaves.restore();
    run.compute().unwrap();
    Some(Computed { values: outputs.iter().map(|&y| bytes(run, y)).collect(), tainted })
}

/// Indices for an input that are mostly in range: zeros, or 0, 1 and so on in each row.
pub(crate) fn other_indices(input: &Input<'_>) -> [Vec<u8>; 2] {
    let n = input.t.ne()[0].max(1) as usize;
    let rows = (0..input.t.elements()).map(|i| (i % n) as f64);
    [vec![0; input.bytes.len()], encode(input.t.dtype(), &rows.collect::<Vec<_>>()).0]
}

/// Sets an input in one of the ways there are.
fn set(rng: &mut fastrand::Rng, run: &mut Run<'_, '_>, t: Tensor<'_>, bytes: &[u8]) -> Result<()> {
    match rng.u32(..4) {
        0 => typed!(t.dtype(), bytes, |data: T| run.set::<T>(t, &data), run.set_bytes(t, bytes)),
        1 => typed!(
            t.dtype(),
            bytes,
            |data: T| {
                let (a, b) = data.split_at(rng.usize(..=data.len()));
                run.set_at::<T>(t, a.len(), b).and_then(|()| run.set_at::<T>(t, 0, a))
            },
            run.set_bytes(t, bytes)
        )
        // Indices that have to differ are set as a whole.
        .or_else(|e| if matches!(e, Error::Param { .. }) { run.set_bytes(t, bytes) } else { Err(e) }),
        _ => run.set_bytes(t, bytes),
    }
}

/// The bytes of a tensor of any type and strides.
pub(crate) fn bytes(run: &Run<'_, '_>, t: Tensor<'_>) -> Vec<u8> {
    if t.is_contiguous() {
        return run.get_bytes(t).unwrap();
    }
    typed!(t.dtype(), &[], |_data: T| bytemuck::cast_slice(&run.get::<T>(t).unwrap()).to_vec(), Vec::new())
}
