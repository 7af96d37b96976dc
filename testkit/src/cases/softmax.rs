//! Softmax and the loss that is made of it. Their references are in `tests/ops/softmax.rs`.

use ggml::ops::SoftMaxOptions;

use super::case::{f32, of};
use super::row::Row;
use super::{F16, F32};

fn soft_max(row: &[f64]) -> Vec<f64> {
    let all: f64 = row.iter().map(|x| x.exp()).sum();
    row.iter().map(|x| x.exp() / all).collect()
}

pub(super) fn rows() -> Vec<Row> {
    let long = [1, 7, 64, 1025];
    let masks =
        long.into_iter().flat_map(|n| [F32, F16].into_iter().flat_map(move |t| [0.0, 8.0].map(|bias| (n, t, bias))));
    let plain = Row::new("soft_max", "SOFT_MAX").all([[37, 1, 1, 1], [67, 5, 3, 2]], |row, ne| {
        row.case([f32(ne)], |c, t| c.soft_max(t[0])).is(|x| x[0].rows(soft_max)).laid(super::PLAIN)
    });
    let plain = plain.all(long, |row, n| row.case([f32([n, 5, 4, 2])], |c, t| c.soft_max(t[0])).must());
    let ext = Row::new("soft_max_ext", "SOFT_MAX")
        .all(masks, |row, (n, mask, bias)| {
            row.case([f32([n, 5, 4, 2]), of(mask, [n, 5])], move |c, t| {
                let how = SoftMaxOptions::new().with_scale(0.125).with_max_bias(bias).with_mask(t[1]);
                c.soft_max_ext(t[0], how)
            })
            .must()
        })
        .case([f32([33, 5, 4, 2]), f32([4])], |c, t| c.soft_max_ext(t[0], SoftMaxOptions::new().with_sinks(t[1])))
        .case([f32([67, 5, 3, 2]), of(F16, [67, 5]), f32([3])], |c, t| {
            let how = SoftMaxOptions::new().with_scale(0.6).with_mask(t[1]).with_max_bias(4.0).with_sinks(t[2]);
            c.soft_max_ext(t[0], how)
        });
    let labels = || f32([70, 9]).within(0.0, 0.1);
    vec![
        plain.in_place("soft_max_inplace", |c, t| c.soft_max_inplace(t[0])).learns(),
        ext.in_place("soft_max_ext_inplace", |c, t| c.soft_max_ext_inplace(t[0], SoftMaxOptions::new())),
        Row::new("soft_max_ext_back", "SOFT_MAX_BACK")
            .case([f32([67, 5, 3, 2]), f32([67, 5, 3, 2]).within(0.0, 0.1)], |c, t| {
                c.soft_max_ext_back(t[0], t[1], 0.5)
            })
            .in_place("soft_max_ext_back_inplace", |c, t| c.soft_max_ext_back_inplace(t[0], t[1], 1.0))
            .no_meta(),
        Row::new("cross_entropy_loss", "CROSS_ENTROPY_LOSS")
            .case([f32([70, 9]), labels()], |c, t| c.cross_entropy_loss(t[0], t[1]))
            .no_meta()
            .learns(),
        Row::new("cross_entropy_loss_back", "CROSS_ENTROPY_LOSS_BACK")
            .case([f32([1]), f32([70, 9]), labels()], |c, t| c.cross_entropy_loss_back(t[0], t[1], t[2]))
            .no_meta(),
    ]
}
