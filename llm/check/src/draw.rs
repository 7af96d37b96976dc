//! Random models, and random scripts of batches.

use std::fmt;

use fastrand::Rng;
use ggml::DType;
use ggml::gguf::{Array, Value};
use ggml_llm::Architecture;
use ggml_llm::made_up::Recipe;

use llama_reference::{Options, Token};

/// Types of matrices that can be quantised without a matrix of importance.
const TYPES: &[DType] = &[
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::Q8_0,
    DType::Q4_0,
    DType::Q4_1,
    DType::Q5_0,
    DType::Q5_1,
    DType::Q2_K,
    DType::Q3_K,
    DType::Q4_K,
    DType::Q5_K,
    DType::Q6_K,
    DType::IQ4_NL,
    DType::IQ4_XS,
    DType::IQ3_S,
    DType::IQ2_S,
    DType::TQ1_0,
    DType::TQ2_0,
    DType::MXFP4,
];

/// Types of keys and values.
const CACHES: &[DType] =
    &[DType::F32, DType::BF16, DType::Q8_0, DType::Q5_1, DType::Q5_0, DType::Q4_1, DType::Q4_0, DType::IQ4_NL];

/// A model, and what is done with it.
#[derive(Debug, Clone)]
pub struct Draw {
    pub recipe: Recipe,
    pub options: Options,
    pub actions: Vec<Action>,
}

/// What a script does.
#[derive(Debug, Clone)]
pub enum Action {
    Decode(Vec<Token>),
    /// A context shift: of a sequence, after so many tokens, by so many.
    Shift(i32, i32, i32),
    /// Removes a sequence's tokens from a position on.
    Truncate(i32, i32),
    /// Makes so many tokens of the first sequence the beginning of the second, which is empty.
    Share(i32, i32, i32),
}

impl Draw {
    /// Whether an action of this kind is in the script.
    pub fn has(&self, what: impl Fn(&Action) -> bool) -> bool {
        self.actions.iter().any(what)
    }

    /// The value of a key of the architecture, if it was drawn.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.recipe.metadata.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub fn has_experts(&self) -> bool {
        self.value("expert_count").is_some()
    }

    /// Whether some layers may see a window only.
    pub fn has_window(&self) -> bool {
        self.value("attention.sliding_window").and_then(Value::as_u64).is_some_and(|size| size > 0)
    }

    /// How positions are scaled; the usual recipe of gpt-oss has YaRN.
    pub fn scaling(&self) -> &str {
        let usual = if self.recipe.architecture == Architecture::GptOss { "yarn" } else { "linear" };
        self.value("rope.scaling.type").and_then(Value::as_str).unwrap_or(usual)
    }
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { cache, flash, n_seq, repack, n_batch, .. } = self.options;
        let cache = DType::from_id(cache).map_or("unknown", DType::name);
        write!(
            f,
            "{}, cache={cache} flash={flash} sequences={n_seq} batch={n_batch} repack={repack}",
            self.recipe.architecture
        )?;
        for action in &self.actions {
            match action {
                Action::Decode(tokens) => write!(f, " +{}", tokens.len())?,
                Action::Shift(..) => f.write_str(" shift")?,
                Action::Truncate(..) => f.write_str(" truncate")?,
                Action::Share(..) => f.write_str(" share")?,
            }
        }
        Ok(())
    }
}

impl Action {
    pub fn is_shift(&self) -> bool {
        matches!(self, Self::Shift(..))
    }
}

/// Draws by a seed.
pub fn draw(seed: u64) -> Draw {
    let mut rng = Rng::with_seed(seed);
    let model = model(&mut rng);
    let mut recipe = model.recipe;
    recipe.seed = seed;
    let recurrent = recipe.architecture == Architecture::Mamba2;
    let cache = if rng.u8(..3) == 0 { one_of(&mut rng, CACHES) } else { DType::F16 };
    let whole = model.head % u32::try_from(cache.block_size()).unwrap_or(1) == 0;
    let options = Options {
        n_ctx: one_of(&mut rng, &[256, 512]),
        n_batch: one_of(&mut rng, &[8, 17, 32, 64]),
        n_seq: one_of(&mut rng, &[1, 1, 2, 3, 4]),
        threads: 1,
        repack: rng.bool(),
        // Few of those that blocks don't divide: llama.cpp refuses them.
        cache: if recurrent || !whole && rng.u8(..8) > 0 { DType::F16 } else { cache }.id(),
        flash: rng.u8(..24) > 0, // few: the operations are others without
    };
    let actions = script(&mut rng, &recipe, &options);
    Draw { recipe, options, actions }
}

fn one_of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.usize(..all.len())]
}

/// The metadata of a model, and the tensors that it may have.
struct Model {
    recipe: Recipe,
    /// The size of a head.
    head: u32,
}

