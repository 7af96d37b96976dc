//! The programs that the build needs, checked before anything runs, so that one message lists all missing ones.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::sdk::Sdk;

/// A program or library that the build needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    CMake,
    Compiler,
    /// The program that cmake drives.
    Ninja,
    LibClang,
    Sdk(Sdk),
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Self::CMake => "cmake",
            Self::Compiler => "a C and C++ compiler",
            Self::Ninja => "ninja (or make)",
            Self::LibClang => "libclang",
            Self::Sdk(sdk) => sdk.name(),
        }
    }

    /// Its packages for apt, dnf, pacman, brew and winget. `target`: the triple, if it is not this machine's.
    fn packages(self, target: Option<&str>) -> [&'static str; 5] {
        match (self, target) {
            (Self::CMake, _) => ["cmake", "cmake", "cmake", "cmake", "Kitware.CMake"],
            (Self::Compiler, None) => ["g++", "gcc-c++", "gcc", "", "Microsoft.VisualStudio.2022.BuildTools"],
            (Self::Compiler, Some("aarch64-unknown-linux-gnu")) => {
                ["g++-aarch64-linux-gnu", "", "aarch64-linux-gnu-gcc", "", ""]
            }
            (Self::Compiler, Some("x86_64-pc-windows-gnu")) => [
                "g++-mingw-w64-x86-64-posix",
                "mingw64-gcc-c++ mingw64-winpthreads-static",
                "mingw-w64-gcc",
                "mingw-w64",
                "",
            ],
            (Self::Compiler, Some(_)) => ["", "", "", "", ""],
            (Self::Ninja, _) => ["ninja-build", "ninja-build", "ninja", "ninja", "Ninja-build.Ninja"],
            (Self::LibClang, _) => ["libclang-dev", "clang-devel", "clang", "", "LLVM.LLVM"],
            (Self::Sdk(sdk), _) => sdk.packages(),
        }
    }
}

/// A tool that is missing, and what was looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub tool: Tool,
    pub looked_for: String,
}

/// Lists what is missing and how to install it. `target`: the triple, if it is not this machine's.
pub fn message(missing: &[Missing], target: Option<&str>) -> String {
    let names: Vec<_> = missing.iter().map(|m| m.tool.name()).collect();
    let [apt, dnf, pacman, brew, winget] = [0, 1, 2, 3, 4].map(|i| {
        let packages = missing.iter().filter_map(|m| m.tool.packages(target).get(i).copied());
        packages.filter(|p| !p.is_empty()).collect::<Vec<_>>().join(" ")
    });
    let lacks = |tool| missing.iter().any(|m| m.tool == tool);
    // Apple's command line tools include the compiler and libclang.
    let xcode =
        (lacks(Tool::Compiler) && target.is_none() || lacks(Tool::LibClang)).then_some("xcode-select --install");
    let brew = (!brew.is_empty()).then(|| format!("brew install {brew}"));
    let mac: Vec<_> = xcode.map(str::to_owned).into_iter().chain(brew).collect();
    let mut lines = vec![format!("building ggml needs {}, not found here.", names.join(", "))];
    let looked_for = missing.iter().filter(|m| !m.looked_for.is_empty());
    lines.extend(looked_for.map(|m| format!("  Looked for {}: {}", m.tool.name(), m.looked_for)));
    let systems = [
        ("Debian, Ubuntu: sudo apt-get install ", apt),
        ("Fedora:         sudo dnf install ", dnf),
        ("Arch:           sudo pacman -S ", pacman),
        ("macOS:          ", mac.join(" && ")),
        ("Windows:        winget install ", winget),
    ];
    let known: Vec<_> = systems.iter().filter(|(_, what)| !what.is_empty()).collect();
    lines.extend((!known.is_empty()).then(|| "To install:".to_owned()));
    lines.extend(known.iter().map(|(how, what)| format!("  {how}{what}")));
    if let (Some(target), true) = (target, lacks(Tool::Compiler)) {
        let name = target.replace('-', "_");
        lines.push(format!("A C and a C++ compiler for {target}: set CC_{name} and CXX_{name} to them."));
    }
    lines.extend(
        missing.iter().filter_map(|m| if let Tool::Sdk(sdk) = m.tool { Some(sdk.hint().to_owned()) } else { None }),
    );
    if lacks(Tool::LibClang) {
        lines.push("An installed libclang in an unusual place: set LIBCLANG_PATH to its folder.".to_owned());
    }
    if lacks(Tool::CMake) {
        lines.push("An installed cmake that is not in PATH: set CMAKE to it.".to_owned());
    }
    lines.join("\n")
}

