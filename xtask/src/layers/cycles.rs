//! Import cycles between modules.

use std::collections::{BTreeMap, BTreeSet};

type Uses<'a> = BTreeMap<&'a str, BTreeSet<String>>;

/// The cycles, each with all its modules.
pub(super) fn find<'a>(uses: &Uses<'a>) -> Vec<Vec<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = uses.keys().map(|&from| (from, reach(uses, from))).collect();
    let reaches = |a: &str, b: &str| reached.get(a).is_some_and(|to| to.contains(b));
    let mut circles: Vec<Vec<&str>> = Vec::new();
    for &module in uses.keys().filter(|m| reaches(m, m)) {
        if !circles.iter().any(|c| c.contains(&module)) {
            let others = uses.keys().filter(|other| reaches(module, other) && reaches(other, module));
            circles.push(others.copied().collect());
        }
    }
    circles
}

/// All modules that a module uses, directly or indirectly.
fn reach<'a>(uses: &'a Uses<'_>, from: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut left: Vec<&str> = uses.get(from).into_iter().flatten().map(String::as_str).collect();
    while let Some(module) = left.pop() {
        if seen.insert(module) {
            left.extend(uses.get(module).into_iter().flatten().map(String::as_str));
        }
    }
    seen
}
