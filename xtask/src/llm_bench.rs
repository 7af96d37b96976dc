//! `cargo xtask llm-bench`: the speed of language models by `ggml-llm`, llama.cpp, candle and mistral.rs.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::interop;
use crate::workspace::{Workspace, check};

const FOLDER: &str = "benches/llm";

/// GCC before 12.4 and 13.3 miscompiles AMX, which ends llama.cpp at its first product. ggml-sys leaves it out then, too.
const WITHOUT_AMX: &str = "-mno-amx-tile -mno-amx-int8 -mno-amx-bf16";

#[derive(Debug, clap::Args)]
pub(crate) struct LlmBenchArguments {
    /// Leave out candle, which takes long to compile
    #[arg(long)]
    no_candle: bool,
    /// Compare mistral.rs as well, which takes far longer to compile than all others
    #[arg(long)]
    mistralrs: bool,
    /// Arguments of the benchmark: see its `--help`
    #[arg(last = true)]
    rest: Vec<OsString>,
}

/// Builds all engines for this machine's processor, and runs the benchmark.
pub(crate) fn run(arguments: &LlmBenchArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let target = workspace.root.join("target/llm-bench");
    let build = |package: &str| {
        let mut command = workspace.cargo(&workspace.root.join(FOLDER));
        command.args(["build", "--release", "--package", package, "--target-dir"]).arg(&target);
        command
    };
    let cflags = if cfg!(target_arch = "x86_64") { WITHOUT_AMX } else { "" };
    let native = |command: &mut Command| {
        command.env("RUSTFLAGS", "-Ctarget-cpu=native").env("CFLAGS", cflags).env("CXXFLAGS", cflags);
    };
    check(&mut build("llm-bench"))?;
    let candle = (!arguments.no_candle).then_some("candle");
    let mistralrs = arguments.mistralrs.then_some("mistralrs");
    for package in ["ours", "llama"].into_iter().chain(candle).chain(mistralrs) {
        let mut command = build(package);
        native(&mut command);
        check(&mut command)?;
    }
    let system = target.join("system");
    interop::build_with(&workspace, FOLDER, "rpc,native", &system, &mut |command| {
        command.args(["--release", "--package", "llama", "--features", "system"]);
        native(command);
    })?;
    let engine = |name: &str, program: &Path, argument: &str| {
        let mut text: OsString = format!("{name}=").into();
        text.push(program);
        text.push(argument);
        text
    };
    let release = target.join("release");
    let mut command = Command::new(release.join("llm-bench"));
    command.arg(engine("this project", &release.join("ours"), ""));
    command.arg(engine("ggml's kernels", &release.join("ours"), "+ggml"));
    command.arg(engine("llama.cpp", &release.join("llama"), ""));
    command.arg(engine("llama.cpp over our ggml", &system.join("release/llama"), ""));
    if !arguments.no_candle {
        command.arg(engine("candle", &release.join("candle"), ""));
    }
    if arguments.mistralrs {
        command.arg(engine("mistral.rs", &release.join("mistralrs"), ""));
    }
    command.env("LD_LIBRARY_PATH", workspace.root.join(interop::FOLDER).join("ggml/lib"));
    check(command.args(&arguments.rest))
}
