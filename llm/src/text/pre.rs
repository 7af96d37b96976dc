//! Pre-tokenizers: how a text is split into the words in which byte-level BPE merges.

use regex::Regex;

use super::error::{TextError, TextResult};

pub(super) const KEY: &str = "tokenizer.ggml.pre";

/// English contractions in any case.
macro_rules! contractions {
    () => {
        "'(?:[sS]|[tT]|[rR][eE]|[vV][eE]|[mM]|[lL][lL]|[dD])"
    };
}

/// White space, which nearly all patterns end with. A lookahead, `\s+(?!\S)`, comes before it in the models' own
/// patterns: [`words`] does its work, so that the patterns are regular and take linear time.
macro_rules! spaces {
    () => {
        r"|\s*[\r\n]+|\s+"
    };
}

const GPT_2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const LLAMA_3: &str =
    concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*", spaces!());
const QWEN_2: &str = concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*", spaces!());
const QWEN_3_5: &str =
    concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", spaces!());
// As in llama.cpp, only ASCII letters have a case here. Marks go on with a word: those of Hindi and Thai are within.
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[[\p{L}\p{M}]--[a-z]]*[[\p{L}\p{M}]--[A-Z]]+|[^\r\n\p{L}\p{N}]?[[\p{L}\p{M}]--[a-z]]+[[\p{L}\p{M}]--[A-Z]]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*",
    spaces!()
);
const GPT_4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[[\p{L}\p{M}]--[a-z]]*[[\p{L}\p{M}]--[A-Z]]+(?:",
    contractions!(),
    r")?|[^\r\n\p{L}\p{N}]?[[\p{L}\p{M}]--[a-z]]+[[\p{L}\p{M}]--[A-Z]]*(?:",
    contractions!(),
    r")?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*",
    spaces!()
);

const DEEPSEEK_3: &str =
    concat!(r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*", spaces!());
const CHINESE: &str = "[一-龥\u{3040}-ゟ゠-ヿ]+";
const SEED: &str = concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+", spaces!());
const BLOOM: &str = r" ?[^(\s|.,!?…。，、।۔،)]+";

/// The models of a kind have different vocabularies and the same words.
struct WordPattern {
    /// Values of `tokenizer.ggml.pre`.
    names: &'static [&'static str],
    /// Each splits what the one before has left.
    patterns: &'static [&'static str],
    /// Words that are tokens are not merged.
    whole_words: bool,
    /// Texts begin with a special token unless the file says otherwise.
    add_bos: bool,
}

