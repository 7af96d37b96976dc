//! Compiles ggml and the shim.

use std::path::Path;

use super::input::Input;
use super::plan::{Compile, Plan};
use super::tools;

/// Builds ggml and installs it into `OUT_DIR`.
pub fn ggml(input: &Input, plan: &Plan, compile: &Compile, source: &Path, origin: &str) {
    let mut config = cmake::Config::new(input.manifest_dir.join("cmake"));
    config.profile(&compile.build_type).define("GGML_SYS_SOURCE", source).define("GGML_BUILD_COMMIT", origin);
    for (name, value) in compile.defines.iter().chain(&plan.cpu.options) {
        config.define(name, value);
    }
    for flag in &compile.flags {
        config.cxxflag(flag);
        // cl lets exceptions pass C frames without a flag, and warns about unknown flags.
        if input.env != "msvc" {
            config.cflag(flag);
        }
    }
    for cpp in [false, true] {
        let mut base = cc::Build::new();
        // `cpu.rs` chooses the kernels' processor; everything else stays at the target's baseline.
        base.cpp(cpp).inherit_rustflags(false);
        if cpp {
            config.init_cxx_cfg(base)
        } else {
            config.init_c_cfg(base)
        };
    }
    if input.generator.is_none() && input.env != "msvc" && tools::runs("ninja") {
        config.generator("Ninja");
    }
    config.build();
}

/// Builds `shim/`, which comes before ggml in link order.
pub fn shim(input: &Input, compile: &Compile, include: &Path) -> Result<(), String> {
    let folder = input.manifest_dir.join("shim");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").include(&folder).include(include).include(include.with_file_name("src"));
    // graph.cpp includes ggml's private header, for one type only.
    build.file(folder.join("guard.cpp")).file(folder.join("graph.cpp")).flag_if_supported("-Wno-unused-function");
    build.inherit_rustflags(false).cpp_link_stdlib(None).cargo_metadata(true);
    for flag in &compile.flags {
        build.flag(flag);
    }
    build.try_compile("ggml-sys-shim").map_err(|e| format!("cannot compile {}: {e}", folder.display()))
}
