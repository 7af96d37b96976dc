//! Makes the library's `cfg(ggml_0_28)`, for rows of operations that only newer versions of ggml have.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(ggml_0_28)");
    let version = std::env::var("DEP_GGML_VERSION").unwrap_or_default();
    let version: Vec<u32> = version.split('.').take(2).filter_map(|part| part.parse().ok()).collect();
    if version >= vec![0, 28] {
        println!("cargo::rustc-cfg=ggml_0_28");
    }
}
