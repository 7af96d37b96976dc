//! The training text: this repository's pages and documentation, or the user's files.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use fastrand::Rng;

/// One in this many bytes, at the end, is held out.
const HELD_OUT: usize = 16;

/// Bytes for training, and held-out bytes for evaluation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    pub(crate) train: Vec<u8>,
    pub(crate) held_out: Vec<u8>,
}

impl Text {
    /// # Errors
    /// A part would have fewer than `least` bytes.
    pub(crate) fn new(mut bytes: Vec<u8>, least: usize) -> Result<Self> {
        let held_out = bytes.split_off(bytes.len() - bytes.len() / HELD_OUT);
        ensure!(held_out.len() >= least, "the text is too short: {} bytes are needed", HELD_OUT * least);
        Ok(Self { train: bytes, held_out })
    }

    /// The pages and the documentation comments of this repository.
    pub(crate) fn shipped(least: usize) -> Result<Self> {
        let root = demos::repository();
        let mut bytes = Vec::new();
        // Generated tables are useless for training.
        let pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/safety.md"];
        for path in pages.iter().map(|page| root.join(page)).filter(|path| path.exists()) {
            bytes.extend(fs::read(path)?);
        }
        for path in sources(&root.join("src"))? {
            let source = fs::read_to_string(path)?;
            for line in source.lines().filter_map(documentation) {
                bytes.extend(line.bytes().chain([b'\n']));
            }
        }
        Self::new(bytes, least)
    }

    /// Reads and concatenates the user's files.
    pub(crate) fn read(paths: &[PathBuf], least: usize) -> Result<Self> {
        let mut bytes = Vec::new();
        for path in paths {
            bytes.extend(fs::read(path).with_context(|| format!("can't read {}", path.display()))?);
        }
        Self::new(bytes, least)
    }

    /// `n` bytes from a random position.
    pub(crate) fn draw(&self, n: usize, rng: &mut Rng) -> &[u8] {
        let first = rng.usize(..=self.train.len().saturating_sub(n));
        self.train.get(first..first + n).unwrap_or(&self.train)
    }
}

/// The Rust files below a folder, sorted by name.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("can't list {}", folder.display()))?;
    let mut entries: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    entries.sort();
    let mut files = Vec::new();
    for path in entries {
        if path.is_dir() {
            files.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(files)
}

/// The text of a documentation comment line; `None` for other lines.
fn documentation(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    Some(text.strip_prefix(' ').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documentation_comments_are_recognised() {
        let lines = ["    /// A list.", "//! # Errors", "///", "// why", "let x = 1; /// no", "//////"];
        let found: Vec<_> = lines.iter().filter_map(|line| documentation(line)).collect();
        assert_eq!(found, ["A list.", "# Errors", "", "///"]);
    }

    #[test]
    fn text_holds_out_its_end() {
        let text = Text::new((0..=255).collect(), 16).unwrap();
        assert!(text.train.ends_with(&[239]) && text.held_out == (240..=255).collect::<Vec<_>>());
        assert_eq!(text.draw(240, &mut Rng::with_seed(1)), text.train);
        assert_eq!(text.draw(239, &mut Rng::with_seed(1)).len(), 239);
        let e = Text::new((0..=255).collect(), 17).unwrap_err().to_string();
        assert!(e.contains("272 bytes are needed"), "{e}");
    }

    #[test]
    fn shipped_text_contains_the_repository() {
        let text = Text::shipped(1 << 13).unwrap();
        let all = String::from_utf8_lossy(&text.train);
        assert!(all.contains("Allocates `graph` on the devices where it will run"), "a line of the library's");
    }
}
