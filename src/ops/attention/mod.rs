//! Attention, and what goes with it: the indexer of sparse attention, relative positions.

mod flash;
mod indexer;
mod rel_pos;

pub use flash::FlashAttn;
