//! The report: scores, tables of devices and splits, and the summary line.

use std::borrow::Borrow;
use std::fmt;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use demos::Shown;
use demos::digits::data::CLASSES;
use demos::digits::model::LAYERS;
use indicatif::BinaryBytes;

use crate::devices::{self, Devices};

/// Counts correct classifications, and measures the logits against the reference.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Score {
    images: usize,
    right: usize,
    max_abs_diff: f64,
}

impl Score {
    /// Adds a batch: `CLASSES` logits of ggml and of the reference for each label.
    pub(crate) fn add(&mut self, logits: &[f32], reference: &[f64], labels: &[u8]) {
        for (logits, &label) in logits.chunks_exact(CLASSES).zip(labels) {
            self.images += 1;
            self.right += usize::from(greatest(logits) == Some(usize::from(label)));
        }
        for (&logit, &expected) in logits.iter().zip(reference) {
            let diff = (f64::from(logit) - expected).abs();
            // `f64::max` ignores NaN.
            self.max_abs_diff = if diff.is_nan() { f64::INFINITY } else { self.max_abs_diff.max(diff) };
        }
    }

    /// The fraction of images classified correctly.
    #[expect(clippy::cast_precision_loss, reason = "there are few images")]
    pub(crate) fn accuracy(&self) -> f64 {
        self.right as f64 / self.images.max(1) as f64
    }

    /// The greatest difference between a logit and the reference.
    pub(crate) fn max_abs_diff(&self) -> f64 {
        self.max_abs_diff
    }
}

/// The index of the greatest value, the first of equals; `None` if a value is NaN.
fn greatest(values: &[f32]) -> Option<usize> {
    if values.iter().any(|v| v.is_nan()) {
        return None;
    }
    let index = values.iter().enumerate().rev().max_by(|(_, a), (_, b)| a.total_cmp(b));
    index.map(|(i, _)| i)
}

/// A tensor that is copied to the device of a split before the split runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Its name.
    pub(crate) name: String,
    /// Its size.
    pub(crate) bytes: u64,
}

/// Consecutive nodes that run on one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Split {
    /// The device's name.
    pub(crate) device: String,
    /// The number of its nodes.
    pub(crate) nodes: usize,
    /// The tensors copied from other devices.
    pub(crate) inputs: Vec<Copied>,
}

impl From<&ggml::run::Split<'_>> for Split {
    fn from(split: &ggml::run::Split<'_>) -> Self {
        let copied =
            |input: &ggml::run::SplitInput<'_>| Copied { name: input.tensor.name(), bytes: input.bytes as u64 };
        Self {
            device: split.backend.device().name(),
            nodes: split.nodes.len(),
            inputs: split.inputs.iter().map(copied).collect(),
        }
    }
}

