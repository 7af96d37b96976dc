//! The message for missing tools.

use build_plan::sdk::{Platform, Sdk};
use build_plan::tools;
use build_plan::tools::Tool::{self, CMake, Compiler, LibClang, Ninja};

/// The line for one system.
fn line(text: &str, system: &str) -> String {
    text.lines().find(|l| l.trim_start().starts_with(system)).map(|l| l.trim().to_owned()).unwrap_or_default()
}

#[test]
fn tools_message_names_everything_that_is_missing() {
    let text = tools::message(&[CMake, Compiler, Ninja, LibClang]);
    assert!(
        text.starts_with("building ggml needs cmake, a C and C++ compiler, ninja (or make), libclang, not found here."),
        "{text}"
    );
    assert_eq!(line(&text, "Debian"), "Debian, Ubuntu: sudo apt-get install cmake g++ ninja-build libclang-dev");
    assert_eq!(line(&text, "Fedora"), "Fedora:         sudo dnf install cmake gcc-c++ ninja-build clang-devel");
    assert_eq!(line(&text, "macOS"), "macOS:          xcode-select --install && brew install cmake ninja");
    let windows = "winget install Kitware.CMake Microsoft.VisualStudio.2022.BuildTools Ninja-build.Ninja LLVM.LLVM";
    assert_eq!(line(&text, "Windows"), format!("Windows:        {windows}"));
}

#[test]
fn tools_message_names_only_what_is_missing() {
    let text = tools::message(&[CMake]);
    assert_eq!(line(&text, "macOS"), "macOS:          brew install cmake");
    assert!(!text.contains("libclang") && !text.contains("g++"), "{text}");
    let text = tools::message(&[LibClang]);
    assert!(text.contains("LIBCLANG_PATH") && !text.contains("cmake"), "{text}");
    assert_eq!(line(&text, "macOS"), "macOS:          xcode-select --install");
}

#[test]
fn tools_check_finds_cargo_and_misses_another() {
    assert!(tools::runs("cargo"), "cargo runs this test");
    let error = tools::check("no-such-cmake", true, true, &[]).unwrap_err();
    assert!(error.contains("needs cmake"), "{error}");
    assert_eq!(
        tools::check("no-such-cmake", false, false, &[]),
        Ok(()),
        "without C only libclang is needed, and it is here"
    );
}

#[test]
fn tools_message_names_missing_libraries_and_packages() {
    let error = tools::check("no-such-cmake", true, true, &[Sdk::OpenBlas]).unwrap_err();
    assert!(error.contains("cmake") && error.contains("OpenBLAS (feature `blas`), not found here."), "{error}");
    let text = tools::message(&[CMake, Tool::Sdk(Sdk::OpenBlas)]);
    assert_eq!(line(&text, "Debian"), "Debian, Ubuntu: sudo apt-get install cmake libopenblas-dev");
    assert_eq!(line(&text, "Fedora"), "Fedora:         sudo dnf install cmake openblas-devel");
    for sdk in [Sdk::OpenBlas, Sdk::Vulkan, Sdk::Cuda, Sdk::Rocm, Sdk::OpenCl] {
        let text = tools::message(&[Tool::Sdk(sdk)]);
        assert!(text.contains(sdk.name()), "{text}");
        for platform in [Platform::Apple, Platform::Windows, Platform::Android, Platform::Unix] {
            assert!(text.contains(sdk.variable(platform)), "{platform:?}: {text}");
        }
        assert!(!line(&text, "Debian").is_empty(), "{text}");
        assert!(text.lines().all(|l| !l.ends_with("install ")), "systems without packages are left out: {text}");
    }
}
