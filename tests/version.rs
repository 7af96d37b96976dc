//! Another ggml of the same library name, found when the program starts: an error from all that can fail.

#![cfg(all(target_os = "linux", any(feature = "dynamic-link", feature = "dynamic-backends")))]
#![cfg(test)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ggml::Registry;
use ggml::cpu::{Numa, numa_init};
use ggml::prelude::*;

/// Set in a process that is to find another ggml: the version that it says it is.
const EXPECTED: &str = "GGML_TEST_OTHER_VERSION";

/// The folder of the shared libraries: cargo lists it for its tests.
fn libraries() -> PathBuf {
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap();
    let has = |folder: &PathBuf| folder.join("libggml-base.so").is_file();
    std::env::split_paths(&path).find(has).expect("cargo names the folder of ggml's libraries")
}

/// The name by which programs ask for the library, and one of the same length for what is behind it.
const SONAME: &str = "libggml-base.so.0";
const REAL: &str = "libggml-real.so.0";

/// A library of ggml's name, that answers as given and leaves all else to the real one.
fn another(folder: &Path, version: &str, commit: &str) {
    let _there_was_none = std::fs::remove_dir_all(folder);
    std::fs::create_dir_all(folder).unwrap();
    // A library is loaded once for each name that it gives itself, so the real one gets another.
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

/// The test of this name, in a process that finds what lies in `folder` first.
fn run(folder: &Path, version: &str) -> Output {
    let usual = std::env::var("LD_LIBRARY_PATH").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "what_can_fail_does", "--nocapture"]).env(EXPECTED, version);
    command.env("LD_LIBRARY_PATH", format!("{}:{usual}", folder.display())).output().unwrap()
}

#[test]
fn another_ggml_is_noticed() {
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

/// What can fail does, with the one error; what can't does no harm. In a process of [`another_ggml_is_noticed`].
#[test]
fn what_can_fail_does() {
    let Ok(expected) = std::env::var(EXPECTED) else { return };
    if expected.is_empty() {
        return assert!(Device::all().is_ok(), "the same ggml behind another library is none other");
    }
    let refused = |what: &str, result: Result<(), Error>| match result {
        Err(error @ Error::Version { .. }) => {
            let text = error.to_string();
            let built = format!("ggml {} ({})", ggml::sys::VERSION, ggml::sys::COMMIT);
            assert!(text.contains(&built) && text.contains(&format!("ggml {expected} ")), "{what}: {text}");
        }
        other => panic!("{what}: {other:?}"),
    };
    // Handles, hence graphs and all that is made of them.
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
