//! Classifies handwritten digits with a small network whose layers are on two devices.
//!
//! ggml's scheduler splits the graph by the location of the weights, and copies tensors between the devices. This
//! program prints the splits, and draws them with `--svg`. All logits are compared with those of plain Rust.
//!
//! ```text
//! cargo run --release --example sched_demo
//! cargo run --release --example sched_demo -- --help
//! ```

mod cli;
mod devices;
mod network;
mod placement;
mod reference;
mod report;

use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser as _;
use demos::digits::data::{self, Images, PIXELS};
use demos::output::Output;
use ggml::{Context, Run, Sched, Weights};
use ggml_draw::ToSvg as _;
use indicatif::{ProgressBar, ProgressStyle};

use cli::Cli;
use devices::Devices;
use network::{Batch, Model};
use reference::Reference;
use report::{Score, Summary};

fn main() -> ExitCode {
    demos::print(|out| demo(&Cli::parse(), out))
}

fn demo(cli: &Cli, out: &mut impl Write) -> Result<()> {
    let svg = Output::of(cli.svg.as_ref(), cli.force, "--svg FILE")?;
    let test = data::load(&cli.data)?.test;
    let model = Model::open(&cli.model)?;
    let devices = Devices::start(cli.devices.as_deref(), cli.threads)?;
    writeln!(out, "{}\n", report::device_table(&devices)?)?;
    let mut demo = Demo {
        reference: model.reference()?,
        weights: model.place(&devices.of_layers)?,
        sched: devices.sched(cli.threads)?,
        score: Score::default(),
        time: Duration::ZERO,
        bar: bar(test.len())?,
    };

    let batch = cli.batch.get().min(test.len());
    let (whole, rest) = test.split_at(test.len() / batch * batch);
    let (mut splits, mut copies) = (0, 0);
    demo.classify(&whole, batch, |run| {
        let table: Vec<_> = run.splits()?.iter().map(report::Split::from).collect();
        splits = run.n_splits();
        copies = table.iter().map(|split| split.inputs.len()).sum();
        writeln!(out, "{}\n", report::split_table(&table))?;
        if let Some(svg) = &svg {
            svg.write(run.to_svg()?.as_bytes())?;
        }
        Ok(())
    })?;
    if !rest.is_empty() {
        // The last batch is smaller, and gets its own graph.
        demo.classify(&rest, rest.len(), |_| Ok(()))?;
    }
    demo.bar.finish_and_clear();

    let Demo { score, time, .. } = &demo;
    writeln!(out, "{}", report::figures(score, *time, batch))?;
    let summary = Summary {
        accuracy: score.accuracy(),
        splits,
        copies,
        devices: &devices.holders(),
        max_abs_diff: score.max_abs_diff(),
    };
    writeln!(out, "{summary}")?;
    out.flush()?;
    let tolerance = devices.tolerance();
    ensure!(
        score.max_abs_diff() <= tolerance,
        "ggml's logits differ from the plain Rust forward pass by up to {:.1e}, more than {tolerance:.0e}: a device \
         computes something else; try each alone with --devices",
        score.max_abs_diff()
    );
    Ok(())
}

/// The classifier and its results so far.
struct Demo {
    reference: Reference,
    weights: Weights,
    sched: Sched,
    score: Score,
    /// The time spent on batches, from setting the images to reading the logits.
    time: Duration,
    bar: ProgressBar,
}

impl Demo {
    /// Classifies a multiple of `size` images. `planned` sees the scheduler's splits of a batch.
    fn classify(
        &mut self,
        images: &Images,
        size: usize,
        planned: impl FnOnce(&Run<'_, '_>) -> Result<()>,
    ) -> Result<()> {
        let ctx = Context::new();
        let batch = Batch::new(&ctx, &self.weights, size)?;
        let mut run = self.sched.alloc(&batch.graph)?;
        planned(&run)?;
        let mut compute = |pixels: &[f32]| {
            run.set(batch.images, pixels)?;
            run.compute()?;
            run.get::<f32>(batch.logits)
        };
        let pixels = images.pixels.chunks_exact(size * PIXELS);
        if let Some(first) = pixels.clone().next() {
            compute(first)?; // to warm up
        }
        for (pixels, labels) in pixels.zip(images.labels.chunks_exact(size)) {
            let start = Instant::now();
            let logits = compute(pixels)?;
            self.time += start.elapsed();
            self.score.add(&logits, &self.reference.logits(pixels), labels);
            self.bar.inc(labels.len() as u64);
        }
        Ok(())
    }
}

/// A progress bar on standard error; hidden if that is not a terminal.
fn bar(images: usize) -> Result<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} images")?;
    Ok(ProgressBar::new(images as u64).with_style(style))
}
