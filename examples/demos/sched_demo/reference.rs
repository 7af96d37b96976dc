//! The network's forward pass in plain Rust and double precision, the reference for ggml's logits.
//!
//! Written for readability, not for speed; it shares only the layout of the weights with ggml.
#![expect(
    clippy::indexing_slicing,
    reason = "the loops follow the formulas; `Reference::new` and `logits` have checked every length"
)]

use anyhow::{Result, ensure};
use demos::digits::data::{PIXELS, SIDE};
use demos::digits::model::{KERNEL, Kind, LAYERS, Layer, PADDING, POOL};

/// A layer's weights and biases.
struct Parameters {
    layer: Layer,
    weight: Vec<f32>,
    bias: Vec<f32>,
}

/// The network with its weights.
pub(crate) struct Reference {
    layers: Vec<Parameters>,
}

impl Reference {
    /// Takes each tensor's values, in memory order, from `tensor`, which gets its name.
    ///
    /// # Errors
    /// Those of `tensor`; a tensor has another number of values than the network's.
    pub(crate) fn new(mut tensor: impl FnMut(&str) -> Result<Vec<f32>>) -> Result<Self> {
        let mut get = |name: String, shape: [usize; 4]| -> Result<Vec<f32>> {
            let values = tensor(&name)?;
            let expected: usize = shape.iter().product();
            ensure!(
                values.len() == expected,
                "tensor `{name}` has {} values, but {expected} were expected",
                values.len()
            );
            Ok(values)
        };
        let layers = LAYERS
            .iter()
            .map(|&layer| {
                let weight = get(layer.weight_name(), layer.weight_shape())?;
                let bias = get(layer.bias_name(), layer.bias_shape())?;
                Ok(Parameters { layer, weight, bias })
            })
            .collect::<Result<_>>()?;
        Ok(Self { layers })
    }

    /// The logits of all images, `CLASSES` for each.
    pub(crate) fn logits(&self, images: &[f32]) -> Vec<f64> {
        images.chunks_exact(PIXELS).flat_map(|image| self.logits_of(image)).collect()
    }

    fn logits_of(&self, image: &[f32]) -> Vec<f64> {
        let mut side = SIDE;
        let mut x: Vec<f64> = image.iter().copied().map(f64::from).collect();
        for Parameters { layer, weight, bias } in &self.layers {
            x = match layer.kind {
                Kind::Conv => conv(&x, side, weight, layer.inputs, layer.outputs),
                Kind::Dense => dense(&x, weight),
            };
            add_bias(&mut x, bias);
            if layer.relu {
                for v in &mut x {
                    *v = v.max(0.0);
                }
            }
            if layer.kind == Kind::Conv {
                x = max_pool(&x, side);
                side /= POOL;
            }
        }
        x
    }
}

/// Cross-correlates `inputs` square planes with `outputs` kernels, with zero padding.
fn conv(x: &[f64], side: usize, weight: &[f32], inputs: usize, outputs: usize) -> Vec<f64> {
    let mut y = vec![0.0; outputs * side * side];
    for o in 0..outputs {
        for row in 0..side {
            for column in 0..side {
                let mut sum = 0.0;
                for i in 0..inputs {
                    for ky in 0..KERNEL {
                        for kx in 0..KERNEL {
                            // Both are offset by `PADDING`, so they can't be negative.
                            let (sy, sx) = (row + ky, column + kx);
                            let inside = PADDING..side + PADDING;
                            if inside.contains(&sy) && inside.contains(&sx) {
                                let from = (i * side + sy - PADDING) * side + sx - PADDING;
                                let w = weight[((o * inputs + i) * KERNEL + ky) * KERNEL + kx];
                                sum += x[from] * f64::from(w);
                            }
                        }
                    }
                }
                y[(o * side + row) * side + column] = sum;
            }
        }
    }
    y
}

/// One dot product with `x` for each row of `weight`.
fn dense(x: &[f64], weight: &[f32]) -> Vec<f64> {
    weight.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(&w, &v)| f64::from(w) * v).sum()).collect()
}

/// Adds one bias to each plane (convolution) or value (product).
fn add_bias(y: &mut [f64], bias: &[f32]) {
    let plane = y.len() / bias.len();
    for (values, &b) in y.chunks_exact_mut(plane).zip(bias) {
        for v in values {
            *v += f64::from(b);
        }
    }
}

