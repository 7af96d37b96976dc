//! Products of matrices.

use ggml::prelude::*;

use super::array::Array;
use super::run::{BF16, F16, F32, Layout, Program};

/// Rows of `a` times rows of `b`; `a` is repeated over the upper dimensions of `b`.
pub(crate) fn product(a: &Array, b: &Array) -> Array {
    let (r2, r3) = (b.ne[2] / a.ne[2], b.ne[3] / a.ne[3]);
    Array::from_fn([a.ne[1], b.ne[1], b.ne[2], b.ne[3]], |[i, j, i2, i3]| {
        (0..a.ne[0]).map(|k| a.at([k, i, i2 / r2, i3 / r3]) * b.at([k, j, i2, i3])).sum()
    })
}

const SHAPES: [([usize; 4], [usize; 4]); 7] = [
    ([32, 5, 1, 1], [32, 7, 1, 1]),
    ([32, 5, 1, 1], [32, 1, 1, 1]),
    ([64, 3, 2, 1], [64, 4, 4, 3]),
    ([64, 1, 2, 3], [64, 9, 2, 3]),
    ([96, 17, 1, 1], [96, 33, 2, 1]),
    ([256, 20, 1, 1], [256, 12, 1, 1]),
    ([7, 5, 1, 2], [7, 3, 3, 2]),
];

/// With the first operand's layout, then the second's: rows side by side, and the first not transposed.
fn check(ta: DType, tb: DType, tolerance: f64) {
    for (seed, (na, nb)) in SHAPES.into_iter().enumerate() {
        if na[0] as i64 % ta.block_size() != 0 {
            continue;
        }
        for (la, lb) in [
            (Layout::PACKED, Layout::PACKED),
            (Layout::PADDED, Layout::SWAPPED),
            (Layout::SWAPPED, Layout::PADDED),
            (Layout::PACKED, Layout::ROWS[3]),
        ] {
            // Padding within a row would break blocks.
            let la = if ta.block_size() > 1 && la.pad != [0; 4] { Layout { pad: [0, 1, 2, 1], ..la } } else { la };
            let a = Array::noise(na, 1.0, seed as u64, F32);
            let a = Array::from_bytes(na, ta, &a.bytes(ta));
            let b = Array::noise(nb, 1.0, seed as u64 + 100, tb);
            let ctx = Context::new();
            let p = Program::new(&ctx);
            let y = ctx.mul_mat(p.laid_out(&a, ta, la), p.laid_out(&b, tb, lb)).unwrap();
            assert_eq!(y.dtype(), F32);
            let scale = (na[0] as f64).sqrt();
            p.run(y).assert_near(
                &product(&a, &b),
                tolerance * scale,
                &format!("{ta} {na:?} {la:?} x {tb} {nb:?} {lb:?}"),
            );
        }
    }
}

#[test]
fn products_of_floats() {
    check(F32, F32, 1e-6);
    // The second operand is rounded to the type of the first.
    check(F16, F32, 1e-3);
    check(BF16, F32, 5e-3);
    check(F16, F16, 1e-3);
    check(BF16, BF16, 5e-3);
    check(F32, BF16, 1e-6);
}

#[test]
fn products_of_quantised_weights() {
    // The second operand is rounded to 8 bits.
    check(DType::Q8_0, F32, 1e-2);
    check(DType::Q4_0, F32, 1e-2);
}

#[test]
fn a_product_with_weights_reads_them_through_views() {
    let data = Array::noise([8, 6, 1, 1], 1.0, 5, F32);
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", F32, data.shape()).unwrap();
    let mut weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    weights.set_bytes("w", &data.bytes(F32)).unwrap();
    let x = Array::noise([4, 3, 1, 1], 1.0, 6, F32);

    let ctx = Context::new();
    let p = Program::new(&ctx);
    // The right half of every second row.
    let part = ctx.view(weights.get("w").unwrap(), [4, 3], [64, 192, 192], 16).unwrap();
    let y = ctx.mul_mat(part, p.input(&x, F32)).unwrap();
    let want = product(&Array::from_fn([4, 3, 1, 1], |[i, j, ..]| data.at([i + 4, 2 * j, 0, 0])), &x);
    p.run(y).assert_near(&want, 1e-5, "half of the weights");
    // Columns as rows, by way of a copy.
    let ctx = Context::new();
    let p = Program::new(&ctx);
    let turned = ctx.cont(ctx.transpose(weights.get("w").unwrap()).unwrap()).unwrap();
    let x = Array::noise([6, 2, 1, 1], 1.0, 7, F32);
    let y = ctx.mul_mat(turned, p.input(&x, F32)).unwrap();
    p.run(y).assert_near(&product(&data.permuted([1, 0, 2, 3]), &x), 1e-5, "the weights transposed");
}
