//! What reading a file takes of memory is bounded by the file's length, whatever the file says.
//!
//! A test of its own: it counts what is allocated.

#![cfg(test)]

mod bounds;
mod counting;
mod files;
mod fuzz;
