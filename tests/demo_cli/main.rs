//! The example `sched_demo`, run as its users run it.

#![cfg(test)]

mod demo;
mod files;
mod runs;
#[cfg(feature = "rpc")]
mod server;
