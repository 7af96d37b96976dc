//! How tensors are split among the members of a meta device.

use std::fmt;

use ggml_sys as sys;

use crate::dtype::DType;
use crate::error::{Error, Result, TensorInfo};
use crate::ffi;

/// How a weight tensor is split among the members of a [`MetaDevice`](super::MetaDevice)
/// (`ggml_backend_meta_split_state`).
///
/// Axes are in ggml's order, 0 innermost. Splitting a weight matrix along axis 1 (its rows) splits the product along
/// axis 0; along axis 0, the other operand must be split likewise, and the partial sums are added.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::meta::{MetaDevice, SplitMode};
/// // Two thirds of the rows of each matrix on the first device.
/// let shares = |rows: i64| SplitMode::Shares { axis: 1, shares: vec![rows * 2 / 3, rows - rows * 2 / 3] };
/// let cpu = Device::cpu()?;
/// let meta = MetaDevice::new(&[cpu, cpu], move |t| shares(t.ne[1]))?;
/// let mut builder = WeightsBuilder::new();
/// builder.tensor("w", DType::F32, [4, 9])?; // 6 rows and 3
/// let weights = builder.place(meta.device())?;
/// # assert_eq!(weights.iter().count(), 1);
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_backend_meta_split_state")]
#[doc(alias = "ggml_backend_meta_split_axis")]
#[doc(alias = "ggml_backend_meta_split_axis_name")]
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SplitMode {
    /// Each member has a copy of the tensor.
    Mirrored,
    /// Each member has a part of the tensor. The parts differ by one block at most.
    Even {
        /// The axis along which the tensor is split: 0, 1 or 2.
        axis: usize,
    },
    /// Each member has a part of the tensor, of the given length, in the order of the members.
    Shares {
        /// The axis along which the tensor is split: 0, 1 or 2.
        axis: usize,
        /// The lengths, in elements: at least 1, whole blocks along axis 0, and in sum the tensor's.
        shares: Vec<i64>,
    },
}

/// How a tensor is split: a [`SplitMode`] resolved for the tensor, or what was derived for a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SplitState {
    Mirrored,
    Along { axis: usize, shares: Box<[i64]> },
}

/// The exclusive upper bound of axes along which tensors may be split: ggml can't transfer one that is split along axis
/// 3.
const AXES: usize = 3;

impl SplitMode {
    /// Resolves the split for a tensor on `n` devices.
    pub(crate) fn resolve(&self, t: &TensorInfo, dtype: DType, n: usize) -> Result<SplitState> {
        let refuse = |expected: String| {
            Error::param("MetaDevice", "split", format!("{self:?}"), format!("for {t} on {n} devices, {expected}"))
        };
        let (&axis, shares) = match self {
            Self::Mirrored => return Ok(SplitState::Mirrored),
            Self::Even { axis } => (axis, None),
            Self::Shares { axis, shares } => (axis, Some(shares)),
        };
        let Some(&len) = t.ne.get(axis).filter(|_| axis < AXES) else {
            return Err(refuse("the axis must be 0, 1 or 2".into()));
        };
        let block = if axis == 0 { dtype.block_size() } else { 1 };
        let shares = match shares {
            Some(shares) => shares.clone().into_boxed_slice(),
            None => evenly(len, block, n),
        };
        let sum = shares.iter().try_fold(0_i64, |sum, &share| sum.checked_add(share));
        if shares.len() != n || sum != Some(len) || shares.iter().any(|&share| share < 1 || share % block != 0) {
            let blocks = if block > 1 { format!(" of whole blocks of {block}") } else { String::new() };
            return Err(refuse(format!("each device must get a part{blocks}, and the parts must add up to {len}")));
        }
        Ok(SplitState::Along { axis, shares })
    }
}

/// Divides `len` elements into `n` parts of whole blocks that differ by one block at most.
fn evenly(len: i64, block: i64, n: usize) -> Box<[i64]> {
    let (blocks, n) = (len / block, i64::try_from(n).unwrap_or(i64::MAX));
    (0..n).map(|i| (blocks / n + i64::from(i < blocks % n)) * block).collect()
}

impl SplitState {
    /// The split state as C's struct: with one segment, not repeated.
    pub(crate) fn raw(&self) -> sys::ggml_backend_meta_split_state {
        let mut nr = [0; 16];
        nr[0] = 1;
        let mut raw = sys::ggml_backend_meta_split_state { axis: self.raw_axis(), ne: [0; 256], nr, n_segments: 1 };
        if let Self::Along { shares, .. } = self {
            raw.ne.iter_mut().zip(shares).for_each(|(to, &share)| *to = share);
        }
        raw
    }

    fn raw_axis(&self) -> sys::ggml_backend_meta_split_axis {
        match self {
            Self::Along { axis: 0, .. } => sys::GGML_BACKEND_SPLIT_AXIS_0,
            Self::Along { axis: 1, .. } => sys::GGML_BACKEND_SPLIT_AXIS_1,
            Self::Along { axis: 2, .. } => sys::GGML_BACKEND_SPLIT_AXIS_2,
            Self::Along { .. } => sys::GGML_BACKEND_SPLIT_AXIS_3,
            Self::Mirrored => sys::GGML_BACKEND_SPLIT_AXIS_MIRRORED,
        }
    }
}

/// Prints ggml's name of the split state (`ggml_backend_meta_split_axis_name`).
impl fmt::Display for SplitState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: C maps the constants that it knows, of which the argument is one, to constant strings.
        let name = unsafe { ffi::text_of(sys::ggml_backend_meta_split_axis_name, self.raw_axis()) };
        match self {
            Self::Mirrored => f.write_str(&name),
            Self::Along { shares, .. } => write!(f, "axis {name} as {shares:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(ne: [i64; 4]) -> TensorInfo {
        TensorInfo { name: "w".into(), dtype: "f32", ne }
    }

    #[test]
    fn split_even_gives_whole_blocks() {
        let along = |axis, shares: &[i64]| SplitState::Along { axis, shares: shares.into() };
        let even = |axis, ne, dtype, n| SplitMode::Even { axis }.resolve(&info(ne), dtype, n).ok();
        assert_eq!(even(1, [7, 9, 1, 1], DType::F32, 2), Some(along(1, &[5, 4])));
        assert_eq!(even(0, [96, 9, 1, 1], DType::Q4_0, 2), Some(along(0, &[64, 32])), "blocks of 32");
        assert_eq!(even(2, [1, 1, 3, 1], DType::F32, 3), Some(along(2, &[1, 1, 1])));
        assert_eq!(even(0, [64, 9, 1, 1], DType::Q4_0, 3), None, "two blocks for three");
        assert_eq!(even(3, [1, 1, 1, 8], DType::F32, 2), None, "ggml can't transfer along this axis");
    }

    #[test]
    fn split_shares_must_sum_to_the_dimension() {
        let ok = |axis, shares: &[i64], dtype| {
            let shares = shares.to_vec();
            SplitMode::Shares { axis, shares }.resolve(&info([96, 8, 1, 1]), dtype, 2).is_ok()
        };
        assert!(ok(1, &[3, 5], DType::F32) && ok(0, &[32, 64], DType::Q4_0), "they are");
        for shares in [&[4, 5][..], &[8], &[8, 0], &[9, -1], &[3, 3, 2], &[i64::MAX, i64::MAX], &[]] {
            assert!(!ok(1, shares, DType::F32), "{shares:?}");
        }
        assert!(!ok(0, &[16, 80], DType::Q4_0), "half a block");
        assert!(ok(0, &[16, 80], DType::F32), "no blocks");
    }
}
