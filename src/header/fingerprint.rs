//! The parts of a tensor header that must be equal for a plan to be reused.

use std::mem::offset_of;

use ggml_sys as sys;

use super::TensorPtr;

/// Where a tensor's dimensions begin in its header, and the number of 8-byte words from there to the end of its flags.
const FIRST: usize = offset_of!(sys::ggml_tensor, ne);
const WORDS: usize = 17;

/// What decides how an operation is planned, except its sources and its memory.
#[derive(Clone, Copy)]
pub(crate) struct TensorFingerprint {
    dtype: sys::ggml_type,
    words: [u64; WORDS],
}

/// One half of a word, in memory order: the first for `which` 0, else the second.
fn half(word: u64, which: usize) -> [u8; 4] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    if which == 0 { [a, b, c, d] } else { [e, f, g, h] }
}

impl TensorPtr {
    /// The tensor's fingerprint, to compare with later.
    #[inline]
    pub(crate) fn fingerprint(self) -> TensorFingerprint {
        TensorFingerprint { dtype: self.get().type_, words: *self.words() }
    }

    /// Whether the tensor has this fingerprint. `params` says whether to compare the operation's parameters too.
    #[inline]
    pub(crate) fn is_like(self, other: &TensorFingerprint, params: bool) -> bool {
        if self.get().type_ != other.dtype {
            return false;
        }
        if !params {
            // The parameters of closures have padding, which C leaves uninitialised, so parameters are not compared
            // then.
            return self.is_like_except_params(other);
        }
        self.words().iter().zip(&other.words).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }

    /// Whether the tensor has the fingerprint's type, operation and flags, whatever its sizes and parameters.
    #[inline]
    pub(crate) fn is_same_op(self, other: &TensorFingerprint) -> bool {
        let [_, _, _, _, _, _, _, _, op, .., last] = *self.words();
        let [_, _, _, _, _, _, _, _, other_op, .., other_last] = other.words;
        self.get().type_ == other.dtype && (half(op, 0), half(last, 1)) == (half(other_op, 0), half(other_last, 1))
    }

    fn is_like_except_params(self, other: &TensorFingerprint) -> bool {
        let known = |words: &[u64; WORDS]| {
            let [ne0, ne1, ne2, ne3, nb0, nb1, nb2, nb3, op, .., flags] = *words;
            ([ne0, ne1, ne2, ne3, nb0, nb1, nb2, nb3], half(op, 0), half(flags, 1))
        };
        known(self.words()) == known(&other.words)
    }

    /// Dimensions, strides, operation, parameters and flags, which are adjacent fields.
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
        // SAFETY: the tensor is live (the type's invariants). The words begin with `ne`, so they are aligned, and they
        // hold integers without padding (asserted above). Only this thread writes to the tensor, and not inside this
        // borrow.
        unsafe { &*words }
    }
}
