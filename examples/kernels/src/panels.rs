//! Rows of what is multiplied and of what products are summed in.

use bytemuck::{Pod, Zeroable};

/// The columns of the product that are computed together; each is a row of ggml's matrix.
pub(super) const WIDTH: usize = 32;

/// A number of each of these columns: a row of a panel, or of the product.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(128))]
pub(super) struct Row(pub(super) [f32; WIDTH]);
