//! Everything that the build depends on from outside. No other module reads the environment.

use std::path::PathBuf;

/// The variables that only a person sets; cargo's own need no rerun line.
const SET_BY_PEOPLE: &[&str] = &[
    "DOCS_RS",
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

/// The variables that name folders of others' libraries.
const SDKS: &[&str] = &["OPENBLAS_DIR", "VULKAN_SDK", "CUDA_PATH", "ROCM_PATH", "HIP_PATH", "OCL_ROOT"];

/// The outside, as the plan sees it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Input {
    /// Whether docs.rs builds: bindings and no C.
    pub(crate) docs_rs: bool,
    /// The target triple and its parts.
    pub(crate) target: String,
    pub(crate) arch: String,
    pub(crate) os: String,
    pub(crate) vendor: String,
    pub(crate) env: String,
    /// The triple of the machine that builds.
    pub(crate) host: String,
    /// The target's processor features as rustc sees them.
    pub(crate) target_features: Vec<String>,
    /// rustc's flags, one argument each.
    pub(crate) rustflags: Vec<String>,
    /// Cargo features, in lower case and with `_` for `-`.
    pub(crate) features: Vec<String>,
    /// `GGML_SYS_SOURCE_DIR`: another checkout of ggml.
    pub(crate) source_dir: Option<PathBuf>,
    /// `GGML_SYS_BUILD_TYPE`: the build type for cmake.
    pub(crate) build_type: Option<String>,
    /// `GGML_SYS_CPU`: the processor to compile for.
    pub(crate) cpu: Option<String>,
    /// `GGML_SYS_PREFIX`: where the ggml is installed that the feature `system` links.
    pub(crate) prefix: Option<PathBuf>,
    /// `CMAKE_PREFIX_PATH`: where cmake looks for what is installed, and `system` too.
    pub(crate) prefix_path: Vec<PathBuf>,
    /// `GGML_SYS_CUDA_ARCHITECTURES`: the GPUs that CUDA kernels are compiled for, in cmake's words.
    pub(crate) cuda_architectures: Option<String>,
    /// [`SDKS`] that are set.
    sdks: Vec<(&'static str, String)>,
    /// `CMAKE_GENERATOR`, which then stays the user's business.
    pub(crate) generator: Option<String>,
    /// The cmake program.
    pub(crate) cmake: String,
    /// The cargo program.
    pub(crate) cargo: String,
    /// This crate's folder.
    pub(crate) manifest_dir: PathBuf,
    /// Where the build may write.
    pub(crate) out_dir: PathBuf,
    /// Whether the user keeps cargo off the network.
    pub(crate) offline: bool,
    /// `CARGO_HOME`.
    pub(crate) cargo_home: Option<PathBuf>,
}

impl Input {
    /// Reads the process's environment.
    pub(crate) fn from_env() -> Self {
        let mut input = Self::read(
            |name| std::env::var(name).ok(),
            std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()),
        );
        input.offline |= cargo_runs_offline();
        input
    }

    /// Reads any environment: `get` looks a variable up, `names` lists them all.
    pub(crate) fn read(get: impl Fn(&str) -> Option<String>, names: impl Iterator<Item = String>) -> Self {
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

    /// Whether a cargo feature is on.
    pub(crate) fn feature(&self, name: &str) -> bool {
        self.features.iter().any(|feature| feature == name)
    }

    /// The folder of others' libraries that a variable names.
    pub(crate) fn sdk(&self, variable: &str) -> Option<&str> {
        self.sdks.iter().find(|(name, _)| *name == variable).map(|(_, folder)| folder.as_str())
    }

    /// The lines that make cargo run the build script again when a person's setting changes.
    pub(crate) fn rerun_lines() -> impl Iterator<Item = String> {
        SET_BY_PEOPLE.iter().chain(SDKS).map(|name| format!("cargo::rerun-if-env-changed={name}"))
    }
}

/// Whether the cargo that runs this build script was given `--offline`, which it does not pass on. Known on Linux only;
/// elsewhere a fetch then tries the network and fails or not.
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
