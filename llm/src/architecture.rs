//! The families of models, by name.

use std::fmt;

use crate::error::{Error, Result};
use crate::metadata::{Metadata, shown};

/// A family of models, by the name in `general.architecture`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Architecture {
    /// Llama 1 to 3, Mistral, Mixtral, `SmolLM`.
    Llama,
    /// Qwen 2 and 2.5.
    Qwen2,
    /// Qwen 3.
    Qwen3,
    /// Qwen 3 with experts.
    Qwen3Moe,
    /// Gemma 3.
    Gemma3,
    /// Phi 3 and 4.
    Phi3,
    /// gpt-oss.
    GptOss,
    /// Mamba 2.
    Mamba2,
}

impl Architecture {
    /// All families.
    pub const ALL: &'static [Self] =
        &[Self::Llama, Self::Qwen2, Self::Qwen3, Self::Qwen3Moe, Self::Gemma3, Self::Phi3, Self::GptOss, Self::Mamba2];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Qwen3Moe => "qwen3moe",
            Self::Gemma3 => "gemma3",
            Self::Phi3 => "phi3",
            Self::GptOss => "gpt-oss",
            Self::Mamba2 => "mamba2",
        }
    }

    /// The family of a file.
    pub(crate) fn read(file: &dyn Metadata) -> Result<Self> {
        const KEY: &str = "general.architecture";
        let expected = || Self::ALL.iter().map(|a| a.name()).collect::<Vec<_>>().join(", ").into();
        let value = file.get(KEY).ok_or_else(|| Error::MissingKey { key: KEY.into(), expected: expected() })?;
        let found = Self::ALL.iter().find(|a| value.as_str() == Some(a.name())).copied();
        found.ok_or_else(|| Error::Key { key: KEY.into(), value: shown(value).into(), expected: expected() })
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
