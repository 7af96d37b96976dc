//! Building the example, running it, and reading what it wrote.

use std::env;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Longer than any run takes on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(120);

static DEMO: LazyLock<PathBuf> = LazyLock::new(|| build("sched_demo"));

/// An example, built just now with this test's profile and features, so that it is never an older one.
fn build(example: &str) -> PathBuf {
    // This is <target directory>/[<target>/]<profile>/deps/demo_cli-<hash>.
    let this = env::current_exe().unwrap();
    let profile = this.parent().and_then(Path::parent).unwrap();
    let above = profile.parent().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--example", example, "--no-default-features", "--features"]);
    cargo.arg(features().join(",")).arg("--manifest-path").arg(demos::repository().join("Cargo.toml"));
    let name = profile.file_name().unwrap();
    cargo.arg("--profile").arg(if name == "debug" { OsStr::new("dev") } else { name });
    if above.join(".rustc_info.json").exists() {
        cargo.arg("--target-dir").arg(above);
    } else {
        cargo.arg("--target-dir").arg(above.parent().unwrap()).arg("--target").arg(above.file_name().unwrap());
    }
    assert!(cargo.status().unwrap().success(), "the example does not build");
    profile.join("examples").join(format!("{example}{}", env::consts::EXE_SUFFIX))
}

fn features() -> Vec<&'static str> {
    let all =
        [("rpc", cfg!(feature = "rpc")), ("native", cfg!(feature = "native")), ("openmp", cfg!(feature = "openmp"))];
    all.into_iter().filter_map(|(name, on)| on.then_some(name)).collect()
}

/// What a run of the example ended with.
#[derive(Debug)]
pub(crate) struct Run {
    /// The exit status; none where a signal ended it.
    pub(crate) status: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the example, in a directory that is not the repository's.
pub(crate) fn run<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Run {
    let mut command = command(&DEMO);
    command.args(arguments).stdout(Stdio::piped());
    finish(command)
}

/// What another example writes, which takes no arguments and ends well.
#[track_caller]
pub(crate) fn lines_of(example: &str) -> Vec<String> {
    let mut command = command(&build(example));
    command.stdout(Stdio::piped());
    let run = finish(command);
    assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""), "{run:#?}");
    run.stdout.lines().map(str::to_owned).collect()
}

/// Runs the example while nobody reads its standard output.
pub(crate) fn run_unread() -> Run {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = command(&DEMO);
    command.stdout(writer);
    finish(command)
}

fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(env!("CARGO_TARGET_TMPDIR")).env_remove("RUST_LOG");
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

fn finish(mut command: Command) -> Run {
    let mut child = command.spawn().unwrap();
    let (stdout, stderr) = (child.stdout.take().map(drain), child.stderr.take().map(drain));
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{command:?} still ran after {LIMIT:?}");
        }
        thread::sleep(Duration::from_millis(5));
    };
    let text = |thread: Option<JoinHandle<String>>| thread.map(|t| t.join().unwrap()).unwrap_or_default();
    Run { status: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        text
    })
}

/// The last line of a good run.
#[derive(Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) accuracy: f64,
    pub(crate) splits: usize,
    pub(crate) copies: usize,
    pub(crate) devices: Vec<String>,
    pub(crate) max_abs_diff: f64,
}

impl Summary {
    /// Checks that the figures are what the example promises: those of a trained network, and of a true computation. A
    /// difference of nothing at all would be one that was never measured.
    #[track_caller]
    pub(crate) fn assert_good(&self) {
        assert!(self.accuracy >= 0.95 && self.max_abs_diff > 0.0 && self.max_abs_diff <= 1e-3, "{self:?}");
    }
}

impl Run {
    /// Checks that all went well.
    #[track_caller]
    pub(crate) fn summary(&self) -> Summary {
        assert_eq!((self.status, self.stderr.as_str()), (Some(0), ""), "{self:#?}");
        let line = self.stdout.lines().next_back().unwrap();
        let fields = line.strip_prefix("sched_demo: ").unwrap_or_else(|| panic!("the last line is `{line}`"));
        let fields: Vec<_> = fields.split(' ').map(|field| field.split_once('=').unwrap()).collect();
        let names: Vec<_> = fields.iter().map(|&(name, _)| name).collect();
        assert_eq!(names, ["accuracy", "splits", "copies", "devices", "max_abs_diff"], "{line}");
        Summary {
            accuracy: fields[0].1.parse().unwrap(),
            splits: fields[1].1.parse().unwrap(),
            copies: fields[2].1.parse().unwrap(),
            devices: fields[3].1.split(',').map(str::to_owned).collect(),
            max_abs_diff: fields[4].1.parse().unwrap(),
        }
    }

    /// Checks that it ended with one error message and status 1, and returns the message.
    #[track_caller]
    pub(crate) fn error(&self) -> &str {
        assert_eq!(self.status, Some(1), "{self:#?}");
        let message = self.stderr.strip_prefix("error: ").unwrap_or_else(|| panic!("no message in {self:#?}"));
        assert!(!message.contains("panicked"), "{self:#?}");
        message
    }

    /// The rows of the table of splits: device, nodes, and the rest.
    pub(crate) fn splits(&self) -> Vec<Vec<&str>> {
        let rows = self.stdout.lines().skip_while(|line| !line.contains("inputs copied")).skip(1);
        let rows = rows.take_while(|line| !line.is_empty()).map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.filter(|row| row.first().is_some_and(|word| word.parse::<usize>().is_ok())).collect()
    }
}

/// A file for a test to write.
pub(crate) fn scratch(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}
