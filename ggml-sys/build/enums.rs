//! Gives C enums the same Rust type on every target.
//!
//! Compilers choose the type of an enum: on Unix unsigned if no value is negative, Microsoft's always signed. Size and
//! calling convention are the same, so the declarations may use either.

use std::collections::BTreeMap;

const SIGNED: &str = "::core::ffi::c_int";
const UNSIGNED: &str = "::core::ffi::c_uint";

/// bindgen's declarations with every enum unsigned, except those with a negative value.
pub fn with_one_signedness(declarations: &str) -> String {
    let negative = enums(declarations);
    let mut text = String::with_capacity(declarations.len());
    for line in declarations.lines() {
        let of_enum = alias(line).filter(|(_, to)| [SIGNED, UNSIGNED].contains(to));
        match of_enum.and_then(|(name, _)| Some((name, negative.get(name)?))) {
            Some((name, is_negative)) => {
                let of = if *is_negative { SIGNED } else { UNSIGNED };
                text.extend(["pub type ", name, " = ", of, ";"]);
            }
            None => text += line,
        }
        text.push('\n');
    }
    text
}

/// The enum types of constants, and whether one of the type's constants is negative.
fn enums(declarations: &str) -> BTreeMap<&str, bool> {
    let mut all = BTreeMap::new();
    let mut lines = declarations.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some((_, rest)) = line.strip_prefix("pub const ").and_then(|line| line.split_once(": ")) else { continue };
        let Some((of, value)) = rest.split_once(" =") else { continue };
        // Long declarations have the value on the next line.
        let value = if value.trim().is_empty() { lines.next().unwrap_or_default() } else { value.trim() };
        *all.entry(of).or_insert(false) |= value.starts_with('-');
    }
    all
}

/// `pub type NAME = TYPE;`
fn alias(line: &str) -> Option<(&str, &str)> {
    line.trim().strip_prefix("pub type ")?.strip_suffix(';')?.split_once(" = ")
}
