//! Decides what to build. Pure: the same input gives the same plan on any machine.

use std::path::PathBuf;

use super::backends::{self, Backend, System};
use super::cpu::{self, Cpu, on};
use super::input::Input;
use super::macros;
use super::sdk::{Platform, Sdk};

const HEADERS: &[&str] = &["ggml.h", "ggml-alloc.h", "ggml-backend.h", "ggml-cpu.h", "ggml-opt.h", "gguf.h"];

/// The sources to build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The pinned sources.
    Vendored,
    /// A checkout given by the user.
    Folder(PathBuf),
}

/// How ggml is linked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Linkage {
    /// Static libraries.
    Static,
    /// Shared libraries.
    Shared,
    /// Shared libraries, except for backends, which are loaded at run time.
    Modules,
    /// Existing shared libraries, found by `installed.rs`.
    Installed,
}

/// The build plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub source: Source,
    pub backends: Vec<&'static Backend>,
    pub headers: Vec<&'static str>,
    pub cpu: Cpu,
    /// `None` on docs.rs, which builds bindings only.
    pub compile: Option<Compile>,
}

/// How to compile and link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compile {
    pub build_type: String,
    pub defines: Vec<(&'static str, String)>,
    /// Flags for C and C++: an exception thrown by the abort callback must pass both.
    pub flags: Vec<&'static str>,
    /// In link order: dependents first.
    pub libraries: Vec<&'static str>,
    pub system: Vec<System>,
    /// Whether the linker needs the full file names of static libraries.
    pub verbatim: bool,
    pub linkage: Linkage,
    /// The SDKs that must be installed.
    pub sdks: Vec<Sdk>,
    /// Further search folders of the linker.
    pub search: Vec<String>,
    /// Backends that are built, but removed afterwards.
    pub unusable: Vec<&'static str>,
}

/// The folder of backends that are loaded at run time, below that of the build.
pub const MODULES: &str = "lib/ggml";

impl Plan {
    /// Adapts the plan to the C compiler's macros; returns a warning if something had to be left out.
    pub fn suit(&mut self, macros: &str) -> Option<String> {
        let Some(compile) = &mut self.compile else { return None };
        if compile.linkage == Linkage::Modules {
            // Another variant supports the same processors.
            let lost = macros::loses_tile_configuration(macros);
            compile.unusable = if lost { vec!["libggml-cpu-sapphirerapids"] } else { vec![] };
            return None;
        }
        if self.cpu.native {
            self.cpu.features = macros::features(macros);
        }
        let amx = |name: &str| name.starts_with("amx-") || name.starts_with("GGML_AMX_");
        if !self.cpu.features.iter().any(|feature| amx(feature)) || !macros::loses_tile_configuration(macros) {
            return None;
        }
        self.cpu.features.retain(|feature| !amx(feature));
        for (_, value) in self.cpu.options.iter_mut().filter(|(name, _)| amx(name)) {
            *value = on(false);
        }
        compile.flags.extend(["-mno-amx-tile", "-mno-amx-int8", "-mno-amx-bf16"]);
        Some(
            "this GCC would crash in AMX kernels, so ggml is built without AMX: quantised matrix products are slower. \
             Build with GCC 11.5, 12.4, 13.3, 14 or newer, or with clang (CC and CXX)"
                .to_owned(),
        )
    }
}

const BUILD_TYPES: &[&str] = &["Release", "Debug", "RelWithDebInfo", "MinSizeRel"];

/// Makes the plan.
///
/// # Errors
///
/// An invalid setting, with the valid ones.
pub fn plan(input: &Input) -> Result<Plan, String> {
    let linkage = linkage(input)?;
    let backends = backends::chosen(input, linkage == Linkage::Modules)?;
    let mut headers: Vec<_> = HEADERS.iter().copied().chain(backends.iter().map(|b| b.header)).collect();
    headers.dedup(); // that of CUDA is HIP's
    let cpu = if matches!(linkage, Linkage::Installed) { Cpu::default() } else { cpu::plan(input)? };
    let compile = if input.docs_rs { None } else { Some(compile(input, &backends, linkage)?) };
    let source = input.source_dir.clone().map_or(Source::Vendored, Source::Folder);
    Ok(Plan { source, backends, headers, cpu, compile })
}

