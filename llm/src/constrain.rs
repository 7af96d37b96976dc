//! Answers that a grammar allows: which tokens may come next, by the crate `llguidance`.
//!
//! A grammar may be a stranger's. Its size, the work to compile it and the work for each token are limited. Compiling can still
//! take the whole stack, or longer than anybody wants to wait, so a server first tries that in another process.

use std::sync::Arc;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use crate::text::Tokenizer;

/// The most bytes of a grammar.
pub const MAX_GRAMMAR: usize = 128 << 10;

/// White space between the parts of a JSON text: without a limit, a model may never end it.
const WHITE_SPACE: &str = r"[ \n\r\t]{0,16}";

/// What an answer may be.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Grammar {
    /// Any JSON object.
    JsonObject,
    /// JSON texts that this JSON schema describes.
    JsonSchema(String),
    /// Texts that this regular expression matches as a whole.
    Regex(String),
    /// Texts of this grammar, in `llguidance`'s variant of Lark.
    Lark(String),
}

/// Why there is no constraint, or why it can't go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConstraintError(Box<str>);

impl ConstraintError {
    fn new(reason: impl std::fmt::Display) -> Self {
        // `llguidance` adds where it was when it failed.
        let reason = reason.to_string();
        let first = reason.split("\n<").next().unwrap_or_default();
        Self(first.chars().take(500).collect::<String>().into())
    }
}

/// Compiles grammars for the tokens of a model.
///
/// ```
/// use ggml_llm::constrain::{Grammar, Grammars};
/// # use ggml::gguf::{Reader, Writer};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let mut file = Writer::new();
/// # file.set("tokenizer.ggml.model", "gpt2")?;
/// # file.set("tokenizer.ggml.pre", "gpt-2")?;
/// # file.set("tokenizer.ggml.tokens", ["a", "b", "ab", "</s>"].map(String::from).to_vec())?;
/// # file.set("tokenizer.ggml.token_type", vec![1, 1, 1, 3])?;
/// # file.set("tokenizer.ggml.eos_token_id", 3_u32)?;
/// # file.set("tokenizer.ggml.merges", vec!["a b".to_string()])?;
/// # let reader = Reader::from_bytes(file.to_bytes()?)?;
/// let tokenizer = ggml_llm::text::Tokenizer::from_gguf(&reader)?; // a, b, ab, and the end
/// let mut constraint = Grammars::new(&tokenizer)?.compile(&Grammar::Regex("(ab)+".into()))?;
/// let no = f32::NEG_INFINITY;
/// assert_eq!(constraint.masked(&[0.5, 0.9, 0.1, 0.3])?, [0.5, no, 0.1, no]);
/// constraint.accept(2)?; // "ab"
/// assert_eq!(constraint.masked(&[0.5, 0.9, 0.1, 0.3])?, [0.5, no, 0.1, 0.3]);
/// # Ok(())
/// # }
/// ```
pub struct Grammars {
    factory: ParserFactory,
}

impl std::fmt::Debug for Grammars {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grammars").finish_non_exhaustive()
    }
}

impl Grammars {
    /// # Errors
    /// If the model has no token that ends an answer.
    pub fn new(tokenizer: &Tokenizer) -> Result<Self, ConstraintError> {
        let ids = || (0..).take(tokenizer.vocab_size());
        let ends: Vec<u32> = ids().filter(|&id| tokenizer.is_end_of_generation(id)).map(i32::cast_unsigned).collect();
        let Some(&end) = ends.first() else {
            return Err(ConstraintError::new("the model has no token that ends an answer"));
        };
        let word = |id| {
            let text = tokenizer.piece(id, false).unwrap_or_default();
            if text.is_empty() {
                // What no text has: special tokens are no text.
                return [&[TokTrie::SPECIAL_TOKEN_MARKER], tokenizer.piece(id, true).unwrap_or_default()].concat();
            }
            text.to_vec()
        };
        let words: Vec<Vec<u8>> = ids().map(word).collect();
        let count = u32::try_from(words.len()).map_err(ConstraintError::new)?;
        Self::of(TokTrie::from(&TokRxInfo::new(count, end), &words).with_eos_tokens(&ends))
    }

    /// For tokens that are a byte each: to find out whether grammars can be compiled.
    ///
    /// # Errors
    /// None in practice.
    pub fn of_bytes() -> Result<Self, ConstraintError> {
        let mut words: Vec<Vec<u8>> = (0..=u8::MAX).map(|byte| vec![byte]).collect();
        words.push([&[TokTrie::SPECIAL_TOKEN_MARKER], &b"<end>"[..]].concat());
        Self::of(TokTrie::from(&TokRxInfo::new(257, 256), &words))
    }

