//! `vendor/ggml.toml`: the package that contains ggml's sources, and their checksums.

use std::path::Path;

/// The pin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// The package on crates.io.
    pub package: String,
    /// Its exact version.
    pub version: String,
    /// SHA-256 of its `.crate` file.
    pub sha256: String,
    /// ggml's own version.
    pub ggml: String,
    /// SHA-256 of the list of kept files, see [`Sums`](super::tree::Sums).
    pub tree_sha256: String,
    /// Path in the package, path below `vendor/ggml/`.
    pub keep: Vec<(String, String)>,
}

impl Pin {
    /// Reads the pin.
    ///
    /// # Errors
    ///
    /// A readable message if the file is missing or a key is not a string.
    pub fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|e| format!("cannot read the pin {}: {e}", file.display()))?;
        Self::parse(&text).map_err(|e| format!("{}: {e}", file.display()))
    }

    /// Parses the text of a pin.
    ///
    /// # Errors
    ///
    /// Names the key that is missing or not a string.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
        let get = |key: &str| match table.get(key) {
            Some(toml::Value::String(s)) => Ok(s.clone()),
            _ => Err(format!("`{key}` must be there and be a string")),
        };
        let keep = table.get("keep").and_then(toml::Value::as_table).ok_or("`[keep]` must be a table")?;
        let keep = keep
            .iter()
            .map(|(from, to)| match to {
                toml::Value::String(to) => Ok((from.clone(), to.clone())),
                _ => Err(format!("`{from}` in `[keep]` must be a string")),
            })
            .collect::<Result<_, _>>()?;
        Ok(Self {
            package: get("package")?,
            version: get("version")?,
            sha256: get("sha256")?,
            ggml: get("ggml")?,
            tree_sha256: get("tree_sha256")?,
            keep,
        })
    }

    /// `package-version`, in place of the git commit in ggml's own build.
    pub fn origin(&self) -> String {
        format!("{}-{}", self.package, self.version)
    }
}
