//! What a program has made so far.

use ggml::prelude::*;

use crate::model::Model;

/// A tensor of a program.
#[derive(Debug, Clone)]
pub(crate) struct Known<'c> {
    pub(crate) t: Tensor<'c>,
    /// What it holds, as long as that is followed.
    pub(crate) model: Option<Model>,
    /// Whose memory it looks at: a bit.
    pub(crate) root: u128,
    /// Whose memory its value depends on.
    pub(crate) deps: u128,
    /// A copy, which can be an output without side effects on what is computed; none for leaves.
    pub(crate) copy: Option<Tensor<'c>>,
    /// The operation's place in the table.
    pub(crate) op: usize,
}

impl Known<'_> {
    pub(crate) fn ne(&self) -> [i64; 4] {
        self.t.ne()
    }

    pub(crate) fn dtype(&self) -> DType {
        self.t.dtype()
    }
}

/// An input and the data that it gets.
#[derive(Debug, Clone)]
pub(crate) struct Input<'c> {
    pub(crate) t: Tensor<'c>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) root: u128,
}

/// What a step made.
pub(crate) struct Made<'c> {
    pub(crate) t: Tensor<'c>,
    pub(crate) model: Option<Model>,
    pub(crate) memory: Memory,
}

/// Whose memory the result of a step lies in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Memory {
    /// Its own.
    New,
    /// That of the operand with this bit, which is only looked at.
    View(u128),
    /// That of the operand with this bit, which is written to.
    Written(u128),
}

/// Tensors of a program, and what they get their values from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bench<'c> {
    pub(crate) known: Vec<Known<'c>>,
    pub(crate) inputs: Vec<Input<'c>>,
    /// Leaves of states, which may be written to; they are in `known` too.
    pub(crate) targets: Vec<Known<'c>>,
    /// Leaves of weights; they are in `known` too.
    pub(crate) weights: Vec<Known<'c>>,
    /// What is not computed: too large, or without a kernel.
    pub(crate) odd: Vec<Known<'c>>,
    pub(crate) roots: u32,
    /// How many elements further on views of leaves begin.
    pub(crate) wander: usize,
    /// What chooses, now and then, another operand of the same type, shape and strides; nothing else changes by it.
    pub(crate) swap: Option<fastrand::Rng>,
}

impl Bench<'_> {
    pub(crate) fn next_root(&mut self) -> u128 {
        self.roots += 1;
        1 << (self.roots - 1).min(127)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.roots > 110
    }
}

/// Elements of the largest tensor that is computed.
pub(crate) const LARGEST: usize = 1 << 13;