    fn of(trie: TokTrie) -> Result<Self, ConstraintError> {
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let none = InferenceCapabilities::default();
        let mut factory = ParserFactory::new(&env, none, &[]).map_err(ConstraintError::new)?;
        *factory.quiet().limits_mut() = ParserLimits {
            max_items_in_row: 1000,
            initial_lexer_fuel: 500_000,
            // Ten milliseconds at most for each token.
            step_lexer_fuel: 100_000,
            step_max_items: 50_000,
            // Tens of megabytes.
            max_lexer_states: 20_000,
            max_grammar_size: 100_000,
            precompute_large_lexemes: false,
            verbose_errors: false,
        };
        Ok(Self { factory })
    }

    /// Compiles a grammar.
    ///
    /// # Errors
    /// If the grammar is larger than [`MAX_GRAMMAR`], wrong, too complex, or allows no text.
    pub fn compile(&self, grammar: &Grammar) -> Result<Constraint, ConstraintError> {
        let (Grammar::JsonSchema(text) | Grammar::Regex(text) | Grammar::Lark(text)) = grammar else {
            return self.start(TopLevelGrammar::from_json_schema(spaced(json!({ "type": "object" }))));
        };
        if text.len() > MAX_GRAMMAR {
            let n = text.len();
            return Err(ConstraintError::new(format!("the grammar has {n} bytes; expected {MAX_GRAMMAR} at most")));
        }
        self.start(match grammar {
            Grammar::Regex(regex) => TopLevelGrammar::from_regex(regex),
            Grammar::Lark(lark) => TopLevelGrammar::from_lark(lark.clone()),
            _ => {
                let schema: Value = serde_json::from_str(text).map_err(ConstraintError::new)?;
                if !schema.is_object() && !schema.is_boolean() {
                    return Err(ConstraintError::new("a JSON schema is an object"));
                }
                TopLevelGrammar::from_json_schema(spaced(schema))
            }
        })
    }

    fn start(&self, grammar: TopLevelGrammar) -> Result<Constraint, ConstraintError> {
        let mut matcher = Matcher::new(self.factory.create_parser(grammar));
        // A grammar that allows nothing shows here.
        matcher.compute_mask().map_err(ConstraintError::new)?;
        Ok(Constraint { matcher, masked: Vec::new() })
    }
}

/// The schema with this crate's options for how texts are written, not the stranger's.
fn spaced(schema: Value) -> Value {
    let mut schema = match schema {
        Value::Bool(false) => json!({ "not": {} }),
        Value::Object(map) => Value::Object(map),
        _ => json!({}),
    };
    if let Some(map) = schema.as_object_mut() {
        map.insert("x-guidance".into(), json!({ "whitespace_pattern": WHITE_SPACE }));
    }
    schema
}

/// Where a text is in its grammar.
pub struct Constraint {
    matcher: Matcher,
    masked: Vec<f32>,
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Constraint").field("complete", &self.is_complete()).finish_non_exhaustive()
    }
}

impl Clone for Constraint {
    /// They share nothing that either changes.
    fn clone(&self) -> Self {
        Self { matcher: self.matcher.deep_clone(), masked: Vec::new() }
    }
}

impl Constraint {
    /// The logits with minus infinity for each token that can't come next. Tokens that end an answer can where the text is
    /// whole.
    ///
    /// # Errors
    /// If finding these tokens takes more work than one token may.
    pub fn masked(&mut self, logits: &[f32]) -> Result<&[f32], ConstraintError> {
        let allowed: SimpleVob = self.matcher.compute_mask_or_eos().map_err(ConstraintError::new)?;
        self.masked.clear();
        let at =
            |(i, &logit): (usize, &f32)| if i < allowed.len() && allowed.get(i) { logit } else { f32::NEG_INFINITY };
        self.masked.extend(logits.iter().enumerate().map(at));
        Ok(&self.masked)
    }

    /// Goes on by a token, which must be one that can come next.
    ///
    /// # Errors
    /// If it can't.
    pub fn accept(&mut self, token: i32) -> Result<(), ConstraintError> {
        self.matcher.consume_token(token.cast_unsigned()).map_err(ConstraintError::new)
    }

    /// Whether the text is whole, and can't go on.
    pub fn is_complete(&self) -> bool {
        self.matcher.is_stopped()
    }
}
