//! The modules of this build script that decide and check, as a library for tests and xtask: see ../build-plan/Cargo.toml.
//!
//! The build script doesn't use this file. `main.rs` names the modules itself, with those that act.

#![allow(missing_docs, reason = "a private crate")]
#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "a private crate"
)]

pub mod backends;
pub mod cpu;
pub mod emit;
pub mod enums;
pub mod fetch;
pub mod find;
pub mod input;
pub mod installed;
pub mod macros;
pub mod plan;
pub mod sdk;
pub mod tools;
pub mod version;
