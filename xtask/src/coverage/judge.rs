//! Compares headers and sources by the rules in CONTRIBUTING.md.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::coverage::header::Header;
use crate::coverage::listed::{CoverageList, Omission};
use crate::coverage::source::FileNames;

/// Folders in which each file is a module of its own: the code for an alias must be in the same file.
const FLAT: [&str; 2] = ["src", "src/ops"];

/// The sources by path, such as `src/ops/unary.rs`.
pub(crate) type Sources = BTreeMap<String, FileNames>;

/// How a function is covered.
#[derive(Debug, Clone)]
pub(crate) enum Fate {
    /// Wrapped by these items, in this way.
    Wrapped(Vec<String>, How),
    Omitted(Omission),
    Missing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum How {
    Called,
    /// Through a more general function.
    Through(String),
    /// Reimplemented in Rust.
    Rewritten,
}

/// The number of functions per fate.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) wrapped: usize,
    pub(crate) omitted: usize,
    pub(crate) missing: usize,
}

impl Count {
    pub(crate) fn all(self) -> usize {
        self.wrapped + self.omitted + self.missing
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.wrapped += other.wrapped;
        self.omitted += other.omitted;
        self.missing += other.missing;
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wrapped, omitted, missing } = self;
        write!(f, "functions={} wrapped={wrapped} omitted={omitted} missing={missing}", self.all())
    }
}

/// A header with the fates of its functions.
#[derive(Debug)]
pub(crate) struct Chapter {
    pub(crate) header: String,
    pub(crate) fates: Vec<(String, Fate)>,
}

impl Chapter {
    pub(crate) fn count(&self) -> Count {
        let mut count = Count::default();
        for (_, fate) in &self.fates {
            match fate {
                Fate::Wrapped(..) => count.wrapped += 1,
                Fate::Omitted(_) => count.omitted += 1,
                Fate::Missing => count.missing += 1,
            }
        }
        count
    }
}

