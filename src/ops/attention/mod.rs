//! Attention, the indexer of sparse attention, and relative positions.

mod flash;
mod indexer;
mod rel_pos;
