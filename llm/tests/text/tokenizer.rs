//! Tokenizers on vocabularies that can be worked out by hand, and files that lie.

use ggml::gguf::{Array, Value, Writer};
use ggml_llm::text::TextError;

use crate::files::{bytes, read, remove, scores, set, spaces, words};

#[test]
fn bpe_merges_the_lowest_rank_first() {
    let tokenizer = read(&bytes()).unwrap();
    assert_eq!(tokenizer.encode("hello hell he", false, false).unwrap(), [259, 32, 258, 260]);
    assert_eq!(tokenizer.encode("é", false, false).unwrap(), [0xC3, 0xA9]);
    assert!(tokenizer.encode("", true, true).unwrap().is_empty());
    assert_eq!([tokenizer.bos(), tokenizer.eos()], [Some(261), Some(262)]);
    assert_eq!(tokenizer.vocab_size(), 264);
}

#[test]
fn special_tokens_are_found_only_if_asked_for() {
    let mut file = bytes();
    set(&mut file, "add_bos_token", true);
    set(&mut file, "add_eos_token", true);
    let tokenizer = read(&file).unwrap();
    assert_eq!(tokenizer.encode("hell<s><tool>", true, true).unwrap(), [261, 258, 261, 263, 262]);
    let text = tokenizer.encode("hell<s><tool>", false, false).unwrap();
    assert_eq!(text, [258, i32::from(b'<'), i32::from(b's'), i32::from(b'>'), 263], "users' tokens are always found");
    assert!(tokenizer.is_end_of_generation(262));
    assert!(![261, 0, -1, 264, i32::MIN].iter().any(|&id| tokenizer.is_end_of_generation(id)));
}

#[test]
fn sentencepiece_merges_the_best_score_first() {
    let tokenizer = read(&spaces()).unwrap();
    // "▁aba": "ba" has the best score.
    assert_eq!(tokenizer.encode("aba", false, false).unwrap(), [263, 266]);
    assert_eq!(tokenizer.encode("ab", true, false).unwrap(), [1, 264]);
    let euro = ['€'; 1].iter().collect::<String>().bytes().map(|b| i32::from(b) + 3).collect::<Vec<_>>();
    assert_eq!(tokenizer.encode("é€", false, false).unwrap(), [&[259, 265], &euro[..]].concat());
}

#[test]
fn unigram_models_take_the_greatest_sum_of_scores() {
    let tokenizer = read(&scores()).unwrap();
    let encode = |text: &str| tokenizer.encode(text, false, false).unwrap();
    // "▁ab" is better than "▁a" and "b", which is better than "▁ab" and two more for "abb".
    assert_eq!(tokenizer.encode("ab", true, false).unwrap(), [6, 1]);
    assert_eq!(encode("aB  b"), [6, 3, 5], "replaced, and with one space");
    assert_eq!(encode("éxb"), [3, 2, 5], "neighbours without a token are one unknown token");
    assert_eq!(encode("aaa"), [4, 8], "an unused token is found");
    assert_eq!(encode("a<tool>b"), [4, 7, 3, 5]);
    assert!(encode("  ").is_empty());
    let mut file = scores();
    set(&mut file, "remove_extra_whitespaces", false);
    assert_eq!(read(&file).unwrap().encode(" b b", false, false).unwrap(), [3, 3, 5, 3, 5]);
    remove(&mut file, "precompiled_charsmap");
    assert_eq!(read(&file).unwrap().encode("B", false, false).unwrap(), [3, 2]);
    for table in [vec![1_u8], vec![9, 0, 0, 0, 1], vec![0, 0, 0, 0, 0xFF]] {
        set(&mut file, "precompiled_charsmap", table);
        assert!(read(&file).unwrap_err().to_string().starts_with("`tokenizer.ggml.precompiled_charsmap` has"));
    }
    // A table without nodes replaces nothing.
    set(&mut file, "precompiled_charsmap", vec![0_u8; 8]);
    assert_eq!(read(&file).unwrap().encode("B", false, false).unwrap(), [3, 2]);
}

