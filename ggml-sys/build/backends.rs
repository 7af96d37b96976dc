//! The optional backends: the cargo feature, cmake options and libraries of each. Pure, no I/O. CONTRIBUTING.md says what else
//! a further one needs.

use super::cpu::on;
use super::input::Input;
use super::sdk::{Platform, Sdk};

/// A library that comes with the system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum System {
    Library(&'static str),
    Framework(&'static str),
    /// The OpenMP runtime of the C compiler.
    OpenMp,
}

/// An optional backend, enabled by a cargo feature.
#[derive(Debug)]
pub struct Backend {
    /// The cargo feature and the name in `DEP_GGML_BACKENDS`.
    pub name: &'static str,
    /// ggml's cmake option; always passed, so that ggml's defaults have no effect.
    pub option: &'static str,
    /// The public header.
    pub header: &'static str,
    /// The static library.
    pub library: &'static str,
    /// Further cmake options if it is enabled.
    options: &'static [(&'static str, &'static str)],
    /// The system libraries that its static library links on a platform; an error names the platforms it supports.
    links: fn(Platform) -> Result<&'static [System], &'static str>,
    /// The SDK that must be installed.
    pub sdk: fn(Platform) -> Option<Sdk>,
}

impl PartialEq for Backend {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Backend {}

impl Platform {
    pub fn of(input: &Input) -> Self {
        match input.os.as_str() {
            _ if input.vendor == "apple" => Self::Apple,
            "windows" => Self::Windows,
            "android" => Self::Android,
            _ => Self::Unix,
        }
    }
}

impl Sdk {
    /// The SDK's default folder, if its variable is not set and it is not in the system's folders.
    fn usual(self, platform: Platform) -> Option<&'static str> {
        match (self, platform) {
            (Self::Cuda, Platform::Unix) => Some("/usr/local/cuda"),
            (Self::Rocm, Platform::Unix) => Some("/opt/rocm"),
            _ => None,
        }
    }

    /// The SDK's library folders, relative to its own folder.
    fn libraries(self, platform: Platform) -> &'static [&'static str] {
        match (self, platform) {
            (Self::Cuda, Platform::Windows) => &["lib/x64"],
            // A build machine may have no driver; the stub defines its symbols.
            (Self::Cuda, _) => &["lib64", "lib64/stubs"],
            (Self::Vulkan, Platform::Windows) => &["Lib"],
            _ => &["lib"],
        }
    }

    /// The SDK's folder.
    pub fn folder(self, input: &Input) -> Option<String> {
        let platform = Platform::of(input);
        input.sdk(self.variable(platform)).or_else(|| self.usual(platform)).map(str::to_owned)
    }

    /// The linker's search folders.
    pub fn search(self, input: &Input) -> impl Iterator<Item = String> {
        let folders = self.libraries(Platform::of(input));
        self.folder(input).into_iter().flat_map(move |root| folders.iter().map(move |sub| format!("{root}/{sub}")))
    }

    /// The cmake defines that pass on the folder set by the user.
    pub fn defines(self, input: &Input) -> Vec<(&'static str, String)> {
        let platform = Platform::of(input);
        let Some(folder) = input.sdk(self.variable(platform)) else { return Vec::new() };
        match self {
            Self::OpenBlas if platform == Platform::Android => {
                // The NDK's toolchain searches only below CMAKE_FIND_ROOT_PATH.
                vec![("CMAKE_FIND_ROOT_PATH", folder.to_owned()), ("CMAKE_PREFIX_PATH", folder.to_owned())]
            }
            Self::OpenBlas => vec![("CMAKE_PREFIX_PATH", folder.to_owned())],
            Self::Cuda => {
                let nvcc = format!("{folder}/bin/nvcc{}", if platform == Platform::Windows { ".exe" } else { "" });
                vec![("CUDAToolkit_ROOT", folder.to_owned()), ("CMAKE_CUDA_COMPILER", nvcc)]
            }
            // ggml or cmake reads the variable itself.
            Self::Vulkan | Self::Rocm | Self::OpenCl => Vec::new(),
        }
    }
}

const CUDA: &[System] = &[System::Library("cudart"), System::Library("cublas"), System::Library("cuda")];
const HIP: &[System] = &[System::Library("amdhip64"), System::Library("hipblas"), System::Library("rocblas")];
const METAL: &[System] = &[System::Framework("Foundation"), System::Framework("Metal"), System::Framework("MetalKit")];

fn desktop(platform: Platform, links: &'static [System]) -> Result<&'static [System], &'static str> {
    if matches!(platform, Platform::Unix | Platform::Windows) { Ok(links) } else { Err("Linux and Windows") }
}

