//! The memory for reading a file is bounded by the file's length, whatever the file claims.
//!
//! A separate test binary, because it counts allocations.

#![cfg(test)]

mod bounds;
mod counting;
mod files;
mod fuzz;
