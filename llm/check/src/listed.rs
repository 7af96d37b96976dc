//! Differences from llama.cpp that have a known reason.

use std::fmt;

use ggml::gguf::Value;
use ggml_llm::Architecture;
use llama_reference::GGML_TYPE_F32;

use crate::draw::{Action, Draw};

/// How far logits of models without experts may be apart that differ in the last bits of what they are computed from: those of
/// quantised products become steps.
const SMALL: f32 = 2.0;

/// How a draw's results differ.
#[derive(Debug, Clone, PartialEq)]
pub enum Difference {
    /// This crate refuses what llama.cpp computes.
    Refused(String),
    /// There are not as many logits.
    Number(usize, usize),
    /// The logits are so far apart at most; the first that differs.
    Logits(f32, usize),
}

impl Difference {
    /// `None` if all bits are the same.
    pub fn of(theirs: &[f32], ours: &[f32]) -> Option<Self> {
        if theirs.len() != ours.len() {
            return Some(Self::Number(theirs.len(), ours.len()));
        }
        let pairs = || theirs.iter().zip(ours);
        let first = pairs().position(|(a, b)| a.to_bits() != b.to_bits())?;
        // What is not a number is infinitely far from all numbers.
        let far = pairs().map(|(a, b)| (a - b).abs()).map(|d| if d.is_nan() { f32::INFINITY } else { d });
        Some(Self::Logits(far.fold(0.0, f32::max), first))
    }
}

impl Difference {
    fn is_of_logits(&self) -> bool {
        matches!(self, Self::Logits(..))
    }

    /// Whether it may come of the last bits. Without experts these change little; with experts, others may be picked.
    fn is_small(&self, draw: &Draw) -> bool {
        matches!(self, Self::Logits(far, _) if *far <= SMALL || draw.has_experts())
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => write!(f, "this crate refuses it: {error}"),
            Self::Number(theirs, ours) => write!(f, "{theirs} logits, but {ours} of this crate"),
            Self::Logits(far, first) => write!(f, "max_abs_diff={far:e}, the first at logit {first}"),
        }
    }
}

/// A reason, and the draws that differ by it.
pub struct Listed {
    pub reason: &'static str,
    applies: fn(&Draw, &Difference) -> bool,
}

/// All reasons.
pub const LISTED: &[Listed] = &[
    Listed {
        reason: "without flash attention, llama.cpp multiplies matrices and takes a softmax: other operations",
        applies: |draw, difference| !draw.options.flash && difference.is_small(draw),
    },
    Listed {
        reason: "llama.cpp converts a cache of f32 to f16 before attention; this crate reads f32",
        applies: |draw, difference| draw.options.cache == GGML_TYPE_F32 && difference.is_small(draw),
    },
    Listed {
        reason: "a context shift with a factor of attention: llama.cpp's multiplies keys by it once more",
        applies: |draw, difference| {
            let factor = draw.value("rope.scaling.attn_factor").and_then(Value::as_f32).unwrap_or(1.0);
            draw.has(Action::is_shift) && (draw.scaling() == "yarn" || factor != 1.0) && difference.is_of_logits()
        },
    },
    Listed {
        reason: "gpt-oss without scaling, and with a factor: llama.cpp scales layers with a window all the same",
        applies: |draw, difference| {
            let without = draw.recipe.architecture == Architecture::GptOss && draw.scaling() == "none";
            without && difference.is_of_logits()
        },
    },
    Listed {
        reason: "mamba2 with several sequences: llama.cpp computes those together that follow one another by number, this \
                 crate all of a batch; last bits of products depend on the number of rows",
        applies: |draw, difference| {
            let several = draw.recipe.architecture == Architecture::Mamba2 && draw.options.n_seq > 1;
            several && difference.is_small(draw)
        },
    },
    Listed {
        reason: "a window, and tokens removed behind it: llama.cpp has overwritten some of those that the window shows then",
        applies: |draw, difference| {
            let removed = draw.has(|action| matches!(action, Action::Truncate(..)));
            draw.has_window() && removed && difference.is_of_logits()
        },
    },
    Listed {
        reason: "a window and a context shift: llama.cpp takes cells of tokens outside of the window again, and adds up in \
                 another order",
        applies: |draw, difference| draw.has_window() && draw.has(Action::is_shift) && difference.is_small(draw),
    },
    Listed {
        reason: "a context shift of tokens that another sequence has, too: this crate refuses it",
        applies: |draw, difference| {
            let shared = matches!(difference, Difference::Refused(error) if error.contains("another sequence"));
            shared && draw.has(Action::is_shift)
        },
    },
];

/// The index of the first reason for a difference.
pub fn reason(draw: &Draw, difference: &Difference) -> Option<usize> {
    LISTED.iter().position(|listed| (listed.applies)(draw, difference))
}