/// The linkage that the features select. `system` has priority, then `dynamic-backends`, which implies `dynamic-link`.
fn linkage(input: &Input) -> Result<Linkage, String> {
    if input.feature("system") {
        if input.source_dir.is_some() {
            return Err("the feature `system` links the ggml that is installed, so GGML_SYS_SOURCE_DIR has no meaning"
                .to_owned());
        }
        return Ok(Linkage::Installed);
    }
    Ok(match (input.feature("dynamic_backends"), input.feature("dynamic_link")) {
        (true, _) => Linkage::Modules,
        (false, true) => Linkage::Shared,
        (false, false) => Linkage::Static,
    })
}

fn compile(input: &Input, backends: &[&'static Backend], linkage: Linkage) -> Result<Compile, String> {
    // Always Release: a debug ggml is 10 to 40 times slower, and it is rarely the code being debugged.
    let build_type = input.build_type.as_deref().unwrap_or("Release");
    if !BUILD_TYPES.contains(&build_type) {
        return Err(format!("GGML_SYS_BUILD_TYPE={build_type}: expected one of {}", BUILD_TYPES.join(", ")));
    }
    let openmp = input.feature("openmp");
    let modules = linkage == Linkage::Modules;
    let mut defines = vec![
        ("BUILD_SHARED_LIBS", on(linkage != Linkage::Static)),
        ("GGML_BACKEND_DL", on(modules)),
        ("GGML_CPU_ALL_VARIANTS", on(modules)),
        ("CMAKE_INSTALL_LIBDIR", "lib".to_owned()),
        // Otherwise git would stamp the commit of whatever repository contains the sources.
        ("GIT_EXE", on(false)),
        ("GGML_CPU", on(true)),
        ("GGML_LLAMAFILE", on(true)),
        ("GGML_OPENMP", on(openmp)),
        // Would link libibverbs if it is installed.
        ("GGML_RPC_RDMA", on(false)),
    ];
    defines.extend(backends::defines(input, backends));
    if linkage == Linkage::Shared
        && let Some(folder) = own_folder(input)
    {
        // The libraries find each other in any folder, as long as they stay together.
        defines.push(("CMAKE_INSTALL_RPATH", folder.to_owned()));
    }
    let linked = backends.iter().map(|b| b.library).chain(["ggml-cpu"]).filter(|_| !modules);
    let libraries = ["ggml"].into_iter().chain(linked).chain(["ggml-base"]).collect();
    // An installed ggml is not compiled, and only static libraries need the system's libraries on our link line.
    let installed = matches!(linkage, Linkage::Installed);
    let sdks = if installed { Vec::new() } else { backends::sdks(input, backends) };
    let mut system = system(input, openmp && !installed);
    let mut search = Vec::new();
    if linkage == Linkage::Static {
        system.extend(backends::links(input, backends));
        search.extend(sdks.iter().flat_map(|sdk| sdk.search(input)));
    }
    Ok(Compile {
        build_type: build_type.to_owned(),
        defines,
        flags: if input.env == "msvc" { vec!["/EHsc"] } else { vec!["-fexceptions"] },
        libraries,
        system,
        // On Windows ggml's libraries have no prefix `lib`, and ld does not search for such names.
        verbatim: input.os == "windows" && input.env == "gnu" && linkage == Linkage::Static,
        linkage,
        sdks,
        search,
        unusable: Vec::new(),
    })
}

/// The dynamic linker's token for the folder of the library itself.
fn own_folder(input: &Input) -> Option<&'static str> {
    match Platform::of(input) {
        Platform::Apple => Some("@loader_path"),
        Platform::Unix | Platform::Android => Some("$ORIGIN"),
        Platform::Windows => None,
    }
}

fn system(input: &Input, openmp: bool) -> Vec<System> {
    let mut system = Vec::new();
    if openmp {
        system.push(System::OpenMp);
    }
    match (input.os.as_str(), input.env.as_str()) {
        ("windows", env) => {
            if env == "gnu" {
                system.push(System::Library("stdc++"));
            }
            system.push(System::Library("advapi32"));
        }
        _ if input.vendor == "apple" => {
            system.extend([System::Library("c++"), System::Framework("Accelerate")]);
        }
        ("android", _) => system.extend([System::Library("c++_shared"), System::Library("m")]),
        ("freebsd" | "openbsd", _) => system.extend([System::Library("c++"), System::Library("m")]),
        _ => system.extend([System::Library("stdc++"), System::Library("m")]),
    }
    system
}
