//! Compiles ggml and the shim.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};

use super::input::Input;
use super::plan::{Compile, Linkage, MODULES, Plan};
use super::tools;

/// The folder in which a tree of sources is built, and into which it is installed. Each has its own: cmake's caches and what
/// another build has installed would mix with this one.
pub fn folder(input: &Input, source: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    source.hash(&mut hasher);
    input.out_dir.join(format!("ggml-{:08x}", hasher.finish() >> 32))
}

/// Builds ggml and installs it into `root`.
///
/// # Errors
///
/// Says that cmake failed, and where its output is.
pub fn ggml(input: &Input, plan: &Plan, source: &Path, root: &Path, origin: &str) -> Result<(), String> {
    let Some(compile) = &plan.compile else { return Ok(()) };
    let mut config = cmake::Config::new(input.manifest_dir.join("cmake"));
    config.out_dir(root);
    if matches!(compile.linkage, Linkage::Modules) {
        config.define("GGML_BACKEND_DIR", root.join(MODULES));
    }
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
    // The crate `cmake` panics if cmake fails.
    std::panic::set_hook(Box::new(|_| ()));
    let built = std::panic::catch_unwind(AssertUnwindSafe(|| config.build()));
    drop(std::panic::take_hook());
    built.map(drop).map_err(|payload| {
        let said = payload.downcast_ref::<String>().map_or("", |text| text.lines().next().unwrap_or_default());
        format!(
            "cmake did not build ggml for {}: {said}\nWhat cmake and the compiler say is in this output.",
            input.target
        )
    })
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