/// The backends, in link order. ggml has more; each is added together with its tests.
pub const BACKENDS: &[Backend] = &[
    Backend {
        name: "rpc",
        option: "GGML_RPC",
        header: "ggml-rpc.h",
        library: "ggml-rpc",
        options: &[],
        links: |platform| Ok(if platform == Platform::Windows { &[System::Library("ws2_32")] } else { &[] }),
        sdk: |_| None,
    },
    Backend {
        name: "blas",
        option: "GGML_BLAS",
        header: "ggml-blas.h",
        library: "ggml-blas",
        options: &[],
        links: |platform| {
            // The CPU kernels already link Accelerate.
            Ok(if platform == Platform::Apple { &[] } else { &[System::Library("openblas")] })
        },
        sdk: |platform| (platform != Platform::Apple).then_some(Sdk::OpenBlas),
    },
    Backend {
        name: "vulkan",
        option: "GGML_VULKAN",
        header: "ggml-vulkan.h",
        library: "ggml-vulkan",
        options: &[],
        links: |platform| {
            Ok(if platform == Platform::Windows {
                &[System::Library("vulkan-1")]
            } else {
                &[System::Library("vulkan")]
            })
        },
        sdk: |_| Some(Sdk::Vulkan),
    },
    Backend {
        name: "cuda",
        option: "GGML_CUDA",
        header: "ggml-cuda.h",
        library: "ggml-cuda",
        options: &[("GGML_CUDA_NCCL", "OFF")],
        links: |platform| desktop(platform, CUDA),
        sdk: |_| Some(Sdk::Cuda),
    },
    Backend {
        name: "hip",
        option: "GGML_HIP",
        header: "ggml-cuda.h",
        library: "ggml-hip",
        options: &[("GGML_HIP_RCCL", "OFF")],
        links: |platform| desktop(platform, HIP),
        sdk: |_| Some(Sdk::Rocm),
    },
    Backend {
        name: "metal",
        option: "GGML_METAL",
        header: "ggml-metal.h",
        library: "ggml-metal",
        options: &[("GGML_METAL_EMBED_LIBRARY", "ON")],
        links: |platform| if platform == Platform::Apple { Ok(METAL) } else { Err("Apple's systems") },
        sdk: |_| None,
    },
    Backend {
        name: "opencl",
        option: "GGML_OPENCL",
        header: "ggml-opencl.h",
        library: "ggml-opencl",
        options: &[("GGML_OPENCL_EMBED_KERNELS", "ON")],
        links: |platform| {
            Ok(if platform == Platform::Apple { &[System::Framework("OpenCL")] } else { &[System::Library("OpenCL")] })
        },
        sdk: |platform| (platform != Platform::Apple).then_some(Sdk::OpenCl),
    },
];

/// The backends that the cargo features enable.
///
/// # Errors
///
/// A backend that the target doesn't support, or two that exclude each other. docs.rs documents all backends.
pub fn chosen(input: &Input, modules: bool) -> Result<Vec<&'static Backend>, String> {
    let chosen: Vec<_> = BACKENDS.iter().filter(|b| input.feature(b.name)).collect();
    if input.docs_rs {
        return Ok(chosen);
    }
    let platform = Platform::of(input);
    for b in &chosen {
        (b.links)(platform)
            .map_err(|targets| format!("the feature `{}` is for {targets}, not for {}", b.name, input.target))?;
    }
    if !modules && ["cuda", "hip"].iter().all(|name| input.feature(name)) {
        return Err("the features `cuda` and `hip` define the same functions: choose one, or add `dynamic-backends`, \
                    which makes each a library of its own"
            .to_owned());
    }
    Ok(chosen)
}

/// `cmake` defines: ON or OFF per backend, plus the options of enabled ones.
pub fn defines(input: &Input, chosen: &[&'static Backend]) -> Vec<(&'static str, String)> {
    let mut defines: Vec<_> = BACKENDS.iter().map(|b| (b.option, on(chosen.contains(&b)))).collect();
    let platform = Platform::of(input);
    for b in chosen {
        defines.extend(b.options.iter().map(|(name, value)| (*name, (*value).to_owned())));
        if b.name == "blas" {
            let vendor = if platform == Platform::Apple { "Apple" } else { "OpenBLAS" };
            defines.push(("GGML_BLAS_VENDOR", vendor.to_owned()));
        }
        if let Some(archs) = input.cuda_architectures.clone().filter(|_| b.name == "cuda") {
            defines.push(("CMAKE_CUDA_ARCHITECTURES", archs));
        }
        if let Some(sdk) = (b.sdk)(platform) {
            defines.extend(sdk.defines(input));
        }
    }
    defines
}

/// The system libraries that static libraries of the backends link.
pub fn links(input: &Input, chosen: &[&'static Backend]) -> Vec<System> {
    let platform = Platform::of(input);
    chosen.iter().filter_map(|b| (b.links)(platform).ok()).flatten().cloned().collect()
}

/// The SDKs that the backends need.
pub fn sdks(input: &Input, chosen: &[&'static Backend]) -> Vec<Sdk> {
    let platform = Platform::of(input);
    chosen.iter().filter_map(|b| (b.sdk)(platform)).collect()
}