/// What to look for.
#[derive(Debug)]
pub struct WantedTool<'a> {
    pub cmake: &'a str,
    /// Whether C is compiled.
    pub compile: bool,
    /// Whether the user chose cmake's generator.
    pub generator: bool,
    /// SDKs that are already known to be missing.
    pub absent: &'a [Sdk],
    /// The target's triple, if it is not this machine's.
    pub target: Option<&'a str>,
}

/// Looks for the tools.
///
/// # Errors
///
/// [`message`].
pub fn check(wanted: &WantedTool<'_>) -> Result<(), String> {
    let mut missing = Vec::new();
    let mut lacks = |tool, looked_for: String| missing.push(Missing { tool, looked_for });
    if wanted.compile {
        if !runs(wanted.cmake) {
            lacks(Tool::CMake, wanted.cmake.to_owned());
        }
        let absent: Vec<_> = [false, true].into_iter().filter_map(absent_compiler).collect();
        if !absent.is_empty() {
            lacks(Tool::Compiler, absent.join(", "));
        }
        if !(wanted.generator || runs("ninja") || runs("make")) {
            lacks(Tool::Ninja, "ninja, make".to_owned());
        }
    }
    if let Err(error) = clang_sys::load() {
        lacks(Tool::LibClang, error);
    }
    missing.extend(wanted.absent.iter().map(|sdk| Missing { tool: Tool::Sdk(*sdk), looked_for: String::new() }));
    if missing.is_empty() { Ok(()) } else { Err(message(&missing, wanted.target)) }
}

/// What was looked for, if the C or C++ compiler is not there.
fn absent_compiler(cpp: bool) -> Option<String> {
    let mut build = cc::Build::new();
    match build.cpp(cpp).cargo_metadata(false).cargo_warnings(false).try_get_compiler() {
        Ok(tool) if runs(tool.path()) => None,
        Ok(tool) => Some(tool.path().display().to_string()),
        Err(error) => Some(error.to_string()),
    }
}

/// Checks that the C++ compiler knows threads, as some builds of MinGW's don't: otherwise cmake fails after a while, in the
/// middle of ggml.
///
/// # Errors
///
/// Names the compiler, and others.
pub fn threads(mut build: cc::Build, folder: &Path) -> Result<(), String> {
    let source = folder.join("threads.cpp");
    let text = "#include <mutex>\n#include <thread>\nstd::mutex mutex;\nvoid wait() { std::this_thread::yield(); }\n";
    fs::write(&source, text).map_err(|e| format!("cannot write {}: {e}", source.display()))?;
    build.cpp(true).std("c++17").out_dir(folder).inherit_rustflags(false);
    build.cargo_metadata(false).cargo_warnings(false).cargo_output(false);
    let tool = build.try_get_compiler().map_err(|e| e.to_string())?;
    build.file(source).try_compile("ggml-sys-threads").map_err(|error| {
        format!(
            "{} compiles no std::mutex and std::thread, which ggml needs: {error}\n\
             MinGW's GCC before 13 has them with POSIX threads only. Debian, Ubuntu: sudo apt-get install \
             g++-mingw-w64-x86-64-posix, and set CC_x86_64_pc_windows_gnu=x86_64-w64-mingw32-gcc-posix and \
             CXX_x86_64_pc_windows_gnu=x86_64-w64-mingw32-g++-posix",
            tool.path().display()
        )
    })
}

/// Whether a program can be started. Its exit status is ignored, since not every compiler knows the flag.
pub fn runs(program: impl AsRef<std::ffi::OsStr>) -> bool {
    Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}
