//! The alphabet of byte-level BPE: a printable character for each byte.

/// The character of each byte in vocabularies of byte-level BPE. Bytes that are printable in Latin-1 stand for
/// themselves; the others get the characters from U+0100 on.
pub const CHARACTERS: [char; 256] = characters();

const fn characters() -> [char; 256] {
    let mut characters = ['\0'; 256];
    let (mut byte, mut next) = (0_u8, 0x100_u32);
    loop {
        let itself = matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
        let code = if itself { byte as u32 } else { next };
        if let Some(character) = char::from_u32(code) {
            #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler; a byte is below 256")]
            {
                characters[byte as usize] = character;
            }
        }
        if !itself {
            next += 1;
        }
        if byte == u8::MAX {
            return characters;
        }
        byte += 1;
    }
}

/// The character of a byte.
pub(super) fn character(byte: u8) -> char {
    CHARACTERS.get(usize::from(byte)).copied().unwrap_or_default()
}

/// The byte of a character, if it has one.
pub(super) fn byte(character: char) -> Option<u8> {
    match u32::from(character) {
        code @ 0x100..=0x143 => {
            let place = CHARACTERS.iter().position(|&c| u32::from(c) == code)?;
            u8::try_from(place).ok()
        }
        code => u8::try_from(code).ok().filter(|&byte| self::character(byte) == character),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_has_a_character_for_each_byte() {
        let all: std::collections::HashSet<char> = CHARACTERS.into_iter().collect();
        assert_eq!(all.len(), 256);
        assert!((0..=255).all(|b| byte(character(b)) == Some(b)));
        assert_eq!([b' ', b'\n', b'A', 0xAD].map(character), ['\u{120}', '\u{10A}', 'A', '\u{143}']);
        assert_eq!([' ', '\u{AD}', '\u{144}', '€'].map(byte), [None; 4]);
    }
}
