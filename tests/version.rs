//! Another ggml library of the same name is loaded at start: every fallible function must return an error.

#![cfg(all(target_os = "linux", any(feature = "dynamic-link", feature = "dynamic-backends")))]
#![cfg(test)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ggml::Registry;
use ggml::cpu::{Numa, numa_init};
use ggml::prelude::*;

/// Set in a process that loads another ggml: the version which that library reports.
const EXPECTED: &str = "GGML_TEST_OTHER_VERSION";

/// The folder of the shared libraries, from the search path that cargo sets for tests.
fn libraries() -> PathBuf {
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap();
    let has = |folder: &PathBuf| folder.join("libggml-base.so").is_file();
    std::env::split_paths(&path).find(has).expect("cargo names the folder of ggml's libraries")
}

/// The library's soname, and a name of the same length for the real library behind the fake one.
const SONAME: &str = "libggml-base.so.0";
const REAL: &str = "libggml-real.so.0";

/// Creates a library with ggml's name that reports this version and commit, and forwards everything else.
fn another(folder: &Path, version: &str, commit: &str) {
    let _there_was_none = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).unwrap();
    // The dynamic linker loads one library per soname, so the real one gets another soname.
    let mut bytes = std::fs::read(libraries().join(SONAME)).unwrap();
    let at: Vec<_> = (0..bytes.len()).filter(|&i| bytes[i..].starts_with(SONAME.as_bytes())).collect();
    assert!(!at.is_empty(), "the library has this name");
    for i in at {
        bytes[i..i + SONAME.len()].copy_from_slice(REAL.as_bytes());
    }
    let real = folder.join(REAL);
    std::fs::write(&real, bytes).unwrap();
    let source = folder.join("version.c");
    let text = format!(
        "const char * ggml_version(void) {{ return \"{version}\"; }}\n\
         const char * ggml_commit(void) {{ return \"{commit}\"; }}\n"
    );
    std::fs::write(&source, text).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(compiler)
        .args(["-shared", "-fPIC", &format!("-Wl,-soname,{SONAME}"), "-Wl,--no-as-needed", "-o"])
        .arg(folder.join(SONAME))
        .args([&source, &real])
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

/// Runs the test of this name in a process that searches `folder` first.
fn run(folder: &Path, version: &str) -> Output {
    let usual = std::env::var("LD_LIBRARY_PATH").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "fallible_calls_return_the_version_error", "--nocapture"]).env(EXPECTED, version);
    command.env("LD_LIBRARY_PATH", format!("{}:{usual}", folder.display())).output().unwrap()
}

#[test]
fn another_version_of_ggml_is_refused() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("another-ggml");
    let (version, commit) = (ggml::sys::VERSION, ggml::sys::COMMIT);
    for (v, c) in [("0.0.1", commit), (version, "another-commit"), (version, commit)] {
        another(&folder, v, c);
        let expected = if (v, c) == (version, commit) { String::new() } else { format!("{v} ({c})") };
        let output = run(&folder, &expected);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{v} {c}: {}\n{said}", output.status);
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "it was run");
    }
}

/// Fallible functions return this one error; the others do no harm. Runs in a process of
/// [`another_version_of_ggml_is_refused`].
#[test]
fn fallible_calls_return_the_version_error() {
    let Ok(expected) = std::env::var(EXPECTED) else { return };
    if expected.is_empty() {
        return assert!(Device::all().is_ok(), "the same ggml behind another library is none other");
    }
    let refused = |what: &str, result: Result<(), Error>| match result {
        Err(error @ Error::Version { .. }) => {
            let text = error.to_string();
            let built = format!("ggml {} ({})", ggml::sys::VERSION, ggml::sys::COMMIT);
            assert!(text.contains(&built) && text.contains(&format!("with ggml {expected};")), "{what}: {text}");
        }
        other => panic!("{what}: {other:?}"),
    };
    // Without devices there are no graphs, and nothing that is built from them.
    let ctx = Context::new();
    refused("input", ctx.input("x", DType::F32, [4]).map(drop));
    refused("Device::all", Device::all().map(drop));
    refused("Device::cpu", Device::cpu().map(drop));
    refused("Device::best", Device::best().map(drop));
    refused("Registry::all", Registry::all().map(drop));
    refused("Registry::load_all", Registry::load_all().map(drop));
    refused("Backend::cpu", Backend::cpu().map(drop));
    refused("numa_init", numa_init(Numa::Isolate));
    refused("features", ggml::cpu::features().map(drop));
    for t in DType::ALL {
        assert!(t.block_size() > 0 && t.type_size() > 0 && t.is_quantized() == (t.block_size() > 1), "{t}");
        let bytes = vec![0; t.type_size()];
        if *t != DType::F32 {
            refused(t.name(), t.dequantize(&bytes).map(drop));
        }
        refused(t.name(), t.validate_row_data(&bytes).map(drop));
        let _ours_or_theirs = (t.requires_imatrix(), t.row_size(256), DType::from_ftype(7));
    }
    refused("quantize", DType::Q8_0.quantize(&[1.0; 32], 32, None).map(drop));
    assert!(ggml::version() != ggml::sys::VERSION || ggml::commit() != ggml::sys::COMMIT, "what is there can be asked");
}
