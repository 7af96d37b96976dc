//! `cargo xtask offline`: builds and runs `examples/hello.rs` as a program of its own, without a network, in each of the
//! ways in which users depend on the crates: see ggml-sys/README.md.

pub(crate) mod isolation;
pub(crate) mod packages;

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::fetch;
use crate::fetch::cargo::Package;
use crate::fetch::pin::Pin;
use crate::workspace::{Workspace, check, clean};
use isolation::Isolation;

const PROGRAM: &str = include_str!("../../../examples/hello.rs");
const PRINTS: &str = "= [11.0, 22.0, 33.0]";

type Way = fn(&Place) -> Result<()>;

/// How a program depends on the crates, or where it is.
const WAYS: &[(&str, Way)] =
    &[("vendored", vendored), ("git", git), ("packaged", packaged), ("readonly", readonly), ("spaces", spaces)];

#[expect(clippy::print_stdout, reason = "the chore's result")]
pub(crate) fn run() -> Result<()> {
    let place = Place::new()?;
    println!("offline: {}", place.isolation);
    let mut errors = Vec::new();
    let mut words = Vec::new();
    for (name, way) in WAYS {
        println!("offline: {name}");
        let word = match way(&place) {
            Ok(()) => "ok",
            Err(error) => {
                errors.push(format!("{name}: {error:#}"));
                "failed"
            }
        };
        words.push(format!("{name}={word}"));
    }
    println!("offline: {}", words.join(" "));
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(())
}

/// A path dependency, and the unpacked package that carries ggml.
fn vendored(place: &Place) -> Result<()> {
    let checkout = place.checkout("checkout", false)?;
    let program = place.program("vendored", &path(&checkout))?;
    place.vendor(&program)?;
    let carrier = place.workspace.fetcher().unpack(place.package(), &place.folder.join("carrier"));
    let (folder, _) = place.pin.keep.iter().find(|(_, to)| to == ".").context("the pin keeps no folder of ggml")?;
    let sources = carrier.map_err(anyhow::Error::msg)?.folder.join(folder);
    place.build(&program, |command| {
        command.env("GGML_SYS_SOURCE_DIR", &sources);
    })
}

/// A git dependency: refused with what to do, and built once that is done.
fn git(place: &Place) -> Result<()> {
    let repository = place.checkout("repository", false)?;
    for arguments in [["init", "--quiet"].as_slice(), &["add", "--all"], &["commit", "--quiet", "--message=all"]] {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=x", "-c", "user.email=x@localhost"]).args(arguments);
        check(command.current_dir(&repository))?;
    }
    let program = place.program("git", &format!("git = \"file://{}\"", slashes(&repository).replace(' ', "%20")))?;
    place.vendor(&program)?;
    let output = place.cargo(&program, &place.target).arg("build").output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let advice = ["With a network: build once", "set GGML_SYS_SOURCE_DIR to"];
    ensure!(
        !output.status.success() && advice.iter().all(|part| said.contains(part)),
        "a build without ggml's sources should fail and say what to do; it said:\n{said}"
    );
    // The first advice: a build with a network takes the sources into cargo's checkout, and `cargo vendor` takes them along
    // from there. The other crates are vendored already.
    let config = program.join(".cargo/config.toml");
    let text = fs::read_to_string(&config)?;
    let sections: Vec<_> = text.split("\n\n").filter(|section| !section.starts_with("[source.\"git+")).collect();
    fs::write(&config, sections.join("\n\n"))?;
    let mut command = place.online(&program);
    command.args(["check", "--package", "libggml-sys", "--target-dir"]).arg(&place.target);
    check(command.env("DOCS_RS", "1"))?;
    place.vendor(&program)?;
    place.build(&program, |_| ())
}

/// The packages that `cargo package` makes, which carry ggml's sources.
fn packaged(place: &Place) -> Result<()> {
    let folders = packages::make(place)?;
    let program = place.program("packaged", "version = \"*\"")?;
    let mut manifest = fs::read_to_string(program.join("Cargo.toml"))?;
    manifest.push_str("\n[patch.crates-io]\n");
    for (name, folder) in packages::CRATES.iter().zip(folders) {
        writeln!(manifest, "{name} = {{ {} }}", path(&folder))?;
    }
    fs::write(program.join("Cargo.toml"), manifest)?;
    place.vendor(&program)?;
    place.build(&program, |_| ())
}

/// A checkout that can't be written, and has ggml's sources.
fn readonly(place: &Place) -> Result<()> {
    let checkout = place.checkout("readonly-checkout", true)?;
    let program = place.program("readonly", &path(&checkout))?;
    place.vendor(&program)?;
    let lock = place.isolation.read_only(&checkout)?;
    let mut command = lock.command(place.workspace.cargo_program());
    place.offline(&mut command, &program, &place.target);
    runs(&mut command)
}

/// A checkout and a program with spaces in their paths, as the build folder has.
fn spaces(place: &Place) -> Result<()> {
    let checkout = place.checkout("a checkout", true)?;
    let program = place.program("a program", &path(&checkout))?;
    place.vendor(&program)?;
    place.build(&program, |_| ())
}

/// The folder of all this, and what every way needs.
struct Place {
    workspace: Workspace,
    pin: Pin,
    /// The pinned sources.
    tree: PathBuf,
    folder: PathBuf,
    /// The programs' build folder: one for all, so that other crates are compiled once. Its path has a space.
    target: PathBuf,
    isolation: Isolation,
}

