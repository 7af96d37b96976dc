//! Compiles llama.cpp from a folder, over an installed ggml, if the feature `sources` asks for that.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "sources")]
    sources::build();
}

#[cfg(feature = "sources")]
mod sources {
    use std::env;
    use std::path::PathBuf;

    /// The folder that a variable names.
    fn folder(variable: &str, what: &str) -> PathBuf {
        println!("cargo::rerun-if-env-changed={variable}");
        env::var_os(variable).unwrap_or_else(|| panic!("{variable}: {what}")).into()
    }

    pub(crate) fn build() {
        let llama = folder("LLAMA_CPP", "the folder of llama.cpp");
        let ggml = folder("GGML_SYS_PREFIX", "the folder that ggml is installed in");
        let parts = ["COMMON", "TESTS", "TOOLS", "EXAMPLES", "SERVER", "APP"];
        let mut config = cmake::Config::new(&llama);
        for part in parts {
            config.define(format!("LLAMA_BUILD_{part}"), "OFF");
        }
        // Without the compiler's optimisation this takes a fraction of the time; ggml is compiled already.
        let built = config
            .define("LLAMA_USE_SYSTEM_GGML", "ON")
            .define("BUILD_SHARED_LIBS", "OFF")
            .define("CMAKE_PREFIX_PATH", &ggml)
            .define("CMAKE_BUILD_TYPE", "None")
            .build_target("llama")
            .build();
        println!("cargo::rustc-link-search=native={}", built.join("build/src").display());
        println!("cargo::rustc-link-search=native={}", ggml.join("lib").display());
        println!("cargo::rustc-link-lib=static=llama");
        for library in ["ggml", "ggml-cpu", "ggml-base", "stdc++"] {
            println!("cargo::rustc-link-lib=dylib={library}");
        }
        let bindings = bindgen::Builder::default()
            .header(llama.join("include/llama.h").display().to_string())
            .clang_arg(format!("-I{}", ggml.join("include").display()))
            .allowlist_item("llama_.*|LLAMA_.*|GGML_TYPE_.*|ggml_backend_dev_t")
            .prepend_enum_name(false)
            .generate()
            .expect("bindgen reads llama.h");
        let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        bindings.write_to_file(out.join("llama.rs")).expect("OUT_DIR can be written");
    }
}
