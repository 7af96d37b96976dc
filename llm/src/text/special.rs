//! Tokens with a role: the beginning and the end of a text, the end of an answer, and others.
//!
//! Files say little about these roles, so llama.cpp also goes by the texts of tokens, and so does this.

use std::collections::BTreeSet;

use super::error::{TextError, TextResult};
use super::metadata::TokenizerMetadata;
use super::vocabulary::{TokenAttributes, Vocabulary};

const BOS: &str = "tokenizer.ggml.bos_token_id";
const EOS: &str = "tokenizer.ggml.eos_token_id";
const UNKNOWN: &str = "tokenizer.ggml.unknown_token_id";
const SEPARATOR: &str = "tokenizer.ggml.seperator_token_id"; // spelled like this in files
const PADDING: &str = "tokenizer.ggml.padding_token_id";
const MASK: &str = "tokenizer.ggml.mask_token_id";
const EOT: &str = "tokenizer.ggml.eot_token_id";
const EOM: &str = "tokenizer.ggml.eom_token_id";
const ADD_BOS: &str = "tokenizer.ggml.add_bos_token";
const NAME: &str = "general.name";
const ADD_EOS: &str = "tokenizer.ggml.add_eos_token";

/// Tokens that end an answer wherever they exist.
const ENDS: [&str; 22] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
];

/// Tokens of code models, with the keys that may name them. Those of the first three roles are only control tokens; the
/// last three end an answer.
const CODE: [(&[&str], &[&str], bool); 6] = [
    (
        &["tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.prefix_token_id"],
        &[
            "<|fim_prefix|>",
            "<fim-prefix>",
            "<fim_prefix>",
            "<｜fim▁begin｜>",
            "<PRE>",
            "▁<PRE>",
            "<|code_prefix|>",
            "<|prefix|>",
        ],
        false,
    ),
    (
        &["tokenizer.ggml.fim_suf_token_id", "tokenizer.ggml.suffix_token_id"],
        &[
            "<|fim_suffix|>",
            "<fim-suffix>",
            "<fim_suffix>",
            "<｜fim▁hole｜>",
            "<SUF>",
            "▁<SUF>",
            "<|code_suffix|>",
            "<|suffix|>",
        ],
        false,
    ),
    (
        &["tokenizer.ggml.fim_mid_token_id", "tokenizer.ggml.middle_token_id"],
        &[
            "<|fim_middle|>",
            "<fim-middle>",
            "<fim_middle>",
            "<｜fim▁end｜>",
            "<MID>",
            "▁<MID>",
            "<|code_middle|>",
            "<|middle|>",
        ],
        false,
    ),
    (&["tokenizer.ggml.fim_pad_token_id"], &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"], true),
    (
        &["tokenizer.ggml.fim_rep_token_id"],
        &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"],
        true,
    ),
    (&["tokenizer.ggml.fim_sep_token_id"], &["<|file_sep|>"], true),
];

/// Tokens that are shown although their files call them control tokens: gpt-oss structures its answers with them.
const SHOWN: [&str; 4] = ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"];

/// Tokens that a kind of vocabulary has where the file names no others.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Defaults {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) unknown: Option<u32>,
    pub(super) separator: Option<u32>,
    pub(super) add_bos: bool,
    pub(super) add_eos: bool,
}

/// The tokens with a role.
#[derive(Default)]
pub(super) struct Special {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) unknown: Option<u32>,
    pub(super) separator: Option<u32>,
    /// The token that texts begin with, and the one that they end with, where special tokens are added.
    pub(super) first: Option<u32>,
    pub(super) last: Option<u32>,
    /// Tokens that end an answer.
    pub(super) ends: BTreeSet<u32>,
}

/// Reads and finds the special tokens, and corrects the attributes of tokens that are known by their texts.
pub(super) fn find(
    vocabulary: &mut Vocabulary,
    metadata: &TokenizerMetadata<'_>,
    defaults: Defaults,
) -> TextResult<()> {
    let n = vocabulary.len();
    let id = |key, default| metadata.id(key, n, default);
    let (bos, eos) = (id(BOS, defaults.bos)?, id(EOS, defaults.eos)?);
    let (unknown, separator) = (id(UNKNOWN, defaults.unknown)?, id(SEPARATOR, defaults.separator)?);
    for key in [PADDING, MASK] {
        id(key, None)?;
    }
    let added = |key, token: Option<u32>, role, default| {
        let flag = metadata.flag(key)?.unwrap_or(default);
        let nothing = || {
            TextError::metadata(key, format!("asks for {role}, which must then be one of the {n} tokens, and is none"))
        };
        if flag { token.ok_or_else(nothing).map(Some) } else { Ok(None) }
    };
    let first = added(ADD_BOS, bos, BOS, defaults.add_bos)?;
    let last = added(ADD_EOS, eos, EOS, defaults.add_eos)?;

    let mut ends: BTreeSet<u32> = [eos, id(EOT, None)?, id(EOM, None)?].into_iter().flatten().collect();
    for (keys, texts, end) in CODE {
        let mut token = None;
        for key in keys {
            token = id(key, token)?;
        }
        let token = token.or_else(|| {
            let lowest = texts.iter().filter_map(|text| vocabulary.id(text)).min()?;
            vocabulary.add(lowest, TokenAttributes::CONTROL);
            Some(lowest)
        });
        ends.extend(token.filter(|_| end));
    }
    for text in ENDS {
        let Some(id) = vocabulary.id(text) else { continue };
        vocabulary.add(id, TokenAttributes::CONTROL);
        ends.insert(id);
    }
    for text in SHOWN {
        let Some(id) = vocabulary.id(text) else { continue };
        vocabulary.set(id, TokenAttributes::USER_DEFINED);
    }
    correct(vocabulary, &mut ends);
    strip_after(vocabulary, metadata.text(NAME)?.unwrap_or_default());
    vocabulary.special = Special { bos, eos, unknown, separator, first, last, ends };
    Ok(())
}

/// Removes tokens that end answers of some models, but not of this one.
fn correct(vocabulary: &mut Vocabulary, ends: &mut BTreeSet<u32>) {
    let find = |text| vocabulary.id(text).filter(|id| ends.contains(id));
    let call = find("<|call|>").or(find("<|calls|>"));
    let end_of_message =
        find("<|end|>").filter(|_| call.is_some() && find("<|return|>").or(find("<|flush|>")).is_some());
    let ordinary = find("</s>").filter(|_| find("<|tool_response>").is_some());
    if let Some(id) = end_of_message {
        ends.remove(&id);
        vocabulary.set(id, TokenAttributes::USER_DEFINED);
    }
    if let Some(id) = ordinary {
        ends.remove(&id);
        vocabulary.set(id, TokenAttributes::NORMAL);
    }
}

/// Phi-3's special tokens swallow white space after them; files don't say so.
fn strip_after(vocabulary: &mut Vocabulary, name: &str) {
    let name = name.to_ascii_lowercase();
    if !name.contains("phi-3") && !name.contains("phi3") {
        return;
    }
    let not = ["<unk>", "<s>", "<|endoftext|>"].map(|text| vocabulary.id(text));
    for id in vocabulary.all().filter(|&id| !not.contains(&Some(id))) {
        vocabulary.add(id, TokenAttributes::STRIP_RIGHT);
    }
}
