//! The frame of a saved sequence: what it belongs to, its length, and a digest of all.
//!
//! Whoever restores a sequence may have it from a file, so nothing in it is believed: see [`unpack`].

use crate::digest::digest;
use crate::error::{Error, Result};

/// The first bytes.
const MAGIC: &[u8; 8] = b"ggmlseq2";

/// The frame around the keys, values and states of a sequence.
pub(crate) fn pack(owner: u64, length: i32, body: &[u8]) -> Vec<u8> {
    let mut head = owner.to_le_bytes().to_vec();
    head.extend(length.to_le_bytes());
    let digest = digest(digest(0, &head), body);
    [MAGIC, &head[..], &digest.to_le_bytes(), body].concat()
}

/// The length and what is in the frame, if it belongs to `owner` and is not damaged. The length is not negative; that as
/// much is in the frame is not checked.
pub(super) fn unpack(owner: u64, bytes: &[u8]) -> Result<(i32, &[u8])> {
    let wrong = |what: &str| Error::Saved(what.into());
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| wrong("these are not the bytes of a saved sequence"))?;
    let short = || wrong("the bytes end too early");
    let (head, rest) = rest.split_first_chunk::<12>().ok_or_else(short)?;
    let (found, body) = rest.split_first_chunk::<8>().ok_or_else(short)?;
    let [a, b, c, d, e, f, g, h, length @ ..] = *head;
    if u64::from_le_bytes([a, b, c, d, e, f, g, h]) != owner {
        return Err(wrong("it belongs to another model, or to a cache of another type"));
    }
    let length = i32::from_le_bytes(length);
    if u64::from_le_bytes(*found) != digest(digest(0, head), body) || length < 0 {
        return Err(wrong("it is damaged"));
    }
    Ok((length, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_unpacked_and_nothing_else() {
        let body: Vec<u8> = (0..37).collect();
        let bytes = pack(7, 3, &body);
        assert_eq!(unpack(7, &bytes).unwrap(), (3, &body[..]));
        assert!(unpack(8, &bytes).unwrap_err().to_string().contains("another model"));
        for i in 0..bytes.len() {
            assert!(unpack(7, &bytes[..i]).is_err(), "{i} bytes");
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[i] ^= 1 << bit;
                assert!(unpack(7, &changed).is_err(), "bit {bit} of byte {i}");
            }
        }
        assert!(unpack(7, &[&bytes[..], &[0]].concat()).is_err(), "a byte more");
        assert!(unpack(7, &pack(7, -1, &body)).is_err(), "a negative length");
    }
}
