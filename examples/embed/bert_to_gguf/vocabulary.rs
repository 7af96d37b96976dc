//! Writes the tokenizer for programs that can't read `tokenizer.json`.

use anyhow::{Context as _, Result, ensure};
use demos::Shown;
use ggml::gguf::Writer;
use serde_json::Value;

/// The values of `tokenizer.ggml.token_type` for text and for special tokens.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;

/// The prefix of a word's first piece in GGUF files; later pieces have none.
const FIRST: char = '\u{2581}';
/// The prefix of a word's later pieces in `tokenizer.json`.
const LATER: &str = "##";

/// The special tokens and the names of their ids; GGUF spells the separator's key like that.
const MARKS: [(&str, &str); 5] = [
    ("[CLS]", "tokenizer.ggml.cls_token_id"),
    ("[SEP]", "tokenizer.ggml.seperator_token_id"),
    ("[PAD]", "tokenizer.ggml.padding_token_id"),
    ("[UNK]", "tokenizer.ggml.unknown_token_id"),
    ("[MASK]", "tokenizer.ggml.mask_token_id"),
];

/// Writes the tokens, ordered by id, and the special tokens among them.
///
/// # Errors
/// If the tokenizer is not BERT's.
pub(crate) fn describe(writer: &mut Writer, tokenizer: &str) -> Result<()> {
    let json: Value = serde_json::from_str(tokenizer).context("tokenizer.json")?;
    let model = json.get("model").context("tokenizer.json has no `model`")?;
    let kind = model.get("type");
    ensure!(
        kind == Some(&"WordPiece".into()),
        "tokenizer.json: the model is {kind:?}, but only \"WordPiece\" is understood"
    );
    let pieces = model.get("vocab").and_then(Value::as_object).context("tokenizer.json has no `vocab`")?;
    let added = json.get("added_tokens").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let marks: Vec<_> = added.iter().filter_map(|token| token.get("content")?.as_str()).collect();

    let mut tokens: Vec<Option<(String, i32)>> = vec![None; pieces.len()];
    for (piece, number) in pieces {
        let number = number.as_u64().and_then(|n| usize::try_from(n).ok());
        let place = number.and_then(|n| tokens.get_mut(n)).filter(|place| place.is_none());
        let place =
            place.with_context(|| format!("tokenizer.json: `{}` has no number of its own", Shown::name(piece)))?;
        *place = Some(if marks.contains(&piece.as_str()) {
            (piece.clone(), CONTROL)
        } else if let Some(rest) = piece.strip_prefix(LATER) {
            (rest.to_owned(), NORMAL)
        } else {
            (format!("{FIRST}{piece}"), NORMAL)
        });
    }
    // As many ids as tokens, each used once, so there are no gaps.
    let (texts, types): (Vec<_>, Vec<_>) = tokens.into_iter().flatten().unzip();
    writer.set("tokenizer.ggml.model", "bert")?;
    writer.set("tokenizer.ggml.tokens", texts)?;
    writer.set("tokenizer.ggml.token_type", types)?;
    for (mark, key) in MARKS {
        if let Some(number) = pieces.get(mark).and_then(Value::as_u64) {
            writer.set(key, u32::try_from(number)?)?;
        }
    }
    Ok(())
}
