//! For processors without kernels.

use ggml::{CustomOp, DType};

pub(super) fn operation(_: DType) -> Option<&'static CustomOp<f32>> {
    None
}

/// There are none.
#[derive(Debug)]
pub(crate) enum Panels {}

/// There are none.
#[derive(Debug)]
pub(crate) enum Rows {}

impl Panels {
    pub(crate) fn new(_: DType, _: &[u8], _: usize) -> Option<Self> {
        None
    }

    pub(crate) fn quantise(&self, _: &[&[f32]]) -> Rows {
        match *self {}
    }

    pub(crate) fn multiply(&self, _: &Rows, _: impl FnMut(usize, usize, &[f32])) {
        match *self {}
    }
}
