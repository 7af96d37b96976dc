//! Streamed text.

use ggml_llm::text::{TextError, TokenStream};

use crate::files::{bytes, read, spaces, words};

/// The stream's answers for bytes, then for the end.
fn pushed(bytes_: &[u8]) -> Vec<String> {
    let tokenizer = read(&bytes()).unwrap();
    let mut stream = TokenStream::new(&tokenizer);
    let mut all: Vec<String> = bytes_.iter().map(|&byte| stream.push(byte.into()).unwrap().to_owned()).collect();
    all.push(stream.finish().to_owned());
    assert_eq!(all.concat(), String::from_utf8_lossy(bytes_));
    assert_eq!(stream.finish(), "", "the stream is at its beginning");
    all
}

#[test]
fn characters_come_whole() {
    assert_eq!(pushed("a€é".as_bytes()), ["a", "", "", "€", "", "é", ""]);
    assert_eq!(pushed("🎉".as_bytes()), ["", "", "", "🎉", ""]);
}

#[test]
fn bytes_that_are_no_text_are_replaced_at_once() {
    assert_eq!(pushed(&[0xFF, b'a']), ["\u{FFFD}", "a", ""]);
    assert_eq!(pushed(&[0xE2, 0x82, b'a']), ["", "", "\u{FFFD}a", ""]);
    assert_eq!(pushed(&[0xE2, 0xE2, 0x82, 0xAC]), ["", "\u{FFFD}", "", "€", ""]);
    assert_eq!(pushed(&[0xF0, 0x9F]), ["", "", "\u{FFFD}"]);
    assert_eq!(pushed(&[0x80, 0xED, 0xA0]), ["\u{FFFD}", "", "\u{FFFD}\u{FFFD}", ""]);
}

#[test]
fn special_tokens_are_hidden_or_shown() {
    let tokenizer = read(&bytes()).unwrap();
    let ids = [261, 259, 263, 260, 262];
    let text = |mut stream: TokenStream<'_>| ids.map(|id| stream.push(id).unwrap().to_owned()).concat();
    assert_eq!(text(TokenStream::new(&tokenizer)), "hello<tool> he");
    assert_eq!(text(TokenStream::new(&tokenizer).showing_special()), "<s>hello<tool> he<|im_end|>");
}

#[test]
fn byte_tokens_and_spaces_are_written() {
    let tokenizer = read(&spaces()).unwrap();
    let mut stream = TokenStream::new(&tokenizer);
    let text: String =
        [1, 263, 3 + 0xC3, 3 + 0xA9, 259, 3 + 0x0A].map(|id| stream.push(id).unwrap().to_owned()).concat();
    assert_eq!(text, " aé \n");
    let tokenizer = read(&words()).unwrap();
    let mut stream = TokenStream::new(&tokenizer);
    assert_eq!([2, 4, 5, 6].map(|id| stream.push(id).unwrap().to_owned()).concat(), " unwanted");
}

#[test]
fn unknown_tokens_leave_the_stream_as_it_was() {
    let tokenizer = read(&bytes()).unwrap();
    let mut stream = TokenStream::new(&tokenizer);
    assert_eq!(stream.push(0xC3).unwrap(), "");
    for id in [-1, 264, i32::MAX] {
        let error = stream.push(id).unwrap_err();
        assert!(matches!(error, TextError::NoSuchToken { vocab_size: 264, .. }), "{error}");
    }
    assert_eq!(stream.push(0xA9).unwrap(), "é");
}
