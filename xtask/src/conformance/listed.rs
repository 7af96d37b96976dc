//! The list of what the safe interface refuses of ggml's cases, and why: tests/conformance/refusals.toml.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::reports::Reports;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    /// By ggml's version, how many cases must be built again at least.
    rebuilt: BTreeMap<String, usize>,
    #[serde(default)]
    refused: Vec<Group>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    /// The operations, by ggml's names.
    ops: Vec<String>,
    /// What the refusal says, or a part of it.
    says: String,
    /// Why the cases are refused.
    reason: String,
    /// By ggml's version, how many are. A version that is not named has none.
    cases: BTreeMap<String, usize>,
}

/// The verdict.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) listed: usize,
    pub(super) unlisted: usize,
    /// What was refused for a reason that is listed.
    pub(super) notes: Vec<String>,
    pub(super) wrong: Vec<String>,
}

impl Listed {
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let listed: Self = toml::from_str(&text).with_context(|| file.display().to_string())?;
        for group in &listed.refused {
            ensure!(!group.ops.is_empty() && !group.reason.is_empty(), "a group has no operations or no reason");
        }
        Ok(listed)
    }

    /// Compares what was refused with the list. Unless `all` cases were run, some may be missing.
    pub(super) fn judge(&self, ggml: &str, reports: &Reports, all: bool) -> Judged {
        let mut judged = Judged::default();
        let mut found = vec![0; self.refused.len()];
        let mut unlisted = BTreeMap::<_, (usize, &str)>::new();
        for refused in &reports.refused {
            let names = |group: &Group| group.ops.contains(&refused.op) && refused.says.contains(&group.says);
            if let Some((n, _)) = found.iter_mut().zip(&self.refused).find(|(_, group)| names(group)) {
                *n += refused.cases;
                judged.listed += refused.cases;
            } else {
                let key = (&refused.op, &refused.says);
                unlisted.entry(key).or_insert((0, &refused.example)).0 += refused.cases;
                judged.unlisted += refused.cases;
            }
        }
        for (group, n) in self.refused.iter().zip(found) {
            let expected = group.cases.get(ggml).copied().unwrap_or(0);
            let name = format!("{} ({})", group.ops.join(", "), group.says);
            if n > 0 {
                judged.notes.push(format!("refused: {n} of {name}: {}", group.reason));
            }
            if n > expected || (all && n != expected) {
                judged.wrong.push(format!("the list has {expected} refusals of {name}, and there were {n}"));
            }
        }
        for ((op, says), (n, example)) in unlisted {
            judged.wrong.push(format!("not listed: {n} of {op} ({says}), such as {example}"));
        }
        let least = self.rebuilt.get(ggml).copied().unwrap_or(0);
        if all && reports.rebuilt() < least {
            judged.wrong.push(format!("{} cases were built again, and must be {least} at least", reports.rebuilt()));
        }
        judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const LIST: &str = r#"
        rebuilt = { "1.0" = 5 }

        [[refused]]
        ops = ["SQR", "SUM"]
        says = "at least 1"
        reason = "empty tensors"
        cases = { "1.0" = 3 }
    "#;

    fn judge(refused: &[(&str, &str, usize)], ggml: &str, all: bool) -> Judged {
        let list: Listed = toml::from_str(LIST).unwrap();
        let one = |&(op, says, cases): &(&str, &str, usize)| json!({ "op": op, "says": says, "cases": cases, "example": "x" });
        let mut reports = Reports::default();
        let report = json!({
            "cases": 9, "cpu_refused": {}, "supported": 9, "only_asked": 0, "others": [], "races": [], "leaked": 0,
            "refused": refused.iter().map(one).collect::<Vec<_>>(),
            "rebuild": { "device": "rebuild", "declined": 0, "right": 5, "wrong": 0, "examples": [] },
        });
        reports.add(report).unwrap();
        list.judge(ggml, &reports, all)
    }

    const SQR: (&str, &str, usize) = ("SQR", "every dimension must be at least 1", 2);

    #[test]
    fn a_listed_refusal_passes() {
        let judged = judge(&[SQR, ("SUM", "at least 1", 1)], "1.0", true);
        assert_eq!((judged.listed, judged.unlisted, judged.wrong.len()), (3, 0, 0), "{judged:?}");
        assert_eq!(judged.notes, ["refused: 3 of SQR, SUM (at least 1): empty tensors"]);
    }

    #[test]
    fn an_unlisted_refusal_is_wrong() {
        for unlisted in [("SQR", "another reason", 1), ("ADD", "at least 1", 1)] {
            let judged = judge(&[SQR, ("SUM", "at least 1", 1), unlisted], "1.0", true);
            assert_eq!((judged.listed, judged.unlisted, judged.wrong.len()), (3, 1, 1), "{judged:?}");
            assert!(
                judged.wrong[0].starts_with(&format!("not listed: 1 of {} ({}), such as x", unlisted.0, unlisted.1)),
                "{judged:?}"
            );
        }
    }

    #[test]
    fn a_group_with_fewer_or_more_cases_is_wrong() {
        for n in [0, 2, 4] {
            let judged = judge(&[("SUM", "at least 1", n)], "1.0", true);
            assert_eq!(judged.wrong, [format!("the list has 3 refusals of SQR, SUM (at least 1), and there were {n}")]);
            assert_eq!(judge(&[("SUM", "at least 1", n)], "1.0", false).wrong.is_empty(), n < 3, "some cases only");
        }
        assert_eq!(judge(&[SQR], "2.0", false).wrong.len(), 1, "this version has none");
    }

    #[test]
    fn fewer_cases_than_ever_are_wrong() {
        let more = LIST.replace("= 5", "= 6");
        let list: Listed = toml::from_str(&more).unwrap();
        assert_eq!(list.judge("1.0", &Reports::default(), false).wrong.len(), 0);
        assert!(list.judge("1.0", &Reports::default(), true).wrong[1].starts_with("0 cases were built again"));
    }
}
