//! What is measured.

use std::fmt::{self, Display};
use std::str::FromStr;

use anyhow::{Context as _, Error, Result, bail};

#[derive(Debug, Clone, Copy)]
pub(crate) enum Request {
    /// A prompt of so many tokens.
    Prompt(usize),
    /// So many steps of some sequences.
    Steps { n: usize, sequences: usize },
}

impl Request {
    /// How an engine is asked.
    pub(crate) fn line(self) -> String {
        match self {
            Self::Prompt(n) => format!("prompt {n}"),
            Self::Steps { n, sequences } => format!("steps {n} {sequences}"),
        }
    }

    /// The tokens that are computed.
    pub(crate) fn tokens(self) -> f64 {
        match self {
            Self::Prompt(n) => n as f64,
            Self::Steps { n, sequences } => (n * sequences) as f64,
        }
    }

    pub(crate) fn is_of_one_sequence(self) -> bool {
        matches!(self, Self::Steps { sequences: 1, .. })
    }
}

impl Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Prompt(n) => write!(f, "pp{n}"),
            Self::Steps { n, sequences: 1 } => write!(f, "tg{n}"),
            Self::Steps { n, sequences } => write!(f, "tg{n}x{sequences}"),
        }
    }
}

impl FromStr for Request {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if let Some(n) = text.strip_prefix("pp") {
            return Ok(Self::Prompt(n.parse()?));
        }
        let Some(steps) = text.strip_prefix("tg") else { bail!("expected pp512, tg128 or tg32x8") };
        let (n, sequences) = steps.split_once('x').unwrap_or((steps, "1"));
        let [n, sequences] = [n, sequences].map(|n| n.parse().context("a number of steps or sequences"));
        Ok(Self::Steps { n: n?, sequences: sequences? })
    }
}