impl Model {
    fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.recipe.metadata.push((key.into(), value.into()));
    }

    /// Includes each of these tensors or not.
    fn maybe(&mut self, rng: &mut Rng, names: &[&str]) {
        for &name in names {
            self.recipe.optional.retain(|other| other != name);
            if rng.bool() {
                self.recipe.optional.push(name.into());
            }
        }
    }
}

fn model(rng: &mut Rng) -> Model {
    let architecture = one_of(rng, Architecture::ALL);
    let mut model =
        Model { recipe: Recipe::new(architecture), head: one_of(rng, &[8, 16, 24, 32, 40, 64, 80, 96, 128]) };
    let recipe = &mut model.recipe;
    recipe.n_layer = rng.u32(1..5);
    recipe.n_head_kv = rng.u32(1..4);
    recipe.n_head = recipe.n_head_kv * rng.u32(1..4);
    recipe.n_embd = one_of(rng, &[32, 48, 64, 96, 128, 160, 256]);
    recipe.n_ff = one_of(rng, &[32, 40, 64, 96, 160, 256]);
    recipe.n_vocab = rng.u32(17..100);
    recipe.n_ctx = one_of(rng, &[64, 128, 256, 512, 4096]);
    recipe.dtype = if rng.u8(..4) == 0 { DType::F32 } else { DType::F16 };
    recipe.mixed = (0..rng.usize(..5)).map(|_| one_of(rng, TYPES)).collect();
    model.set("attention.layer_norm_rms_epsilon", one_of(rng, &[1e-5_f32, 1e-6, 1e-3]));
    if architecture == Architecture::Mamba2 {
        states(rng, &mut model);
        model.maybe(rng, &["output.weight"]);
        return model;
    }
    heads(rng, &mut model);
    rope(rng, &mut model);
    parts(rng, &mut model);
    model
}

/// Heads as wide as the family lets them be.
fn heads(rng: &mut Rng, model: &mut Model) {
    match model.recipe.architecture {
        // llama.cpp has no others here.
        Architecture::Qwen2 | Architecture::Phi3 => model.recipe.n_embd = model.recipe.n_head * model.head,
        _ => {
            model.set("attention.key_length", model.head);
            let values = if rng.u8(..40) == 0 { 2 * model.head } else { model.head };
            model.set("attention.value_length", values);
        }
    }
}

fn rope(rng: &mut Rng, model: &mut Model) {
    let (architecture, head) = (model.recipe.architecture, model.head);
    // llama.cpp's other families rotate whole heads.
    if matches!(architecture, Architecture::Phi3 | Architecture::Gemma3) && rng.u8(..3) == 0 {
        model.set("rope.dimension_count", 2 * rng.u32(1..head / 2 + 1));
    }
    model.set("rope.freq_base", one_of(rng, &[10_000.0_f32, 150_000.0, 1e6, 500.0]));
    let original = one_of(rng, &[32_u32, 64, 128, 300, 512, 2048]);
    let scaling = one_of(rng, &["", "none", "linear", "yarn", "longrope"]);
    if !scaling.is_empty() {
        model.set("rope.scaling.type", scaling);
        if rng.bool() {
            model.set("rope.scaling.original_context_length", original);
        }
        if rng.bool() {
            model.set("rope.scaling.factor", one_of(rng, &[1.0_f32, 2.0, 4.0, 0.5, 8.5]));
        }
        if rng.u8(..3) == 0 {
            model.set("rope.scaling.attn_factor", one_of(rng, &[1.0_f32, 1.19, 0.7]));
        }
    }
    match architecture {
        Architecture::Llama if scaling != "longrope" => model.maybe(rng, &["rope_freqs.weight"]),
        // Both or none: with one, llama.cpp has no factors where it needs the other.
        Architecture::Llama | Architecture::Phi3
            if rng.bool() && (scaling == "longrope" || architecture == Architecture::Phi3) =>
        {
            model.recipe.optional.extend(["rope_factors_long.weight", "rope_factors_short.weight"].map(String::from));
        }
        _ => {}
    }
}

/// Biases, windows, experts and what else families have of their own.
fn parts(rng: &mut Rng, model: &mut Model) {
    const QKV: &[&str] = &["attn_q.bias", "attn_k.bias", "attn_v.bias"];
    match model.recipe.architecture {
        Architecture::Llama => {
            model.maybe(rng, &["output.weight"]);
            if rng.bool() {
                model.maybe(rng, QKV);
                model.maybe(rng, &["attn_output.bias", "ffn_gate.bias", "ffn_up.bias", "ffn_down.bias"]);
            }
            if rng.u8(..3) == 0 {
                experts(rng, model);
            }
        }
        Architecture::Qwen2 => {
            model.maybe(rng, &["output.weight", "output.bias"]);
            model.maybe(rng, QKV);
        }
        Architecture::Qwen3 | Architecture::Phi3 => model.maybe(rng, &["output.weight", "attn_qkv.weight"]),
        Architecture::Qwen3Moe => {
            model.maybe(rng, &["output.weight"]);
            experts(rng, model);
            let n_ff = model.recipe.n_ff;
            model.set("expert_feed_forward_length", n_ff);
        }
        Architecture::Gemma3 => {
            model.maybe(rng, &["output.weight"]);
            if rng.bool() {
                model.set("final_logit_softcapping", one_of(rng, &[0.0_f32, 5.0, 30.0]));
            }
            window(rng, model);
        }
        Architecture::GptOss => {
            experts(rng, model);
            window(rng, model);
        }
        _ => {}
    }
}

