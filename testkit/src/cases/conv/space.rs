//! What convolutions compute, in one to three dimensions.

use ggml::ops::ConvOptions;

use crate::array::Array;

/// Values over up to three dimensions, channels and batches; of a kernel: inputs and outputs.
pub(super) struct Volume<'a> {
    pub(super) size: [usize; 3],
    pub(super) channels: usize,
    data: &'a [f64],
}

impl<'a> Volume<'a> {
    /// The first `dims` dimensions of `array` are space; channels follow.
    pub(super) fn new(array: &'a Array, dims: usize, channels: usize) -> Self {
        let size = std::array::from_fn(|i| if i < dims { array.ne[i] } else { 1 });
        Self { size, channels, data: &array.data }
    }

    pub(super) fn batch(&self) -> usize {
        self.data.len() / self.size.iter().product::<usize>() / self.channels
    }

    /// The element at a position that may be out of bounds.
    pub(super) fn at(&self, place: [i64; 3], channel: usize, batch: usize) -> Option<f64> {
        let [x, y, z] = place.map(|i| usize::try_from(i).unwrap_or(usize::MAX));
        let [w, h, d] = self.size;
        (x < w && y < h && z < d).then(|| self.data[x + w * (y + h * (z + d * (channel + self.channels * batch)))])
    }
}

/// A convolution's options in three dimensions.
pub(super) struct Moves {
    stride: [i64; 3],
    padding: [i64; 3],
    dilation: [i64; 3],
}

impl Moves {
    pub(super) fn of<const N: usize>(how: ConvOptions<N>) -> Self {
        let filled = |values: [i32; N], rest: i64| std::array::from_fn(|i| values.get(i).map_or(rest, |&n| n.into()));
        Self { stride: filled(how.stride, 1), padding: filled(how.padding, 0), dilation: filled(how.dilation, 1) }
    }

    /// The number of output positions.
    pub(super) fn outputs(&self, input: [usize; 3], kernel: [usize; 3]) -> [usize; 3] {
        std::array::from_fn(|i| {
            let (n, k) = (input[i] as i64, kernel[i] as i64);
            let last = n + self.padding[i] - (k - 1) * self.dilation[i] - 1;
            (-self.padding[i]..=last).step_by(self.stride[i] as usize).count()
        })
    }

    pub(super) fn place(&self, output: [usize; 3], kernel: [usize; 3]) -> [i64; 3] {
        std::array::from_fn(|i| {
            output[i] as i64 * self.stride[i] + kernel[i] as i64 * self.dilation[i] - self.padding[i]
        })
    }
}

/// All positions in a volume, the first dimension innermost.
pub(super) fn places([w, h, d]: [usize; 3]) -> impl Iterator<Item = [usize; 3]> {
    (0..w * h * d).map(move |i| [i % w, i / w % h, i / w / h])
}

/// Reference convolution, over space, outputs and batch; `depthwise` uses a kernel per channel.
pub(super) fn convolved(kernel: &Volume<'_>, x: &Volume<'_>, moves: &Moves, depthwise: bool) -> (Vec<f64>, [usize; 3]) {
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

/// Reference: the columns of an image, space before channels, for each position and image.
pub(super) fn columns(kernel: [usize; 3], x: &Volume<'_>, moves: &Moves) -> Vec<f64> {
    let mut all = Vec::new();
    for batch in 0..x.batch() {
        for o in places(moves.outputs(x.size, kernel)) {
            for channel in 0..x.channels {
                all.extend(places(kernel).map(|k| x.at(moves.place(o, k), channel, batch).unwrap_or(0.0)));
            }
        }
    }
    all
}

/// Reference: images whose pixels are the sums over all columns that contain them.
pub(super) fn given_back(
    kernel: [usize; 3],
    size: [usize; 3],
    [channels, batch]: [usize; 2],
    moves: &Moves,
    grad: &[f64],
) -> Vec<f64> {
    let mut image = vec![0.0; size.iter().product::<usize>() * channels * batch];
    // Each pixel's index plus one, in place of its value.
    let numbers: Vec<f64> = (0..image.len()).map(|i| i as f64 + 1.0).collect();
    let of = columns(kernel, &Volume { size, channels, data: &numbers }, moves);
    assert_eq!(of.len(), grad.len());
    for (number, g) in of.into_iter().zip(grad).filter(|(number, _)| *number > 0.0) {
        image[number as usize - 1] += g;
    }
    image
}
