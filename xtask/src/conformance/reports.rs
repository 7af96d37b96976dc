//! What the shards report, added up.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// What a device has computed.
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(super) struct Tested {
    device: String,
    /// Cases that it does not support.
    declined: usize,
    right: usize,
    wrong: usize,
    examples: Vec<String>,
}

impl Tested {
    fn add(&mut self, other: Self) {
        self.device = other.device;
        self.declined += other.declined;
        self.right += other.right;
        self.wrong += other.wrong;
        self.examples.extend(other.examples);
    }
}

/// Cases that the device `rebuild` refuses.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refused {
    pub(super) op: String,
    pub(super) says: String,
    pub(super) cases: usize,
    pub(super) example: String,
}

/// As the program writes it, or the sum of several.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Reports {
    cases: usize,
    cpu_refused: BTreeMap<String, usize>,
    /// Cases that the CPU supports.
    supported: usize,
    pub(super) refused: Vec<Refused>,
    rebuild: Tested,
    /// Cases that the device `rebuild` would compute.
    only_asked: usize,
    others: Vec<Tested>,
    races: Vec<String>,
    leaked: usize,
}

impl Reports {
    /// Adds a shard's.
    pub(super) fn add(&mut self, report: Value) -> serde_json::Result<()> {
        let report: Self = serde_json::from_value(report)?;
        self.cases += report.cases;
        self.supported += report.supported;
        for (op, n) in report.cpu_refused {
            *self.cpu_refused.entry(op).or_default() += n;
        }
        self.refused.extend(report.refused);
        self.rebuild.add(report.rebuild);
        self.only_asked += report.only_asked;
        self.others.resize(report.others.len(), Tested::default());
        self.others.iter_mut().zip(report.others).for_each(|(sum, other)| sum.add(other));
        self.races.extend(report.races);
        self.leaked += report.leaked;
        Ok(())
    }

    /// The cases that the device `rebuild` builds again, if it was asked to compute them with the CPU's results.
    pub(super) fn rebuilt(&self) -> usize {
        self.rebuild.right + self.only_asked
    }

    pub(super) fn summary(&self, listed: usize, unlisted: usize) -> String {
        let different: usize = self.all().map(|device| device.wrong).sum();
        format!(
            "conformance: cases={} rebuilt={} refused_listed={listed} refused_unlisted={unlisted} different={different} \
             races={} leaked={}",
            self.cases,
            self.rebuild.right,
            self.races.len(),
            self.leaked
        )
    }

    /// A line for each device.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        let line = |d: &Tested| format!("{}: right={} wrong={} declined={}", d.device, d.right, d.wrong, d.declined);
        let Self { cases, supported, only_asked, .. } = self;
        let cpu = format!("CPU: supports {supported} of {cases}, {only_asked} of which were not computed");
        [cpu].into_iter().chain(self.all().map(line).collect::<Vec<_>>())
    }

    /// What is wrong, whatever was refused. With `all` cases, each device must have had some.
    pub(super) fn wrong(&self, all: bool) -> Vec<String> {
        let mut wrong: Vec<_> =
            self.all().flat_map(|d| d.examples.iter().map(move |text| format!("{}: {text}", d.device))).collect();
        wrong.extend(self.races.iter().map(|race| format!("race: {race}")));
        if self.leaked > 0 {
            wrong.push(format!("{} bytes of devices, or streams, live in the end", self.leaked));
        }
        let idle = self.all().filter(|d| d.right + d.wrong == 0);
        if all {
            wrong.extend(idle.map(|d| format!("{}: it computed nothing, so nothing was tested", d.device)));
        }
        wrong
    }

    fn all(&self) -> impl Iterator<Item = &Tested> {
        [&self.rebuild].into_iter().chain(&self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn report(right: usize, examples: &[&str], races: &[&str], leaked: usize) -> Value {
        let device = |name: &str, right: usize, examples: &[&str]| json!({ "device": name, "declined": 1, "right": right, "wrong": examples.len(), "examples": examples });
        json!({
            "cases": 9, "cpu_refused": { "ROLL": 2 }, "supported": 7, "refused": [],
            "rebuild": device("rebuild", 5, &[]), "only_asked": 0, "others": [device("fake", right, examples)],
            "races": races, "leaked": leaked,
        })
    }

    fn sum(reports: &[Value]) -> Reports {
        let mut sum = Reports::default();
        for report in reports {
            sum.add(report.clone()).unwrap();
        }
        sum
    }

    #[test]
    fn shards_are_added_up() {
        let both = sum(&[report(3, &[], &[], 0), report(4, &["ADD(x): differs"], &["a write"], 8)]);
        assert_eq!(
            both.summary(2, 1),
            "conformance: cases=18 rebuilt=10 refused_listed=2 refused_unlisted=1 different=1 races=1 leaked=8"
        );
        let lines: Vec<_> = both.lines().collect();
        assert_eq!(lines[2], "fake: right=7 wrong=1 declined=2");
        assert_eq!(both.wrong(true).len(), 3, "{:?}", both.wrong(true));
    }

    #[test]
    fn a_device_that_computes_nothing_is_wrong() {
        let idle = sum(&[report(0, &[], &[], 0)]);
        assert_eq!(idle.wrong(true), ["fake: it computed nothing, so nothing was tested"]);
        assert!(idle.wrong(false).is_empty());
    }
}
