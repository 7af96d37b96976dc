//! Models with made-up weights, for tests and benchmarks.

use std::path::Path;

use ggml::Quantize as _;
use ggml::gguf::{Reader, Strings, Value, Writer};
use ggml::{DType, Shape};

use crate::architecture::Architecture;
use crate::config::Config;
use crate::declare::{Declare, Declared, Role, Source};
use crate::decoder::Decoder;
use crate::error::Result;
use crate::options::setters;
use crate::text::BYTE_CHARACTERS;

/// What to make up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Recipe {
    /// The family.
    pub architecture: Architecture,
    /// The type of matrices.
    pub dtype: DType,
    /// Types of matrices: each has one whose blocks divide its rows, drawn by the seed. Those without have `dtype`.
    pub mixed: Vec<DType>,
    /// Decides all weights.
    pub seed: u64,
    /// The number of layers.
    pub n_layer: u32,
    /// The embedding size.
    pub n_embd: u32,
    /// The size of the hidden layer of feed-forward networks, and of each expert's.
    pub n_ff: u32,
    /// Heads of queries.
    pub n_head: u32,
    /// Heads of keys and values.
    pub n_head_kv: u32,
    /// The number of tokens.
    pub n_vocab: u32,
    /// The context length.
    pub n_ctx: u32,
    /// The names of optional tensors to include, without the prefix of their layer.
    pub optional: Vec<String>,
    /// Metadata to set or replace, without the architecture's prefix.
    pub metadata: Vec<(String, Value)>,
    /// Metadata of the tokenizer, with whole keys, such as those of [`byte_tokenizer`]. Without, there is none.
    pub tokenizer: Vec<(String, Value)>,
}

impl Recipe {
    /// A small model of this family, in `f16`.
    pub fn new(architecture: Architecture) -> Self {
        let optional: &[&str] = match architecture {
            Architecture::Qwen2 => &["output.weight", "attn_q.bias", "attn_k.bias", "attn_v.bias"],
            Architecture::Phi3 => &["output.weight", "attn_qkv.weight"],
            Architecture::Gemma3 => &[],
            Architecture::GptOss => &[
                "output.weight",
                "attn_q.bias",
                "attn_k.bias",
                "attn_v.bias",
                "attn_output.bias",
                "ffn_gate_inp.bias",
                "ffn_gate_exps.bias",
                "ffn_up_exps.bias",
                "ffn_down_exps.bias",
            ],
            _ => &["output.weight"],
        };
        Self {
            architecture,
            dtype: DType::F16,
            mixed: Vec::new(),
            seed: 1,
            n_layer: 3,
            n_embd: 256,
            n_ff: 512,
            n_head: 8,
            n_head_kv: 2,
            n_vocab: 320,
            n_ctx: 512,
            optional: optional.iter().map(|&name| name.into()).collect(),
            metadata: Vec::new(),
            tokenizer: Vec::new(),
        }
    }

    /// The metadata of the model.
    fn kv(&self) -> Result<Writer> {
        let arch = self.architecture.name();
        let mut writer = Writer::new();
        writer.set("general.architecture", arch)?;
        writer.set("general.name", format!("made up: {arch}"))?;
        writer.set("tokenizer.ggml.model", "no_vocab")?;
        let mut set = |key: &str, value: Value| writer.set(&format!("{arch}.{key}"), value).map(drop);
        for (key, value) in [
            ("vocab_size", self.n_vocab),
            ("context_length", self.n_ctx),
            ("embedding_length", self.n_embd),
            ("block_count", self.n_layer),
        ] {
            set(key, value.into())?;
        }
        set("attention.layer_norm_rms_epsilon", 1e-5_f32.into())?;
        for (key, value) in self.own_keys() {
            set(key, value)?;
        }
        for (key, value) in &self.metadata {
            set(key, value.clone())?;
        }
        for (key, value) in &self.tokenizer {
            writer.set(key, value.clone())?;
        }
        Ok(writer)
    }

