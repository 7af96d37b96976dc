//! The tokenizers of `ggml-llm` beside llama.cpp's, on random texts, for vocabularies that are trained here.
//!
//! `cargo xtask text-check` builds and runs it. Its arguments are the number of texts and a seed.

mod charsmap;
mod llama;
mod texts;
mod vocabularies;

use std::path::Path;
use std::process::ExitCode;

use ggml::gguf::{Reader, Writer};
use ggml_llm::text::{TokenStream, Tokenizer};
use texts::Texts;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// A pre-tokenizer of each kind.
const KINDS: &[&str] = &[
    "default",
    "llama-bpe",
    "dbrx",
    "qwen2",
    "qwen35",
    "gpt-2",
    "smollm",
    "tekken",
    "gpt-4o",
    "deepseek-v3",
    "falcon",
    "bloom",
    "viking",
    "seed-coder",
    "deepseek-llm",
    "deepseek-coder",
    "minicpm5",
    "ufakzeka",
];

/// All the others, which are equal to one of those except for what is added to texts.
const OTHERS: &[&str] = &[
    "llama3",
    "llama-v3",
    "falcon3",
    "falcon-h1",
    "pixtral",
    "midm-2.0",
    "lfm2",
    "jina-v5-nano",
    "smaug-bpe",
    "deepseek-r1-qwen",
    "kormo",
    "f2llmv2",
    "stablelm2",
    "megrez",
    "hunyuan",
    "grok-2",
    "solar-open",
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
    "starcoder",
    "refact",
    "command-r",
    "codeshell",
    "exaone",
    "minerva-7b",
    "mellum2",
    "llama4",
    "kanana2",
    "talkie",
    "minimax-m2",
    "hunyuan-dense",
    "joyai-llm",
    "hy_v4",
    "poro-chat",
    "gpt3-finnish",
    "jina-es",
    "jina-de",
    "jina-v2-es",
    "jina-v2-de",
    "granite-embed-multi-97m",
];

/// Those that the llama.cpp of ggml 0.26 has otherwise: marks, as those of Hindi and Thai, end words there.
const CHANGED: &[&str] =
    &["tekken", "pixtral", "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2", "granite-embed-multi-97m"];

/// Texts for each pre-tokenizer of [`OTHERS`].
const FEW: usize = 20;

/// Differences that are printed.
const SHOWN: usize = 12;

fn main() -> ExitCode {
    match check() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("text_llama: {error}");
            ExitCode::FAILURE
        }
    }
}

fn check() -> Result<bool> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (count, seed) = (usize::try_from(number(100_000)?)?, number(17)?);
    let mut texts = Texts::new(seed)?;
    let corpus: Vec<String> = (0..8000).map(|_| texts.text()).collect();
    texts.with_special(&vocabularies::special());

    let mut files: Vec<(String, Writer, bool)> = Vec::new();
    let bytes = vocabularies::bytes(&corpus)?;
    let older = ggml::version().starts_with("0.26.");
    for &name in KINDS.iter().chain(OTHERS).filter(|name| !older || !CHANGED.contains(name)) {
        let mut writer = bytes.clone();
        writer.set("tokenizer.ggml.pre", name)?;
        files.push((name.to_owned(), writer, KINDS.contains(&name)));
    }
    let mut no_name = bytes;
    no_name.set("tokenizer.ggml.add_bos_token", true)?.set("tokenizer.ggml.add_eos_token", true)?;
    files.push(("(no name)".to_owned(), no_name, false));
    let spaces = vocabularies::spaces(&corpus, &mut texts, false)?;
    let mut gemma = vocabularies::spaces(&corpus, &mut texts, true)?;
    gemma.set("tokenizer.ggml.add_space_prefix", false)?.set("tokenizer.ggml.add_eos_token", true)?;
    let mut phi = spaces.clone();
    phi.set("general.name", "Phi-3 mini")?;
    files.push(("llama".to_owned(), spaces, true));
    files.push(("gemma".to_owned(), gemma, true));
    files.push(("phi-3".to_owned(), phi, true));
    for (name, space_first, merge_spaces, map) in
        [("t5", true, true, true), ("t5 with all spaces", false, false, true), ("t5 without a map", true, false, false)]
    {
        let mut writer = vocabularies::scores(&corpus, &mut texts)?;
        writer.set("tokenizer.ggml.add_space_prefix", space_first)?;
        writer.set("tokenizer.ggml.remove_extra_whitespaces", merge_spaces)?;
        if map {
            writer.set("tokenizer.ggml.precompiled_charsmap", charsmap::write(&charsmap::replacements()))?;
        }
        files.push((name.to_owned(), writer, true));
    }
    files.push(("bert".to_owned(), vocabularies::words(&corpus, true)?, true));
    files.push(("bert cased".to_owned(), vocabularies::words(&corpus, false)?, true));

    let many = files.iter().filter(|(_, _, many)| *many).count();
    let each = count.saturating_sub((files.len() - many) * FEW).div_ceil(many);
    let mut total = Total::default();
    let path = std::env::temp_dir().join(format!("text-llama-{}.gguf", std::process::id()));
    for (name, writer, many) in &files {
        writer.write(&path)?;
        let compared = compare(name, &path, &mut texts, if *many { each } else { FEW }, &mut total);
        // The system clears the folder if this cannot.
        let _removed = std::fs::remove_file(&path);
        compared?;
    }
    println!(
        "text: vocabularies={} pieces={} ends={} newer_characters={} tokens={}",
        files.len(),
        total.pieces,
        total.ends,
        texts.newer,
        total.tokens
    );
    println!("tokenizer_texts={} differences={}", total.texts, total.differences);
    Ok(total.differences == 0 && total.texts >= count && total.ends > 0)
}

