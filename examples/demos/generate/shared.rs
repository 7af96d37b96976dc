//! What several commands use.

use std::num::NonZeroUsize;

use anyhow::Result;
use ggml::{Backend, Sched};
use indicatif::{ProgressBar, ProgressStyle};

/// A scheduler for the CPU.
pub(crate) fn sched(threads: NonZeroUsize) -> Result<Sched> {
    let mut cpu = Backend::cpu()?;
    cpu.set_threads(threads.get())?;
    Ok(Sched::builder().backend(cpu).build()?)
}

pub(crate) fn bar(n: u64) -> Result<ProgressBar> {
    let bar = ProgressBar::new(n);
    Ok(bar.with_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} steps, {msg}, {eta} left")?))
}
