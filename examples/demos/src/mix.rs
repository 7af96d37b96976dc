//! Mixtures of types, as llama.cpp's quantiser makes them: the tensors of a language model that suffer most from few bits
//! get more.

use std::collections::BTreeMap;
use std::str::FromStr;

use ggml::DType;
use ggml::gguf::{Array, Reader, TensorInfo};

/// A mixture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mix {
    /// llama.cpp's name.
    pub name: &'static str,
    /// Its number in `general.file_type`.
    pub ftype: u32,
    /// The type of most tensors.
    pub base: DType,
    /// How many bits are spent on tensors that suffer: small, medium, large.
    size: Size,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Size {
    Small,
    Medium,
    Large,
}
use Size::{Large, Medium, Small};

const fn mix(name: &'static str, ftype: u32, base: DType, size: Size) -> Mix {
    Mix { name, ftype, base, size }
}

impl Mix {
    /// All mixtures.
    pub const ALL: [Self; 13] = [
        mix("q3_K_S", 11, DType::Q3_K, Small),
        mix("q3_K_M", 12, DType::Q3_K, Medium),
        mix("q3_K_L", 13, DType::Q3_K, Large),
        mix("q4_0", 2, DType::Q4_0, Small),
        mix("q4_K_S", 14, DType::Q4_K, Small),
        mix("q4_K_M", 15, DType::Q4_K, Medium),
        mix("q5_K_S", 16, DType::Q5_K, Small),
        mix("q5_K_M", 17, DType::Q5_K, Medium),
        mix("q6_K", 18, DType::Q6_K, Small),
        mix("q8_0", 7, DType::Q8_0, Small),
        mix("iq4_nl", 25, DType::IQ4_NL, Small),
        mix("iq4_xs", 30, DType::IQ4_XS, Small),
        mix("mxfp4_moe", 38, DType::MXFP4, Small),
    ];

    /// The new type of each tensor that gets one, by name. `weighted`: whether an importance matrix is used.
    pub fn types<S>(self, reader: &Reader<S>, weighted: bool) -> BTreeMap<String, DType> {
        let model = Model::of(reader, weighted);
        let mut tensors: Vec<_> = reader.tensors().filter(|t| is_quantized(t)).collect();
        tensors.sort_by_key(|t| (layer(t.name()), t.name()));
        // How many tensors of a role came before.
        let mut before = BTreeMap::<Role, usize>::new();
        let mut types = BTreeMap::new();
        for t in tensors {
            let role = Role::of(t.name());
            let place = before.entry(role).or_default();
            // In models with experts, several tensors of a layer are of one role.
            let index = if model.experts > 1 && role == Role::Down { layer(t.name()).unwrap_or(0) } else { *place };
            *place += 1;
            let columns = t.shape().ne()[0];
            let dtype = match self.base {
                DType::MXFP4 if !t.name().contains("_exps.") => DType::Q8_0,
                _ => self.dtype(role, index, columns, &model),
            };
            let dtype = fitting(dtype, columns);
            types.insert(t.name().to_owned(), dtype);
        }
        types
    }

    /// The type of the tensor of this role that is the `i`th of them.
    fn dtype(self, role: Role, i: usize, columns: i64, model: &Model) -> DType {
        let Self { base, size, .. } = self;
        let iq4 = matches!(base, DType::IQ4_NL | DType::IQ4_XS);
        let eight = model.experts == 8;
        match role {
            Role::Output => output(base, columns),
            Role::Embedding if model.tied => output(base, columns),
            Role::Value | Role::Key if eight => DType::Q8_0,
            Role::Value => {
                let more = extends(i, model.values);
                let dtype = match base {
                    DType::Q3_K if size == Large || size == Medium && i < 2 => DType::Q5_K,
                    DType::Q3_K if size == Medium => DType::Q4_K,
                    DType::Q4_K | DType::Q5_K if size == Medium && more => DType::Q6_K,
                    DType::Q4_K if size == Small && i < 4 => DType::Q5_K,
                    _ if iq4 && model.groups >= 4 => DType::Q5_K,
                    _ => base,
                };
                let few = matches!(dtype, DType::Q3_K | DType::Q4_K);
                if model.of_70b && few { DType::Q5_K } else { dtype }
            }
            Role::Down => {
                let (more, first) = (extends(i, model.layers), i < model.layers / 8);
                match base {
                    DType::Q3_K if size == Large || size == Medium && i < model.layers / 16 => DType::Q5_K,
                    DType::Q3_K if size == Medium => DType::Q4_K,
                    DType::Q4_K | DType::Q5_K if size == Medium && more => DType::Q6_K,
                    DType::Q4_K if size == Small && first => DType::Q5_K,
                    DType::Q4_0 if model.weighted && first => DType::Q4_1,
                    _ if iq4 && first && !model.weighted => DType::Q5_K,
                    _ => base,
                }
            }
            Role::AttentionOutput if eight => match base {
                DType::Q3_K if size == Large => base,
                DType::Q3_K | DType::Q4_K | DType::IQ4_NL | DType::IQ4_XS => DType::Q5_K,
                _ => base,
            },
            Role::AttentionOutput => match (base, size) {
                (DType::Q3_K, Medium) => DType::Q4_K,
                (DType::Q3_K, Large) => DType::Q5_K,
                _ => base,
            },
            Role::Embedding | Role::Key | Role::Other => base,
        }
    }
}

