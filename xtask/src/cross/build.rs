//! Compiles ggml for other targets with Debian's compilers, and runs programs there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::workspace::{Workspace, check};

/// Builds for a target, and says how far that got.
pub(super) type Build = fn(&Workspace, &Path, &str) -> Result<&'static str>;

/// The tests that run under qemu besides the library's own.
const CORE: &[&str] = &["tensor", "sched", "allocator", "decode_loop", "models"];

/// The operations whose tests run under qemu: those with kernels for the processor. All take many minutes.
const OPERATIONS: &[&str] = &["matmul::", "norm::", "softmax::", "rope::", "unary::"];

/// The library's tests that start themselves as another process, which takes a kernel that knows of qemu.
const PROCESSES: &[&str] = &[
    "buffer::pinned::tests::pinned_memory_is_dropped_after_unregistering",
    "rpc::own::tests::claim_refuses_a_connection_of_another_process",
];

/// The variable with the program that runs what cargo built for ARM.
const RUNNER: &str = "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER";

/// Processors that qemu plays, which instruction sets of the example `kernels` are tested on them, and by which tests. Attention,
/// which takes many minutes, is the same on all.
const PROCESSORS: &[(&str, &str, &[&str])] = &[
    ("cortex-a57", "plain, neon", &["matmul::"]),
    ("neoverse-n1", "plain, neon, dotprod", &["matmul::"]),
    ("max", "plain, neon, dotprod, i8mm", &[]),
];

/// Runs the core tests and those of the kernels under qemu.
pub(super) fn aarch64(workspace: &Workspace, folder: &Path, target: &str) -> Result<&'static str> {
    installed(&["aarch64-linux-gnu-gcc", "aarch64-linux-gnu-g++", "qemu-aarch64"])?;
    let test = || {
        let mut command = cargo(workspace, folder, target, "test");
        command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc");
        command.env(RUNNER, "qemu-aarch64 -L /usr/aarch64-linux-gnu");
        command
    };
    let mut command = test();
    command.args(["--package", "libggml", "--lib"]).args(CORE.iter().flat_map(|name| ["--test", name])).arg("--");
    check(command.args(PROCESSES.iter().flat_map(|name| ["--skip", name])))?;
    check(test().args(["--package", "libggml", "--test", "ops", "--"]).args(OPERATIONS))?;
    for (processor, sets, tests) in PROCESSORS {
        kernels(&mut test(), processor, sets, tests)?;
    }
    Ok("passed")
}

/// Runs the tests of the example `kernels` on a processor, which should have these sets: what is not there is not tested.
#[expect(clippy::print_stdout, reason = "the chore's progress")]
fn kernels(test: &mut Command, processor: &str, sets: &str, tests: &[&str]) -> Result<()> {
    println!("kernels on {processor}: {sets}");
    test.env(RUNNER, format!("qemu-aarch64 -cpu {processor} -L /usr/aarch64-linux-gnu"));
    // Without optimisation, they take several times as long.
    test.args(["--config", "profile.dev.package.kernels.opt-level=2"]);
    test.args(["--package", "kernels", "--lib", "--", "--show-output"]).args(tests);
    let output = test.stderr(Stdio::inherit()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    ensure!(output.status.success(), "the kernels' tests failed on {processor}");
    let expected = format!("sets: {sets}");
    ensure!(said.lines().any(|line| line == expected), "tests on {processor} should say `{expected}`");
    Ok(())
}

/// Builds the example `hello`, and runs it under wine if that is installed.
#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(super) fn windows(workspace: &Workspace, folder: &Path, target: &str) -> Result<&'static str> {
    // Debian's other MinGW knows no threads.
    let [gcc, gxx] = ["x86_64-w64-mingw32-gcc-posix", "x86_64-w64-mingw32-g++-posix"];
    installed(&[gcc, gxx])?;
    let wine = there("wine");
    let mut command = cargo(workspace, folder, target, if wine { "run" } else { "build" });
    command.args(["--package", "examples", "--example", "hello"]);
    command.env("CC_x86_64_pc_windows_gnu", gcc).env("CXX_x86_64_pc_windows_gnu", gxx);
    command.env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER", gcc);
    if !wine {
        println!("wine is not installed, so the program is not run");
        check(&mut command)?;
        return Ok("built");
    }
    command.env("CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER", "wine");
    command.env("WINEPATH", libraries(folder, gcc)?);
    command.env("WINEPREFIX", folder.join("wine")).env("WINEDEBUG", "-all");
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{}\n{said}", String::from_utf8_lossy(&output.stderr));
    ensure!(said.contains("[11.0, 22.0, 33.0]"), "the program should add two vectors; it printed:\n{said}");
    Ok("passed")
}

/// Debian 12's wine lacks a library from which Rust's takes this function.
const PRNG: &str = "#include <windows.h>\n#include <ntsecapi.h>\n\
    __declspec(dllexport) BOOL ProcessPrng(PBYTE data, SIZE_T size) { return RtlGenRandom(data, (ULONG) size); }\n";

/// Where wine finds the libraries that programs for Windows link: the compiler's, and that which wine lacks.
fn libraries(folder: &Path, gcc: &str) -> Result<String> {
    let own = folder.join("windows");
    fs::create_dir_all(&own)?;
    let source = own.join("prng.c");
    fs::write(&source, PRNG)?;
    let mut compiler = Command::new(gcc);
    check(compiler.arg("-shared").arg(source).arg("-ladvapi32").arg("-o").arg(own.join("bcryptprimitives.dll")))?;
    let mut folders = vec![own];
    for library in ["libstdc++-6.dll", "libwinpthread-1.dll"] {
        let output = Command::new(gcc).arg(format!("-print-file-name={library}")).output()?;
        let file = PathBuf::from(String::from_utf8(output.stdout)?.trim());
        folders.push(file.parent().with_context(|| format!("{gcc} has no {library}"))?.to_owned());
    }
    let folders: Vec<_> = folders.iter().map(|folder| format!("Z:{}", folder.display()).replace('/', "\\")).collect();
    Ok(folders.join(";"))
}

/// cargo for a target.
fn cargo(workspace: &Workspace, folder: &Path, target: &str, subcommand: &str) -> Command {
    let mut command = workspace.cargo(&workspace.root);
    command.args([subcommand, "--locked", "--target", target, "--target-dir"]).arg(folder);
    command
}

fn installed(programs: &[&str]) -> Result<()> {
    let missing: Vec<_> = programs.iter().copied().filter(|program| !there(program)).collect();
    ensure!(missing.is_empty(), "{} not found: `./setup --all` installs what is needed", missing.join(", "));
    Ok(())
}

fn there(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_left_out_under_qemu_exist() {
        let src = Workspace::find().unwrap().root.join("src");
        for path in PROCESSES {
            let (module, name) = path.split_once("::tests::").unwrap();
            let file = src.join(module.replace("::", "/")).with_extension("rs");
            assert!(fs::read_to_string(&file).unwrap().contains(&format!("fn {name}()")), "{path}");
        }
    }
}
