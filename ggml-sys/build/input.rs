//! All inputs of the build from outside. No other module reads the environment.

use std::path::PathBuf;

/// Variables that users set; cargo's own need no rerun line.
const SET_BY_PEOPLE: &[&str] = &[
    "DOCS_RS",
    "GGML_SYS_GGML",
    "GGML_SYS_SOURCE_DIR",
    "GGML_SYS_BUILD_TYPE",
    "GGML_SYS_CPU",
    "GGML_SYS_PREFIX",
    "GGML_SYS_CUDA_ARCHITECTURES",
    "CMAKE_PREFIX_PATH",
    "PKG_CONFIG_PATH",
    "CMAKE",
    "CMAKE_GENERATOR",
];

/// Variables with the folders of SDKs.
const SDKS: &[&str] = &["OPENBLAS_DIR", "VULKAN_SDK", "CUDA_PATH", "ROCM_PATH", "HIP_PATH", "OCL_ROOT"];

/// The inputs of the plan.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// Whether this is a docs.rs build: bindings, but no C.
    pub docs_rs: bool,
    /// The target triple and its parts.
    pub target: String,
    pub arch: String,
    pub os: String,
    pub vendor: String,
    pub env: String,
    /// The triple of the build machine.
    pub host: String,
    /// The target's processor features, from rustc.
    pub target_features: Vec<String>,
    /// rustc's flags, one entry per argument.
    pub rustflags: Vec<String>,
    /// Enabled cargo features, lower case, with `_` for `-`.
    pub features: Vec<String>,
    /// `GGML_SYS_GGML`: the version of ggml, one of the pinned ones.
    pub ggml: Option<String>,
    /// `GGML_SYS_SOURCE_DIR`: another checkout of ggml.
    pub source_dir: Option<PathBuf>,
    /// `GGML_SYS_BUILD_TYPE`: cmake's build type.
    pub build_type: Option<String>,
    /// `GGML_SYS_CPU`: the processor to compile for.
    pub cpu: Option<String>,
    /// `GGML_SYS_PREFIX`: the folder of the installed ggml that the feature `system` links.
    pub prefix: Option<PathBuf>,
    /// `CMAKE_PREFIX_PATH`: where cmake, and the feature `system`, search for installed libraries.
    pub prefix_path: Vec<PathBuf>,
    /// `GGML_SYS_CUDA_ARCHITECTURES`: the GPU architectures of the CUDA kernels, in cmake's notation.
    pub cuda_architectures: Option<String>,
    /// The [`SDKS`] variables that are set.
    sdks: Vec<(&'static str, String)>,
    /// `CMAKE_GENERATOR`; if set, this build chooses none.
    pub generator: Option<String>,
    /// The cmake program.
    pub cmake: String,
    /// The cargo program.
    pub cargo: String,
    /// This crate's folder.
    pub manifest_dir: PathBuf,
    /// The build's output folder.
    pub out_dir: PathBuf,
    /// Whether cargo must not use the network.
    pub offline: bool,
    /// `CARGO_HOME`.
    pub cargo_home: Option<PathBuf>,
}

impl Input {
    /// Reads the process's environment.
    pub fn from_env() -> Self {
        let mut input = Self::read(
            |name| std::env::var(name).ok(),
            std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()),
        );
        input.offline |= cargo_runs_offline();
        input
    }

    /// Reads an environment: `get` looks up a variable, `names` lists all.
    pub fn read(get: impl Fn(&str) -> Option<String>, names: impl Iterator<Item = String>) -> Self {
        let given = |name: &str| get(name).filter(|value| !value.is_empty());
        let text = |name: &str| get(name).unwrap_or_default();
        let list = |name: &str, separator: char| -> Vec<String> {
            text(name).split(separator).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let mut features: Vec<_> =
            names.filter_map(|name| Some(name.strip_prefix("CARGO_FEATURE_")?.to_ascii_lowercase())).collect();
        features.sort_unstable();
        Self {
            docs_rs: given("DOCS_RS").is_some(),
            target: text("TARGET"),
            arch: text("CARGO_CFG_TARGET_ARCH"),
            os: text("CARGO_CFG_TARGET_OS"),
            vendor: text("CARGO_CFG_TARGET_VENDOR"),
            env: text("CARGO_CFG_TARGET_ENV"),
            host: text("HOST"),
            target_features: list("CARGO_CFG_TARGET_FEATURE", ','),
            rustflags: list("CARGO_ENCODED_RUSTFLAGS", '\x1f'),
            features,
            ggml: given("GGML_SYS_GGML"),
            source_dir: given("GGML_SYS_SOURCE_DIR").map(PathBuf::from),
            build_type: given("GGML_SYS_BUILD_TYPE"),
            cpu: given("GGML_SYS_CPU"),
            prefix: given("GGML_SYS_PREFIX").map(PathBuf::from),
            prefix_path: std::env::split_paths(&text("CMAKE_PREFIX_PATH"))
                .filter(|path| !path.as_os_str().is_empty())
                .collect(),
            cuda_architectures: given("GGML_SYS_CUDA_ARCHITECTURES"),
            sdks: SDKS.iter().filter_map(|name| Some((*name, given(name)?))).collect(),
            generator: given("CMAKE_GENERATOR"),
            cmake: given("CMAKE").unwrap_or_else(|| "cmake".to_owned()),
            cargo: given("CARGO").unwrap_or_else(|| "cargo".to_owned()),
            manifest_dir: text("CARGO_MANIFEST_DIR").into(),
            out_dir: text("OUT_DIR").into(),
            offline: given("CARGO_NET_OFFLINE").is_some_and(|value| value == "true" || value == "1"),
            cargo_home: given("CARGO_HOME").map(PathBuf::from),
        }
    }

    /// Whether a cargo feature is enabled.
    pub fn feature(&self, name: &str) -> bool {
        self.features.iter().any(|feature| feature == name)
    }

    /// The SDK folder that a variable gives.
    pub fn sdk(&self, variable: &str) -> Option<&str> {
        self.sdks.iter().find(|(name, _)| *name == variable).map(|(_, folder)| folder.as_str())
    }

    /// The lines that make cargo rerun the build script when a user's variable changes.
    pub fn rerun_lines() -> impl Iterator<Item = String> {
        SET_BY_PEOPLE.iter().chain(SDKS).map(|name| format!("cargo::rerun-if-env-changed={name}"))
    }
}

/// Whether the outer cargo runs with `--offline`, which it does not pass on. Known on Linux only; elsewhere a fetch
/// tries the network.
fn cargo_runs_offline() -> bool {
    #[cfg(target_os = "linux")]
    {
        let arguments =
            std::fs::read(format!("/proc/{}/cmdline", std::os::unix::process::parent_id())).unwrap_or_default();
        arguments.split(|byte| *byte == 0).any(|argument| argument == b"--offline" || argument == b"--frozen")
    }
    #[cfg(not(target_os = "linux"))]
    false
}
