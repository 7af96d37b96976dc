//! The memory for reading a file is bounded by the file's length, whatever the file claims.
//!
//! A separate test binary, because it counts allocations.

#![cfg(test)]

use testkit::counted::Counted;

mod bounds;
mod files;
mod fuzz;

#[global_allocator]
static ALLOCATOR: Counted = Counted;
