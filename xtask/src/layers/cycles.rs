//! Import cycles between modules.

use std::collections::{BTreeMap, BTreeSet};

/// The cycles, each with all its modules.
pub(super) fn find(uses: &BTreeMap<&str, BTreeSet<&str>>) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = uses.keys().map(|&from| (from, reach(uses, from))).collect();
    let reaches = |a: &str, b: &str| reached.get(a).is_some_and(|to| to.contains(b));
    let mut circles: Vec<BTreeSet<String>> = Vec::new();
    for &module in uses.keys().filter(|m| reaches(m, m)) {
        if !circles.iter().any(|c| c.contains(module)) {
            let others = uses.keys().filter(|other| reaches(module, other) && reaches(other, module));
            circles.push(others.map(|&m| m.to_owned()).collect());
        }
    }
    circles
}

/// All modules that a module uses, directly or indirectly.
fn reach<'a>(uses: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut left: Vec<&str> = uses.get(from).into_iter().flatten().copied().collect();
    while let Some(module) = left.pop() {
        if seen.insert(module) {
            left.extend(uses.get(module).into_iter().flatten());
        }
    }
    seen
}
