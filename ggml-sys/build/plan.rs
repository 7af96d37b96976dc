//! Decides what to build. Pure: the same input gives the same plan, on any machine.

use std::path::PathBuf;

use super::cpu::{self, Cpu, on};
use super::input::Input;
use super::macros;

/// A backend that a cargo feature adds to the CPU's.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Backend {
    /// The cargo feature and the name in `DEP_GGML_BACKENDS`.
    pub(crate) name: &'static str,
    /// ggml's option for cmake; passed for every backend, so that no default of ggml's decides.
    pub(crate) option: &'static str,
    /// Its public header.
    pub(crate) header: &'static str,
    /// Its static library.
    pub(crate) library: &'static str,
}

/// The backends that can be built. ggml has more; each comes with its own tests.
pub(crate) const BACKENDS: &[Backend] =
    &[Backend { name: "rpc", option: "GGML_RPC", header: "ggml-rpc.h", library: "ggml-rpc" }];

/// ggml's backends that default to on somewhere and are not in [`BACKENDS`].
const OFF: &[&str] = &["GGML_METAL", "GGML_BLAS"];

const HEADERS: &[&str] = &["ggml.h", "ggml-alloc.h", "ggml-backend.h", "ggml-cpu.h", "ggml-opt.h", "gguf.h"];

/// Where the sources are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The pinned ones.
    Vendored,
    /// A checkout that the user named.
    Folder(PathBuf),
}

/// A library that comes with the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum System {
    Library(&'static str),
    Framework(&'static str),
    /// The OpenMP runtime of the C compiler.
    OpenMp,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) source: Source,
    pub(crate) backends: Vec<&'static Backend>,
    pub(crate) headers: Vec<&'static str>,
    pub(crate) cpu: Cpu,
    /// None on docs.rs, which gets bindings only.
    pub(crate) compile: Option<Compile>,
}

/// How to compile and link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Compile {
    pub(crate) build_type: String,
    pub(crate) defines: Vec<(&'static str, String)>,
    /// For C and for C++: an exception thrown by the abort callback has to pass through both.
    pub(crate) flags: Vec<&'static str>,
    /// In link order: who needs comes before who is needed.
    pub(crate) libraries: Vec<&'static str>,
    pub(crate) system: Vec<System>,
    /// Whether the names of static libraries have to be spelled out for the linker.
    pub(crate) verbatim: bool,
    /// Whether backends are libraries of their own, loaded while the program runs: ggml itself is then shared, too.
    pub(crate) dynamic: bool,
    /// Backends that are not to be kept although they are built.
    pub(crate) unusable: Vec<&'static str>,
}

/// Where backends that are loaded while the program runs are installed, below `OUT_DIR`.
pub(crate) const MODULES: &str = "lib/ggml";

impl Plan {
    /// Takes in what the C compiler says of itself, and returns a warning for people where something had to be left out.
    pub(crate) fn suit(&mut self, macros: &str) -> Option<String> {
        let Some(compile) = &mut self.compile else { return None };
        if compile.dynamic {
            // Another variant serves the same processors.
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

/// Decides.
///
/// # Errors
///
/// A setting that makes no sense, with those that do.
pub(crate) fn plan(input: &Input) -> Result<Plan, String> {
    let cpu = cpu::plan(input)?;
    let backends: Vec<_> = BACKENDS.iter().filter(|b| input.feature(b.name)).collect();
    let headers = HEADERS.iter().copied().chain(backends.iter().map(|b| b.header)).collect();
    let compile = if input.docs_rs { None } else { Some(compile(input, &backends)?) };
    let source = input.source_dir.clone().map_or(Source::Vendored, Source::Folder);
    Ok(Plan { source, backends, headers, cpu, compile })
}

fn compile(input: &Input, backends: &[&'static Backend]) -> Result<Compile, String> {
    // Release whatever cargo's profile is: a debug ggml is 10 to 40 times slower, and it is not the code being debugged.
    let build_type = input.build_type.as_deref().unwrap_or("Release");
    if !BUILD_TYPES.contains(&build_type) {
        return Err(format!("GGML_SYS_BUILD_TYPE={build_type}: expected one of {}", BUILD_TYPES.join(", ")));
    }
    let openmp = input.feature("openmp");
    let dynamic = input.feature("dynamic_backends");
    let mut defines = vec![
        ("BUILD_SHARED_LIBS", on(dynamic)),
        ("GGML_BACKEND_DL", on(dynamic)),
        ("GGML_CPU_ALL_VARIANTS", on(dynamic)),
        ("CMAKE_INSTALL_LIBDIR", "lib".to_owned()),
        // Git would stamp the commit of whatever repository the sources happen to lie in.
        ("GIT_EXE", on(false)),
        ("GGML_CPU", on(true)),
        ("GGML_LLAMAFILE", on(true)),
        ("GGML_OPENMP", on(openmp)),
        // Would link libibverbs where that is installed.
        ("GGML_RPC_RDMA", on(false)),
    ];
    defines.extend(BACKENDS.iter().map(|b| (b.option, on(backends.contains(&b)))));
    defines.extend(OFF.iter().map(|option| (*option, on(false))));
    if dynamic {
        defines.push(("GGML_BACKEND_DIR", input.out_dir.join(MODULES).display().to_string()));
    }
    let linked = backends.iter().map(|b| b.library).chain(["ggml-cpu"]).filter(|_| !dynamic);
    let libraries = ["ggml"].into_iter().chain(linked).chain(["ggml-base"]).collect();
    Ok(Compile {
        build_type: build_type.to_owned(),
        defines,
        flags: if input.env == "msvc" { vec!["/EHsc"] } else { vec!["-fexceptions"] },
        libraries,
        system: system(input, backends, openmp),
        // ggml drops the prefix `lib` on Windows, where ld does not look for it without.
        verbatim: input.os == "windows" && input.env == "gnu" && !dynamic,
        dynamic,
        unusable: Vec::new(),
    })
}

fn system(input: &Input, backends: &[&'static Backend], openmp: bool) -> Vec<System> {
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
            if backends.iter().any(|b| b.name == "rpc") {
                system.push(System::Library("ws2_32"));
            }
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
