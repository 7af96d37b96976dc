//! A Vulkan device compared with the CPU: a GPU if there is one, else Mesa's lavapipe, which ggml lists only if a
//! variable is set. Has its own harness: it fails without a device, and counts what it leaves out.

#![cfg(test)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers, tables of closures")]
#![allow(clippy::cast_possible_wrap, clippy::type_complexity, reason = "small numbers, tables of closures")]
#![allow(clippy::cast_sign_loss, reason = "small numbers, tables of closures")]

mod beside;
mod device;
#[cfg(ggml_0_28)]
mod experts;
mod failing;
mod fused;
mod ops;
mod placing;
mod threads;
mod waiting;

use std::process::{Command, ExitCode};
use std::sync::OnceLock;

use ggml::Threads;
use ggml::prelude::*;
use libtest_mimic::Arguments;

/// Makes ggml list the first device even if it is a CPU. Read when the backend starts.
const VISIBLE: &str = "GGML_VK_VISIBLE_DEVICES";

/// The maximum absolute value of operands.
const REACH: f32 = 2.0;

fn vulkan() -> Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    *DEVICE.get_or_init(|| Device::by_name("Vulkan0").expect("main has looked for it"))
}

fn backend() -> Backend {
    vulkan().init().unwrap()
}

fn cpu() -> Backend {
    let mut cpu = Backend::cpu().unwrap();
    cpu.set_threads(Threads::new(2).with_all(true)).unwrap();
    cpu
}

/// Whether the device is Mesa's software renderer, which takes seconds to compile a large shader.
fn is_software() -> bool {
    vulkan().description().contains("llvmpipe")
}

fn main() -> ExitCode {
    if std::env::var_os("NEXTEST").is_none()
        && std::env::var_os(VISIBLE).is_none()
        && Device::by_name("Vulkan0").is_err()
    {
        // The variable must be set before devices are listed and before there are threads.
        let again = std::env::current_exe()
            .and_then(|exe| Command::new(exe).args(std::env::args_os().skip(1)).env(VISIBLE, "0").status());
        return match again {
            Ok(status) if status.success() => ExitCode::SUCCESS,
            other => {
                eprintln!("vulkan: {other:?}");
                ExitCode::FAILURE
            }
        };
    }
    let mut arguments = Arguments::from_args();
    if let Err(error) = Device::by_name("Vulkan0") {
        eprintln!("vulkan: {error}");
        eprintln!("vulkan: these tests need a GPU, or lavapipe: apt-get install mesa-vulkan-drivers");
        return ExitCode::FAILURE;
    }
    // All tests share one device, and shaders are compiled by its own threads.
    arguments.test_threads.get_or_insert(1);
    let excluded = ops::excluded();
    let mut trials = ops::trials();
    let whole = [
        device::trials(),
        placing::trials(),
        waiting::trials(),
        fused::trials(),
        fused::hard_trials(),
        failing::trials(),
        threads::trials(),
    ];
    trials.extend(whole.into_iter().flatten());
    #[cfg(ggml_0_28)]
    trials.extend(experts::trials());
    let conclusion = libtest_mimic::run(&arguments, trials);
    let counts = ops::counts();
    println!(
        "vulkan: device={:?} ops={} cases={} refused={} excluded={excluded}",
        vulkan().description(),
        counts.ops,
        counts.cases,
        counts.refused,
    );
    conclusion.exit_code()
}
