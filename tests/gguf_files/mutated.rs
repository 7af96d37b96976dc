//! Randomly changed files: what is accepted is placed, and ggml reads the same.

use ggml::Device;
use ggml::gguf::{Error, Load as _, Reader};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::against_c;
use crate::everything;

/// Fails where ggml reads something else, or nothing.
fn use_all(bytes: &[u8]) -> Result<(), Error> {
    let reader = Reader::from_bytes(bytes)?;
    let memory = Device::cpu().unwrap().buffer_type();
    assert_eq!(reader.load(memory).unwrap().iter().count(), reader.tensors().count());
    against_c::same(bytes, &reader);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ggml_reads_what_the_reader_accepts(
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        whole in prop::option::of((any::<prop::sample::Index>(), any::<u64>())),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        let mut bytes = everything();
        // Tensor data can have any value.
        let described = usize::try_from(Reader::from_bytes(&bytes).unwrap().data_offset()).unwrap();
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