/// Max pooling with windows of `POOL` by `POOL`.
fn max_pool(x: &[f64], side: usize) -> Vec<f64> {
    let half = side / POOL;
    let mut y = Vec::with_capacity(x.len() / (POOL * POOL));
    for plane in x.chunks_exact(side * side) {
        for row in 0..half {
            for column in 0..half {
                let mut greatest = f64::NEG_INFINITY;
                for dy in 0..POOL {
                    for dx in 0..POOL {
                        greatest = greatest.max(plane[(row * POOL + dy) * side + column * POOL + dx]);
                    }
                }
                y.push(greatest);
            }
        }
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;
    use demos::digits::data::CLASSES;
    use demos::digits::model::tensors;

    /// The kernel is not symmetric: a flipped or transposed one gives other results.
    #[test]
    fn reference_convolution_by_hand() {
        // x:  1 2      kernel: 1 2 3
        //     3 4              4 5 6
        //                      7 8 9
        let kernel = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
        let y = conv(&[1.0, 2.0, 3.0, 4.0], 2, &kernel, 1, 1);
        // The first: 1*5 + 2*6 + 3*8 + 4*9. The second: 1*4 + 2*5 + 3*7 + 4*8. And so on.
        assert_eq!(y, [77.0, 67.0, 47.0, 37.0]);
    }

    #[test]
    fn reference_convolution_sums_over_input_channels() {
        let mut kernels = [0.0; 4 * 9];
        for (kernel, centre) in kernels.chunks_exact_mut(9).zip([1.0, 10.0, 100.0, 1000.0]) {
            kernel[4] = centre;
        }
        // Two planes of one pixel each: output 0 = 2*1 + 3*10, output 1 = 2*100 + 3*1000.
        assert_eq!(conv(&[2.0, 3.0], 1, &kernels, 2, 2), [32.0, 3200.0]);
    }

    #[test]
    fn reference_dense_bias_and_pool_by_hand() {
        assert_eq!(dense(&[1.0, 2.0], &[3.0, 4.0, 5.0, 6.0, 7.0, 8.0]), [11.0, 17.0, 23.0]);
        let mut planes = [1.0, 2.0, 3.0, 4.0];
        add_bias(&mut planes, &[10.0, -10.0]);
        assert_eq!(planes.to_vec(), [11.0, 12.0, -7.0, -6.0]);
        #[rustfmt::skip]
        let plane = [
            1.0, 2.0, -1.0, -2.0,
            4.0, 3.0, -3.0, -4.0,
            0.0, 0.0,  5.0,  6.0,
            0.0, 9.0,  8.0,  7.0,
        ];
        assert_eq!(max_pool(&plane, 4), [4.0, -1.0, 9.0, 8.0]);
    }

    /// Each layer passes on one value, so the logits can be computed by hand.
    #[test]
    fn reference_network_by_hand() {
        let reference = Reference::new(|name| {
            let (_, shape) = tensors().find(|(n, _)| n == name).unwrap();
            let mut values = vec![0.0; shape.iter().product()];
            match name {
                "conv1.weight" => values[9 * 5 + 4] = 2.0, // channel 5 = 2 * image
                "conv1.bias" => values[6] = -1.0,          // channel 6 = ReLU(-1) = 0
                "conv2.weight" => {
                    values[(7 * 16 + 5) * 9 + 4] = 3.0; // channel 7 = 3 * channel 5
                    values[(7 * 16 + 6) * 9 + 4] = 50.0; // + 50 * channel 6 = 0
                }
                "fc1.weight" => values[128 * 9 + 7 * 4 + 1] = 1.0, // value 9 = channel 7, top right
                "fc1.bias" => values[9] = 0.25,
                "fc2.weight" => values[64 * 3 + 9] = -1.0, // logit 3 = -value 9: no ReLU here
                "fc2.bias" => values[8] = 0.5,
                _ => {}
            }
            Ok(values)
        })
        .unwrap();
        let mut images = vec![0.0; 2 * PIXELS];
        images[8 + 6] = 0.5; // first image, row 1, column 6: top right after both pools
        let mut expected = [0.0; 2 * CLASSES];
        expected[3] = -(0.5 * 2.0 * 3.0 + 0.25);
        expected[8] = 0.5;
        expected[CLASSES + 3] = -0.25;
        expected[CLASSES + 8] = 0.5;
        assert_eq!(reference.logits(&images), expected);
    }

    #[test]
    fn reference_refuses_a_tensor_of_another_size() {
        let error = Reference::new(|_| Ok(vec![0.0; 144])).err().unwrap().to_string();
        assert_eq!(error, "tensor `conv1.bias` has 144 values, but 16 were expected");
    }
}
