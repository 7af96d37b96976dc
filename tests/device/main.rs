//! Compares one device with the CPU: the one in the environment variable `GGML_TEST_DEVICE`, such as `CUDA0`. The
//! default is `RPC`, a server of the CPU (or, without that feature or with dynamic backends, the CPU itself), which
//! checks the tests.
//!
//! Nothing is skipped silently: operations that a device does not support are listed in a line that starts with
//! `unsupported:`, and those that all of ggml's GPUs support are required. Dynamic backends are loaded from the folder
//! in `GGML_TEST_BACKENDS`, or from the build's own folder.

#![cfg(test)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers, exact results")]
#![allow(clippy::cast_possible_wrap, clippy::float_cmp, reason = "small numbers, exact results")]

mod events;
mod memory;
mod ops;
mod sched;
mod threads;
mod transfers;

use fastrand::Rng;
use ggml::Result;
use ggml::prelude::*;
use testkit::bench::Bench;
use testkit::device::{cpu, device};

/// The maximum absolute value of operands.
const REACH: f32 = 1.0;

/// Whether the device works in the memory of the CPU.
fn in_host_memory() -> bool {
    device().buffer_type() == cpu().device().buffer_type()
}

/// Reproducible pseudorandom values in -1 to 1.
fn sample(n: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::with_seed(seed);
    (0..n).map(|_| 2.0 * rng.f32() - 1.0).collect()
}

/// A computation to compare, and its tolerance.
struct Case {
    name: String,
    tolerance: f64,
    /// Whether all of ggml's GPUs must support it.
    must: bool,
    #[expect(clippy::type_complexity, reason = "one type, used once")]
    build: Box<dyn for<'c> Fn(&Bench<'c>) -> Result<Tensor<'c>>>,
}

fn case(name: impl Into<String>, build: impl for<'c> Fn(&Bench<'c>) -> Result<Tensor<'c>> + 'static) -> Case {
    Case { name: name.into(), tolerance: 2e-3, must: true, build: Box::new(build) }
}

impl Case {
    /// For products, in which devices use fewer bits or rounded operands.
    fn rough(mut self) -> Self {
        self.tolerance = 2.5e-2;
        self
    }

    fn optional(mut self) -> Self {
        self.must = false;
        self
    }
}

/// Compares all cases, and fails with a list of all mismatches.
fn agree(family: &str, cases: impl IntoIterator<Item = Case>) {
    let (mut compared, mut unsupported, mut wrong) = (0, Vec::new(), Vec::new());
    for case in cases {
        // Printed before the case runs, in case it ends the process.
        eprintln!("{family}: {}", case.name);
        let ctx = Context::new();
        let bench = Bench::new(&ctx, REACH);
        let y = (case.build)(&bench).unwrap();
        match device().init().and_then(|mut device| bench.compare(&[y], case.tolerance, &mut cpu(), &mut device)) {
            Ok(comparison) if comparison.agrees() => compared += 1,
            Ok(comparison) => wrong.push(format!("{}\n{comparison}", case.name)),
            Err(Error::Unsupported { reason, .. }) if !case.must => {
                unsupported.push(format!("{} ({reason})", case.name));
            }
            Err(error) => wrong.push(format!("{}: {error}", case.name)),
        }
    }
    eprintln!("compared: family={family} device={} cases={compared} unsupported={}", device(), unsupported.len());
    for name in &unsupported {
        eprintln!("unsupported: {name}");
    }
    assert!(wrong.is_empty(), "{} of {family} are wrong on {}:\n{}", wrong.len(), device(), wrong.join("\n"));
    assert!(compared > 0, "nothing was compared");
}

#[test]
fn device_is_listed() {
    let device = device();
    eprintln!("device: {device}: {}", device.description());
    assert!(Device::all().unwrap().contains(&device));
    assert!(device.registry().unwrap().devices().unwrap().contains(&device));
    assert_eq!(device.init().unwrap().device(), device);
    assert_eq!(Backend::from_spec(&device.name()).unwrap().device(), device);
    for (name, value) in device.registry().unwrap().features().unwrap() {
        eprintln!("feature: {name}={value}");
    }
}
