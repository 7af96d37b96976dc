//! The message for missing tools.

use build_plan::sdk::{Platform, Sdk};
use build_plan::tools;
use build_plan::tools::Tool::{self, CMake, Compiler, LibClang, Ninja};
use tools::{Missing, WantedTool};

fn message(tools: &[Tool], target: Option<&str>) -> String {
    let missing: Vec<_> =
        tools.iter().map(|tool| Missing { tool: *tool, looked_for: format!("a {tool:?}, in vain") }).collect();
    tools::message(&missing, target)
}

fn check(cmake: &str, compile: bool, absent: &[Sdk]) -> Result<(), String> {
    tools::check(&WantedTool { cmake, compile, generator: true, absent, target: None })
}

/// The line for one system.
fn line(text: &str, system: &str) -> String {
    text.lines().find(|l| l.trim_start().starts_with(system)).map(|l| l.trim().to_owned()).unwrap_or_default()
}

#[test]
fn tools_message_names_everything_that_is_missing() {
    let text = message(&[CMake, Compiler, Ninja, LibClang], None);
    assert!(
        text.starts_with(
            "building ggml needs cmake, a C and C++ compiler, ninja (or make), libclang, not found here.\n"
        ),
        "{text}"
    );
    assert_eq!(line(&text, "Looked for a C and"), "Looked for a C and C++ compiler: a Compiler, in vain");
    assert_eq!(line(&text, "Debian"), "Debian, Ubuntu: sudo apt-get install cmake g++ ninja-build libclang-dev");
    assert_eq!(line(&text, "Fedora"), "Fedora:         sudo dnf install cmake gcc-c++ ninja-build clang-devel");
    assert_eq!(line(&text, "Arch"), "Arch:           sudo pacman -S cmake gcc ninja clang");
    assert_eq!(line(&text, "macOS"), "macOS:          xcode-select --install && brew install cmake ninja");
    let windows = "winget install Kitware.CMake Microsoft.VisualStudio.2022.BuildTools Ninja-build.Ninja LLVM.LLVM";
    assert_eq!(line(&text, "Windows"), format!("Windows:        {windows}"));
}

#[test]
fn tools_message_names_only_what_is_missing() {
    let text = message(&[CMake], None);
    assert_eq!(line(&text, "macOS"), "macOS:          brew install cmake");
    assert!(!text.contains("libclang") && !text.contains("g++"), "{text}");
    let text = message(&[LibClang], None);
    assert!(text.contains("LIBCLANG_PATH") && !text.contains("cmake"), "{text}");
    assert_eq!(line(&text, "macOS"), "macOS:          xcode-select --install");
}

#[test]
fn tools_check_finds_cargo_and_misses_another() {
    assert!(tools::runs("cargo"), "cargo runs this test");
    let error = check("no-such-cmake", true, &[]).unwrap_err();
    assert!(error.contains("needs cmake") && error.contains("\n  Looked for cmake: no-such-cmake\n"), "{error}");
    assert_eq!(check("no-such-cmake", false, &[]), Ok(()), "without C only libclang is needed, and it is here");
}

#[test]
fn tools_message_names_missing_libraries_and_packages() {
    let error = check("no-such-cmake", true, &[Sdk::OpenBlas]).unwrap_err();
    assert!(error.contains("cmake") && error.contains("OpenBLAS (feature `blas`), not found here."), "{error}");
    let text = message(&[CMake, Tool::Sdk(Sdk::OpenBlas)], None);
    assert_eq!(line(&text, "Debian"), "Debian, Ubuntu: sudo apt-get install cmake libopenblas-dev");
    assert_eq!(line(&text, "Fedora"), "Fedora:         sudo dnf install cmake openblas-devel");
    for sdk in [Sdk::OpenBlas, Sdk::Vulkan, Sdk::Cuda, Sdk::Rocm, Sdk::OpenCl] {
        let text = message(&[Tool::Sdk(sdk)], None);
        assert!(text.contains(sdk.name()), "{text}");
        for platform in [Platform::Apple, Platform::Windows, Platform::Android, Platform::Unix] {
            assert!(text.contains(sdk.variable(platform)), "{platform:?}: {text}");
        }
        assert!(!line(&text, "Debian").is_empty(), "{text}");
        assert!(text.lines().all(|l| !l.ends_with("install ")), "systems without packages are left out: {text}");
    }
}

#[test]
fn compilers_for_other_machines_are_named() {
    let text = message(&[Compiler], Some("aarch64-unknown-linux-gnu"));
    assert_eq!(line(&text, "Debian"), "Debian, Ubuntu: sudo apt-get install g++-aarch64-linux-gnu");
    assert!(!text.contains("macOS") && text.contains("CXX_aarch64_unknown_linux_gnu"), "{text}");
    let text = message(&[Compiler], Some("x86_64-pc-windows-gnu"));
    assert_eq!(line(&text, "Debian"), "Debian, Ubuntu: sudo apt-get install g++-mingw-w64-x86-64-posix");
    let text = message(&[Compiler], Some("x86_64-unknown-linux-musl"));
    assert!(text.contains("CC_x86_64_unknown_linux_musl") && !text.contains("To install"), "{text}");
}

#[test]
fn a_compiler_without_threads_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = cc::Build::new();
    build.target(&host).host(&host).opt_level(0);
    assert_eq!(tools::threads(build.clone(), folder.path()), Ok(()), "this machine's has them");
    let error = tools::threads(build.compiler("cmake").clone(), folder.path()).unwrap_err();
    assert!(error.starts_with("cmake compiles no std::mutex") && error.contains("posix"), "{error}");
}
