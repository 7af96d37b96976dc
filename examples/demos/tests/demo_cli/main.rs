//! Examples, run as their users run them: `sched_demo`, and those for newcomers.

#![cfg(test)]

mod demo;
mod files;
mod newcomers;
mod runs;
#[cfg(feature = "rpc")]
mod server;
