//! What others have installed.

#![allow(clippy::unwrap_used, clippy::missing_assert_message, reason = "a panic is how a test fails")]

#[path = "../build/backends.rs"]
mod backends;
#[path = "../build/cpu.rs"]
mod cpu;
#[path = "../build/find.rs"]
mod find;
#[path = "../build/input.rs"]
#[allow(dead_code, reason = "the real environment is read by the build script only")]
mod input;
#[path = "../build/macros.rs"]
mod macros;
#[path = "../build/plan.rs"]
#[expect(dead_code, reason = "the plan is another test's")]
mod plan;
#[path = "../build/sdk.rs"]
#[allow(dead_code, reason = "what to install is said where tools are looked for")]
mod sdk;
#[path = "../build/tools.rs"]
#[allow(dead_code, reason = "tools are another test's")]
mod tools;

use std::fs;
use std::path::Path;

use input::Input;
use sdk::Sdk;

const NEEDED: [&str; 2] = ["ggml", "ggml-base"];

/// A folder in which this version of ggml is installed, with these libraries.
fn install(version: &str, libraries: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let config = root.path().join("lib/cmake/ggml");
    fs::create_dir_all(&config).unwrap();
    let text = format!("# a comment\nset(PACKAGE_VERSION \"{version}\")\n");
    fs::write(config.join("ggml-config-version.cmake"), text).unwrap();
    for library in libraries {
        fs::write(root.path().join("lib").join(library), "").unwrap();
    }
    root
}

#[test]
fn an_installed_ggml_of_the_same_version_is_taken() {
    for libraries in
        [["libggml.so", "libggml-base.so"], ["libggml.dylib", "libggml-base.dylib"], ["ggml.lib", "ggml-base.lib"]]
    {
        let root = install("1.2.3", &libraries);
        assert_eq!(find::installed(Some(root.path()), "1.2.3", &NEEDED).unwrap(), root.path());
    }
}

#[test]
fn no_other_ggml_is_taken() {
    let error = |root: &Path, version| find::installed(Some(root), version, &NEEDED).unwrap_err();
    let root = install("1.2.3", &["libggml.so", "libggml-base.so"]);
    let other = error(root.path(), "1.2.4");
    assert!(other.contains("is 1.2.3") && other.contains("1.2.4"), "{other}");
    let none = error(&root.path().join("none"), "1.2.3");
    assert!(none.contains("GGML_SYS_PREFIX") && none.contains("1.2.3"), "{none}");
    let archives = install("1.2.3", &["libggml.a", "libggml-base.a"]);
    assert!(error(archives.path(), "1.2.3").contains("BUILD_SHARED_LIBS"));
    let part = install("1.2.3", &["libggml.so"]);
    assert!(error(part.path(), "1.2.3").contains("ggml-base"));
}

/// Where a person says that a library is, it is looked for, and nowhere else; and a BLAS that is not `OpenBLAS` is none.
#[test]
fn openblas_is_known_by_its_header() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().to_str().unwrap();
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let values = [("OUT_DIR", folder), ("OPENBLAS_DIR", folder), ("TARGET", &host), ("HOST", &host)];
    let get = |name: &str| values.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    let input = Input::read(get, std::iter::empty());
    let find = || find::sdks(&input, &[Sdk::OpenBlas]);
    let missing = (vec![], vec![Sdk::OpenBlas]);
    assert_eq!(find(), missing);
    let include = root.path().join("include/openblas");
    fs::create_dir_all(&include).unwrap();
    fs::write(include.join("cblas.h"), "void cblas_sgemm(void);\n").unwrap();
    assert_eq!(find(), missing, "that of another library");
    fs::write(include.join("cblas.h"), "void openblas_set_num_threads(int);\n").unwrap();
    let told = ("BLAS_INCLUDE_DIRS", include.to_str().unwrap().to_owned());
    assert_eq!(find(), (vec![told], vec![]));
    assert_eq!(find::sdks(&input, &[]), (vec![], vec![]));
}
