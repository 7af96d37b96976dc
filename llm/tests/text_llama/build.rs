//! Tells the program where the installed ggml is.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(folder) = std::env::var("DEP_GGML_RPATH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
