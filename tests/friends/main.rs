//! Arrays of `ndarray`, files of `safetensors`, and values of `serde`, as programs use them.

#![cfg(test)]

mod arrays;
mod files;
mod logged;
mod values;