fn experts(rng: &mut Rng, model: &mut Model) {
    let n = rng.u32(1..9);
    model.set("expert_count", n);
    model.set("expert_used_count", rng.u32(1..=n));
}

fn window(rng: &mut Rng, model: &mut Model) {
    let none = model.recipe.architecture == Architecture::Gemma3 && rng.u8(..4) == 0;
    model.set("attention.sliding_window", if none { 0 } else { one_of(rng, &[4_u32, 16, 24, 33, 128]) });
    let layers = model.recipe.n_layer;
    match rng.u8(..3) {
        0 => {}
        1 => model.set("attention.sliding_window_pattern", rng.u32(0..4)),
        _ => {
            let layers = (0..layers).map(|_| rng.bool()).collect();
            model.set("attention.sliding_window_pattern", Value::Array(Array::Bool(layers)));
        }
    }
    // Without a window, llama.cpp reads no base of it, and ends the process.
    if !none && rng.bool() {
        model.set("rope.freq_base_swa", one_of(rng, &[10_000.0_f32, 700.0]));
    }
}

/// Mamba 2.
fn states(rng: &mut Rng, model: &mut Model) {
    let inner = 2 * model.recipe.n_embd;
    let head = one_of(rng, &[8, 16, 32]);
    let heads = inner / head;
    let groups: Vec<u32> = [1, 2, 3, 4].into_iter().filter(|n| heads % n == 0 && inner % n == 0).collect();
    model.set("ssm.conv_kernel", rng.u32(2..6));
    model.set("ssm.inner_size", inner);
    model.set("ssm.state_size", one_of(rng, &[8_u32, 16, 24, 32, 64]));
    model.set("ssm.time_step_rank", heads);
    let groups = one_of(rng, &groups);
    model.set("ssm.group_count", groups);
}

/// Batches of all sequences, with what else can happen to them in between.
fn script(rng: &mut Rng, recipe: &Recipe, options: &Options) -> Vec<Action> {
    let sequences = i32::try_from(options.n_seq).unwrap_or(1);
    let recurrent = recipe.architecture == Architecture::Mamba2;
    let mut lengths = vec![0; options.n_seq as usize];
    let (mut actions, mut left) = (Vec::new(), 240_usize);
    for _ in 0..rng.usize(2..10) {
        let n = one_of(rng, &[1, 1, 3, 7, 30, 70]).min(left);
        if n == 0 {
            break;
        }
        left -= n;
        actions.push(Action::Decode(batch(rng, n, recipe.n_vocab, &mut lengths)));
        let sequence = rng.i32(0..sequences);
        let length = lengths[sequence as usize];
        if recurrent || length < 3 || rng.u8(..3) > 0 {
            continue;
        }
        let position = rng.i32(1..length - 1);
        match rng.u8(..3) {
            0 => {
                let n = rng.i32(1..length - position);
                actions.push(Action::Shift(sequence, position, n));
                lengths[sequence as usize] -= n;
            }
            1 => {
                actions.push(Action::Truncate(sequence, position));
                lengths[sequence as usize] = position;
            }
            _ => {
                if let Some(to) = lengths.iter().position(|length| *length == 0) {
                    actions.push(Action::Share(sequence, to as i32, position));
                    lengths[to] = position;
                }
            }
        }
    }
    actions
}

/// Tokens that continue sequences: run by run, or mixed; one of them at least has an output.
fn batch(rng: &mut Rng, n: usize, n_vocab: u32, lengths: &mut [i32]) -> Vec<Token> {
    let (mixed, all) = (rng.bool(), rng.bool());
    let mut sequence = rng.usize(..lengths.len());
    let mut tokens = Vec::new();
    for i in 0..n {
        if mixed || rng.u8(..10) == 0 {
            sequence = rng.usize(..lengths.len());
        }
        let output = all || i + 1 == n || rng.u8(..4) == 0;
        let id = rng.i32(0..n_vocab as i32);
        tokens.push(Token { id, position: lengths[sequence], sequence: sequence as i32, output });
        lengths[sequence] += 1;
    }
    tokens
}
