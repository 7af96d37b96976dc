//! Convolutions, in one to three dimensions: what they refuse. What they compute is in the table.

mod columns;
mod direct;
mod product;
mod transposed;

use ggml::ops::ConvOptions;
pub(crate) fn how<const N: usize>(stride: [i32; N], padding: [i32; N], dilation: [i32; N]) -> ConvOptions<N> {
    ConvOptions::new().with_stride(stride).with_padding(padding).with_dilation(dilation)
}

/// Bad values of a parameter, each in every dimension.
fn bad_moves<const N: usize>() -> Vec<ConvOptions<N>> {
    let mut all = Vec::new();
    for axis in 0..N {
        let with = |n: i32, other: i32| {
            let mut values = [other; N];
            values[axis] = n;
            values
        };
        for bad in [0, -1, i32::MIN] {
            all.extend([how(with(bad, 1), [0; N], [1; N]), how([1; N], [0; N], with(bad, 1))]);
        }
        all.extend([-1, i32::MIN, i32::MAX, 1 << 30].map(|bad| how([1; N], with(bad, 0), [1; N])));
    }
    all
}
