//! Truncated and randomly changed files: either refused, or accepted and then fully usable.

use ggml_gguf::{Error, Reader, Value, Writer};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::everything;
use crate::independent;

/// Also what is not equal to itself, as NaN is.
fn shown((key, value): (&str, &Value)) -> (String, String) {
    (key.to_owned(), format!("{value:?}"))
}

/// Reads everything in an accepted file.
fn use_all(bytes: &[u8]) -> Result<(), Error> {
    let reader = Reader::from_bytes(bytes)?;
    let mut total = 0;
    for t in reader.tensors() {
        let data = reader.data(t.name()).unwrap();
        assert_eq!(data.len(), t.size());
        total += data.len();
    }
    assert!(total <= bytes.len(), "no byte belongs to two tensors");
    for (key, value) in reader.key_values() {
        assert_eq!(reader.metadata(key).map(Value::type_name), Some(value.type_name()));
    }
    // What a reader gives, a writer takes.
    let mut writer = Writer::new();
    writer.set_kv(&reader).unwrap();
    for t in reader.tensors() {
        writer.tensor(t.name(), t.dtype(), t.shape(), reader.data(t.name()).unwrap()).unwrap();
    }
    let again = Reader::from_bytes(writer.to_bytes().unwrap()).unwrap();
    assert!(again.key_values().map(shown).eq(reader.key_values().map(shown)), "the same metadata");
    assert!(again.tensors().eq(reader.tensors()), "the same tensors");
    Ok(())
}

#[test]
fn reader_refuses_a_file_truncated_anywhere() {
    let bytes = everything().to_bytes().unwrap();
    let last = independent::parse(&bytes);
    // The three bytes of padding after the last tensor may be missing.
    let needed =
        last.described.next_multiple_of(32) + usize::try_from(last.tensors.last().unwrap().offset).unwrap() + 3;
    for len in 0..=bytes.len() {
        match Reader::from_bytes(&bytes[..len]) {
            Ok(_) => assert!(len >= needed, "{len} bytes of {}", bytes.len()),
            Err(e) => assert!(len < needed && matches!(e, Error::Gguf { .. }), "{len} bytes: {e}"),
        }
    }
}

#[test]
fn reader_survives_extreme_values_of_every_byte() {
    let bytes = everything().to_bytes().unwrap();
    let mut accepted = 0;
    for at in 0..independent::parse(&bytes).described {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = value;
            accepted += usize::from(use_all(&changed).is_ok());
        }
    }
    assert!(accepted > 0, "some changes, as to a number of the metadata, are harmless");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reader_survives_random_changes(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        whole in prop::option::of((any::<prop::sample::Index>(), any::<u64>())),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let mut bytes = everything().to_bytes().unwrap();
        // Tensor data can have any value.
        let described = independent::parse(&bytes).described;
        for (at, value) in changes {
            bytes[at.index(described)] = value;
        }
        if let Some((at, number)) = whole {
            let at = at.index(described - 8);
            bytes[at..at + 8].copy_from_slice(&number.to_ne_bytes());
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Err(e) = use_all(&bytes) {
            prop_assert!(matches!(e, Error::Gguf { .. }), "{}", e);
        }
    }
}
