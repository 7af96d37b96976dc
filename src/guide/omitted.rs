//! omitted
