//! Attention. Its references are in `tests/ops/attention.rs` and `flash.rs`.

use ggml::ops::FlashAttnOptions;
use ggml::prelude::*;

use super::F16;
use super::case::{f32, of};
use super::row::Row;

fn flash_attn_ext() -> Row {
    let lengths = [(256, 1), (256, 7), (512, 64)];
    let sizes = [64, 128].into_iter().flat_map(|size| lengths.map(|(kv, batch)| (size, kv, batch)));
    let cases = sizes.flat_map(|(size, kv, batch)| [F16, DType::Q8_0].map(|dtype| (size, kv, batch, dtype)));
    let row = Row::new("flash_attn_ext", "FLASH_ATTN_EXT")
        .case([f32([64, 9, 4]), of(F16, [64, 32, 2]), of(F16, [64, 32, 2])], |c, t| {
            c.flash_attn_ext(t[0], t[1], t[2], FlashAttnOptions::new(0.125))
        });
    let row = row.near(1e-2).all(cases, |row, (size, kv, batch, dtype)| {
        let keys = || of(dtype, [size, kv, 2]).within(-1.0, 1.0);
        let operands =
            [f32([size, batch, 8]).within(-1.0, 1.0), keys(), keys(), of(F16, [kv, batch]).within(-1.0, 1.0)];
        let row = row.case(operands, move |c, t| {
            let how = FlashAttnOptions::new(1.0 / (size as f32).sqrt()).with_mask(t[3]);
            c.flash_attn_ext(t[0], t[1], t[2], how)
        });
        if dtype == F16 { row.near(1e-2).must() } else { row.near(1e-2) }
    });
    // Meta devices split it by heads only.
    row
}

pub(super) fn rows() -> Vec<Row> {
    vec![
        flash_attn_ext(),
        Row::new("lightning_indexer", "LIGHTNING_INDEXER")
            .case([f32([128, 4, 6]), of(F16, [128, 1, 20]), f32([4, 6]), of(F16, [20, 6])], |c, t| {
                c.lightning_indexer(t[0], t[1], t[2], t[3])
            })
            .near(1e-2)
            .no_meta(),
        Row::new("get_rel_pos", "GET_REL_POS")
            .case([of(F16, [8, 9])], |c, t| c.get_rel_pos(t[0], 5, 5))
            .no_vulkan()
            .no_meta(),
        Row::new("add_rel_pos", "ADD_REL_POS")
            .call(|c, t| c.add_rel_pos(t[0], t[1], t[2]))
            .in_place("add_rel_pos_inplace", |c, t| c.add_rel_pos_inplace(t[0], t[1], t[2]))
            .no_vulkan(),
        Row::new("dsv4_hc_comb", "DSV4_HC_COMB")
            .case([f32([24, 5]), f32([3]), f32([24])], |c, t| c.dsv4_hc_comb(t[0], t[1], t[2], 1e-6, 4))
            .no_meta(),
        Row::new("dsv4_hc_pre", "DSV4_HC_PRE")
            .case([f32([32, 4, 5]), f32([4, 5])], |c, t| c.dsv4_hc_pre(t[0], t[1]))
            .no_meta(),
        Row::new("dsv4_hc_pre_gated", "").call(|c, t| c.dsv4_hc_pre_gated(t[0], t[1], 1.0)),
        Row::new("dsv4_hc_post", "DSV4_HC_POST")
            .case([f32([32, 5]), f32([32, 4, 5]), f32([4, 5]), f32([4, 4, 5])], |c, t| {
                c.dsv4_hc_post(t[0], t[1], t[2], Some(t[3]))
            })
            .no_meta(),
    ]
}
