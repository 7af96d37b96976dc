//! Recurrences over tokens.

mod delta;
mod heads;
mod ssm;
