//! The program's commands.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod complete;
pub(crate) mod generate;
pub(crate) mod info;
pub(crate) mod interrupt;
pub(crate) mod options;
pub(crate) mod perplexity;
pub(crate) mod progress;
#[cfg(feature = "rpc")]
pub(crate) mod servers;
