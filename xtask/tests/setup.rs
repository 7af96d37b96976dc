//! `./setup` without root and without tools.

#![cfg(test)]
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the script on a system that has only the programs of a folder.
fn setup(programs: &Path, arguments: &[&str]) -> (bool, String) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../setup");
    let mut command = Command::new("/bin/sh");
    let output = command.arg(script).args(arguments).env("PATH", programs).output().unwrap();
    (output.status.success(), String::from_utf8(output.stderr).unwrap())
}

fn program(folder: &Path, name: &str, text: &str) {
    let file = folder.join(name);
    fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A Debian whose user is not root.
fn debian() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    program(folder.path(), "id", "echo 1000");
    program(folder.path(), "uname", "echo Linux");
    program(folder.path(), "apt-get", "echo apt-get must not run; exit 1");
    folder
}

#[test]
fn without_root_the_exact_command_is_said() {
    let folder = debian();
    let (done, said) = setup(folder.path(), &[]);
    assert!(!done, "{said}");
    let command = "apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends cmake ninja-build g++";
    assert!(said.contains(command), "{said}");
    assert!(!said.contains("glslc") && !said.contains("aarch64"), "the tests need neither: {said}");
}

#[test]
fn each_option_asks_for_more() {
    let folder = debian();
    let packages = |arguments: &[&str]| {
        let (_, said) = setup(folder.path(), arguments);
        said.lines().last().unwrap().split(' ').filter(|word| !word.starts_with('-')).count()
    };
    let (tests, ci, all) = (packages(&[]), packages(&["--ci"]), packages(&["--all"]));
    assert!(tests < ci && ci < all, "{tests} {ci} {all}");
    let (done, said) = setup(folder.path(), &["--everything"]);
    assert!(!done && said.contains("no such option: --everything"), "{said}");
}

#[test]
fn sudo_is_used_if_it_is_there() {
    let folder = debian();
    let log: PathBuf = folder.path().join("log");
    program(folder.path(), "sudo", &format!("echo \"$@\" > {}", log.display()));
    symlink("/bin/true", folder.path().join("cargo")).unwrap();
    let (done, said) = setup(folder.path(), &[]);
    assert!(done, "{said}");
    let asked = fs::read_to_string(log).unwrap();
    assert!(asked.starts_with("sh -c apt-get update && ") && asked.contains(" cmake "), "{asked}");
}
