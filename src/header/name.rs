//! Names of C tensors.

use std::ffi::c_char;

use super::TensorPtr;

impl TensorPtr {
    /// The whole name field, with the NUL and the bytes after the NUL.
    #[inline]
    pub(crate) fn raw_name(&self) -> &[c_char] {
        &self.get().name
    }

    pub(crate) fn name(self) -> String {
        let name = self.get().name.map(|c| u8::from_ne_bytes(c.to_ne_bytes()));
        let end = name.iter().position(|&c| c == 0).unwrap_or(name.len());
        String::from_utf8_lossy(name.get(..end).unwrap_or_default()).into_owned()
    }

    /// Names the tensor. The name is cut at a character boundary to what ggml holds (63 bytes).
    pub(crate) fn set_name(mut self, name: &str) {
        let t = self.get_mut();
        let mut end = name.len().min(t.name.len() - 1);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        t.name.fill(0);
        for (to, &from) in t.name.iter_mut().zip(name.as_bytes().iter().take(end)) {
            *to = c_char::from_ne_bytes([from]);
        }
    }

    /// Gives a name to a tensor without one.
    #[inline]
    pub(crate) fn name_if_nameless(mut self, name: &NumberedName) {
        let t = self.get_mut();
        if t.name[0] == 0 {
            for (to, from) in t.name.iter_mut().zip(name.text) {
                *to = c_char::from_ne_bytes([from]);
            }
        }
    }
}

/// A name that ends in a number, padded with NULs. Counting up its digits is faster than formatting a number for each
/// tensor.
#[derive(Clone, Copy)]
pub(crate) struct NumberedName {
    text: [u8; 32],
    len: usize,
}

impl NumberedName {
    /// A numbered name that starts at `first`, which must end in a number of one digit.
    pub(crate) fn new(first: &[u8]) -> Self {
        let mut text = [0; 32];
        for (to, &from) in text.iter_mut().zip(first) {
            *to = from;
        }
        Self { text, len: first.len() }
    }

    /// Adds 1 to the number in the name.
    #[inline]
    pub(crate) fn count(&mut self) {
        for i in (0..self.len).rev() {
            match self.text.get_mut(i) {
                Some(digit @ b'0'..=b'8') => return *digit += 1,
                Some(digit @ b'9') => *digit = b'0',
                _ => return self.lengthen(i + 1),
            }
        }
    }

    /// Makes the number one digit longer: puts a 1 before its digits, which begin at `at` and are all 0. The field has
    /// room for any number.
    #[cold]
    fn lengthen(&mut self, at: usize) {
        if let Some(end) = self.text.get_mut(self.len) {
            *end = b'0';
            self.len += 1;
        }
        if let Some(first) = self.text.get_mut(at) {
            *first = b'1';
        }
    }
}
