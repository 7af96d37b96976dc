//! The programs that the build needs, checked before anything runs, so that one message lists all missing ones.

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

    /// Its packages for apt, dnf, macOS and winget.
    fn packages(self) -> [&'static str; 4] {
        match self {
            Self::CMake => ["cmake", "cmake", "cmake", "Kitware.CMake"],
            Self::Compiler => ["g++", "gcc-c++", "", "Microsoft.VisualStudio.2022.BuildTools"],
            Self::Ninja => ["ninja-build", "ninja-build", "ninja", "Ninja-build.Ninja"],
            Self::LibClang => ["libclang-dev", "clang-devel", "", "LLVM.LLVM"],
            Self::Sdk(sdk) => sdk.packages(),
        }
    }
}

/// Lists what is missing and how to install it.
pub fn message(missing: &[Tool]) -> String {
    let names: Vec<_> = missing.iter().map(|t| t.name()).collect();
    let [apt, dnf, brew, winget] = [0, 1, 2, 3].map(|i| {
        let packages = missing.iter().filter_map(|t| t.packages().get(i).copied()).filter(|p| !p.is_empty());
        packages.collect::<Vec<_>>().join(" ")
    });
    // Apple's command line tools include the compiler and libclang.
    let xcode =
        missing.iter().any(|t| matches!(t, Tool::Compiler | Tool::LibClang)).then_some("xcode-select --install");
    let brew = (!brew.is_empty()).then(|| format!("brew install {brew}"));
    let mac: Vec<_> = xcode.map(str::to_owned).into_iter().chain(brew).collect();
    let mut lines = vec![format!("building ggml needs {}, not found here. To install:", names.join(", "))];
    let systems = [
        ("Debian, Ubuntu: sudo apt-get install ", apt),
        ("Fedora:         sudo dnf install ", dnf),
        ("macOS:          ", mac.join(" && ")),
        ("Windows:        winget install ", winget),
    ];
    lines.extend(systems.iter().filter(|(_, what)| !what.is_empty()).map(|(how, what)| format!("  {how}{what}")));
    lines
        .extend(missing.iter().filter_map(|t| if let Tool::Sdk(sdk) = t { Some(sdk.hint().to_owned()) } else { None }));
    if missing.contains(&Tool::LibClang) {
        lines.push("An installed libclang in an unusual place: set LIBCLANG_PATH to its folder.".to_owned());
    }
    if missing.contains(&Tool::CMake) {
        lines.push("An installed cmake that is not in PATH: set CMAKE to it.".to_owned());
    }
    lines.join("\n")
}

/// Looks for the tools. `compile`: C is compiled; `generator`: the user chose cmake's generator; `absent`: SDKs that
/// are already known to be missing.
///
/// # Errors
///
/// [`message`].
pub fn check(cmake: &str, compile: bool, generator: bool, absent: &[Sdk]) -> Result<(), String> {
    let mut missing = Vec::new();
    if compile {
        if !runs(cmake) {
            missing.push(Tool::CMake);
        }
        if !(compiler(false) && compiler(true)) {
            missing.push(Tool::Compiler);
        }
        if !(generator || runs("ninja") || runs("make")) {
            missing.push(Tool::Ninja);
        }
    }
    if clang_sys::load().is_err() {
        missing.push(Tool::LibClang);
    }
    missing.extend(absent.iter().copied().map(Tool::Sdk));
    if missing.is_empty() { Ok(()) } else { Err(message(&missing)) }
}

fn compiler(cpp: bool) -> bool {
    cc::Build::new()
        .cpp(cpp)
        .cargo_metadata(false)
        .cargo_warnings(false)
        .try_get_compiler()
        .is_ok_and(|tool| runs(tool.path()))
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
