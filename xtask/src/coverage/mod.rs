//! `cargo xtask coverage`: where the safe layer covers each public function of ggml, or why it doesn't.

mod header;
mod judge;
mod listed;
mod report;
mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use walkdir::WalkDir;

use crate::workspace::Workspace;
use header::Header;
use judge::{Chapter, Count, Judge, Sources};
use listed::CoverageList;
use source::FileNames;

/// The headers to cover completely.
const HEADERS: [&str; 12] = [
    "ggml.h",
    "ggml-backend.h",
    BACKEND_IMPL,
    "ggml-alloc.h",
    "ggml-cpu.h",
    "gguf.h",
    "ggml-opt.h",
    "ggml-rpc.h",
    "ggml-blas.h",
    "ggml-vulkan.h",
    "ggml-cuda.h",
    "ggml-metal.h",
];

/// What a backend implements, beside the public headers.
const BACKEND_IMPL: &str = "../src/ggml-backend-impl.h";

/// The maximum share of omitted functions per header, in percent.
const OMITTED: usize = 15;

/// The number that may be omitted of a small header, such as a backend's, which the registry mostly covers.
const FEW: usize = 6;

const REPORT: &str = "docs/coverage.md";
const OMITTED_PAGE: &str = "src/guide/omitted.rs";

/// The sources of the library: its own, and those of the published crates in Rust beside it.
const SOURCES: [&str; 3] = ["src", "ggml-gguf/src", "ggml-draw/src"];

#[derive(Debug, clap::Args)]
pub(crate) struct CoverageArguments {
    /// Write nothing; fail where a page is not up to date
    #[arg(long)]
    check: bool,
}

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run(arguments: &CoverageArguments) -> Result<()> {
    let workspace = Workspace::find()?;
    let sources = read_sources(&workspace.root)?;
    let listed = CoverageList::parse(&read(&workspace.root.join("docs/omitted.toml"))?)?;
    let pins = workspace.pins()?;
    let mut problems = Vec::new();
    for pin in &pins.all {
        let include = workspace.sources(pin)?.join("include");
        let mut known = known(&include)?;
        problems.extend(listed.misdated(&pin.ggml, &known));
        let (listed, later) = listed.at(&pin.ggml);
        known.extend(later);
        let headers = HEADERS.iter().map(|file| {
            let name = file.rsplit('/').next().unwrap_or(file);
            Ok(Header::parse(name, &read(&include.join(file))?))
        });
        let headers = headers.collect::<Result<Vec<_>>>()?;
        let mut judge = Judge::new(&listed, &sources);
        let chapters = judge.judge(&headers, &known);
        problems.extend(judge.problems.iter().map(|problem| format!("with ggml {}: {problem}", pin.ggml)));
        problems.extend(chapters.iter().flat_map(incomplete).map(|what| format!("with ggml {}: {what}", pin.ggml)));
        if pin.ggml == pins.default {
            problems.extend(report(&workspace.root, &chapters, arguments.check)?);
        }
        let mut total = Count::default();
        for chapter in &chapters {
            total.add(chapter.count());
            println!("coverage of {} of ggml {}: {}", chapter.header, pin.ggml, chapter.count());
        }
        println!("coverage of ggml {}: {total}", pin.ggml);
    }
    if !problems.is_empty() {
        bail!("{} problems:\n  {}", problems.len(), problems.join("\n  "));
    }
    Ok(())
}

/// Writes the pages, or `check`s that they are up to date; returns what is wrong with them.
fn report(root: &Path, chapters: &[Chapter], check: bool) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for (file, text) in [(REPORT, report::write(chapters)), (OMITTED_PAGE, report::omitted(chapters))] {
        let path = root.join(file);
        if !check {
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        } else if fs::read_to_string(&path).ok().is_none_or(|old| old != text) {
            problems.push(format!("{file} is out of date: run `cargo xtask coverage`"));
        }
    }
    Ok(problems)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The library's sources without tests, which may call C directly, and without the page of omitted functions, whose
/// aliases wrap nothing.
fn read_sources(root: &Path) -> Result<Sources> {
    let mut sources = Sources::new();
    for entry in SOURCES.into_iter().flat_map(|folder| WalkDir::new(root.join(folder))) {
        let entry = entry?;
        let path = entry.path().strip_prefix(root)?;
        let tests = path.iter().any(|part| part == "tests" || part == "tests.rs");
        if tests || path == Path::new(OMITTED_PAGE) || path.extension().is_none_or(|e| e != "rs") {
            continue;
        }
        let name = path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/");
        let source = FileNames::parse(&read(entry.path())?).with_context(|| name.clone())?;
        sources.insert(name, source);
    }
    Ok(sources)
}

/// Every word of every public header.
fn known(include: &Path) -> Result<BTreeSet<String>> {
    let mut known = BTreeSet::new();
    for entry in fs::read_dir(include).with_context(|| format!("cannot list {}", include.display()))? {
        known.append(&mut Header::parse("", &read(&entry?.path())?).words);
    }
    known.append(&mut Header::parse("", &read(&include.join(BACKEND_IMPL))?).words);
    Ok(known)
}

/// The problems of a header.
fn incomplete(chapter: &Chapter) -> Vec<String> {
    let missing = chapter.fates.iter().filter(|(_, fate)| matches!(fate, judge::Fate::Missing));
    let mut problems: Vec<_> = missing.map(|(f, _)| format!("{}: {f} is missing", chapter.header)).collect();
    let count = chapter.count();
    if count.omitted > FEW && count.omitted * 100 > count.all() * OMITTED {
        problems.push(format!("{}: {} functions are omitted, above {OMITTED} %", chapter.header, count.omitted));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use judge::Fate;

    #[test]
    fn coverage_requires_complete_headers_and_few_omissions() {
        let omitted = |n| listed::Omission { reason: listed::Reason::Raw, instead: format!("{n}") };
        let wrapped = || Fate::Wrapped(vec!["x".into()], judge::How::Called);
        let chapter = |header: &str, fates: Vec<Fate>| Chapter {
            header: header.into(),
            fates: fates.into_iter().map(|fate| ("f".to_owned(), fate)).collect(),
        };
        let few = (0..40).map(|n| if n < 6 { Fate::Omitted(omitted(n)) } else { wrapped() }).collect();
        assert_eq!(incomplete(&chapter("ggml.h", few)), [""; 0]);
        let many = (0..40).map(|n| if n < 7 { Fate::Omitted(omitted(n)) } else { wrapped() }).collect();
        assert_eq!(incomplete(&chapter("ggml.h", many)), ["ggml.h: 7 functions are omitted, above 15 %"]);
        assert_eq!(incomplete(&chapter("ggml.h", vec![Fate::Missing])), ["ggml.h: f is missing"]);
    }
}
