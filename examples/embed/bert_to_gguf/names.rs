//! Translates tensor names.

use anyhow::{Context as _, Result};
use demos::Shown;

/// The value of `bert.pooling_type` for mean pooling.
pub(crate) const MEAN: u32 = 1;

/// Tensors outside of layers: the names in `transformers` and in GGUF files.
const MODEL: [(&str, &str); 4] = [
    ("embeddings.word_embeddings", "token_embd"),
    ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.token_type_embeddings", "token_types"),
    ("embeddings.LayerNorm", "token_embd_norm"),
];

/// Tensors of a layer.
const LAYER: [(&str, &str); 8] = [
    ("attention.self.query", "attn_q"),
    ("attention.self.key", "attn_k"),
    ("attention.self.value", "attn_v"),
    ("attention.output.dense", "attn_output"),
    ("attention.output.LayerNorm", "attn_output_norm"),
    ("intermediate.dense", "ffn_up"),
    ("output.dense", "ffn_down"),
    ("output.LayerNorm", "layer_output_norm"),
];

/// The name of a tensor in a GGUF file; `None` if sentence vectors don't need it.
///
/// # Errors
/// If BERT has no such tensor.
pub(crate) fn translate(name: &str) -> Result<Option<String>> {
    let short = name.strip_prefix("bert.").unwrap_or(name);
    // The positions 0, 1, 2, and so on; and the pooler, which is used in pre-training only.
    if short == "embeddings.position_ids" || short.starts_with("pooler.") {
        return Ok(None);
    }
    let translated = || {
        let (module, kind) = short.rsplit_once('.').filter(|(_, kind)| matches!(*kind, "weight" | "bias"))?;
        let find =
            |table: &[(&str, &str)], name: &str| table.iter().find(|(n, _)| *n == name).map(|&(_, n)| n.to_owned());
        let module = match module.strip_prefix("encoder.layer.") {
            Some(rest) => {
                let (layer, module) = rest.split_once('.')?;
                format!("blk.{}.{}", layer.parse::<u32>().ok()?, find(&LAYER, module)?)
            }
            None => find(&MODEL, module)?,
        };
        Some(format!("{module}.{kind}"))
    };
    translated().map(Some).with_context(|| format!("`{}` is no tensor of a BERT encoder", Shown::name(name)))
}