#[test]
fn space_comes_after_special_tokens_only_if_asked_for() {
    let tokenizer = read(&spaces()).unwrap();
    assert_eq!(tokenizer.encode("a</s>a", false, true).unwrap(), [263, 2, 263]);
    let mut file = spaces();
    set(&mut file, "add_space_prefix", false);
    assert_eq!(read(&file).unwrap().encode("a</s>a", false, true).unwrap(), [260, 2, 260]);
}

/// The longest word, merges without end, and nothing but special tokens: time grows with the length.
#[test]
fn ten_megabytes_are_encoded() {
    let n = if cfg!(debug_assertions) { 1 << 20 } else { 10 << 20 };
    let count = |file: &Writer, text: &str| read(file).unwrap().encode(text, false, true).unwrap().len();
    assert_eq!(count(&bytes(), &"hello".repeat(n / 5)), n / 5);
    assert_eq!(count(&bytes(), &" ".repeat(n)), n);
    assert_eq!(count(&bytes(), &"<tool>".repeat(n / 6)), n / 6);
    assert_eq!(count(&spaces(), &"ab".repeat(n / 2)), n / 2 + 1);
    assert_eq!(count(&spaces(), &" ".repeat(n)), n + 1);
    assert_eq!(count(&words(), &"want".repeat(n / 4)), n / 4);
}

#[test]
fn wordpiece_takes_the_longest_pieces() {
    let tokenizer = read(&words()).unwrap();
    assert_eq!(tokenizer.encode("UNwanted, é中 wanting\u{AD}", true, false).unwrap(), [2, 4, 5, 6, 8, 9, 10, 1, 3]);
    let mut file = words();
    set(&mut file, "normalizer.lowercase", false);
    assert_eq!(read(&file).unwrap().encode("want WANT é", false, false).unwrap(), [7, 1, 1]);
}

/// A mark goes on with a word where newer models have it so: then a merge across it is made.
#[test]
fn marks_are_parts_of_words() {
    let text = "की"; // a letter and a mark: e0 a4 95 e0 a5 80
    let tokens = |pre: &str| {
        let [a, b] = [0x95, 0xE0].map(|byte: usize| ggml_llm::text::BYTE_CHARACTERS[byte]);
        let mut all = ggml_llm::text::BYTE_CHARACTERS.map(String::from).to_vec();
        all.push([a, b].iter().collect());
        let mut file = Writer::new();
        set(&mut file, "model", "gpt2");
        set(&mut file, "pre", pre);
        set(&mut file, "tokens", all);
        set(&mut file, "merges", vec![format!("{a} {b}")]);
        set(&mut file, "add_bos_token", false);
        read(&file).unwrap().encode(text, false, false).unwrap().len()
    };
    for pre in [
        "tekken",
        "pixtral",
        "gpt-4o",
        "llama4",
        "kanana2",
        "minimax-m2",
        "qwen35",
        "deepseek-v3",
        "bloom",
        "viking",
        "deepseek-llm",
    ] {
        assert_eq!(tokens(pre), 5, "{pre}");
    }
    for pre in ["llama-bpe", "qwen2", "gpt-2", "falcon", "seed-coder", "deepseek-coder", "minicpm5"] {
        assert_eq!(tokens(pre), 6, "{pre}");
    }
}

#[test]
fn characters_without_a_token_are_an_error_or_left_out() {
    let mut file = Writer::new();
    set(&mut file, "model", "llama");
    set(&mut file, "tokens", ["<unk>", "<s>", "a"].map(str::to_owned).to_vec());
    set(&mut file, "add_space_prefix", false);
    let error = read(&file).unwrap().encode("aé", false, false).unwrap_err();
    assert!(matches!(error, TextError::NoToken { character: 'é', byte: 0xC3 }), "{error}");
    assert_eq!(error.to_string(), "the vocabulary has no token for 'é' and none for its byte 0xC3 (`<0xC3>`)");

    set(&mut file, "model", "gpt2");
    set(&mut file, "merges", Vec::<String>::new());
    assert_eq!(read(&file).unwrap().encode("aéa", false, false).unwrap(), [2, 2]);
}