#[derive(Debug)]
pub(crate) struct Judge<'a> {
    listed: &'a CoverageList,
    sources: &'a Sources,
    /// The files and items per alias.
    aliases: BTreeMap<&'a str, Vec<(&'a str, &'a str)>>,
    pub(crate) problems: Vec<String>,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(listed: &'a CoverageList, sources: &'a Sources) -> Self {
        let mut aliases = BTreeMap::<_, Vec<_>>::new();
        for (path, source) in sources {
            for alias in &source.aliases {
                aliases.entry(alias.name.as_str()).or_default().push((path.as_str(), alias.item.as_str()));
            }
        }
        Self { listed, sources, aliases, problems: vec![] }
    }

    /// Determines the fates of the functions of `judged`; `known` is every word of every header.
    pub(crate) fn judge(&mut self, judged: &[Header], known: &BTreeSet<String>) -> Vec<Chapter> {
        let mut seen = BTreeSet::new();
        for name in self.listed.names() {
            if !known.contains(name) {
                self.problems.push(format!("docs/omitted.toml lists {name}, which is in no header"));
            }
            if !seen.insert(name) {
                self.problems.push(format!("docs/omitted.toml lists {name} twice"));
            }
        }
        for (name, places) in &self.aliases {
            if !known.contains(*name) {
                let (path, item) = places.first().unwrap_or(&("", ""));
                self.problems.push(format!("{path}: {item} has the alias {name}, which is in no header"));
            }
        }
        let chapters = judged.iter().map(|header| Chapter {
            header: header.file.clone(),
            fates: header.functions.iter().map(|f| (f.clone(), self.fate(f))).collect(),
        });
        chapters.collect()
    }

    fn fate(&mut self, function: &str) -> Fate {
        let listed = self.listed;
        let Some(places) = self.aliases.get(function).cloned() else {
            if let Some(omission) = listed.omitted.get(function) {
                return Fate::Omitted(omission.clone());
            }
            if listed.names().any(|name| name == function) {
                self.problems.push(format!("docs/omitted.toml lists {function}, which no item has as its alias"));
            }
            return Fate::Missing;
        };
        if let Some((path, item)) = places.first().filter(|_| listed.omitted.contains_key(function)) {
            self.problems.push(format!("docs/omitted.toml omits {function}, which {item} in {path} wraps"));
        }
        let mut how = How::Called;
        let mut stale = true;
        for &(path, item) in &places {
            if self.calls(path, function) {
                continue;
            }
            stale = false;
            if self.called_elsewhere(function) {
                continue;
            }
            if let Some(general) = listed.shorthand.get(function) {
                if !self.calls(path, general) && !self.called_elsewhere(general) {
                    self.problems.push(format!(
                        "{path}: {item} has the alias {function}, shorthand for {general}, which nothing there calls"
                    ));
                }
                how = How::Through(general.clone());
            } else if listed.in_rust.get(path).is_some_and(|names| names.contains(function)) {
                how = How::Rewritten;
            } else {
                self.problems.push(format!("{path}: {item} has the alias {function}, which nothing there calls"));
            }
        }
        if stale && listed.names().any(|name| name == function) && !listed.omitted.contains_key(function) {
            self.problems.push(format!("docs/omitted.toml lists {function}, which is called where its alias is"));
        }
        for (path, _) in listed.in_rust.iter().filter(|(_, names)| names.contains(function)) {
            if !places.iter().any(|(place, _)| place == path) {
                self.problems.push(format!("docs/omitted.toml: {path} has no alias {function}"));
            }
        }
        let items: BTreeSet<_> = places.iter().map(|(_, item)| (*item).to_owned()).collect();
        Fate::Wrapped(items.into_iter().collect(), how)
    }

    /// Whether `function` is called in the file, or in the folder of the same module.
    fn calls(&self, path: &str, function: &str) -> bool {
        let stem = path.strip_suffix(".rs").unwrap_or(path);
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        self.sources.iter().any(|(other, source)| {
            let inside = |of: &str| other.strip_prefix(of).is_some_and(|rest| rest.starts_with('/'));
            let near = other == path || inside(stem) || (!FLAT.contains(&folder) && inside(folder));
            near && source.calls.contains(function)
        })
    }

    fn called_elsewhere(&self, function: &str) -> bool {
        let file = self.listed.called_in.get(function);
        file.and_then(|file| self.sources.get(file)).is_some_and(|source| source.calls.contains(function))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        impl Tensor {
            #[doc(alias = "ggml_called")] pub fn called(self) { sys::ggml_called() }
            #[doc(alias = "ggml_called_1d")] pub fn called_1d(self) {}
        }
    "#;

    /// The fates (first words) and problems of a header with these functions, given `FILE` and a second file.
    fn judged(functions: &[&str], other: &str, listed: &str) -> (Vec<String>, Vec<String>) {
        let known = functions.iter().map(|&f| f.to_owned()).collect();
        let header = Header { functions: functions.iter().map(|&f| f.to_owned()).collect(), ..Header::default() };
        let sources = [("src/a.rs", FILE), ("src/b/mod.rs", other), ("src/b/raw.rs", "fn f() { sys::ggml_raw() }")];
        let sources: Sources = sources.map(|(path, text)| (path.into(), FileNames::parse(text).unwrap())).into();
        let listed = CoverageList::parse(listed).unwrap();
        let mut judge = Judge::new(&listed, &sources);
        let chapters = judge.judge(&[header], &known);
        let words = chapters[0].fates.iter().map(|(f, fate)| match fate {
            Fate::Wrapped(items, how) => format!("{f} {} {how:?}", items.join("+")),
            Fate::Omitted(o) => format!("{f} omitted {}", o.instead),
            Fate::Missing => format!("{f} missing"),
        });
        (words.collect(), judge.problems)
    }

    const BOTH: &[&str] = &["ggml_called", "ggml_called_1d"];
    const SHORTHAND: &str = "[shorthand]\nggml_called_1d = \"ggml_called\"\n";

    #[test]
    fn alias_without_a_call_is_a_problem_unless_shorthand() {
        let (_, problems) = judged(BOTH, "", "");
        assert_eq!(problems, ["src/a.rs: Tensor::called_1d has the alias ggml_called_1d, which nothing there calls"]);
        let (fates, problems) = judged(BOTH, "", SHORTHAND);
        assert_eq!(problems, [""; 0]);
        assert_eq!(
            fates,
            ["ggml_called Tensor::called Called", "ggml_called_1d Tensor::called_1d Through(\"ggml_called\")"]
        );
        let (_, problems) = judged(BOTH, "", "[shorthand]\nggml_called_1d = \"ggml_raw\"\n");
        assert_eq!(problems.len(), 1, "what it is shorthand for is called somewhere else: {problems:?}");
        let (_, problems) = judged(BOTH, "", "[in-rust]\n\"src/a.rs\" = [\"ggml_called_1d\"]\n");
        assert_eq!(problems, [""; 0]);
    }

    #[test]
    fn call_counts_in_its_module_or_where_listed() {
        let of = |alias: &str| format!("#[doc(alias = \"{alias}\")] pub struct S;");
        let functions = &["ggml_called", "ggml_called_1d", "ggml_raw"];
        let (fates, problems) = judged(functions, &of("ggml_raw"), SHORTHAND);
        assert_eq!((fates[2].as_str(), problems), ("ggml_raw S Called", vec![]));
        let (_, problems) = judged(functions, &of("ggml_called"), SHORTHAND);
        assert_eq!(problems, ["src/b/mod.rs: S has the alias ggml_called, which nothing there calls"]);
        let there = format!("{SHORTHAND}[called-in]\nggml_called = \"src/a.rs\"\n");
        let (_, problems) = judged(functions, &of("ggml_called"), &there);
        assert_eq!(problems, [""; 0]);
        let (_, problems) = judged(functions, "", &there);
        assert_eq!(problems, ["docs/omitted.toml lists ggml_called, which is called where its alias is"]);
    }

    #[test]
    fn function_neither_wrapped_nor_omitted_is_missing() {
        let functions = &["ggml_called", "ggml_called_1d", "ggml_a", "ggml_b"];
        let listed = format!("{SHORTHAND}[omitted]\nggml_b = {{ reason = \"rust\", instead = \"std\" }}\n");
        let (fates, problems) = judged(functions, "", &listed);
        assert_eq!((&fates[2..], problems), (&["ggml_a missing".into(), "ggml_b omitted std".into()][..], vec![]));
    }

    #[test]
    fn stale_list_entry_is_a_problem() {
        for (line, says) in [
            ("[omitted]\nggml_gone = { reason = \"raw\", instead = \"x\" }", "lists ggml_gone, which is in no header"),
            (
                "[omitted]\nggml_called = { reason = \"raw\", instead = \"x\" }",
                "omits ggml_called, which Tensor::called",
            ),
            ("[in-rust]\n\"src/a.rs\" = [\"ggml_called\"]", "lists ggml_called, which is called where"),
            ("[called-in]\nggml_called_1d = \"src/a.rs\"", "lists ggml_called_1d twice"),
            ("[in-rust]\n\"src/a.rs\" = [\"ggml_called_1d\"]", "lists ggml_called_1d twice"),
        ] {
            let (_, problems) = judged(BOTH, "", &format!("{SHORTHAND}{line}\n"));
            assert!(problems.iter().any(|p| p.contains(says)), "{line}: {problems:?}");
        }
        assert!(CoverageList::parse("[omitted]\nggml_a = { reason = \"mood\", instead = \"x\" }").is_err());
    }

    #[test]
    fn alias_of_no_function_is_a_problem() {
        let (_, problems) = judged(BOTH, "#[doc(alias = \"ggml_typo\")] struct S;", SHORTHAND);
        assert_eq!(problems, ["src/b/mod.rs: S has the alias ggml_typo, which is in no header"]);
    }
}
