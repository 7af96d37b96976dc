//! The order of a graph, found without recursion.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ptr::NonNull;

use ggml_sys as sys;

use crate::tensor::ptr::TensorPtr;

/// Positions of tensors.
pub(super) type Index = HashMap<TensorPtr, usize, BuildHasherDefault<PointerHasher>>;

/// Beyond this depth, C is not left to recurse: a frame of its takes some 100 bytes, threads have at least 64 KiB.
const DEEP: usize = 256;

/// Everything that some tensors depend on, in the order in which ggml itself would visit it.
#[derive(Default)]
pub(super) struct Walk {
    pub(super) order: Vec<TensorPtr>,
    pub(super) index: Index,
    /// How many of `order` are operations.
    pub(super) nodes: usize,
    /// Whether a chain of dependencies is too long for recursion.
    pub(super) deep: bool,
}

impl Walk {
    pub(super) fn from(outputs: impl Iterator<Item = TensorPtr>) -> Self {
        let mut walk = Self::default();
        // What is being visited, with the number of the source to look at next.
        let mut path: Vec<(TensorPtr, usize)> = Vec::new();
        for output in outputs {
            walk.enter(output, &mut path);
            while let Some((t, next)) = path.last_mut() {
                let src = t.srcs().get(*next).copied();
                *next += 1;
                if let Some(raw) = src {
                    if let Some(raw) = NonNull::new(raw) {
                        // SAFETY: the source of a live tensor lives (TensorPtr's invariants).
                        let src = unsafe { TensorPtr::new(raw) };
                        walk.enter(src, &mut path);
                    }
                } else {
                    let t = *t;
                    path.pop();
                    walk.index.insert(t, walk.order.len());
                    walk.order.push(t);
                    walk.nodes += usize::from(!is_leaf(t));
                }
            }
        }
        walk
    }

    /// Begins a visit, unless `t` was visited or is being visited.
    fn enter(&mut self, t: TensorPtr, path: &mut Vec<(TensorPtr, usize)>) {
        if self.index.contains_key(&t) {
            return;
        }
        self.index.insert(t, usize::MAX);
        path.push((t, 0));
        self.deep |= path.len() > DEEP;
    }
}

/// Whether ggml treats `t` as a leaf: made by no operation, and no parameter of a training.
pub(super) fn is_leaf(t: TensorPtr) -> bool {
    t.op() == sys::GGML_OP_NONE && t.flags() & sys::GGML_TENSOR_FLAG_PARAM.cast_signed() == 0
}

/// Spreads pointers: they differ in their middle bits.
#[derive(Default)]
pub(super) struct PointerHasher(u64);

impl Hasher for PointerHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_usize(usize::from(b));
        }
    }

    fn write_usize(&mut self, n: usize) {
        self.0 = (self.0.rotate_left(5) ^ n as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        // The table uses the top bits and the bottom ones.
        self.0 ^ (self.0 >> 32)
    }
}
