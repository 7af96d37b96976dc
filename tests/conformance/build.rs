use std::{env, path::PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=GGML_TESTS");
    println!("cargo::rerun-if-changed=src/suite.cpp");
    let tests = PathBuf::from(env::var("GGML_TESTS").expect("GGML_TESTS: the folder of ggml's tests"));
    println!("cargo::rerun-if-changed={}", tests.join("test-backend-ops.cpp").display());
    // Cargo sets it, as ggml-sys is a dependency in Cargo.toml.
    let ggml = env::var("DEP_GGML_INCLUDE").expect("ggml-sys tells where its headers are");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        // An abort of ggml may be an exception, which must pass these functions.
        .flag_if_supported("-fexceptions")
        .opt_level(2)
        .debug(false)
        .warnings(false)
        .include(ggml)
        .include(tests)
        .file("src/suite.cpp")
        .compile("suite");
}
