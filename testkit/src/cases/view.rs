//! Looks at memory. Their references are in `tests/ops/view.rs`.

use super::row::Row;

pub(super) fn rows() -> Vec<Row> {
    vec![
        Row::new("reshape", "RESHAPE").call(|c, t| c.reshape(t[0], [4])).learns(),
        Row::new("view", "VIEW").call(|c, t| c.view(t[0], [4], [16; 3], 0)).learns(),
        Row::new("view_1d", "VIEW").call(|c, t| c.view_1d(t[0], 4, 0)),
        Row::new("view_2d", "VIEW").call(|c, t| c.view_2d(t[0], [2, 2], 0)),
        Row::new("view_3d", "VIEW").call(|c, t| c.view_3d(t[0], [2, 2, 1], 0)),
        Row::new("permute", "PERMUTE").call(|c, t| c.permute(t[0], [0, 1, 2, 3])).learns(),
        Row::new("transpose", "TRANSPOSE").call(|c, t| c.transpose(t[0])).learns(),
    ]
}