    /// The keys that not all families have.
    fn own_keys(&self) -> Vec<(&'static str, Value)> {
        if self.architecture == Architecture::Mamba2 {
            let inner = 2 * self.n_embd;
            return vec![
                ("ssm.conv_kernel", 4_u32.into()),
                ("ssm.inner_size", inner.into()),
                ("ssm.state_size", 32_u32.into()),
                ("ssm.time_step_rank", (inner / 64).into()),
                ("ssm.group_count", 2_u32.into()),
            ];
        }
        let mut keys: Vec<(&'static str, Value)> = vec![
            ("feed_forward_length", self.n_ff.into()),
            ("attention.head_count", self.n_head.into()),
            ("attention.head_count_kv", self.n_head_kv.into()),
        ];
        if matches!(self.architecture, Architecture::Qwen3Moe | Architecture::GptOss) {
            keys.push(("expert_count", 8_u32.into()));
            keys.push(("expert_used_count", 3_u32.into()));
            keys.push(("expert_feed_forward_length", self.n_ff.into()));
        }
        match self.architecture {
            Architecture::Gemma3 => {
                keys.push(("attention.sliding_window", 24_u32.into()));
                keys.push(("attention.sliding_window_pattern", 2_u32.into()));
                keys.push(("rope.freq_base", 1e6_f32.into()));
                // Other than `n_embd / n_head`.
                keys.push(("attention.key_length", (2 * self.n_embd / self.n_head).into()));
                keys.push(("attention.value_length", (2 * self.n_embd / self.n_head).into()));
            }
            Architecture::GptOss => {
                keys.push(("attention.sliding_window", 24_u32.into()));
                keys.push(("rope.freq_base", 150_000.0_f32.into()));
                keys.push(("rope.scaling.type", "yarn".into()));
                keys.push(("rope.scaling.factor", 4.0_f32.into()));
                keys.push(("rope.scaling.original_context_length", (self.n_ctx / 4).into()));
            }
            Architecture::Qwen2 | Architecture::Qwen3 | Architecture::Qwen3Moe => {
                keys.push(("rope.freq_base", 1e6_f32.into()));
            }
            _ => {}
        }
        keys
    }

    /// Writes the model.
    ///
    /// # Errors
    ///
    /// If the recipe makes no model, or the file can't be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<()> {
        let mut writer = self.kv()?;
        let n_vocab = usize::try_from(self.n_vocab).unwrap_or(0);
        let config = Config::read(&Reader::from_bytes(writer.to_bytes()?)?, n_vocab)?;
        let mut d = Declare::new(self);
        Decoder::declare(&mut d, &config)?;
        let mut declared = d.into_list();
        // A tied output is the embedding once more.
        declared.sort_by(|a, b| a.name.cmp(&b.name));
        declared.dedup_by(|a, b| a.name == b.name);
        let mut rng = fastrand::Rng::with_seed(self.seed);
        for tensor in &declared {
            let [row, ..] = tensor.shape.ne();
            let dtype = self.dtype_of(tensor, row, &mut rng);
            let values = values(tensor, &mut rng);
            let bytes = dtype.quantize(&values, usize::try_from(row).unwrap_or(1), None)?;
            writer.tensor(&tensor.name, dtype, tensor.shape, &bytes)?;
        }
        Ok(writer.write(path)?)
    }

    /// Matrices of routers and small tensors are floats in files, too.
    fn dtype_of(&self, tensor: &Declared, row: i64, rng: &mut fastrand::Rng) -> DType {
        let mut fitting = self.mixed.iter().filter(|dtype| row % dtype.block_size() == 0);
        let router = tensor.name.ends_with("ffn_gate_inp.weight");
        let experts = tensor.name.contains("_exps.");
        match (tensor.role, self.dtype) {
            (Role::Vector, _) => DType::F32,
            _ if router => DType::F32,
            _ if fitting.clone().count() > 0 => {
                fitting.nth(rng.usize(..fitting.clone().count())).copied().unwrap_or(self.dtype)
            }
            // gpt-oss has experts in this type, and all else in another.
            (_, DType::MXFP4) if !experts => DType::Q8_0,
            (_, dtype) => dtype,
        }
    }
}

