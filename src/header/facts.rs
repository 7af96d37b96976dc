//! What a plan compares of tensors.

use std::mem::offset_of;

use ggml_sys as sys;

use super::TensorPtr;

/// Where a tensor's dimensions begin, and how many words there are from there to the end of its flags.
const FIRST: usize = offset_of!(sys::ggml_tensor, ne);
const WORDS: usize = 17;

/// What decides how an operation is planned, but for its sources and its memory.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    dtype: sys::ggml_type,
    words: [u64; WORDS],
}

/// A half of a word, the first or the second in memory.
fn half(word: u64, which: usize) -> [u8; 4] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    if which == 0 { [a, b, c, d] } else { [e, f, g, h] }
}

impl TensorPtr {
    /// What decides how an operation is planned.
    #[inline]
    pub(crate) fn facts(self) -> Facts {
        Facts { dtype: self.get().type_, words: *self.words() }
    }

    /// Whether that is the same; its parameters may be left out.
    #[inline]
    pub(crate) fn is_like(self, facts: &Facts, params: bool) -> bool {
        if self.get().type_ != facts.dtype {
            return false;
        }
        if !params {
            // Those of closures have gaps, in which C leaves anything.
            return self.is_like_but_for_params(facts);
        }
        self.words().iter().zip(&facts.words).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }

    fn is_like_but_for_params(self, facts: &Facts) -> bool {
        let known = |words: &[u64; WORDS]| {
            let [ne0, ne1, ne2, ne3, nb0, nb1, nb2, nb3, op, .., flags] = *words;
            ([ne0, ne1, ne2, ne3, nb0, nb1, nb2, nb3], half(op, 0), half(flags, 1))
        };
        known(self.words()) == known(&facts.words)
    }

    /// Dimensions, strides, operation, parameters and flags, which lie in a row.
    #[inline]
    fn words(&self) -> &[u64; WORDS] {
        const {
            assert!(FIRST.is_multiple_of(8), "words are aligned");
            assert!(offset_of!(sys::ggml_tensor, nb) == FIRST + 4 * 8, "strides follow dimensions");
            assert!(offset_of!(sys::ggml_tensor, op) == FIRST + 8 * 8, "the operation follows");
            assert!(offset_of!(sys::ggml_tensor, op_params) == FIRST + 8 * 8 + 4, "its parameters follow");
            assert!(offset_of!(sys::ggml_tensor, flags) == FIRST + WORDS * 8 - 4, "the flags are last");
        }
        let words = self.as_ptr().cast::<u64>().wrapping_add(FIRST / 8).cast::<[u64; WORDS]>();
        // SAFETY: inside the tensor, which is live by the type's invariants, and aligned: it begins with `ne`. All of it are
        // numbers, without padding (asserted above). Writers are on this thread and not inside this borrow.
        unsafe { &*words }
    }
}
