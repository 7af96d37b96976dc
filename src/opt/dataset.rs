//! Data sets for training and evaluation.

use super::rng::Rng;
use crate::dtype::{DType, Element};
use crate::error::Result;
use crate::ops::check::{Call, Entered};

/// Datapoints and their labels (`ggml_opt_dataset_t`).
///
/// The data are in host memory, one datapoint after the other. Shuffling permutes shards, groups of consecutive
/// datapoints; batches are copies.
///
/// ```
/// use ggml::opt::{Dataset, Rng};
/// # fn main() -> ggml::Result<()> {
/// // Four points of two coordinates, and a number for each.
/// let data = vec![0.0_f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0];
/// let mut xor = Dataset::new(2, data)?.with_labels(1, vec![0.0, 1.0, 1.0, 0.0])?;
/// xor.shuffle(&mut Rng::new(1), xor.ndata())?;
/// let (mut points, mut labels) = ([0.0; 4], [0.0; 2]);
/// xor.get_batch_host(1, &mut points, &mut labels)?;
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ggml_opt_dataset_t")]
#[doc(alias = "ggml_opt_dataset_free")]
#[derive(Debug, Clone, PartialEq)]
pub struct Dataset<D = f32> {
    ne_datapoint: usize,
    data: Vec<D>,
    ne_label: usize,
    labels: Vec<f32>,
    ndata: usize,
    ndata_shard: usize,
    /// The current order of the shards.
    permutation: Vec<usize>,
}

