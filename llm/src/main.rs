//! Language models for the command line.

fn main() {}