/// What is said of a file after a change.
fn refusal(change: impl FnOnce(&mut Writer)) -> String {
    let mut file = bytes();
    change(&mut file);
    read(&file).expect_err("the file is read").to_string()
}

#[test]
fn files_that_lie_are_refused_with_the_key() {
    let cases: Vec<(String, &str)> = vec![
        (
            refusal(|file| remove(file, "model")),
            "no `tokenizer.ggml.model`, which must be \"gpt2\", \"llama\", \"t5\" or \"bert\"",
        ),
        (refusal(|file| set(file, "model", "rwkv")), "`tokenizer.ggml.model` is \"rwkv\", but only \"gpt2\""),
        (refusal(|file| set(file, "model", "t5")), "no `tokenizer.ggml.scores`, which must be an array of `f32`"),
        (refusal(|file| set(file, "model", 3_u32)), "`tokenizer.ggml.model` is a `u32`, but must be a string"),
        (refusal(|file| set(file, "pre", "tekken-num3")), "`tokenizer.ggml.pre` is \"tekken-num3\", but only these"),
        (
            refusal(|file| set(file, "metaspace.prepend_scheme", "first")),
            "`tokenizer.ggml.metaspace.prepend_scheme` is \"first\"",
        ),
        (refusal(|file| remove(file, "tokens")), "no `tokenizer.ggml.tokens`"),
        (refusal(|file| set(file, "tokens", vec![1_i32])), "`tokenizer.ggml.tokens` is an array of 1 `i32`"),
        (refusal(|file| set(file, "tokens", Vec::<String>::new())), "`tokenizer.ggml.tokens` has 0 strings"),
        (refusal(|file| set(file, "tokens", vec!["a".to_owned(); 2])), "has \"a\" twice, as tokens 0 and 1"),
        (
            refusal(|file| set(file, "token_type", vec![1_i32])),
            "`tokenizer.ggml.token_type` has 1 values, but the file has 264",
        ),
        (refusal(|file| set(file, "token_type", vec![6_i32; 264])), "says that token 0, \"Ā\", is a byte"),
        (refusal(|file| set(file, "scores", vec![f32::NAN; 264])), "`tokenizer.ggml.scores` is NaN for token 0"),
        (refusal(|file| set(file, "scores", vec![0.0_f32])), "`tokenizer.ggml.scores` has 1 values"),
        (refusal(|file| remove(file, "merges")), "no `tokenizer.ggml.merges`"),
        (refusal(|file| set(file, "merges", vec!["he".to_owned()])), "has \"he\" as value 0, which is not two tokens"),
        (refusal(|file| set(file, "merges", vec!["h l".to_owned()])), "\"hl\" is not among the tokens"),
        (refusal(|file| set(file, "merges", vec!["é".to_owned()])), "has \"é\" as value 0, which is not two tokens"),
        (
            refusal(|file| set(file, "bos_token_id", 264_u32)),
            "`tokenizer.ggml.bos_token_id` is 264, but the file has 264 tokens",
        ),
        (refusal(|file| set(file, "padding_token_id", -2_i32)), "`tokenizer.ggml.padding_token_id` is a `i32`"),
        (
            refusal(|file| set(file, "eot_token_id", "x")),
            "`tokenizer.ggml.eot_token_id` is a `str`, but must be the number",
        ),
        (
            refusal(|file| set(file, "add_bos_token", 1_u32)),
            "`tokenizer.ggml.add_bos_token` is a `u32`, but must be a boolean",
        ),
        (
            refusal(|file| {
                set(file, "add_bos_token", true);
                set(file, "bos_token_id", u32::MAX);
            }),
            "`tokenizer.ggml.add_bos_token` asks for tokenizer.ggml.bos_token_id",
        ),
        (
            refusal(|file| {
                *file = words();
                remove(file, "unknown_token_id");
            }),
            "lacks the unknown token, the first token or the separator",
        ),
    ];
    for (said, expected) in cases {
        assert!(said.contains(expected), "{said}\nnot: {expected}");
    }
}

