//! `vendor/ggml.toml`: the packages that contain ggml's sources, and their checksums.

use std::path::Path;

/// The versions of ggml that can be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pins {
    /// The version that is built if the user names none.
    pub default: String,
    pub all: Vec<Pin>,
}

/// One version of ggml and the package that contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// ggml's own version.
    pub ggml: String,
    /// The package on crates.io.
    pub package: String,
    /// Its exact version.
    pub version: String,
    /// SHA-256 of its `.crate` file.
    pub sha256: String,
    /// SHA-256 of the list of kept files, see [`Sums`](super::tree::Sums).
    pub tree_sha256: String,
    /// Path in the package, path below the [folder](Self::folder).
    pub keep: Vec<(String, String)>,
}

impl Pins {
    /// Reads the pins.
    ///
    /// # Errors
    ///
    /// A readable message if the file is missing or a key is not as expected.
    pub fn read(file: &Path) -> Result<Self, String> {
        let text =
            std::fs::read_to_string(file).map_err(|e| format!("cannot read the pins {}: {e}", file.display()))?;
        Self::parse(&text).map_err(|e| format!("{}: {e}", file.display()))
    }

    /// Parses the text of the pins.
    ///
    /// # Errors
    ///
    /// Names the key that is missing or not a string, or says that the default is not pinned.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
        let keep = table.get("keep").and_then(toml::Value::as_table).ok_or("`[keep]` must be a table")?;
        let keep: Vec<_> =
            keep.keys().map(|from| Ok((from.clone(), string(keep, from)?))).collect::<Result<_, String>>()?;
        let pins = table.get("pin").and_then(toml::Value::as_array).ok_or("there must be a `[[pin]]`")?;
        let pin = |pin: &toml::Value| {
            let table = pin.as_table().ok_or("`[[pin]]` must be a table")?;
            Ok(Pin {
                ggml: string(table, "ggml")?,
                package: string(table, "package")?,
                version: string(table, "version")?,
                sha256: string(table, "sha256")?,
                tree_sha256: string(table, "tree_sha256")?,
                keep: keep.clone(),
            })
        };
        let pins =
            Self { default: string(&table, "default")?, all: pins.iter().map(pin).collect::<Result<_, String>>()? };
        pins.choose(None)?;
        Ok(pins)
    }

    /// The pin of a version of ggml, or the default one.
    ///
    /// # Errors
    ///
    /// Lists the versions that there are.
    pub fn choose(&self, ggml: Option<&str>) -> Result<&Pin, String> {
        let wanted = ggml.unwrap_or(&self.default);
        self.all
            .iter()
            .find(|pin| pin.ggml == wanted)
            .ok_or_else(|| format!("ggml {wanted} is not pinned: expected one of {}", self.versions()))
    }

    /// The versions, for messages.
    pub fn versions(&self) -> String {
        self.all.iter().map(|pin| pin.ggml.as_str()).collect::<Vec<_>>().join(", ")
    }
}

fn string(table: &toml::Table, key: &str) -> Result<String, String> {
    match table.get(key) {
        Some(toml::Value::String(text)) => Ok(text.clone()),
        _ => Err(format!("`{key}` must be there and be a string")),
    }
}

impl Pin {
    /// `package-version`, in place of the git commit in ggml's own build.
    pub fn origin(&self) -> String {
        format!("{}-{}", self.package, self.version)
    }

    /// The name of the folder of its sources.
    pub fn folder(&self) -> String {
        format!("ggml-{}", self.ggml)
    }
}
