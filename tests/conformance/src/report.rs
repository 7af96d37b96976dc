//! What was counted, as JSON for `cargo xtask conformance`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// So many examples are kept of what went wrong.
const EXAMPLES: usize = 20;

/// What a device has computed.
#[derive(Debug)]
pub(crate) struct Tested {
    pub(crate) device: String,
    /// Cases that it does not support.
    pub(crate) declined: usize,
    right: usize,
    wrong: usize,
    examples: Vec<String>,
}

impl Tested {
    pub(crate) fn new(device: &str) -> Self {
        Self { device: device.into(), declined: 0, right: 0, wrong: 0, examples: Vec::new() }
    }

    /// Counts a case, with all that is wrong about it. Returns whether it is right.
    pub(crate) fn count(&mut self, case: &str, wrong: Vec<String>) -> bool {
        let Some(first) = wrong.first() else {
            self.right += 1;
            return true;
        };
        self.wrong += 1;
        if self.examples.len() < EXAMPLES {
            self.examples.push(format!("{case}: {first}"));
        }
        false
    }

    fn json(&self) -> Value {
        let Self { device, declined, right, wrong, examples } = self;
        json!({ "device": device, "declined": declined, "right": right, "wrong": wrong, "examples": examples })
    }
}

pub(crate) struct Report {
    pub(crate) cases: usize,
    /// Cases that the CPU doesn't support, by operation.
    pub(crate) cpu_refused: BTreeMap<String, usize>,
    /// Cases that it does.
    pub(crate) supported: usize,
    /// How many of these the device `rebuild` refuses, by operation and reason, with one of the cases.
    refused: BTreeMap<(String, String), (usize, String)>,
    pub(crate) rebuild: Tested,
    /// Cases that `rebuild` would compute.
    pub(crate) only_asked: usize,
    pub(crate) others: Vec<Tested>,
    pub(crate) races: Vec<String>,
    /// Bytes of devices, and streams, that live in the end.
    pub(crate) leaked: usize,
}

impl Report {
    pub(crate) fn new(device: &str) -> Self {
        Self {
            cases: 0,
            cpu_refused: BTreeMap::new(),
            supported: 0,
            refused: BTreeMap::new(),
            rebuild: Tested::new(device),
            only_asked: 0,
            others: Vec::new(),
            races: Vec::new(),
            leaked: 0,
        }
    }

    pub(crate) fn refuse(&mut self, op: &str, why: &str, case: &str) {
        // Before the reason, errors name the operands.
        let reason = why.rsplit("]: ").next().and_then(|why| why.rsplit("]): ").next()).unwrap_or(why);
        let example = || (0, format!("{case}: {why}"));
        self.refused.entry((op.to_owned(), reason.to_owned())).or_insert_with(example).0 += 1;
    }

    pub(crate) fn json(&self) -> Value {
        let refused: Vec<_> = self
            .refused
            .iter()
            .map(|((op, says), (cases, case))| json!({ "op": op, "says": says, "cases": cases, "example": case }))
            .collect();
        json!({
            "cases": self.cases,
            "cpu_refused": self.cpu_refused,
            "supported": self.supported,
            "refused": refused,
            "rebuild": self.rebuild.json(),
            "only_asked": self.only_asked,
            "others": self.others.iter().map(Tested::json).collect::<Vec<_>>(),
            "races": self.races,
            "leaked": self.leaked,
        })
    }
}
