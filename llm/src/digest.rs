//! Digests of bytes.

/// A number that follows from all bytes, and differs where a few of them do. Nothing is proved by it: who makes up bytes can
/// make up their digest.
pub(crate) fn digest(before: u64, bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    let words = words.iter().copied().chain([last, (bytes.len() as u64).to_le_bytes()]);
    // The multiplier is a large prime; the rotation takes high bits to low ones.
    words.fold(before, |hash, word| {
        (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C4F).rotate_left(29)
    })
}
