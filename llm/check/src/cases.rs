//! What is compared.

use std::path::{Path, PathBuf};

use ggml::DType;
use ggml::gguf::Value;
use ggml_llm::Architecture;
use ggml_llm::made_up::Recipe;

use crate::ours::Ours;
use llama_reference::{GGML_TYPE_F16, GGML_TYPE_Q8_0, Llama, Options, Result, Token};

/// Tokens of a prompt: more than a batch, and more than a window.
const PROMPT: usize = 70;
const STEPS: usize = 32;

/// A model, and how it is computed.
pub struct Case {
    pub name: String,
    pub recipe: Recipe,
    /// A file that is there already, instead of one by the recipe.
    pub there: Option<PathBuf>,
    pub options: Options,
    pub script: Script,
    /// The later half of the layers is on a server.
    pub divided: bool,
    /// The operations are not quite the same, for the reason given where the case is made.
    pub inexact: bool,
}

/// What tokens come in which batches.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Script {
    /// A prompt, then steps.
    Plain,
    /// Prompts of different lengths for three sequences, then steps of all.
    Sequences,
    /// As plain, with a context shift before the steps.
    Shift,
}

/// What came of a case.
#[derive(Debug, Default)]
pub struct Outcome {
    pub max_abs_diff: f32,
    pub logits: usize,
    pub plans_per_bucket: usize,
    pub allocs_per_step: usize,
}

impl Case {
    fn new(architecture: Architecture, dtype: DType) -> Self {
        let mut recipe = Recipe::new(architecture);
        recipe.dtype = dtype;
        let options = Options {
            n_ctx: 512,
            n_batch: 32,
            n_seq: 1,
            threads: 1, // with more, threads spin against those of other programs
            repack: true,
            cache: GGML_TYPE_F16,
            flash: true,
        };
        let name = format!("{architecture} {}", dtype.name());
        Self { name, recipe, there: None, options, script: Script::Plain, divided: false, inexact: false }
    }

    /// A model that `generate` has trained: its weights are no random numbers.
    pub fn trained(file: PathBuf) -> Self {
        let mut case = Self::new(Architecture::Llama, DType::F32).named("trained");
        case.recipe.n_vocab = 256;
        case.there = Some(file);
        case
    }

    fn named(mut self, what: &str) -> Self {
        self.name = format!("{} {what}", self.name);
        self
    }

    /// Gives random tokens of a sequence at a position, always the same.
    pub fn tokens(&self) -> Result<impl FnMut(i32, i32) -> Token + use<>> {
        let mut rng = fastrand::Rng::with_seed(7);
        let n_vocab = i32::try_from(self.recipe.n_vocab)?;
        Ok(move |sequence, position| Token { id: rng.i32(0..n_vocab), position, sequence, output: true })
    }

    /// The length of each sequence's prompt.
    pub fn lengths(&self) -> &'static [usize] {
        if self.script == Script::Sequences { &[PROMPT, 5, 33] } else { &[PROMPT] }
    }

    /// Computes the case by both.
    pub fn run(&self, file: &Path) -> Result<Outcome> {
        let file = match &self.there {
            Some(there) => there,
            None => {
                self.recipe.write(file)?;
                file
            }
        };
        let mut theirs = Llama::open(file, &self.options)?;
        let mut ours = Ours::open(file, &self.options, self.divided)?;
        let mut token = self.tokens()?;
        let mut outcome = Outcome::default();
        let lengths = self.lengths();
        let mut prompt = Vec::new();
        for (sequence, &n) in (0..).zip(lengths) {
            prompt.extend((0..n).map(|i| token(sequence, i as i32)));
        }
        outcome.compare(&theirs.decode(&prompt)?, &ours.decode(&prompt)?)?;
        let mut moved = 0;
        if self.script == Script::Shift {
            // More than there are steps: where cells of tokens outside of the window are all that is free, llama.cpp takes
            // others than this crate, and sums of f16 in another order differ.
            let (keep, n) = (4, 40);
            theirs.shift(0, keep, n)?;
            ours.shift(0, keep, n)?;
            moved = n;
        }
        let mut plans = 0;
        for step in 0..STEPS {
            let place = |(sequence, &n): (i32, &usize)| token(sequence, (n + step) as i32 - moved);
            let tokens: Vec<_> = (0..).zip(lengths).map(place).collect();
            outcome.compare(&theirs.decode(&tokens)?, &ours.decode(&tokens)?)?;
            match step {
                // The first step is a graph of another size, and lists grow.
                0 | 1 => plans = ours.plans(),
                // The server is in this process, and allocates for each message.
                _ if self.divided => {}
                _ => outcome.allocs_per_step = outcome.allocs_per_step.max(ours.allocations),
            }
        }
        // All steps are in one bucket.
        outcome.plans_per_bucket = 1 + ours.plans() - plans;
        Ok(outcome)
    }
}

