//! Lets the examples find an installed ggml (feature `system`), as the build script of `ggml` does for its own tests.

fn main() {
    println!("cargo::rerun-if-env-changed=DEP_GGML_RPATH");
    if let Ok(folder) = std::env::var("DEP_GGML_RPATH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
