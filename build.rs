//! Passes on what ggml-sys built.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["VERSION", "COMMIT", "BACKENDS", "CPU_FEATURES"] {
        // Cargo runs this script again when ggml-sys changes them.
        let value = std::env::var(format!("DEP_GGML_{name}")).unwrap_or_default();
        println!("cargo::rustc-env=GGML_{name}={value}");
    }
    // The tests and examples of this package, over an installed ggml: other packages' programs are their own business.
    if let Ok(folder) = std::env::var("DEP_GGML_RPATH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
