//! Runs commands without a network, and without the right to write into a folder.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::workspace::check;

/// Makes a folder read-only for a command, in a mount namespace of its own.
const MOUNT: &str = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && shift && exec \"$@\"";

/// How a network is kept away.
pub(crate) struct Isolation {
    /// A command that runs another one without a network; empty if there is none.
    unshare: &'static [&'static str],
}

impl Isolation {
    pub(crate) fn find() -> Self {
        const WAYS: &[&[&str]] =
            &[&["unshare", "--net", "--mount"], &["unshare", "--map-root-user", "--net", "--mount"]];
        let works = |way: &&&[&str]| {
            let mut command = prefixed(way, Path::new("true"));
            command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
        };
        Self { unshare: WAYS.iter().find(works).copied().unwrap_or_default() }
    }

    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = prefixed(self.unshare, program);
        if self.unshare.is_empty() {
            command.env("CARGO_NET_OFFLINE", "true");
        }
        command
    }

    /// Makes a folder read-only for commands.
    pub(super) fn read_only(&self, folder: &Path) -> Result<ReadOnly<'_>> {
        let lock = ReadOnly { isolation: self, folder: folder.to_owned() };
        if self.unshare.is_empty() {
            check(Command::new("chmod").args(["-R", "a-w"]).arg(folder))?;
        }
        let mut touch = lock.command(Path::new("touch"));
        touch.arg(folder.join("written")).stderr(Stdio::null());
        ensure!(!touch.status()?.success(), "{} could be written, so this would prove nothing", folder.display());
        Ok(lock)
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unshare.is_empty() {
            f.write_str("no `unshare` here, so cargo's offline mode stands for a missing network")
        } else {
            write!(f, "the network is kept away by `{}`", self.unshare.join(" "))
        }
    }
}

/// A folder that commands can't write. Without `unshare` nobody can until this is dropped.
pub(super) struct ReadOnly<'a> {
    isolation: &'a Isolation,
    folder: PathBuf,
}

impl ReadOnly<'_> {
    pub(super) fn command(&self, program: &Path) -> Command {
        if self.isolation.unshare.is_empty() {
            return self.isolation.command(program);
        }
        let mut command = self.isolation.command(Path::new("sh"));
        command.args(["-c", MOUNT, "sh"]).arg(&self.folder).arg(program);
        command
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        if self.isolation.unshare.is_empty() {
            let _stays_read_only = Command::new("chmod").args(["-R", "u+w"]).arg(&self.folder).status();
        }
    }
}

fn prefixed(prefix: &[&str], program: &Path) -> Command {
    let Some((first, rest)) = prefix.split_first() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(rest).arg("--").arg(program);
    command
}