/// What was compared.
#[derive(Default)]
struct Total {
    texts: usize,
    tokens: usize,
    pieces: usize,
    /// Tokens that end an answer.
    ends: usize,
    differences: usize,
}

impl Total {
    fn differ(&mut self, said: impl FnOnce() -> String) {
        self.differences += 1;
        if self.differences <= SHOWN {
            eprintln!("{}", said());
        }
    }
}

fn compare(name: &str, path: &Path, texts: &mut Texts, count: usize, total: &mut Total) -> Result<()> {
    let theirs = llama::Vocabulary::load(path)?;
    let ours = Tokenizer::from_gguf(&Reader::open(path)?).map_err(|e| format!("{name}: {e}"))?;
    let size = i32::try_from(ours.vocab_size())?;
    if size != theirs.size() {
        return Err(format!("{name}: {size} tokens, but {} in llama.cpp", theirs.size()).into());
    }
    for id in 0..size {
        let end = theirs.is_end_of_generation(id);
        total.ends += usize::from(end);
        if ours.is_end_of_generation(id) != end {
            total.differ(|| format!("{name}: token {id} ends an answer in llama.cpp: {end}"));
        }
        for special in [false, true] {
            total.pieces += 1;
            let (a, b) = (ours.piece(id, special)?, theirs.piece(id, special)?);
            if a != b {
                let (a, b) = (String::from_utf8_lossy(a), String::from_utf8_lossy(&b));
                total.differ(|| format!("{name}: token {id} is {a:?}, but {b:?} in llama.cpp"));
            }
        }
    }
    for _ in 0..count {
        let text = texts.text();
        let (add_special, parse_special) = (texts.chance(2), texts.chance(2));
        let a = ours.encode(&text, add_special, parse_special).map_err(|e| format!("{name}: {text:?}: {e}"))?;
        let b = theirs.encode(&text, add_special, parse_special)?;
        total.texts += 1;
        total.tokens += b.len();
        if a != b {
            let show = |ids: &[i32]| ids.iter().map(|&id| piece(&theirs, id)).collect::<Vec<_>>().join("|");
            total.differ(|| format!("{name}: {text:?}\n  ours   {}\n  theirs {}", show(&a), show(&b)));
        }
        stream(name, &ours, &theirs, texts, &b, total)?;
    }
    Ok(())
}

fn piece(theirs: &llama::Vocabulary, id: i32) -> String {
    format!("{id}{:?}", String::from_utf8_lossy(&theirs.piece(id, true).unwrap_or_default()))
}

/// Compares streamed text with llama.cpp's pieces: of a text's tokens, some of them replaced by others.
fn stream(
    name: &str,
    ours: &Tokenizer,
    theirs: &llama::Vocabulary,
    texts: &mut Texts,
    tokens: &[i32],
    total: &mut Total,
) -> Result<()> {
    let special = texts.chance(2);
    let mut stream = TokenStream::new(ours);
    if special {
        stream = stream.showing_special();
    }
    let (mut bytes, mut text) = (Vec::new(), String::new());
    for &id in tokens {
        let id = if texts.chance(8) { texts.below(theirs.size()) } else { id };
        bytes.extend(theirs.piece(id, special)?);
        text.push_str(stream.push(id)?);
        // All whole characters are there: at most three bytes of one wait.
        if String::from_utf8_lossy(&bytes).trim_end_matches('\u{FFFD}').len() > text.len() {
            total.differ(|| format!("{name}: {text:?} is late"));
        }
    }
    text.push_str(stream.finish());
    if text != String::from_utf8_lossy(&bytes) {
        total.differ(|| format!("{name}: {text:?}, but {:?} in llama.cpp", String::from_utf8_lossy(&bytes)));
    }
    Ok(())
}
