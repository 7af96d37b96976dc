//! The model that both sides run: a small transformer decoder with a KV cache, so small that overhead is visible.

/// The embedding size.
pub(crate) const WIDTH: i64 = 64;
/// The number of attention heads, and the size of each.
pub(crate) const HEADS: i64 = 2;
pub(crate) const HEAD: i64 = WIDTH / HEADS;
/// The inner size of the feed-forward block.
pub(crate) const INNER: i64 = 96;
/// The number of tokens in the KV cache.
pub(crate) const CONTEXT: i64 = 32;
/// The number of logits.
pub(crate) const WORDS: i64 = 50;
pub(crate) const EPS: f32 = 1e-5;
/// The size of an element in bytes.
pub(crate) const F32: usize = size_of::<f32>();
/// The maximum number of outputs: two cache writes for each layer, and the logits.
pub(crate) const MAX_OUTPUTS: usize = 2 * 320 + 1;

pub(crate) struct Net {
    pub(crate) layers: usize,
    /// Names, shapes and values of the weights: first those of each layer, then the last two.
    pub(crate) weights: Vec<Leaf>,
    /// The key and value caches of each layer.
    pub(crate) caches: Vec<Leaf>,
}

pub(crate) struct Leaf {
    pub(crate) name: String,
    pub(crate) ne: [i64; 2],
    pub(crate) data: Vec<f32>,
}

/// The number of weights per layer.
pub(crate) const PER_LAYER: usize = 9;

impl Net {
    pub(crate) fn new(layers: usize) -> Self {
        let mut state = 1_u32;
        let mut leaf = |name: String, ne: [i64; 2]| {
            let data = (0..ne[0] * ne[1]).map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 16) as f32 / 65536.0 - 0.5
            });
            Leaf { name, ne, data: data.collect() }
        };
        let mut weights = Vec::new();
        let mut caches = Vec::new();
        for l in 0..layers {
            for (name, ne) in [
                ("attn_norm", [WIDTH, 1]),
                ("q", [WIDTH, WIDTH]),
                ("k", [WIDTH, WIDTH]),
                ("v", [WIDTH, WIDTH]),
                ("out", [WIDTH, WIDTH]),
                ("ffn_norm", [WIDTH, 1]),
                ("gate", [WIDTH, INNER]),
                ("up", [WIDTH, INNER]),
                ("down", [INNER, WIDTH]),
            ] {
                weights.push(leaf(format!("blk.{l}.{name}"), ne));
            }
            caches.push(leaf(format!("cache.{l}.k"), [WIDTH * CONTEXT, 1]));
            caches.push(leaf(format!("cache.{l}.v"), [WIDTH * CONTEXT, 1]));
        }
        weights.push(leaf("norm".into(), [WIDTH, 1]));
        weights.push(leaf("head".into(), [WIDTH, WORDS]));
        Self { layers, weights, caches }
    }
}

/// The position of step `i`'s first token in the cache.
pub(crate) fn place(i: usize) -> usize {
    i % (CONTEXT as usize - 2)
}

/// The size of a step.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// How many tokens it computes.
    pub(crate) tokens: usize,
    /// How many positions of the cache it reads.
    pub(crate) past: i64,
}

impl Size {
    /// One token, which reads the whole cache.
    pub(crate) const WHOLE: Self = Self { tokens: 1, past: CONTEXT };

    /// One token and two tokens in turns, as prompts and answers are computed.
    pub(crate) fn in_turns(i: usize) -> Self {
        Self { tokens: 1 + i % 2, ..Self::WHOLE }
    }

    /// How many steps [`Size::growing`] grows.
    pub(crate) const STEPS: usize = CONTEXT as usize - 1;

    /// One token, which reads one position more than the step before.
    pub(crate) fn growing(i: usize) -> Self {
        Self { past: 2 + (i % Self::STEPS) as i64, ..Self::WHOLE }
    }
}

/// The inputs of step `i` with `tokens` tokens: tokens, positions, mask.
#[derive(Default)]
pub(crate) struct Inputs {
    pub(crate) tokens: Vec<f32>,
    pub(crate) positions: Vec<i32>,
    pub(crate) mask: Vec<f32>,
    pub(crate) result: Vec<f32>,
}

impl Inputs {
    pub(crate) fn new(tokens: usize) -> Self {
        let mut this = Self::default();
        this.tokens.resize(tokens * WIDTH as usize, 0.0);
        this.positions.resize(tokens, 0);
        this.mask.resize(tokens * CONTEXT as usize, 0.0);
        this.result.resize(tokens * WORDS as usize, 0.0);
        this
    }

    pub(crate) fn set(&mut self, i: usize) {
        for (n, x) in self.tokens.iter_mut().enumerate() {
            *x = ((i * 7 + n) % 13) as f32 - 6.0;
        }
        for (n, p) in self.positions.iter_mut().enumerate() {
            *p = (place(i) + n) as i32;
        }
        for (n, m) in self.mask.iter_mut().enumerate() {
            let (row, column) = (n / CONTEXT as usize, n % CONTEXT as usize);
            *m = if column <= place(i) + row { 0.0 } else { f32::NEG_INFINITY };
        }
    }
}
