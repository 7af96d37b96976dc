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
const MINICPM_5: &str =
    concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*", spaces!());
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
// The letters with a case, of the version of Unicode that the model was trained with.
const LETTERS: &str = "\
    \\s?[A-Za-z\u{B5}\u{C0}-\u{D6}\u{D8}-\u{F6}\u{F8}-\u{1BA}\u{1BC}-\u{1BF}\u{1C4}-\u{293}\u{295}-\u{2AF}\
    \u{370}-\u{373}\u{376}\u{377}\u{37B}-\u{37D}\u{37F}\u{386}\u{388}-\u{38A}\u{38C}\u{38E}-\u{3A1}\u{3A3}-\
    \u{3F5}\u{3F7}-\u{481}\u{48A}-\u{52F}\u{531}-\u{556}\u{10A0}-\u{10C5}\u{13A0}-\u{13F5}\u{13F8}-\u{13FD}\
    \u{1C90}-\u{1CBA}\u{1CBD}-\u{1CBF}\u{1D00}-\u{1D2B}\u{1D6B}-\u{1D77}\u{1D79}-\u{1D9A}\u{1E00}-\u{1F15}\
    \u{1F18}-\u{1F1D}\u{1F20}-\u{1F45}\u{1F48}-\u{1F4D}\u{1F50}-\u{1F57}\u{1F59}\u{1F5B}\u{1F5D}\u{1F5F}-\
    \u{1F7D}\u{1F80}-\u{1FB4}\u{1FB6}-\u{1FBC}\u{1FBE}\u{1FC2}-\u{1FC4}\u{1FC6}-\u{1FCC}\u{1FD0}-\u{1FD3}\
    \u{1FD6}-\u{1FDB}\u{1FE0}-\u{1FEC}\u{1FF2}-\u{1FF4}\u{1FF6}-\u{1FFC}\u{2102}\u{2107}\u{210A}-\u{2113}\
    \u{2115}\u{2119}-\u{211D}\u{2124}\u{2126}\u{2128}\u{212A}-\u{212D}\u{212F}-\u{2134}\u{2139}\u{213C}-\u{213F}\
    \u{2145}-\u{2149}\u{214E}\u{2183}\u{2184}\u{2C00}-\u{2C7B}\u{2C7E}-\u{2CE4}\u{2CEB}-\u{2CEE}\u{2CF2}\u{2CF3}\
    \u{A640}-\u{A66D}\u{A680}-\u{A69B}\u{A722}-\u{A76F}\u{A771}-\u{A787}\u{A78B}-\u{A78E}\u{AB70}-\u{ABBF}\
    \u{FB00}-\u{FB06}\u{FB13}-\u{FB17}\u{FF21}-\u{FF3A}\u{FF41}-\u{FF5A}\u{10400}-\u{1044F}\u{104B0}-\u{104D3}\
    \u{104D8}-\u{104FB}\u{10C80}-\u{10CB2}\u{10CC0}-\u{10CF2}\u{118A0}-\u{118DF}\u{1E900}-\u{1E943}]+";
// Without the white space between U+0800 and U+4E00, as in llama.cpp.
const ASIAN: &str = r"[[一-龥ࠀ-一가-\u{D7FF}]--\s]+";
const UFAKZEKA: &str = concat!(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*", spaces!());

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

const KINDS: [WordPattern; 19] = [
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
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
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
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
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
    WordPattern {
        names: &["deepseek-llm"],
        patterns: &["[\r\n]", LETTERS, r"\s?[!-/:-~！-／：-～‘-‟、。]+", r"\s+$", ASIAN, r"\p{N}+"],
        whole_words: false,
        add_bos: false,
    },
    WordPattern {
        names: &["deepseek-coder"],
        patterns: &["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", ASIAN, r"\p{N}"],
        whole_words: false,
        add_bos: false,
    },
    WordPattern { names: &["minicpm5"], patterns: &[r"\p{N}{1,3}", MINICPM_5], whole_words: true, add_bos: false },
    WordPattern { names: &["granite-embed-multi-97m"], patterns: &[GPT_4O], whole_words: true, add_bos: false },
    WordPattern { names: &["ufakzeka"], patterns: &[UFAKZEKA], whole_words: false, add_bos: false },
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
