//! Everything that the build depends on from outside. No other module reads the environment.

use std::path::PathBuf;

/// The variables that only a person sets; cargo's own need no rerun line.
const SET_BY_PEOPLE: &[&str] = &["DOCS_RS", "GGML_SYS_SOURCE_DIR", "GGML_SYS_BUILD_TYPE", "GGML_SYS_CPU", "CMAKE", "CMAKE_GENERATOR"];

/// The outside, as the plan sees it.
#[derive(Debug, Clone, Default)]
pub struct Input {
    /// Whether docs.rs builds: bindings and no C.
    pub docs_rs: bool,
    /// The target triple and its parts.
    pub target: String,
    pub arch: String,
    pub os: String,
    pub vendor: String,
    pub env: String,
    /// The triple of the machine that builds.
    pub host: String,
    /// The target's processor features as rustc sees them.
    pub target_features: Vec<String>,
    /// rustc's flags, one argument each.
    pub rustflags: Vec<String>,
    /// Cargo features, in lower case and with `_` for `-`.
    pub features: Vec<String>,
    /// `GGML_SYS_SOURCE_DIR`: another checkout of ggml.
    pub source_dir: Option<PathBuf>,
    /// `GGML_SYS_BUILD_TYPE`: CMake's build type.
    pub build_type: Option<String>,
    /// `GGML_SYS_CPU`: the processor to compile for.
    pub cpu: Option<String>,
    /// `CMAKE_GENERATOR`, which then stays the user's business.
    pub generator: Option<String>,
    /// The cmake program.
    pub cmake: String,
    /// The cargo program.
    pub cargo: String,
    /// This crate's folder.
    pub manifest_dir: PathBuf,
    /// Where the build may write.
    pub out_dir: PathBuf,
    /// `CARGO_NET_OFFLINE`.
    pub offline: bool,
}

impl Input {
    /// Reads the process's environment.
    pub fn from_env() -> Self {
        Self::read(|name| std::env::var(name).ok(), std::env::vars().map(|(name, _)| name))
    }

    /// Reads any environment: `get` looks a variable up, `names` lists them all.
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
            source_dir: given("GGML_SYS_SOURCE_DIR").map(PathBuf::from),
            build_type: given("GGML_SYS_BUILD_TYPE"),
            cpu: given("GGML_SYS_CPU"),
            generator: given("CMAKE_GENERATOR"),
            cmake: given("CMAKE").unwrap_or_else(|| "cmake".to_owned()),
            cargo: given("CARGO").unwrap_or_else(|| "cargo".to_owned()),
            manifest_dir: text("CARGO_MANIFEST_DIR").into(),
            out_dir: text("OUT_DIR").into(),
            offline: given("CARGO_NET_OFFLINE").is_some_and(|value| value == "true" || value == "1"),
        }
    }

    /// Whether a cargo feature is on.
    pub fn feature(&self, name: &str) -> bool {
        self.features.iter().any(|feature| feature == name)
    }

    /// The lines that make cargo run the build script again when a person's setting changes.
    pub fn rerun_lines() -> impl Iterator<Item = String> {
        SET_BY_PEOPLE.iter().map(|name| format!("cargo::rerun-if-env-changed={name}"))
    }
}
