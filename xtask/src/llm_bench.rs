//! `cargo xtask llm-bench`: the speed of language models by `ggml-llm`, llama.cpp, candle and mistral.rs.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
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
    /// Compile everything for processors with AVX2, and let this project's kernels use no more
    #[arg(long)]
    avx2: bool,
    /// Arguments of the benchmark: see its `--help`
    #[arg(last = true)]
    rest: Vec<OsString>,
}

/// What is measured with the server, by so many clients at once.
const CLIENTS: &str = "tg64,tg64x8,tg64x32";

/// The benchmark's folder of compiled engines.
struct Bench<'a> {
    workspace: &'a Workspace,
    target: PathBuf,
    avx2: bool,
}

impl<'a> Bench<'a> {
    fn new(workspace: &'a Workspace, avx2: bool) -> Self {
        let folder = if avx2 { "target/llm-bench-avx2" } else { "target/llm-bench" };
        Self { workspace, target: workspace.root.join(folder), avx2 }
    }

    /// Lets rustc and C compilers use all features of this machine's processor, or those of one with AVX2.
    fn for_cpu<'c>(&self, command: &'c mut Command) -> &'c mut Command {
        let cflags = if cfg!(target_arch = "x86_64") { WITHOUT_AMX } else { "" };
        let rustflags = if self.avx2 { "-Ctarget-cpu=x86-64-v3" } else { "-Ctarget-cpu=native" };
        command.env("RUSTFLAGS", rustflags).env("CFLAGS", cflags).env("CXXFLAGS", cflags)
    }

    fn build(&self, folder: &Path, package: &str) -> Command {
        let mut command = self.workspace.cargo(folder);
        command.args(["build", "--release", "--package", package, "--target-dir"]).arg(&self.target);
        command
    }

    /// Builds the benchmark and these engines, and llama.cpp over our ggml, for the processor.
    fn build_all(&self, engines: &[&str]) -> Result<()> {
        let folder = self.workspace.root.join(FOLDER);
        check(&mut self.build(&folder, "llm-bench"))?;
        for package in engines {
            check(self.for_cpu(&mut self.build(&folder, package)))?;
        }
        // ggml's build script chooses AVX2 by itself.
        let features = if self.avx2 { "rpc" } else { "rpc,native" };
        interop::build_with(self.workspace, FOLDER, features, &self.target.join("system"), &mut |command| {
            self.for_cpu(command.args(["--release", "--package", "llama", "--features", "system"]));
        })
        .map(drop)
    }

    fn release(&self, name: &str) -> PathBuf {
        self.target.join("release").join(name)
    }

    /// Runs the benchmark. Each engine is a name, a program and its arguments.
    fn run(&self, engines: &[(&str, PathBuf, &[&OsStr])], rest: &[OsString]) -> Result<()> {
        let mut command = Command::new(self.release("llm-bench"));
        for (name, program, arguments) in engines {
            let mut text: OsString = format!("{name}=").into();
            text.push(program);
            for argument in *arguments {
                text.push("+");
                text.push(argument);
            }
            command.arg(text);
        }
        if self.avx2 {
            command.env("GGML_KERNELS", "avx2");
        }
        command.env("LD_LIBRARY_PATH", self.workspace.root.join(interop::FOLDER).join("ggml/lib"));
        check(command.args(rest))
    }

    /// Both builds of llama.cpp.
    fn llamas(&self) -> [(&'static str, PathBuf, &'static [&'static OsStr]); 2] {
        let over_ours = self.target.join("system/release/llama");
        [("llama.cpp", self.release("llama"), &[]), ("llama.cpp over our ggml", over_ours, &[])]
    }
}

/// Builds all engines, and runs the benchmark.
pub(crate) fn run(arguments: &LlmBenchArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let bench = Bench::new(&workspace, arguments.avx2);
    let candle = (!arguments.no_candle).then_some(("candle", "candle"));
    let mistralrs = arguments.mistralrs.then_some(("mistral.rs", "mistralrs"));
    let others: Vec<_> = candle.into_iter().chain(mistralrs).collect();
    bench
        .build_all(&[&["ours", "llama"], &*others.iter().map(|(_, package)| *package).collect::<Vec<_>>()].concat())?;
    let (ours, ggml) = (bench.release("ours"), [OsStr::new("ggml")]);
    let mut engines = vec![("this project", ours.clone(), &[][..]), ("ggml's kernels", ours, &ggml)];
    engines.extend(bench.llamas());
    engines.extend(others.into_iter().map(|(name, package)| (name, bench.release(package), &[][..])));
    bench.run(&engines, &arguments.rest)
}

/// Compares the server, with a client for each sequence, with llama.cpp's steps of so many sequences.
pub(crate) fn serve(rest: &[OsString]) -> Result<()> {
    let workspace = Workspace::find()?;
    let bench = Bench::new(&workspace, false);
    bench.build_all(&["ours", "llama"])?;
    check(bench.for_cpu(&mut bench.build(&workspace.root, "ggml-llm-serve")))?;
    let program = bench.release("ggml-llm-serve");
    let arguments = [OsStr::new("serve"), program.as_os_str()];
    let mut engines = vec![("this project's server", bench.release("ours"), &arguments[..])];
    engines.extend(bench.llamas());
    let requests = ["--requests", CLIENTS, "--threads", "2", "--types", "q8_0"].map(OsString::from);
    bench.run(&engines, &[&requests, rest].concat())
}