impl Outcome {
    fn compare(&mut self, theirs: &[Vec<f32>], ours: &[Vec<f32>]) -> Result<()> {
        if theirs.len() != ours.len() {
            return Err(format!("{} and {} outputs", theirs.len(), ours.len()).into());
        }
        for (a, b) in theirs.iter().flatten().zip(ours.iter().flatten()) {
            if !a.is_finite() || !b.is_finite() {
                return Err(format!("logits of {a} and {b}").into());
            }
            self.max_abs_diff = self.max_abs_diff.max((a - b).abs());
            self.logits += 1;
        }
        let spread = theirs.iter().flatten().fold(0.0_f32, |most, x| most.max(x.abs()));
        if spread < 0.1 { Err(format!("all logits are near 0: {spread}").into()) } else { Ok(()) }
    }
}

/// All cases.
pub fn all() -> Vec<Case> {
    let mut all = Vec::new();
    for &architecture in Architecture::ALL {
        let types: &[DType] = match architecture {
            Architecture::GptOss => &[DType::F16, DType::Q8_0, DType::MXFP4],
            _ => &[DType::F16, DType::Q8_0, DType::Q4_K],
        };
        all.extend(types.iter().map(|&dtype| Case::new(architecture, dtype)));
    }
    // Frequencies for contexts longer than those of the training, and for others.
    for (n_ctx_orig, which) in [(128_u32, "long"), (1024, "short")] {
        let mut phi3 = Case::new(Architecture::Phi3, DType::Q8_0).named(which);
        phi3.recipe.optional.extend(["rope_factors_long.weight", "rope_factors_short.weight"].map(String::from));
        let set = |key: &str, value: Value| (format!("rope.scaling.{key}"), value);
        phi3.recipe.metadata = vec![
            set("type", "longrope".into()),
            set("original_context_length", n_ctx_orig.into()),
            set("attn_factor", 1.19_f32.into()),
        ];
        all.push(phi3);
    }
    let mut separate = Case::new(Architecture::Phi3, DType::Q8_0).named("separate matrices");
    separate.recipe.optional = vec!["output.weight".into()];
    let mut mixtral = Case::new(Architecture::Llama, DType::Q8_0).named("experts");
    mixtral.recipe.metadata =
        [("expert_count", 4_u32), ("expert_used_count", 2)].map(|(key, value)| (key.into(), value.into())).to_vec();
    // The sizes are not those of other cases: heads that are not `n_embd / n_head`, no groups of heads, one expert.
    let mut wide = Case::new(Architecture::Qwen3, DType::F16).named("wide heads");
    wide.recipe.metadata = [("attention.key_length", 64_u32), ("attention.value_length", 64)]
        .map(|(key, value)| (key.into(), value.into()))
        .to_vec();
    wide.recipe.n_head_kv = 8;
    let mut one = Case::new(Architecture::Qwen3Moe, DType::F16).named("one expert of a token");
    one.recipe.metadata = vec![("expert_used_count".into(), 1_u32.into())];
    all.extend([separate, mixtral, wide, one]);
    let usual = || Case::new(Architecture::Llama, DType::Q8_0);
    let mut tied = usual().named("tied, with factors of frequencies");
    tied.recipe.optional = vec!["rope_freqs.weight".into()];
    let mut plain = usual().named("not repacked");
    plain.options.repack = false;
    let mut cache = usual().named("cache q8_0");
    cache.options.cache = GGML_TYPE_Q8_0;
    let mut shift = usual().named("shift");
    shift.script = Script::Shift;
    // Not the shift of a quantised cache: where heads are no multiple of 64 elements, llama.cpp reads a rotation that it
    // hasn't made, and crashes.
    let mut shift_window = Case::new(Architecture::Gemma3, DType::Q8_0).named("shift");
    shift_window.script = Script::Shift;
    // Nor that of gpt-oss: with YaRN, llama.cpp's shift multiplies all keys by a factor that they have already.
    all.extend([tied, plain, cache, shift, shift_window]);
    for architecture in [Architecture::Llama, Architecture::Gemma3, Architecture::Qwen3Moe, Architecture::Mamba2] {
        let mut sequences = Case::new(architecture, DType::Q8_0).named("three sequences");
        sequences.script = Script::Sequences;
        sequences.options.n_seq = 3;
        all.push(sequences);
    }
    for architecture in [Architecture::Llama, Architecture::Gemma3, Architecture::Qwen3Moe, Architecture::Mamba2] {
        let mut divided = Case::new(architecture, DType::Q8_0).named("over two devices");
        divided.divided = true;
        divided.options.repack = false; // as servers don't
        all.push(divided);
    }
    all
}