const KINDS: [WordPattern; 14] = [
    WordPattern {
        names: &["default"],
        patterns: &[r"[\p{P}$+<=>^~|]+", GPT_2, r"\p{N}+", "[0-9][0-9][0-9]"],
        whole_words: false,
        add_bos: false,
    },
    WordPattern {
        names: &["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "midm-2.0", "lfm2", "jina-v5-nano"],
        patterns: &[LLAMA_3],
        whole_words: true,
        add_bos: true,
    },
    WordPattern { names: &["dbrx", "smaug-bpe"], patterns: &[LLAMA_3], whole_words: false, add_bos: false },
    WordPattern {
        names: &[
            "qwen2",
            "deepseek-r1-qwen",
            "kormo",
            "f2llmv2",
            "stablelm2",
            "megrez",
            "hunyuan",
            "grok-2",
            "solar-open",
        ],
        patterns: &[QWEN_2],
        whole_words: false,
        add_bos: false,
    },
    WordPattern { names: &["qwen35"], patterns: &[QWEN_3_5], whole_words: false, add_bos: false },
    WordPattern {
        names: &[
            "gpt-2",
            "phi-2",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "mpt",
            "olmo",
            "jais",
            "exaone4",
            "trillion",
            "granite-docling",
        ],
        patterns: &[GPT_2],
        whole_words: false,
        add_bos: false,
    },
    WordPattern {
        names: &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        patterns: &[r"\p{N}", GPT_2],
        whole_words: false,
        add_bos: false,
    },
    WordPattern { names: &["tekken", "pixtral"], patterns: &[TEKKEN], whole_words: true, add_bos: true },
    WordPattern {
        names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        patterns: &[GPT_4O],
        whole_words: false,
        add_bos: false,
    },
    WordPattern {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm"],
        patterns: &[r"\p{N}{1,3}", CHINESE, DEEPSEEK_3],
        whole_words: false,
        add_bos: false,
    },
    WordPattern {
        names: &["falcon"],
        patterns: &[r"[\p{P}$+<=>^~|`]+", GPT_2, "[0-9][0-9][0-9]"],
        whole_words: false,
        add_bos: false,
    },
    WordPattern {
        names: &["bloom", "poro-chat", "gpt3-finnish"],
        patterns: &[BLOOM],
        whole_words: false,
        add_bos: false,
    },
    WordPattern { names: &["viking"], patterns: &[BLOOM, r"\p{N}"], whole_words: false, add_bos: false },
    WordPattern { names: &["seed-coder"], patterns: &[SEED], whole_words: false, add_bos: false },
];

/// A pre-tokenizer.
pub(super) struct PreTokenizer {
    /// With each, whether it takes line breaks by themselves.
    patterns: Vec<(Regex, bool)>,
    pub(super) whole_words: bool,
    pub(super) add_bos: bool,
}

impl PreTokenizer {
    /// The pre-tokenizer of a name.
    pub(super) fn new(name: &str) -> TextResult<Self> {
        let unknown = || {
            let names: Vec<_> = KINDS.iter().flat_map(|kind| kind.names).copied().collect();
            TextError::metadata(KEY, format!("is {name:?}, but only these are supported: {}", names.join(", ")))
        };
        let kind = KINDS.iter().find(|kind| kind.names.contains(&name)).ok_or_else(unknown)?;
        let compile = |pattern: &&str| Ok((Regex::new(pattern)?, pattern.ends_with(spaces!())));
        let patterns = kind.patterns.iter().map(compile).collect::<TextResult<_, regex::Error>>();
        let patterns = patterns.map_err(|error| TextError::metadata(KEY, format!("is {name:?}: {error}")))?;
        Ok(Self { patterns, whole_words: kind.whole_words, add_bos: kind.add_bos })
    }

    /// Calls `word` with each word of the text in order. Together they are the text.
    pub(super) fn split(&self, text: &str, word: &mut impl FnMut(&str)) {
        split(&self.patterns, text, word);
    }
}

fn split(patterns: &[(Regex, bool)], text: &str, word: &mut impl FnMut(&str)) {
    match patterns {
        [] => word(text),
        // The next pattern sees each part as a text of its own.
        [(pattern, breaks), rest @ ..] => words(pattern, *breaks, text, |part| split(rest, part, word)),
    }
}

/// Calls `part` with each match and with what is between matches.
fn words(pattern: &Regex, breaks: bool, text: &str, mut part: impl FnMut(&str)) {
    let mut start = 0;
    while let Some(found) = pattern.find_at(text, start) {
        let mut end = found.end();
        // `\s+(?!\S)`: the last of several spaces goes to the word that follows them.
        let spaces = found.as_str();
        let last = spaces.chars().next_back();
        let run = last.is_some_and(char::is_whitespace) && !(breaks && matches!(last, Some('\r' | '\n')));
        if run && end < text.len() && spaces.chars().all(char::is_whitespace) {
            end -= last.filter(|last| last.len_utf8() < spaces.len()).map_or(0, char::len_utf8);
        }
        if found.start() > start {
            part(text.get(start..found.start()).unwrap_or_default());
        }
        part(text.get(found.start()..end).unwrap_or_default());
        start = end;
    }
    if start < text.len() {
        part(text.get(start..).unwrap_or_default());
    }
}
