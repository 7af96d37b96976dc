//! Random programs over the whole safe API: whatever is asked of it, nothing ends the process, reads beyond a tensor or
//! runs for ever; what fails, fails by a check of this crate's, not by one of ggml's; and what is computed is what a model
//! of each operation computes.
//!
//! Programs run in processes of their own, so that a crash or a hang is told with the seed of the program that did it:
//!
//! - `ABUSE_PROGRAMS`: how many programs;
//! - `ABUSE_SEED`: the seed of a run, instead of a fixed and a random one;
//! - `ABUSE_ONLY`: a kind of attack, for programs of that kind alone (`hostile/`);
//! - `ABUSE_PROGRAM`: the seed of one program, which is run alone, with every step printed.

#![cfg(test)]
#![allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "small numbers, exact results")]
#![allow(clippy::cast_possible_wrap, clippy::cast_sign_loss, reason = "small numbers, exact results")]
#![allow(clippy::float_cmp, reason = "small numbers, exact results")]

mod bench;
mod child;
mod coverage;
mod draw;
mod driver;
mod execute;
mod finish;
mod hostile;
mod learn;
mod leaves;
mod misuse;
mod model;
mod ops;
mod program;
mod remote;
mod results;
mod stats;
mod typed;

use ggml::DType;

/// The numbers that bytes of this type stand for, where that is known.
fn decode_or_none(dtype: DType, bytes: &[u8]) -> Option<Vec<f64>> {
    model::is_followed(dtype).then(|| testkit::encode::decode(dtype, bytes))
}

/// Prints a line, which the test harness does not keep to itself.
fn say(line: std::fmt::Arguments<'_>) {
    use std::io::Write as _;
    let _shown = writeln!(std::io::stderr(), "{line}");
}