impl<D: Element> Dataset<D> {
    /// Creates a data set without labels, of `ne_datapoint` elements per datapoint (`ggml_opt_dataset_init`).
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) if there is no datapoint, or `data` is not a multiple of `ne_datapoint`.
    #[doc(alias = "ggml_opt_dataset_init")]
    pub fn new(ne_datapoint: usize, data: impl Into<Vec<D>>) -> Result<Self> {
        let data = data.into();
        let call = call("Dataset::new");
        call.param(ne_datapoint > 0, "ne_datapoint", ne_datapoint, "it must be above 0")?;
        let n = data.len();
        let whole = n > 0 && n.is_multiple_of(ne_datapoint);
        call.param(
            whole,
            "data",
            format_args!("{n} elements"),
            format!("datapoints of {ne_datapoint} are expected, one at least"),
        )?;
        let ndata = n / ne_datapoint;
        let permutation = (0..ndata).collect();
        Ok(Self { ne_datapoint, data, ne_label: 0, labels: Vec::new(), ndata, ndata_shard: 1, permutation })
    }

    /// Sets the labels, `ne_label` elements per datapoint.
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) if `labels` has another length.
    pub fn with_labels(self, ne_label: usize, labels: impl Into<Vec<f32>>) -> Result<Self> {
        let labels = labels.into();
        let call = call("Dataset::with_labels");
        call.param(ne_label > 0, "ne_label", ne_label, "it must be above 0")?;
        let whole = ne_label.checked_mul(self.ndata) == Some(labels.len());
        let expected = format!("there are {} datapoints, and a label has {ne_label} elements", self.ndata);
        call.param(whole, "labels", format_args!("{} elements", labels.len()), expected)?;
        Ok(Self { ne_label, labels, ..self })
    }

    /// Groups the data into shards of `ndata_shard` datapoints, which stay together when the data are shuffled. A
    /// shuffle that was made before is undone.
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) if the data are not a multiple of the shard size.
    pub fn with_shards(self, ndata_shard: usize) -> Result<Self> {
        let whole = ndata_shard > 0 && self.ndata.is_multiple_of(ndata_shard);
        let expected = format!("the {} datapoints must be a whole number of shards", self.ndata);
        call("Dataset::with_shards").param(whole, "ndata_shard", ndata_shard, expected)?;
        let permutation = (0..self.ndata / ndata_shard).collect();
        Ok(Self { ndata_shard, permutation, ..self })
    }

    /// The number of datapoints (`ggml_opt_dataset_ndata`).
    #[doc(alias = "ggml_opt_dataset_ndata")]
    pub fn ndata(&self) -> usize {
        self.ndata
    }

    /// The number of elements per datapoint.
    pub fn ne_datapoint(&self) -> usize {
        self.ne_datapoint
    }

    /// The number of elements per label; 0 without labels.
    pub fn ne_label(&self) -> usize {
        self.ne_label
    }

    /// The number of datapoints per shard.
    pub fn ndata_shard(&self) -> usize {
        self.ndata_shard
    }

    /// All data, in the order in which they were given (`ggml_opt_dataset_data`).
    #[doc(alias = "ggml_opt_dataset_data")]
    pub fn data(&self) -> &[D] {
        &self.data
    }

    /// All data, mutable, in the order in which they were given; for example to augment images.
    pub fn data_mut(&mut self) -> &mut [D] {
        &mut self.data
    }

    /// All labels, in the order in which they were given (`ggml_opt_dataset_labels`).
    #[doc(alias = "ggml_opt_dataset_labels")]
    pub fn labels(&self) -> &[f32] {
        &self.labels
    }

    /// All labels, mutable, in the order in which they were given.
    pub fn labels_mut(&mut self) -> &mut [f32] {
        &mut self.labels
    }

    /// Shuffles the shards of the first `idata` datapoints of the current order (`ggml_opt_dataset_shuffle`). The rest
    /// keeps its place, so that validation data stay apart from training data.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::opt::{Dataset, Rng};
    /// let mut data = Dataset::new(1, (0..10_u8).map(f32::from).collect::<Vec<_>>())?;
    /// data.shuffle(&mut Rng::new(7), 8)?; // the last two stay, to evaluate with
    /// let mut last = [0.0; 2];
    /// data.get_batch_host(4, &mut last, &mut [])?;
    /// assert_eq!(last, [8.0, 9.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) if `idata` is out of bounds, or inside a shard.
    #[doc(alias = "ggml_opt_dataset_shuffle")]
    pub fn shuffle(&mut self, rng: &mut Rng, idata: usize) -> Result<()> {
        let fits = idata <= self.ndata && idata.is_multiple_of(self.ndata_shard);
        let expected = format!("there are {} datapoints, in shards of {}", self.ndata, self.ndata_shard);
        call("Dataset::shuffle").param(fits, "idata", idata, expected)?;
        if let Some(front) = self.permutation.get_mut(..idata / self.ndata_shard) {
            rng.shuffle(front);
        }
        Ok(())
    }

    /// Copies batch `ibatch` of the current order (`ggml_opt_dataset_get_batch_host`). The length of `data_batch` sets
    /// the batch size.
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) if the slices don't have the length of whole shards and their labels; if
    /// `ibatch` is out of bounds; or if an element of the data or labels is infinite or NaN, which the error locates.
    #[doc(alias = "ggml_opt_dataset_get_batch_host")]
    pub fn get_batch_host(&self, ibatch: usize, data_batch: &mut [D], labels_batch: &mut [f32]) -> Result<()> {
        let batch = data_batch.len() / self.ne_datapoint;
        let first = ibatch.saturating_mul(batch);
        self.copy(call("Dataset::get_batch_host"), first, data_batch, labels_batch)
    }

    /// Copies the batch that starts with datapoint `first` of the current order.
    pub(super) fn copy(
        &self,
        call: Call<'_, '_>,
        first: usize,
        data_batch: &mut [D],
        labels_batch: &mut [f32],
    ) -> Result<()> {
        let (of_shard, n) = (self.ne_datapoint * self.ndata_shard, data_batch.len());
        let shards = n / of_shard;
        let expected = format!("a batch must be a whole number of shards, which have {of_shard} elements");
        call.param(shards > 0 && n.is_multiple_of(of_shard), "data_batch", format_args!("{n} elements"), expected)?;
        let of_labels = self.ne_label * self.ndata_shard;
        let n = labels_batch.len();
        let expected = format!("the labels of the batch have {}", of_labels * shards);
        call.param(n == of_labels * shards, "labels_batch", format_args!("{n} elements"), expected)?;
        let start = first / self.ndata_shard;
        let parts = start.checked_add(shards).and_then(|end| self.permutation.get(start..end));
        let parts = parts.filter(|_| first.is_multiple_of(self.ndata_shard));
        let expected = format!("there are {} datapoints, in shards of {}", self.ndata, self.ndata_shard);
        call.param(parts.is_some(), "ibatch", format_args!("a batch from datapoint {first}"), expected)?;
        let parts = parts.unwrap_or_default();
        gather(&self.data, parts, of_shard, data_batch);
        gather(&self.labels, parts, of_labels, labels_batch);
        let datapoint = |i: usize, len: usize| {
            let part = parts.get(i / (len * self.ndata_shard)).map_or(0, |part| part * self.ndata_shard);
            format!("element {} of datapoint {}", i % len, part + i / len % self.ndata_shard)
        };
        if let Some((i, x)) = data_batch.iter().enumerate().find_map(|(i, x)| Some((i, infinite(x)?))) {
            let value = format!("{x} as {}", datapoint(i, self.ne_datapoint));
            call.param(false, "data_batch", format_args!("{value}"), "a model learns from finite numbers only")?;
        }
        if let Some((i, x)) = labels_batch.iter().enumerate().find(|(_, x)| !x.is_finite()) {
            let value = format!("{x} as {} of the labels", datapoint(i, self.ne_label));
            call.param(false, "labels_batch", format_args!("{value}"), "a model learns finite numbers only")?;
        }
        Ok(())
    }
}

/// The value if it is infinite or NaN, else `None`; integers are neither.
fn infinite<D: Element>(x: &D) -> Option<f64> {
    let bytes = bytemuck::bytes_of(x);
    let x: f64 = match D::DTYPE {
        DType::F32 => bytemuck::pod_read_unaligned::<f32>(bytes).into(),
        DType::F64 => bytemuck::pod_read_unaligned(bytes),
        DType::F16 => bytemuck::pod_read_unaligned::<half::f16>(bytes).into(),
        DType::BF16 => bytemuck::pod_read_unaligned::<half::bf16>(bytes).into(),
        _ => 0.0,
    };
    (!x.is_finite()).then_some(x)
}

/// Copies parts of `from` by their indices. Each part has `len` elements.
fn gather<T: Copy>(from: &[T], parts: &[usize], len: usize, to: &mut [T]) {
    if len == 0 {
        return;
    }
    for (to, &part) in to.chunks_exact_mut(len).zip(parts) {
        if let Some(from) = from.get(part * len..(part + 1) * len) {
            to.copy_from_slice(from);
        }
    }
}

/// A call of the method with this name, for errors about its parameters.
pub(super) fn call(op: &'static str) -> Call<'static, 'static> {
    Call { op: Entered::other(op), operands: &[] }
}
