//! The RPC protocol as ggml's source has it, beside `src/rpc/wire.rs`.

use std::collections::BTreeMap;

use super::lines::difference;

/// Commands that `wire.rs` does not name, and messages whose sizes changed.
pub(super) fn compare(old: &str, new: &str, wire: &str) -> Vec<String> {
    let unknown = commands(new).into_iter().filter(|name| !["NONE", "COUNT"].contains(&name.as_str()));
    let mut found: Vec<_> = unknown
        .filter(|name| !wire.contains(&format!("{name:?}")))
        .map(|name| format!("RPC_CMD_{name} is not in src/rpc/wire.rs"))
        .collect();
    let numbered =
        |text: &str| commands(text).iter().enumerate().map(|(i, name)| format!("{i} {name}")).collect::<Vec<_>>();
    found.extend(difference(&numbered(old), &numbered(new)));
    let sizes =
        |text: &str| sizes(text).into_iter().map(|(name, size)| format!("{name} of {size}")).collect::<Vec<_>>();
    found.extend(difference(&sizes(old), &sizes(new)));
    found
}

/// The names of the commands, in order of their numbers.
fn commands(text: &str) -> Vec<String> {
    let body =
        text.split_once("enum rpc_cmd {").and_then(|(_, rest)| rest.split_once('}')).map_or("", |(body, _)| body);
    let names = body.split(',').filter_map(|item| item.split('=').next()?.trim().strip_prefix("RPC_CMD_"));
    names.map(str::to_owned).collect()
}

/// The packed size of each message, or why it is unknown.
fn sizes(text: &str) -> BTreeMap<String, String> {
    let mut known = BTreeMap::from(
        [("uint8_t", 1), ("bool", 1), ("char", 1), ("uint32_t", 4), ("int32_t", 4), ("uint64_t", 8), ("int64_t", 8)]
            .map(|(name, size)| (name.to_owned(), size)),
    );
    let mut found = BTreeMap::new();
    for part in text.split("\nstruct ").skip(1) {
        let Some((name, body)) =
            part.split_once(" {").and_then(|(name, rest)| Some((name, rest.split_once("\n};")?.0)))
        else {
            continue;
        };
        if name != "rpc_tensor" && !name.starts_with("rpc_msg_") {
            continue;
        }
        let lines = body.lines().map(|line| line.split("//").next().unwrap_or_default());
        let code = lines.collect::<Vec<_>>().join(" ");
        let fields = code.split(';').map(str::trim).filter(|field| !field.is_empty());
        let size = fields.map(|field| length(field, &known).ok_or(field)).sum::<Result<usize, _>>();
        if let Ok(size) = size {
            known.insert(name.to_owned(), size);
        }
        found.insert(
            name.to_owned(),
            size.map_or_else(|field| format!("unknown: {field}"), |size| format!("{size} bytes")),
        );
    }
    found
}

/// The bytes of a field, `TYPE NAME` or `TYPE NAME[COUNT]`.
fn length(field: &str, known: &BTreeMap<String, usize>) -> Option<usize> {
    let (of, name) = field.split_once(char::is_whitespace)?;
    let one = *known.get(of)?;
    let Some((_, count)) = name.split_once('[') else { return Some(one) };
    let count = count.strip_suffix(']')?;
    // ggml.h and transport.h
    let count = match count {
        "GGML_MAX_DIMS" => 4,
        "GGML_MAX_SRC" => 10,
        "GGML_MAX_NAME" => 64,
        "GGML_MAX_OP_PARAMS / sizeof(int32_t)" => 16,
        "RPC_CONN_CAPS_SIZE" => 24,
        number => number.parse().ok()?,
    };
    Some(one * count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "enum rpc_cmd {\n RPC_CMD_A = 0,\n RPC_CMD_B,\n RPC_CMD_COUNT,\n};\n\
        struct rpc_tensor {\n uint64_t id;\n uint32_t ne[GGML_MAX_DIMS];\n};\n\
        struct rpc_msg_a_req {\n rpc_tensor tensor; // it\n uint8_t value;\n};\nstruct other {\n int x;\n};\n";

    #[test]
    fn new_commands_and_sizes_are_listed() {
        let new = OLD.replace("RPC_CMD_B,", "RPC_CMD_B,\n RPC_CMD_C,").replace("uint8_t value", "uint64_t  value");
        assert!(compare(OLD, OLD, "\"A\" \"B\"").is_empty());
        assert_eq!(
            compare(OLD, &new, "\"A\" \"B\""),
            [
                "RPC_CMD_C is not in src/rpc/wire.rs",
                "- 2 COUNT",
                "+ 2 C",
                "+ 3 COUNT",
                "- rpc_msg_a_req of 25 bytes",
                "+ rpc_msg_a_req of 32 bytes"
            ]
        );
    }

    #[test]
    fn a_field_that_cannot_be_measured_is_said() {
        let text = "\nstruct rpc_msg_b_req {\n something x;\n};\n";
        assert_eq!(sizes(text).get("rpc_msg_b_req").map(String::as_str), Some("unknown: something x"));
    }
}
