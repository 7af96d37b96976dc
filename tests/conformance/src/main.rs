//! ggml's own tests of operations (`test-backend-ops`), on devices written in Rust: `cargo xtask conformance` builds and runs
//! it, and judges what it reports.

mod builder;
mod rebuild;
mod report;
mod suite;

#[allow(dead_code, reason = "a program of its own")]
#[path = "../../../examples/custom_device/main.rs"]
mod custom_device;
#[allow(dead_code, reason = "a program of its own")]
#[path = "../../../examples/record.rs"]
mod record;

use std::collections::HashMap;
use std::error::Error;
use std::ffi::{CStr, CString};
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;

use ggml::Registry;
use testkit::fake_gpu::{self, Control, FakeOptions};

use report::{Report, Tested};
use suite::{Outcome, Raw, Seen};

/// So many cases of an operation are always computed.
const FIRST: usize = 50;

struct Arguments {
    report: PathBuf,
    filter: Option<CString>,
    /// This process runs every `n`th case from `i` on.
    shard: (usize, usize),
    /// After an operation's first cases, `rebuild` computes each `n`th only. It is asked about all.
    compute: usize,
    /// The other devices get each `n`th case that it has computed.
    sample: usize,
    threads: usize,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let mut given =
        Arguments { report: PathBuf::new(), filter: None, shard: (0, 1), compute: 1, sample: 1, threads: 1 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word}: a value is missing"))?;
        match word.as_str() {
            "--report" => given.report = value.into(),
            "--filter" => given.filter = Some(CString::new(value)?),
            "--shard" => {
                let (i, n) = value.split_once('/').ok_or("--shard I/N")?;
                given.shard = (i.parse()?, n.parse()?);
            }
            "--compute" => given.compute = value.parse::<usize>()?.max(1),
            "--sample" => given.sample = value.parse::<usize>()?.max(1),
            "--threads" => given.threads = value.parse()?,
            _ => return Err(format!("{word} is no option").into()),
        }
    }
    Ok(given)
}

/// A file that says which case runs, for the one that ends the process.
struct Progress(fs::File);

impl Progress {
    fn say(&mut self, case: usize, device: &str) -> std::io::Result<()> {
        self.0.seek(SeekFrom::Start(0))?;
        self.0.write_all(format!("case {case:5} on {device:40}\n").as_bytes())
    }
}

/// A device beside `rebuild`, which must compute what that has computed.
struct Other {
    backend: Raw,
    tested: Tested,
    /// Whether its results are the CPU's bits, as it uses the CPU's kernels.
    exact: bool,
}

impl Other {
    fn new(name: &str, exact: bool) -> Result<Self, String> {
        Ok(Self { backend: Raw::of(name)?, tested: Tested::new(name), exact })
    }
}

/// Two GPUs that are made of the CPU: one that has computed when a call returns, and one that computes later.
fn fakes() -> [Arc<Control>; 2] {
    let [(_, first)] = fake_gpu::devices(FakeOptions { asynchronous: false, ..FakeOptions::default() });
    let [(_, second)] = fake_gpu::devices(FakeOptions::default());
    second.set_delays(true);
    [first, second]
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = arguments()?;
    let mut progress = Progress(fs::File::create(arguments.report.with_extension("case"))?);
    rebuild::register(arguments.threads)?;
    let fakes = fakes();
    Registry::register("Gemm", [custom_device::Gemm { least: 1 }])?;
    let recorder = record::Recorder { trace: record::Trace::default(), threads: arguments.threads };
    Registry::register("Recorder", [recorder])?;

    let mut report = Report::new(rebuild::NAME);
    {
        let cpu = Raw::cpu(arguments.threads)?;
        let rebuilds = Raw::of(rebuild::NAME)?;
        let mut others = [
            Other::new(&fakes[0].name, true)?,
            Other::new(&fakes[1].name, true)?,
            Other::new("gemm", false)?,
            Other::new("recorder", true)?,
        ];
        let mut of_operation = HashMap::<String, [usize; 2]>::new();
        let (first, step) = arguments.shard;
        let filter = arguments.filter.as_deref();
        for i in (first..suite::len()).step_by(step) {
            progress.say(i, rebuild::NAME)?;
            let (outcome, seen) = suite::ask(i, &rebuilds, &cpu, filter);
            let name = suite::name(i);
            if outcome == Outcome::LeftOut || !accepted(&mut report, &name, seen) {
                continue;
            }
            let op = name.split('(').next().unwrap_or_default().to_owned();
            let [n, n_right] = of_operation.entry(op).or_default();
            *n += 1;
            if *n > FIRST && !n.is_multiple_of(arguments.compute) {
                report.only_asked += 1;
                continue;
            }
            if !rebuilt(&mut report, &name, suite::run(i, &rebuilds, &cpu, filter)) {
                continue;
            }
            *n_right += 1;
            let is_sample = (*n_right - 1).is_multiple_of(arguments.sample);
            // The one with kernels of its own supports few cases.
            for other in others.iter_mut().filter(|other| is_sample || !other.exact) {
                progress.say(i, &other.tested.device)?;
                other_device(other, i, &name, &cpu, filter);
            }
        }
        report.others = others.map(|other| other.tested).into();
    }
    report.races = fake_gpu::take_races().iter().map(ToString::to_string).collect();
    report.leaked = rebuild::streams() + fakes.iter().map(|fake| fake.used()).sum::<usize>();
    fs::write(&arguments.report, report.json().to_string())?;
    Ok(())
}

/// Counts a case that `rebuild` was asked about. Returns whether it can compute it, and the CPU, too.
fn accepted(report: &mut Report, name: &str, seen: Seen) -> bool {
    report.cases += 1;
    if let Some(op) = seen.cpu_refused {
        *report.cpu_refused.entry(op).or_default() += 1;
        return false;
    }
    report.supported += 1;
    if let Some((op, why)) = &seen.refused {
        report.refuse(op, why, name);
    }
    seen.refused.is_none()
}

/// Counts a case that `rebuild` has computed. Returns whether it did so as the CPU does.
fn rebuilt(report: &mut Report, name: &str, (outcome, seen): (Outcome, Seen)) -> bool {
    let mut wrong = rebuild::take_failures();
    wrong.extend(seen.different);
    if seen.compared == 0 {
        wrong.push(format!("nothing was compared: {outcome:?}"));
    }
    report.rebuild.count(name, wrong)
}

fn other_device(other: &mut Other, i: usize, name: &str, cpu: &Raw, filter: Option<&CStr>) {
    let (outcome, seen) = suite::run(i, &other.backend, cpu, filter);
    if seen.refused.is_some() {
        other.tested.declined += 1;
        return;
    }
    let wrong = if other.exact { seen.different } else { Vec::new() };
    // What ggml calls wrong though the bits are the CPU's, such as NaN, is the CPU's doing.
    let failed = !other.exact && outcome != Outcome::Passed;
    other.tested.count(name, wrong.into_iter().chain(failed.then(|| format!("{outcome:?}"))).collect());
}
