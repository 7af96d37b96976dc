//! The closure of a custom operation lives as long as the context, which may be longer than what it borrows.

use ggml::prelude::*;
use ggml::ops::CustomOptions;

fn main() {
    let ctx = Context::new();
    let factor = 2.0_f32;
    let _y = ctx.custom::<f32>(&[], [1], CustomOptions::new(), |out, _| out.for_each(|(_, row)| row.fill(factor)));
}
