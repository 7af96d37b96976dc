//! The table of operations. A row is written once, and computed on the CPU (`tests/ops/table.rs`), on another device
//! (`tests/device`, `tests/vulkan`), on a meta device (`tests/meta`), by a server (`tests/rpc_fuzz`) and in random programs
//! (`tests/abuse`); it is refused in closures (`tests/nested.rs`), and its gradient is compared (`tests/opt`).

mod attention;
mod binary;
pub mod case;
mod conv;
mod copy;
pub mod draw;
pub mod each;
mod edges;
mod flash;
mod generate;
mod glu;
mod matmul;
pub mod norm;
mod operand;
mod pool;
mod recurrent;
mod resize;
pub mod rope;
pub mod row;
mod rows;
pub mod softmax;
pub mod unary;
mod view;

use ggml::prelude::*;
pub use row::{LOOKS, Refused, Row};

use crate::layout::Layout;

const F32: DType = DType::F32;
const F16: DType = DType::F16;
const BF16: DType = DType::BF16;
const I32: DType = DType::I32;

const PLAIN: &[Layout] = &[Layout::Plain];
const ROWS: &[Layout] = &Layout::ROWS;
/// Before 0.28, some kernels took plain operands only.
const FLAT: &[Layout] = if cfg!(ggml_0_28) { ROWS } else { PLAIN };

/// Rows whose operations have much in common.
pub type Family = (&'static str, fn() -> Vec<Row>);

/// All rows.
pub const FAMILIES: [Family; 15] = [
    ("attention", attention::rows),
    ("pairs", binary::rows),
    ("convolutions", conv::rows),
    ("copies", copy::rows),
    ("masks", generate::rows),
    ("gates", glu::rows),
    ("products", matmul::rows),
    ("norms", norm::rows),
    ("images", images),
    ("states", recurrent::rows),
    ("positions", rope::rows),
    ("rows", rows::rows),
    ("softmax", softmax::rows),
    ("functions", unary::rows),
    ("views", view::rows),
];

/// All rows.
pub fn rows() -> Vec<Row> {
    let rows: Vec<_> = FAMILIES.iter().flat_map(|(_, family)| family()).collect();
    for (i, row) in rows.iter().enumerate() {
        assert!(rows[..i].iter().all(|other| other.name != row.name), "{} is in the table twice", row.name);
    }
    rows
}

fn images() -> Vec<Row> {
    pool::rows().into_iter().chain(resize::rows()).chain(edges::rows()).collect()
}

/// The row of a builder.
pub fn row(name: &str) -> Row {
    rows().into_iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row of {name}"))
}