/// An empty table; the columns with these indices are right-aligned.
fn empty<const N: usize>(header: [&str; N], numbers: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(header);
    for &number in numbers {
        if let Some(column) = table.column_mut(number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// The table of devices and their layers, without a final line break.
///
/// # Errors
/// A device does not answer.
pub(crate) fn device_table(devices: &Devices) -> ggml::Result<String> {
    let mut table = empty(["device", "description", "memory", "free", "layers"], &[2, 3]);
    for &device in &devices.all {
        let holds = LAYERS.iter().zip(&devices.of_layers).filter(|&(_, &holder)| holder == device);
        let layers: Vec<_> = holds.map(|(layer, _)| layer.name).collect();
        let memory = device.memory()?;
        table.add_row([
            device.name(),
            devices::description(device),
            BinaryBytes(memory.total as u64).to_string(),
            BinaryBytes(memory.free as u64).to_string(),
            list(&layers),
        ]);
    }
    Ok(table.trim_fmt())
}

fn list(names: &[impl Borrow<str>]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// The table of splits, without a final line break.
pub(crate) fn split_table(splits: &[Split]) -> String {
    let mut table = empty(["split", "device", "nodes", "inputs copied", "bytes"], &[0, 2, 4]);
    for (i, split) in splits.iter().enumerate() {
        let names: Vec<_> = split.inputs.iter().map(|input| Shown::name(&input.name).to_string()).collect();
        let bytes = split.inputs.iter().map(|input| input.bytes).sum();
        table.add_row([
            i.to_string(),
            split.device.clone(),
            split.nodes.to_string(),
            list(&names),
            BinaryBytes(bytes).to_string(),
        ]);
    }
    table.trim_fmt()
}

/// What was found out, for people; without a line break at its end.
pub(crate) fn figures(score: &Score, time: Duration, batch: usize) -> String {
    #[expect(clippy::cast_precision_loss, reason = "there are few images")]
    let speed = score.images as f64 / time.as_secs_f64();
    format!(
        "accuracy    {:.2} %: {} of {} images that the network was not trained on\n\
         speed       {speed:.0} images/s, {batch} at once; each graph ran once before, untimed\n\
         difference  at most {:.1e} between a logit and that of the forward pass in plain Rust\n",
        score.accuracy() * 100.0,
        score.right,
        score.images,
        score.max_abs_diff
    )
}

/// The last line of the output. Scripts read it: its form stays.
#[derive(Debug, Clone)]
pub(crate) struct Summary<'a> {
    /// The part of the test images that were classified rightly.
    pub(crate) accuracy: f64,
    /// How many splits the scheduler made.
    pub(crate) splits: usize,
    /// How many tensors are copied between devices in each run.
    pub(crate) copies: usize,
    /// The devices that hold weights, in the order of the layers.
    pub(crate) devices: &'a [String],
    /// The greatest difference between a logit and the reference.
    pub(crate) max_abs_diff: f64,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "sched_demo: accuracy={:.4} splits={} copies={} devices={} max_abs_diff={:.1e}",
            self.accuracy,
            self.splits,
            self.copies,
            self.devices.join(","),
            self.max_abs_diff
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[(usize, f32)]) -> [f32; CLASSES] {
        let mut row = [0.0; CLASSES];
        for &(i, value) in values {
            row[i] = value;
        }
        row
    }

    #[test]
    fn score_counts_over_batches() {
        let mut score = Score::default();
        let logits = [row(&[(3, 1.0)]), row(&[(9, 2.0), (1, 1.5)])].concat();
        let mut reference: Vec<_> = logits.iter().map(|&v| f64::from(v)).collect();
        reference[4] = -0.25;
        score.add(&logits, &reference, &[3, 1]);
        assert_eq!((score.images, score.right, score.max_abs_diff()), (2, 1, 0.25));
        let logits = row(&[(7, 0.5)]);
        score.add(&logits, &logits.map(f64::from), &[7]);
        score.add(&logits, &logits.map(f64::from), &[7]);
        assert_eq!((score.images, score.right, score.max_abs_diff()), (4, 3, 0.25));
        assert!((score.accuracy() - 0.75).abs() < f64::EPSILON);
    }

    #[test]
    fn score_counts_nan_as_wrong_and_different() {
        let mut score = Score::default();
        let bad = row(&[(3, f32::NAN)]);
        score.add(&bad, &[0.0; CLASSES], &[3]);
        let good = row(&[(3, 1.0)]);
        score.add(&good, &good.map(f64::from), &[3]);
        assert_eq!((score.right, score.max_abs_diff()), (1, f64::INFINITY));
    }

    #[test]
    fn greatest_takes_the_first_of_equals() {
        assert_eq!(greatest(&[1.0, 3.0, 3.0, -1.0]), Some(1));
        assert_eq!(greatest(&[f32::NEG_INFINITY, -2.0]), Some(1));
        assert_eq!(greatest(&[]), None);
    }

    #[test]
    fn split_table_has_a_row_per_split() {
        let inputs = vec![
            Copied { name: "images".to_owned(), bytes: 15_360 },
            Copied { name: "conv1.out".to_owned(), bytes: 1024 },
        ];
        let split = |device: &str, nodes, inputs| Split { device: device.to_owned(), nodes, inputs };
        let text = split_table(&[split("CPU", 7, vec![]), split("RPC0", 12, inputs)]);
        let rows: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(rows.contains(&vec!["0", "CPU", "7", "none", "0", "B"]), "{text}");
        assert!(rows.contains(&vec!["1", "RPC0", "12", "images,", "conv1.out", "16.00", "KiB"]), "{text}");
    }

    #[test]
    fn summary_line_has_the_documented_form() {
        let devices = ["RPC0".to_owned(), "CPU".to_owned()];
        let summary = Summary { accuracy: 0.97, splits: 4, copies: 3, devices: &devices, max_abs_diff: 1e-5 };
        assert_eq!(
            summary.to_string(),
            "sched_demo: accuracy=0.9700 splits=4 copies=3 devices=RPC0,CPU max_abs_diff=1.0e-5"
        );
    }
}
