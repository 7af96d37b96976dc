//! `cargo xtask ci`: all checks, as `.ci/run` makes them after `./setup --ci`. Stops at the first that fails.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};

use crate::workspace::Workspace;

/// Where a step runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    Everywhere,
    /// It takes what is on Linux only.
    Linux,
    /// Where this cargo subcommand is installed.
    Installed(&'static str),
}
use Where::{Everywhere, Installed, Linux};

/// The backends that can be compiled and run in one build of ggml; `FEATURES` in the steps.
const FEATURES: &str = if cfg!(target_os = "linux") {
    "vulkan,rpc,blas"
} else if cfg!(target_os = "macos") {
    "metal,rpc,blas"
} else {
    "rpc"
};

/// The features for other crates; `FRIENDS` in the steps.
const FRIENDS: &str = "ndarray,serde,safetensors,rpc-tls";

/// The first steps: variables, a program and its arguments, divided by spaces.
const FIRST: &[(Where, &str)] = &[
    (Everywhere, "cargo xtask locks"),
    (Everywhere, "cargo fmt --all --check"),
    (Everywhere, "cargo fmt --check --manifest-path tests/conformance/Cargo.toml"),
    (Everywhere, "cargo fmt --check --manifest-path tests/interop/Cargo.toml"),
    (Everywhere, "cargo fmt --check --manifest-path tests/interop-static/Cargo.toml"),
    (Everywhere, "cargo fmt --check --manifest-path llm/check/Cargo.toml"),
    (Everywhere, "cargo fmt --check --manifest-path llm/tests/text_llama/Cargo.toml"),
    (Everywhere, "cargo fmt --check --manifest-path benches/peers/Cargo.toml --all"),
    (Everywhere, "cargo fmt --check --manifest-path benches/llm/Cargo.toml --all"),
    // Declarations are enough for these, so no C is compiled.
    (Everywhere, "DOCS_RS=1 cargo clippy --workspace --all-targets --features vulkan,rpc,blas,FRIENDS -- -D warnings"),
    (Everywhere, "DOCS_RS=1 cargo clippy --no-default-features --all-targets -- -D warnings"),
    (Everywhere, "DOCS_RS=1 cargo clippy --features cuda,metal -- -D warnings"),
    (Everywhere, "cargo xtask docs"),
    (Installed("deny"), "cargo deny check bans licenses sources"),
    (Installed("semver-checks"), "cargo xtask semver"),
];

/// Those that follow.
const STEPS: &[(Where, &str)] = &[
    (Everywhere, "cargo test --workspace --features FEATURES,FRIENDS"),
    // On a GPU in Rust that watches for races. Threads don't wait for each other in a driver's code, so one tests.
    (
        Everywhere,
        "GGML_TEST_DEVICE=FAKE RUST_TEST_THREADS=1 ABUSE_PROGRAMS=5000 cargo test --test device --test sched --test compare --test decode_loop --test meta --test abuse",
    ),
    (Everywhere, "cargo xtask coverage --check"),
    (Everywhere, "cargo xtask layers"),
    // What the library may have: 19,500 lines, 899 that closed findings of attacks from outside, 475 of what a GPU showed
    // that CUDA's kernels can't do (`src/rules/cuda`), and 162 that let one thread compute on a busy machine.
    (Everywhere, "cargo xtask size --most 21036"),
    (Everywhere, "cargo run --release --example digits_train -- --output target/digits.gguf --force"),
    (Everywhere, "cargo run --release --example sched_demo"),
    (Everywhere, "cargo run --release --example sched_demo -- --model target/digits.gguf"),
    (Everywhere, "cargo run --release --example rpc_cluster"),
    (Everywhere, "cargo run --release --example rpc_cluster -- --tensor-parallel"),
    (Everywhere, "cargo run --release --example generate -- --check"),
    // The same programs each time: what new seeds find is not what was changed last. Without a seed half of them are new.
    (Everywhere, "ABUSE_SEED=0x13524a0 ABUSE_PROGRAMS=100000 cargo test --release --test abuse"),
    (Everywhere, "cargo bench --bench overhead -- 3"),
    // All variants of the CPU's kernels are compiled, and only loaded and tried: without the compiler's optimisation that
    // is quick.
    (Linux, "GGML_SYS_BUILD_TYPE=Debug cargo test --features dynamic-backends,vulkan --test dynamic --test version"),
    // The tests for a machine with a GPU, on the CPU.
    (Linux, "cargo xtask gpu-bundle --try-out"),
    // What changed between the pinned versions of ggml; and the core with the version that is not the default.
    (Everywhere, "cargo xtask vendor --update 0.1.161 --package llama-cpp-sys-2 --dry-run"),
    (
        Everywhere,
        "GGML_SYS_GGML=0.26.0 cargo test --lib --test ops --test opt --test meta --test rpc --test rpc_lost --test quant",
    ),
];

