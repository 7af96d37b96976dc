//! The closure of a custom operation is called from several threads at once.

use std::cell::Cell;

use ggml::prelude::*;
use ggml::ops::CustomOptions;

fn main() {
    let ctx = Context::new();
    let calls = Cell::new(0);
    let _y = ctx.custom::<f32>(&[], [1], CustomOptions::new(), move |_, _| calls.set(calls.get() + 1));
}