impl FromStr for Mix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|mix| mix.name.eq_ignore_ascii_case(text)).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|mix| mix.name).collect();
            format!("there are {}", names.join(", "))
        })
    }
}

/// What a tensor is for, as far as mixtures ask. `Value` is also a tensor of values with queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Output,
    Embedding,
    Value,
    Key,
    AttentionOutput,
    Down,
    Other,
}

impl Role {
    fn of(name: &str) -> Self {
        let parts = [
            ("attn_qkv.weight", Self::Value),
            ("attn_kv_b.weight", Self::Value),
            ("attn_v.weight", Self::Value),
            ("attn_k.weight", Self::Key),
            ("attn_output.weight", Self::AttentionOutput),
            ("ffn_down", Self::Down),
        ];
        match name {
            "output.weight" => Self::Output,
            "token_embd.weight" | "per_layer_token_embd.weight" => Self::Embedding,
            _ => parts.into_iter().find(|(part, _)| name.contains(part)).map_or(Self::Other, |(_, role)| role),
        }
    }
}

/// What mixtures ask of a model.
struct Model {
    layers: usize,
    experts: u64,
    /// Heads that share keys and values.
    groups: u64,
    /// Tensors of values.
    values: usize,
    /// Whether the embedding is the output, too.
    tied: bool,
    of_70b: bool,
    weighted: bool,
}

impl Model {
    fn of<S>(reader: &Reader<S>, weighted: bool) -> Self {
        let architecture = reader.metadata("general.architecture").and_then(|v| v.as_str()).unwrap_or_default();
        let number = |key: &str| {
            let value = reader.metadata(&format!("{architecture}.{key}"))?;
            value.as_u64().or_else(|| first(value.as_array()?))
        };
        let (heads, shared) = (number("attention.head_count").unwrap_or(0), number("attention.head_count_kv"));
        let layers = number("block_count").and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        let of_values = |t: &&TensorInfo| Role::of(t.name()) == Role::Value;
        Self {
            layers,
            experts: number("expert_count").unwrap_or(0),
            groups: heads.checked_div(shared.unwrap_or(heads)).unwrap_or(0),
            values: reader.tensors().filter(of_values).count(),
            tied: reader.tensor("output.weight").is_err(),
            of_70b: layers == 80 && (architecture == "qwen2" || architecture == "llama" && Some(heads) != shared),
            weighted,
        }
    }
}

/// The number for the first layer, of those for each.
fn first(array: &Array) -> Option<u64> {
    match array {
        Array::U32(numbers) => numbers.first().map(|&n| n.into()),
        Array::I32(numbers) => numbers.first().and_then(|&n| n.try_into().ok()),
        _ => None,
    }
}

/// Whether the `i`th of `n` layers gets more bits: the first and the last eighth, and each third between.
fn extends(i: usize, n: usize) -> bool {
    i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2
}

/// The type of the output matrix.
fn output(base: DType, columns: i64) -> DType {
    if columns % base.block_size() != 0 || base == DType::Q8_0 { DType::Q8_0 } else { DType::Q6_K }
}

/// The type, or one with shorter blocks that fits the rows.
fn fitting(dtype: DType, columns: i64) -> DType {
    if columns % dtype.block_size() == 0 {
        return dtype;
    }
    let shorter = match dtype {
        DType::Q3_K => DType::Q4_0,
        DType::Q4_K => DType::Q5_0,
        DType::Q5_K => DType::Q5_1,
        DType::Q6_K => DType::Q8_0,
        DType::IQ4_XS => DType::IQ4_NL,
        other => other,
    };
    if columns % shorter.block_size() == 0 { shorter } else { DType::F16 }
}

fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// Whether llama.cpp quantises the tensor: matrices, except small ones that matter.
fn is_quantized(t: &TensorInfo) -> bool {
    const KEPT: [&str; 6] = [
        "_norm.weight",
        "ffn_gate_inp.weight",
        "ssm_conv1d",
        "shortconv.conv.weight",
        "attn_rel_b.weight",
        "time_mix_",
    ];
    let name = t.name();
    let matrix = t.shape().ne()[1..].iter().any(|&n| n > 1);
    let of_positions = ["position_embd.weight", "token_types.weight"].contains(&name);
    matrix && name.ends_with("weight") && !of_positions && !KEPT.iter().any(|part| name.contains(part))
}