/// Those that run beside [`STEPS`], one after the other: tests often wait, or keep one processor busy.
const BESIDE: &[(Where, &str)] = &[
    // musl's and Android's types are those of other targets here.
    (Everywhere, "cargo xtask cross --types aarch64 windows-gnu msvc macos rust"),
    // ggml's own tests of operations: what is refused of all, and what some compute.
    (Linux, "cargo xtask conformance --compute 10 --sample 20"),
    (Linux, "cargo xtask interop"),
    (Linux, "cargo xtask llm-check --models --random 150 --ggml 0.26.0"),
    (Linux, "cargo xtask cuda-check"),
    (Linux, "cargo xtask offline"),
];

/// What `cargo xtask ci quick` runs: a contributor's check after each change.
const QUICK: &[&str] = &[
    "cargo xtask locks",
    "cargo fmt --all --check",
    "DOCS_RS=1 cargo clippy --workspace --all-targets --features FEATURES,FRIENDS -- -D warnings",
    "cargo xtask coverage --check",
    "cargo xtask layers",
    "cargo test --lib --test ops --test hazards --test sched --test device --test allocator --test tensor --test opt --test meta",
    "ABUSE_PROGRAMS=2000 cargo test --test abuse",
];

#[derive(Debug, clap::Args)]
pub(crate) struct CiArguments {
    /// Run only the steps whose text contains one of these; `quick` is a shorter list of its own
    #[arg(value_name = "TEXT")]
    only: Vec<String>,
    /// List the steps, and run none
    #[arg(long)]
    list: bool,
    /// Build with this version of ggml, one of those in vendor/ggml.toml, wherever a step names none
    #[arg(long, value_name = "VERSION")]
    ggml: Option<String>,
}

#[expect(clippy::print_stdout, reason = "the chore's progress and result")]
pub(crate) fn run(arguments: &CiArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let chosen = |text: &str| arguments.only.is_empty() || arguments.only.iter().any(|part| text.contains(part));
    let quick = arguments.only == ["quick"];
    let [first, steps, beside] = if quick {
        [QUICK.iter().map(|text| (Everywhere, *text)).collect(), Vec::new(), Vec::new()]
    } else {
        [FIRST, STEPS, BESIDE].map(|list| list.iter().copied().filter(|(_, text)| chosen(text)).collect())
    };
    let all: Vec<_> = [&*first, &steps, &beside].concat();
    ensure!(!all.is_empty(), "no step contains {}: see `cargo xtask ci --list`", arguments.only.join(" or "));
    if arguments.list {
        for (_, text) in all {
            println!("{}", in_full(text));
        }
        return Ok(());
    }
    let pin = match &arguments.ggml {
        Some(version) => Some(workspace.pins()?.choose(Some(version)).map_err(anyhow::Error::msg)?.ggml.clone()),
        None => None,
    };
    let start = Instant::now();
    let folder = workspace.root.join("target"); // cargo may have been told of another
    fs::create_dir_all(&folder)?;
    let log = folder.join("ci-beside.log");
    let failed = AtomicBool::new(false);
    let lane = |steps: &[(Where, &str)], log| {
        let result = run_steps(&workspace, steps, pin.as_deref(), log, &failed);
        failed.fetch_or(result.is_err(), Ordering::Relaxed);
        result
    };
    let mut left_out = lane(&first, None)?;
    let more = std::thread::scope(|scope| {
        let other = scope.spawn(|| lane(&beside, Some(log.as_path())));
        let ours = lane(&steps, None);
        let other = other.join().map_err(|_| anyhow!("the steps beside panicked"))?;
        anyhow::Ok([ours?, other?])
    })?;
    left_out.extend(more.concat());
    for text in &left_out {
        println!("not run: {text}");
    }
    let which = if arguments.only.is_empty() { "all" } else { "these" };
    println!("\n{which} checks passed in {} s", start.elapsed().as_secs());
    Ok(())
}

