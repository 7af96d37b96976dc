//! What the program and its check use.

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

/// The cosine similarity of two vectors.
pub(crate) fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// A progress bar on standard error; hidden if that is not a terminal.
pub(crate) fn bar(sentences: usize) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} sentences, {eta} left")?;
    Ok(ProgressBar::new(sentences as u64).with_style(style))
}
