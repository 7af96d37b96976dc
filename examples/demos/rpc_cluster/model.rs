//! The network: feed-forward blocks of a transformer with a head, with random weights from a seed.

use anyhow::Result;
use fastrand::Rng;
use ggml::{Context, DType, Device, Graph, LeafInfo, Tensor, Weights, WeightsBuilder};

/// The inner size of a block, as a multiple of the width.
const HIDDEN: usize = 4;

/// The number of logits per token.
const CLASSES: usize = 512;

const EPSILON: f32 = 1e-5;

/// The network's dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) layers: usize,
    pub(crate) width: usize,
    pub(crate) tokens: usize,
}

/// The part of the network that a tensor belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Layer(usize),
    Head,
}

/// The network; its weights depend only on its size and the seed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Model {
    pub(crate) size: Size,
    pub(crate) seed: u64,
}

struct Parameter {
    name: String,
    part: Part,
    ne: [usize; 2],
}

impl Model {
    fn parameters(&self) -> Vec<Parameter> {
        let (width, hidden) = (self.size.width, HIDDEN * self.size.width);
        let mut all = Vec::new();
        let mut add = |name: String, part, ne| all.push(Parameter { name, part, ne });
        for i in 0..self.size.layers {
            add(format!("{i}.norm"), Part::Layer(i), [width, 1]);
            add(format!("{i}.gate"), Part::Layer(i), [width, hidden]);
            add(format!("{i}.up"), Part::Layer(i), [width, hidden]);
            add(format!("{i}.down"), Part::Layer(i), [hidden, width]);
        }
        add("head".to_owned(), Part::Head, [width, CLASSES]);
        all
    }

    /// Places the weights on the devices that `device` returns.
    ///
    /// # Errors
    /// If a device has not enough memory, or was lost.
    pub(crate) fn place(&self, mut device: impl FnMut(Part) -> Device) -> Result<Weights> {
        let parameters = self.parameters();
        let mut builder = WeightsBuilder::new();
        for Parameter { name, ne: [n, m], .. } in &parameters {
            builder.tensor(name, DType::F32, [i64::try_from(*n)?, i64::try_from(*m)?])?;
        }
        let cpu = Device::cpu()?;
        let part = |name: &str| parameters.iter().find(|p| p.name == name).map(|p| p.part);
        let mut weights = builder.place(|leaf: &LeafInfo| part(leaf.name()).map_or(cpu, &mut device))?;
        let mut rng = Rng::with_seed(self.seed);
        for Parameter { name, ne: [n, m], .. } in &parameters {
            // Keeps the magnitude of the activations: results are sums of n products.
            #[expect(clippy::cast_precision_loss, reason = "rows are not that long")]
            let scale = (3.0 / *n as f32).sqrt();
            let data: Vec<f32> = (0..n * m).map(|_| scale * (2.0 * rng.f32() - 1.0)).collect();
            weights.set(name, &data)?;
        }
        Ok(weights)
    }

    /// The input of a step.
    pub(crate) fn tokens(&self, step: usize) -> Vec<f32> {
        let mut rng = Rng::with_seed(self.seed ^ (step as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        (0..self.size.width * self.size.tokens).map(|_| 2.0 * rng.f32() - 1.0).collect()
    }
}

/// The graph of one step.
#[derive(Debug)]
pub(crate) struct Step<'c> {
    pub(crate) graph: Graph<'c>,
    pub(crate) tokens: Tensor<'c>,
    pub(crate) logits: Tensor<'c>,
    /// The norm at the start of each part.
    pub(crate) norms: Vec<(Tensor<'c>, Part)>,
}

impl<'c> Step<'c> {
    /// Builds the graph.
    ///
    /// # Errors
    /// If the network is too large for ggml.
    pub(crate) fn new(ctx: &'c Context, size: Size, weights: &'c Weights) -> Result<Self> {
        let tokens = ctx.input("tokens", DType::F32, [i64::try_from(size.width)?, i64::try_from(size.tokens)?])?;
        let (mut x, mut norms) = (tokens, Vec::new());
        for i in 0..size.layers {
            let weight = |name| weights.tensor(&format!("{i}.{name}"));
            let norm = ctx.rms_norm(x, EPSILON)?;
            norms.push((norm, Part::Layer(i)));
            let y = ctx.mul(norm, weight("norm")?)?;
            let y = ctx.swiglu_split(ctx.mul_mat(weight("gate")?, y)?, ctx.mul_mat(weight("up")?, y)?)?;
            x = ctx.add(x, ctx.mul_mat(weight("down")?, y)?)?.named(&format!("{i}.out"))?;
        }
        let norm = ctx.rms_norm(x, EPSILON)?;
        norms.push((norm, Part::Head));
        let logits = ctx.mul_mat(weights.tensor("head")?, norm)?.named("logits")?;
        Ok(Self { graph: ctx.graph([logits])?, tokens, logits, norms })
    }
}
