//! Programs that went through a hole once, by the letter of docs/safety.md ("Found by attack").

#![cfg(test)]
#![forbid(unsafe_code)]
#![allow(clippy::mem_forget, reason = "what is forgotten is what is tested")]

mod drivers;
mod found;
mod headers;
mod limits;
mod logger;
mod user_code;
