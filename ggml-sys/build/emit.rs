//! The build script's output: for cargo, for this crate, and for dependent crates.

use std::path::Path;

use super::backends::System;
use super::input::Input;
use super::plan::{Compile, Linkage, MODULES, Plan};
use super::sdk::Platform;

/// Facts that are known after the build.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The folder ggml is installed in.
    pub root: &'a Path,
    pub lib: &'a Path,
    pub include: &'a Path,
    pub version: &'a str,
    pub origin: &'a str,
}

/// The linker lines that follow the shim. ggml's libraries are in `lib`.
pub fn link(lib: &Path, compile: &Compile, openmp: &str) -> Vec<String> {
    let mut lines = vec![format!("cargo::rustc-link-search=native={}", lib.display())];
    lines.extend(compile.search.iter().map(|folder| format!("cargo::rustc-link-search=native={folder}")));
    for library in &compile.libraries {
        lines.push(if compile.linkage != Linkage::Static {
            format!("cargo::rustc-link-lib=dylib={library}")
        } else if compile.verbatim {
            format!("cargo::rustc-link-lib=static:+verbatim={library}.a")
        } else {
            format!("cargo::rustc-link-lib=static={library}")
        });
    }
    lines.extend(compile.system.iter().map(|system| match system {
        System::Library(name) => format!("cargo::rustc-link-lib={name}"),
        System::Framework(name) => format!("cargo::rustc-link-lib=framework={name}"),
        System::OpenMp => format!("cargo::rustc-link-lib={openmp}"),
    }));
    lines
}

/// `DEP_GGML_*` variables for dependent crates.
pub fn metadata(plan: &Plan, facts: &Facts<'_>) -> Vec<String> {
    let mut values = vec![
        ("version", facts.version.to_owned()),
        ("commit", facts.origin.to_owned()),
        ("backends", backends(plan).join(",")),
        ("cpu_features", plan.cpu.features.join(",")),
    ];
    if let Some(compile) = &plan.compile {
        if compile.linkage == Linkage::Modules {
            values.push(("backend_dir", facts.root.join(MODULES).display().to_string()));
        }
        values.extend([
            ("root", facts.root.display().to_string()),
            ("include", facts.include.display().to_string()),
            ("lib", facts.lib.display().to_string()),
            ("cmake_dir", facts.lib.join("cmake/ggml").display().to_string()),
            ("build_type", compile.build_type.clone()),
        ]);
    }
    values.into_iter().map(|(key, value)| format!("cargo::metadata={key}={value}")).collect()
}

/// The rpath of an installed ggml, which the dynamic linker may not find and cargo adds no search path for. Direct
/// dependents get it as metadata; this crate's tests are linked with it.
pub fn rpath(input: &Input, compile: &Compile, lib: &Path) -> Vec<String> {
    if compile.linkage != Linkage::Installed || Platform::of(input) == Platform::Windows {
        return Vec::new();
    }
    let lib = lib.display();
    vec![format!("cargo::metadata=rpath={lib}"), format!("cargo::rustc-link-arg=-Wl,-rpath,{lib}")]
}

/// The text of `config.rs`, which this crate includes.
pub fn config(plan: &Plan, facts: &Facts<'_>) -> String {
    let modules = plan.compile.as_ref().is_some_and(|c| c.linkage == Linkage::Modules);
    let folder = modules.then(|| facts.root.join(MODULES).display().to_string());
    let build_type = plan.compile.as_ref().map_or("", |c| c.build_type.as_str());
    format!(
        "/// The version of ggml that was compiled.\npub const VERSION: &str = {:?};\n\
         /// Where its sources come from.\npub const COMMIT: &str = {:?};\n\
         /// The backends that were compiled.\npub const BACKENDS: &[&str] = &{:?};\n\
         /// The processor features that the CPU kernels rely on, as `std::arch`'s detection macros name them.\n\
         pub const CPU_FEATURES: &[&str] = &{:?};\n\
         /// The build type of the C code, empty where none was compiled.\npub const BUILD_TYPE: &str = {:?};\n\
         /// Where the backends are that a program loads while it runs, if they were built so.\n\
         pub const BACKEND_DIR: Option<&str> = {:?};\n",
        facts.version,
        facts.origin,
        backends(plan),
        plan.cpu.features,
        build_type,
        folder
    )
}

fn backends(plan: &Plan) -> Vec<&'static str> {
    ["cpu"].into_iter().chain(plan.backends.iter().map(|b| b.name)).collect()
}
