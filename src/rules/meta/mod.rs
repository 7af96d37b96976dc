//! Which operations meta devices compute, and how their results are split.

mod check;
mod states;

pub(crate) use check::{check, check_absent, most_used, places};
pub(crate) use states::{Rule, knows};
