//! Rows of what is multiplied and of what products are summed in.

use bytemuck::{Pod, Zeroable};

/// The number of columns per panel.
pub(super) const WIDTH: usize = 32;

/// One row of a panel.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C, align(128))]
pub(super) struct Row(pub(super) [f32; WIDTH]);