/// A tokenizer that reads and writes any text: the first 256 tokens are bytes, 256 is `<|begin|>`, and 257 is `<|end|>`, which
/// ends an answer, or `<|next|>`, which doesn't. The rest of `n_vocab` tokens is unused.
pub fn byte_tokenizer(n_vocab: u32, ends: bool) -> Vec<(String, Value)> {
    let special = ["<|begin|>", if ends { "<|end|>" } else { "<|next|>" }].map(String::from);
    let bytes = BYTE_CHARACTERS.map(String::from);
    let unused = (258..n_vocab).map(|i| format!("<|unused {i}|>"));
    let tokens: Vec<_> = bytes.into_iter().chain(special).chain(unused).collect();
    // ggml's numbers: 1 is a normal token, 3 a control token, 5 an unused one.
    let types: Vec<i32> = (0..tokens.len())
        .map(|i| {
            if i < 256 {
                1
            } else if i < 258 {
                3
            } else {
                5
            }
        })
        .collect();
    let mut all = vec![
        ("model", Value::from("gpt2")),
        ("pre", "qwen2".into()),
        ("tokens", Strings::from(tokens).into()),
        ("token_type", types.into()),
        ("merges", Strings::from(Vec::<String>::new()).into()),
    ];
    if ends {
        all.push(("eos_token_id", 257_u32.into()));
    }
    all.into_iter().map(|(key, value)| (format!("tokenizer.ggml.{key}"), value)).collect()
}

setters!(Recipe {
    with_dtype(dtype: DType);
    with_mixed(mixed: Vec<DType>);
    with_seed(seed: u64);
    with_n_layer(n_layer: u32);
    with_n_embd(n_embd: u32);
    with_n_ff(n_ff: u32);
    with_n_head(n_head: u32);
    with_n_head_kv(n_head_kv: u32);
    with_n_vocab(n_vocab: u32);
    with_n_ctx(n_ctx: u32);
    with_optional(optional: Vec<String>);
    with_metadata(metadata: Vec<(String, Value)>);
    with_tokenizer(tokenizer: Vec<(String, Value)>);
});

impl Source for Recipe {
    fn find(&self, name: &str, expected: Shape) -> Option<(DType, Shape)> {
        let local = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.')).map_or(name, |(_, local)| local);
        let is_optional = OPTIONAL.contains(&local) && !self.optional.iter().any(|o| o == local);
        (!is_optional).then_some((DType::F32, expected))
    }
}

/// Tensors that files may lack. `attn_qkv.weight` is asked for only where it may stand for three others.
const OPTIONAL: &[&str] = &[
    "output.weight",
    "output.bias",
    "rope_freqs.weight",
    "rope_factors_long.weight",
    "rope_factors_short.weight",
    "attn_qkv.weight",
    "attn_qkv.bias",
    "attn_q.bias",
    "attn_k.bias",
    "attn_v.bias",
    "attn_output.bias",
    "ffn_gate.bias",
    "ffn_up.bias",
    "ffn_down.bias",
    "ffn_gate_inp.bias",
    "ffn_gate_exps.bias",
    "ffn_up_exps.bias",
    "ffn_down_exps.bias",
];

/// Values of a size such that activations neither vanish nor grow.
fn values(tensor: &Declared, rng: &mut fastrand::Rng) -> Vec<f32> {
    let ne = tensor.shape.ne();
    let n = usize::try_from(ne.iter().product::<i64>()).unwrap_or(0);
    let name = &*tensor.name;
    #[expect(clippy::cast_precision_loss, reason = "row lengths are small")]
    let spread = 1.7 / (ne[0] as f32).sqrt();
    let uniform = |rng: &mut fastrand::Rng| 2.0 * rng.f32() - 1.0;
    let value = |rng: &mut fastrand::Rng| match tensor.role {
        Role::Matrix => spread * uniform(rng),
        Role::Embedding => uniform(rng),
        // Decay rates must be negative, factors of frequencies positive.
        Role::Vector if name.ends_with("ssm_a") => -0.5 - rng.f32(),
        Role::Vector if name.starts_with("rope_f") => 1.0 + 3.0 * rng.f32(),
        Role::Vector if name.ends_with("norm.weight") => 1.0 + 0.3 * uniform(rng),
        Role::Vector => 0.3 * uniform(rng),
    };
    (0..n).map(|_| value(rng)).collect()
}
