//! Convolutions, in one to three dimensions.

mod columns;
mod direct;
mod product;
mod transposed;

use ggml::ops::ConvOptions;
use ggml::prelude::*;

use crate::support::{Array, Lab};

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

/// All combinations of a few strides, paddings and dilations, for kernels of 3, 2 and 1.
fn some_moves<const N: usize>() -> Vec<ConvOptions<N>> {
    let rotated = |values: [i32; 3], by: usize| std::array::from_fn(|i| values[(i + by) % 3]);
    let mut all = vec![ConvOptions::new(), ConvOptions::new().with_padding([1; N])];
    for by in 0..3 {
        all.push(how(rotated([2, 1, 3], by), rotated([0, 2, 1], by), rotated([1, 1, 2], by)));
        all.push(how(rotated([1, 2, 1], by), rotated([3, 1, 2], by), rotated([2, 1, 1], by)));
    }
    all
}

/// Runs a test for each of these options.
fn each<'c, const N: usize>(
    lab: &Lab<'c>,
    moves: Vec<ConvOptions<N>>,
    build: impl Fn(ConvOptions<N>) -> ggml::Result<Tensor<'c>>,
) -> impl Iterator<Item = (ConvOptions<N>, Array)> {
    let outputs: Vec<_> = moves.iter().map(|&how| build(how).unwrap()).collect();
    let results = lab.run_all(&outputs).unwrap();
    moves.into_iter().zip(results)
}

/// Values over up to three dimensions, channels and batches; of a kernel: inputs and outputs.
struct Volume<'a> {
    size: [usize; 3],
    channels: usize,
    data: &'a [f64],
}

impl<'a> Volume<'a> {
    /// The first `dims` dimensions of `array` are space; channels follow.
    fn new(array: &'a Array, dims: usize, channels: usize) -> Self {
        let size = std::array::from_fn(|i| if i < dims { array.ne[i] } else { 1 });
        Self { size, channels, data: &array.data }
    }

    fn batch(&self) -> usize {
        self.data.len() / self.size.iter().product::<usize>() / self.channels
    }

    /// The element at a position that may be out of bounds.
    fn at(&self, place: [i64; 3], channel: usize, batch: usize) -> Option<f64> {
        let [x, y, z] = place.map(|i| usize::try_from(i).unwrap_or(usize::MAX));
        let [w, h, d] = self.size;
        (x < w && y < h && z < d).then(|| self.data[x + w * (y + h * (z + d * (channel + self.channels * batch)))])
    }
}

/// A convolution's options in three dimensions.
struct Moves {
    stride: [i64; 3],
    padding: [i64; 3],
    dilation: [i64; 3],
}

impl Moves {
    fn of<const N: usize>(how: ConvOptions<N>) -> Self {
        let filled = |values: [i32; N], rest: i64| std::array::from_fn(|i| values.get(i).map_or(rest, |&n| n.into()));
        Self { stride: filled(how.stride, 1), padding: filled(how.padding, 0), dilation: filled(how.dilation, 1) }
    }

    /// The number of output positions.
    fn outputs(&self, input: [usize; 3], kernel: [usize; 3]) -> [usize; 3] {
        std::array::from_fn(|i| {
            let (n, k) = (input[i] as i64, kernel[i] as i64);
            let last = n + self.padding[i] - (k - 1) * self.dilation[i] - 1;
            (-self.padding[i]..=last).step_by(self.stride[i] as usize).count()
        })
    }

    fn place(&self, output: [usize; 3], kernel: [usize; 3]) -> [i64; 3] {
        std::array::from_fn(|i| {
            output[i] as i64 * self.stride[i] + kernel[i] as i64 * self.dilation[i] - self.padding[i]
        })
    }
}

/// All positions in a volume, the first dimension innermost.
fn places([w, h, d]: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    (0..w * h * d).map(move |i| [i % w, i / w % h, i / w / h])
}

/// Reference convolution, over space, outputs and batch; `depthwise` uses a kernel per channel.
fn convolved(kernel: &Volume<'_>, x: &Volume<'_>, moves: &Moves, depthwise: bool) -> (Vec<f64>, [usize; 3]) {
    let size = moves.outputs(x.size, kernel.size);
    let mut all = Vec::new();
    for batch in 0..x.batch() {
        for output in 0..kernel.batch() {
            all.extend(places(size).map(|o| {
                let seen = places(kernel.size).map(|k| {
                    let place = moves.place(o, k);
                    let weight = |input| kernel.at(k.map(|i| i as i64), input, output).unwrap();
                    let pixel = |channel| x.at(place, channel, batch).unwrap_or(0.0);
                    if depthwise {
                        return weight(0) * pixel(output);
                    }
                    (0..kernel.channels).map(|c| weight(c) * pixel(c)).sum()
                });
                seen.sum::<f64>()
            }));
        }
    }
    (all, size)
}

/// The types of convolution kernels, with the tolerance of results.
const KERNELS: [(DType, f64); 3] = [(DType::F32, 1e-5), (DType::F16, 5e-3), (DType::BF16, 2e-2)];