#[test]
fn tokenizers_of_changed_files_never_panic() {
    let mut random = fastrand::Rng::with_seed(5);
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..500 {
        let mut file = [bytes(), spaces(), scores(), words()][random.usize(..4)].clone();
        for _ in 0..random.usize(1..4) {
            change(&mut file, &mut random);
        }
        let Ok(tokenizer) = read(&file) else {
            refused += 1;
            continue;
        };
        accepted += 1;
        for text in ["hello <s>he\u{0}ll\u{FFFD}é🎉", " \n\n a<|im_end|><tool>ab", "UNwanted, 中"] {
            // A character without a token is an error, and others must not be.
            let encoded = tokenizer.encode(text, random.bool(), random.bool());
            assert!(matches!(encoded, Ok(_) | Err(TextError::NoToken { .. })), "{encoded:?}");
            for id in encoded.unwrap_or_default() {
                tokenizer.piece(id, true).unwrap();
            }
        }
    }
    assert!(accepted > 50 && refused > 50, "{accepted} were read, {refused} refused");
}

/// Changes a value, or puts another key's value in its place.
fn change(file: &mut Writer, random: &mut fastrand::Rng) {
    let reader = ggml::gguf::Reader::from_bytes(file.to_bytes().unwrap()).unwrap();
    let all: Vec<(String, Value)> = reader.key_values().map(|(key, value)| (key.to_owned(), value.clone())).collect();
    let Some((key, value)) = random.choice(&all).cloned() else { return };
    let other = match value {
        Value::Array(Array::String(texts)) => {
            let mut texts: Vec<String> = texts.iter().map(str::to_owned).collect();
            let n = texts.len().max(1);
            match random.u32(..4) {
                0 => texts.truncate(random.usize(..n)),
                1 if !texts.is_empty() => {
                    texts[random.usize(..n)] = random.choice(["", "he", " ", "<0xGG>", "é é"]).unwrap().into();
                }
                2 if !texts.is_empty() => drop(texts.remove(random.usize(..n))),
                _ => random.shuffle(&mut texts),
            }
            texts.into()
        }
        Value::Array(Array::I32(mut numbers)) => {
            let n = numbers.len();
            numbers[random.usize(..n)] = random.i32(-1..8);
            numbers.into()
        }
        Value::Array(Array::F32(mut numbers)) => {
            let n = numbers.len();
            numbers[random.usize(..n)] = *random.choice(&[f32::INFINITY, -0.0, 1e30, f32::NEG_INFINITY]).unwrap();
            numbers.into()
        }
        Value::U32(_) => Value::U32(random.u32(..300)),
        Value::String(_) if key.ends_with("model") => random.choice(["gpt2", "llama", "bert", "t5"]).unwrap().into(),
        Value::String(_) => random.choice(["default", "llama-bpe", "gpt-4o", "smollm"]).unwrap().into(),
        other => other,
    };
    file.set(&key, other).unwrap();
}

#[test]
fn long_texts_take_linear_time() {
    // The tokens of a megabyte; quadratic time would be hours.
    let text = ["hello \n", "    ", "12345", "é中", "<tool>"].concat().repeat(40_000);
    for file in [bytes(), spaces(), scores(), words()] {
        assert!(read(&file).unwrap().encode(&text, true, true).unwrap().len() > 100_000);
    }
    for unbroken in ["a", " ", "\n", "'", "1", "\u{301}"] {
        let text = unbroken.repeat(300_000);
        for file in [bytes(), spaces(), scores(), words()] {
            read(&file).unwrap().encode(&text, true, true).unwrap();
        }
    }
}
