//! Operations on several devices that work as one.

mod check;
mod states;

pub(crate) use check::{check, check_absent, most_used, places};
pub(crate) use states::knows;