impl Place {
    fn new() -> Result<Self> {
        let workspace = Workspace::find()?;
        let pin = workspace.pin()?;
        let tree = workspace.sources(&pin)?;
        let folder = workspace.root.join("target/offline");
        let target = folder.join("a build");
        fs::create_dir_all(&folder)?;
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path != target {
                fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        home(&folder.join("home"))?;
        fs::create_dir(folder.join("empty-home"))?;
        Ok(Self { workspace, pin, tree, folder, target, isolation: Isolation::find() })
    }

    fn package(&self) -> Package<'_> {
        Package { name: &self.pin.package, version: &self.pin.version, sha256: Some(&self.pin.sha256) }
    }

    /// The name of the sources' folder below `vendor`.
    fn tree_name(&self) -> &OsStr {
        self.tree.file_name().unwrap_or_default()
    }

    /// Copies the repository's files, uncommitted ones included, with or without ggml's sources.
    fn checkout(&self, name: &str, sources: bool) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
        let output = Command::new("git").args(list).current_dir(&self.workspace.root).output()?;
        ensure!(output.status.success(), "git does not list the repository's files");
        for file in String::from_utf8(output.stdout)?.split_terminator('\0') {
            let (from, to) = (self.workspace.root.join(file), folder.join(file));
            // git also lists files that were removed, but not from its index.
            let Ok(metadata) = from.symlink_metadata() else { continue };
            fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
            if metadata.is_symlink() {
                link(&fs::read_link(&from)?, &to)?;
            } else {
                fs::copy(&from, &to)?;
            }
        }
        if sources {
            fetch::tree::copy(&self.tree, &folder.join("vendor").join(self.tree_name())).map_err(anyhow::Error::msg)?;
        }
        Ok(folder)
    }

    /// Writes a program that depends on the crate in a way.
    fn program(&self, name: &str, way: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        fs::create_dir_all(folder.join("src"))?;
        fs::write(folder.join("src/main.rs"), PROGRAM)?;
        let package = "[package]\nname = \"program\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n";
        fs::write(folder.join("Cargo.toml"), format!("{package}\n[dependencies]\nlibggml = {{ {way} }}\n"))?;
        // The versions that cargo has cached.
        fs::copy(self.workspace.root.join("Cargo.lock"), folder.join("Cargo.lock"))?;
        Ok(folder)
    }

    /// cargo with a network.
    fn online(&self, program: &Path) -> Command {
        let mut command = self.workspace.cargo(program);
        command.env("CARGO_HOME", self.folder.join("home"));
        command
    }

    /// Runs `cargo vendor`, and configures the program to use what that wrote.
    ///
    /// The folder is the same for all programs. cargo compiles crates again if their paths change.
    fn vendor(&self, program: &Path) -> Result<()> {
        let mut command = self.online(program);
        let output = command.arg("vendor").arg(self.folder.join("vendored-crates")).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`cargo vendor` failed: {}\n{said}", output.status);
        fs::create_dir_all(program.join(".cargo"))?;
        fs::write(program.join(".cargo/config.toml"), output.stdout)?;
        Ok(())
    }

    /// cargo without a network.
    fn cargo(&self, program: &Path, target: &Path) -> Command {
        let mut command = self.isolation.command(self.workspace.cargo_program());
        self.offline(&mut command, program, target);
        command
    }

    /// Sets what cargo needs to run without a network and a cache.
    fn offline(&self, command: &mut Command, program: &Path, target: &Path) {
        command.current_dir(program).env("CARGO_HOME", self.folder.join("empty-home"));
        command.env("CARGO_TARGET_DIR", target).env("GGML_SYS_BUILD_TYPE", "Debug");
        clean(command);
    }

    /// Builds and runs a program without a network.
    fn build(&self, program: &Path, step: impl FnOnce(&mut Command)) -> Result<()> {
        let mut command = self.cargo(program, &self.target);
        step(&mut command);
        runs(&mut command)
    }
}

/// Runs a program by cargo, and checks what it prints.
fn runs(cargo: &mut Command) -> Result<()> {
    let output = cargo.arg("run").stderr(Stdio::inherit()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "the program was not built or failed: {}", output.status);
    ensure!(said.contains(PRINTS), "the program should print `{PRINTS}`; it printed:\n{said}");
    Ok(())
}

/// A home for cargo that has all of the user's, but another folder for git repositories.
fn home(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let own = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let own =
        own.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo"))).context("cargo has no home")?;
    for entry in fs::read_dir(&own).with_context(|| format!("cannot list {}", own.display()))? {
        let entry = entry?;
        if entry.file_name() != "git" {
            link(&entry.path(), &folder.join(entry.file_name()))?;
        }
    }
    Ok(())
}

#[cfg(unix)]
fn link(to: &Path, at: &Path) -> Result<()> {
    std::os::unix::fs::symlink(to, at).with_context(|| format!("cannot make the link {}", at.display()))
}

#[cfg(not(unix))]
fn link(_to: &Path, at: &Path) -> Result<()> {
    anyhow::bail!("{}: links can't be made here", at.display())
}

fn slashes(path: &Path) -> String {
    path.display().to_string().replace('\\', "/")
}

fn path(folder: &Path) -> String {
    format!("path = \"{}\"", slashes(folder))
}