/// A step with its features.
fn in_full(text: &str) -> String {
    text.replace("FEATURES", FEATURES).replace("FRIENDS", FRIENDS)
}

/// Runs steps until one fails, here or in what runs beside them, and returns those that can't run here. With a log, what a step
/// prints goes there, and is shown when the step has ended: it would be among what others print.
#[expect(clippy::print_stdout, reason = "the chore's progress and result")]
fn run_steps(
    workspace: &Workspace,
    steps: &[(Where, &str)],
    pin: Option<&str>,
    log: Option<&Path>,
    failed: &AtomicBool,
) -> Result<Vec<String>> {
    let mut left_out = Vec::new();
    for (place, text) in steps {
        let text = in_full(text);
        if failed.load(Ordering::Relaxed) {
            break;
        }
        if let Some(reason) = reason_against(*place) {
            println!("\n==> {text}\n<== {text}: NOT RUN: {reason}");
            left_out.push(text);
            continue;
        }
        let began = Instant::now();
        let mut command = command(workspace, &text, pin)?;
        let status = match log {
            None => {
                println!("\n==> {text}");
                command.status()?
            }
            Some(log) => {
                let file = File::create(log)?;
                let status = command.stdout(file.try_clone()?).stderr(file).status()?;
                println!("\n==> {text} (beside)\n{}", String::from_utf8_lossy(&fs::read(log)?));
                status
            }
        };
        ensure!(status.success(), "`{text}` failed: {status}");
        println!("<== {text}: {} s", began.elapsed().as_secs());
    }
    Ok(left_out)
}

/// Why a step can't run here.
fn reason_against(place: Where) -> Option<String> {
    match place {
        Linux if !cfg!(target_os = "linux") => Some("it runs on Linux only".to_owned()),
        Installed(name) if !installed(name) => {
            Some(format!("cargo-{name} is not installed: `cargo install cargo-{name} --locked` does that"))
        }
        _ => None,
    }
}

fn installed(subcommand: &str) -> bool {
    let mut command = Command::new("cargo");
    command.args([subcommand, "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The command of a step, which builds with the version of ggml that it names, or else with this one.
fn command(workspace: &Workspace, text: &str, pin: Option<&str>) -> Result<Command> {
    let mut words = text.split(' ').peekable();
    let mut variables = Vec::new();
    while let Some(variable) = words.peek().and_then(|word| word.split_once('=')) {
        variables.push(variable);
        words.next();
    }
    ensure!(words.next() == Some("cargo"), "`{text}` is not a command of cargo");
    let mut command = workspace.cargo(&workspace.root);
    command.args(words).envs(pin.map(|version| ("GGML_SYS_GGML", version))).envs(variables);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_is_a_command_of_cargo() {
        let workspace = Workspace::find().unwrap();
        for (_, text) in [FIRST, STEPS, BESIDE].concat() {
            command(&workspace, text, None).unwrap();
        }
        let text = "A=1 B=-Dx cargo doc --no-deps -- a=b";
        let command = command(&workspace, text, Some("1.2.3")).unwrap();
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["doc", "--no-deps", "--", "a=b"]);
        let variable = |name: &str| command.get_envs().find(|(n, _)| *n == name).unwrap().1.unwrap().to_owned();
        assert_eq!((variable("A"), variable("B")), ("1".into(), "-Dx".into()));
        assert_eq!(variable("GGML_SYS_GGML"), "1.2.3");
    }

    #[test]
    fn what_is_not_installed_is_not_run() {
        assert!(reason_against(Installed("no-such-subcommand")).unwrap().contains("cargo install"));
        assert_eq!(reason_against(Installed("fmt")), None);
        assert_eq!(reason_against(Linux).is_some(), !cfg!(target_os = "linux"));
    }
}
