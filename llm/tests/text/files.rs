//! Small files with vocabularies.

use ggml::gguf::{Reader, Value, Writer};
use ggml_llm::text::{TextResult, Tokenizer};

/// Byte-level BPE of all bytes, in the order of the alphabet's characters, and some more tokens.
pub(crate) fn bytes() -> Writer {
    let (mut tokens, mut rest) = (Vec::new(), 0x100);
    for byte in 0..=u8::MAX {
        let printable = matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
        tokens.push(if printable { char::from(byte).to_string() } else { char::from_u32(rest).unwrap().to_string() });
        rest += u32::from(!printable);
    }
    tokens.extend(["he", "ll", "hell", "hello", "Ġhe", "<s>", "<|im_end|>", "<tool>"].map(str::to_owned));
    let mut types = vec![1_i32; tokens.len()];
    types[261..].copy_from_slice(&[3, 3, 4]);
    let merges = ["h e", "l l", "he ll", "hell o", "Ġ he"].map(str::to_owned).to_vec();
    let mut file = Writer::new();
    set(&mut file, "model", "gpt2");
    set(&mut file, "pre", "gpt-2");
    set(&mut file, "tokens", tokens);
    set(&mut file, "token_type", types);
    set(&mut file, "merges", merges);
    set(&mut file, "bos_token_id", 261_u32);
    set(&mut file, "eos_token_id", 262_u32);
    file
}

/// SentencePiece with bytes.
pub(crate) fn spaces() -> Writer {
    let mut tokens = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..=u8::MAX).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(["▁", "a", "b", "ab", "▁a", "▁ab", "é", "ba"].map(str::to_owned));
    let mut types = vec![6_i32; 259];
    types[..3].copy_from_slice(&[2, 3, 3]);
    types.resize(tokens.len(), 1);
    let mut scores = vec![0.0_f32; 259];
    scores.extend([-1.0, -1.0, -1.0, -2.0, -4.0, -3.0, -1.0, -1.5]);
    let mut file = Writer::new();
    set(&mut file, "model", "llama");
    set(&mut file, "tokens", tokens);
    set(&mut file, "token_type", types);
    set(&mut file, "scores", scores);
    file
}

/// A unigram model, with a table of replacements: `B` becomes `b`.
pub(crate) fn scores() -> Writer {
    let tokens = ["<pad>", "</s>", "<unk>", "▁", "▁a", "b", "▁ab", "<tool>", "aa"];
    let mut file = Writer::new();
    set(&mut file, "model", "t5");
    set(&mut file, "tokens", tokens.map(str::to_owned).to_vec());
    set(&mut file, "token_type", vec![3, 3, 2, 1, 1, 1, 1, 4, 5]);
    set(&mut file, "scores", vec![0.0_f32, 0.0, 0.0, -3.0, -1.0, -2.0, -2.5, 0.0, -1.0]);
    set(&mut file, "add_space_prefix", true);
    set(&mut file, "remove_extra_whitespaces", true);
    // The root's children are at 256 ^ byte; that of `B`, 322, ends a text, whose replacement is at 322 ^ 2.
    let mut nodes = vec![0_u32; 323];
    (nodes[0], nodes[322], nodes[320]) = (256 << 10, 2 << 10 | 1 << 8 | u32::from(b'B'), 1 << 31);
    let mut table = u32::try_from(4 * nodes.len()).unwrap().to_le_bytes().to_vec();
    table.extend(nodes.iter().flat_map(|node| node.to_le_bytes()));
    table.extend(b"b\0");
    set(&mut file, "precompiled_charsmap", table);
    file
}

/// WordPiece.
pub(crate) fn words() -> Writer {
    let tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁un", "want", "ed", "▁want", "▁,", "▁e", "▁中"];
    let mut types = vec![1_i32; tokens.len()];
    types[..4].fill(3);
    let mut file = Writer::new();
    set(&mut file, "model", "bert");
    set(&mut file, "tokens", tokens.map(str::to_owned).to_vec());
    set(&mut file, "token_type", types);
    set(&mut file, "unknown_token_id", 1_u32);
    set(&mut file, "bos_token_id", 2_u32);
    set(&mut file, "seperator_token_id", 3_u32);
    file
}

/// Sets `tokenizer.ggml.` and the key.
pub(crate) fn set(file: &mut Writer, key: &str, value: impl Into<Value>) {
    file.set(&format!("tokenizer.ggml.{key}"), value).unwrap();
}

pub(crate) fn remove(file: &mut Writer, key: &str) {
    file.remove(&format!("tokenizer.ggml.{key}")).unwrap();
}

pub(crate) fn read(file: &Writer) -> TextResult<Tokenizer> {
    Tokenizer::from_gguf(&Reader::from_bytes(file.to_bytes().unwrap()).unwrap())
}
