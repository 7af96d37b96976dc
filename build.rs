//! Passes on what ggml-sys built, and makes a `cfg` of each version of ggml since which Rust differs.

/// The versions of ggml since which the library, or a test, needs other code: `cfg(ggml_0_28)` and so on.
const SINCE: &[[u32; 2]] = &[[0, 28]];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["VERSION", "COMMIT", "BACKENDS", "CPU_FEATURES"] {
        // Cargo runs this script again when ggml-sys changes them.
        let value = std::env::var(format!("DEP_GGML_{name}")).unwrap_or_default();
        println!("cargo::rustc-env=GGML_{name}={value}");
    }
    let version = std::env::var("DEP_GGML_VERSION").unwrap_or_default();
    let version: Vec<u32> = version.split('.').take(2).filter_map(|part| part.parse().ok()).collect();
    for since in SINCE {
        let name = format!("ggml_{}_{}", since[0], since[1]);
        println!("cargo::rustc-check-cfg=cfg({name})");
        if version >= since.to_vec() {
            println!("cargo::rustc-cfg={name}");
        }
    }
    // The tests and examples of this package, over an installed ggml: other packages' programs are their own business.
    if let Ok(folder) = std::env::var("DEP_GGML_RPATH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
