//! `cargo xtask install`: compiles ggml as the crate does, and installs it for all programs that link it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::fetch::pin::Pin;
use crate::workspace::Workspace;

#[derive(Debug, clap::Args)]
pub(crate) struct InstallArguments {
    /// The folder to install into
    #[arg(long)]
    prefix: PathBuf,
    /// The backends to build besides the CPU's, and how: features of ggml-sys
    #[arg(long, value_delimiter = ',', default_value = "rpc")]
    features: Vec<String>,
}

/// Features that give no shared libraries others can link.
const REFUSED: &[(&str, &str)] = &[
    ("system", "that is what the installed ggml is for"),
    ("dynamic-backends", "programs that link ggml-cpu by name, as llama-cpp-sys-2's do, could not link that"),
];

/// The folders that ggml's own build installs. On Windows the libraries are in `bin`.
const FOLDERS: &[&str] = &["include", "lib", "bin"];

pub(crate) fn run(arguments: &InstallArguments) -> Result<()> {
    let features: Vec<_> = arguments.features.iter().map(String::as_str).collect();
    let workspace = Workspace::find()?;
    let pin = workspace.pin()?;
    install(&workspace, &pin, &arguments.prefix, &features)
}

/// Installs into `prefix`; identical files are not touched.
#[expect(clippy::print_stdout, reason = "the chore's progress")]
pub(crate) fn install(workspace: &Workspace, pin: &Pin, prefix: &Path, features: &[&str]) -> Result<()> {
    for (feature, reason) in REFUSED {
        ensure!(!features.contains(feature), "`{feature}` cannot be installed: {reason}");
    }
    let prefix = std::path::absolute(prefix)?;
    println!("compiling ggml with {}: minutes, if it was not compiled before", features.join(", "));
    let built = compile(workspace, pin, features)?;
    let mut count = InstallCount::default();
    for folder in FOLDERS {
        let from = built.join(folder);
        if from.is_dir() {
            copy(&from, &prefix.join(folder), &mut count)?;
        }
    }
    let text = pkg_config(&pin.ggml, &libraries(&built.join("lib"))?);
    let folder = prefix.join("lib/pkgconfig");
    fs::create_dir_all(&folder)?;
    write(text.as_bytes(), &folder.join("ggml.pc"), &mut count)?;
    println!("{}: {} files, of which {} are new or changed", prefix.display(), count.all, count.changed);
    println!("use it: GGML_SYS_PREFIX={} cargo build --features system", prefix.display());
    Ok(())
}

/// Runs ggml-sys's build script with shared libraries, and returns the folder that ggml was installed into.
fn compile(workspace: &Workspace, pin: &Pin, features: &[&str]) -> Result<PathBuf> {
    let all = features.iter().copied().chain(["dynamic-link"]).collect::<Vec<_>>().join(",");
    let mut command = workspace.cargo(&workspace.root);
    command.args(["build", "--package", "libggml-sys", "--features", &all]).env("GGML_SYS_GGML", &pin.ggml);
    // Progress and errors still go to standard error.
    command.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(output.status.success(), "ggml was not built: {}", output.status);
    let folder = String::from_utf8(output.stdout)?.lines().filter_map(installed).next_back();
    folder.context("cargo does not say where ggml-sys was built")
}

/// The folder that the build script installed ggml into, in one of cargo's messages about ggml-sys: that of the libraries,
/// without `lib`.
fn installed(line: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| message.get(key)?.as_str();
    if text("reason")? != "build-script-executed" || !text("package_id")?.contains("#libggml-sys@") {
        return None;
    }
    let out = Path::new(text("out_dir")?);
    let paths = message.get("linked_paths")?.as_array()?.iter().filter_map(Value::as_str);
    let mut folders = paths.map(|path| Path::new(path.strip_prefix("native=").unwrap_or(path)));
    folders.find(|folder| folder.starts_with(out) && folder.ends_with("lib"))?.parent().map(Path::to_owned)
}

#[derive(Debug, Default)]
struct InstallCount {
    all: usize,
    changed: usize,
}

fn copy(from: &Path, to: &Path, count: &mut InstallCount) -> Result<()> {
    for entry in walkdir::WalkDir::new(from).sort_by_file_name() {
        let entry = entry?;
        let target = to.join(entry.path().strip_prefix(from)?);
        if entry.file_type().is_dir() {
            fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
        } else if entry.file_type().is_symlink() {
            link(&fs::read_link(entry.path())?, &target, count)?;
        } else {
            write(&fs::read(entry.path())?, &target, count)?;
        }
    }
    Ok(())
}

/// Replaces the file instead of overwriting it, because running programs may use it.
fn replace(target: &Path, count: &mut InstallCount, make: impl FnOnce(&Path) -> std::io::Result<()>) -> Result<()> {
    count.changed += 1;
    let failed = || format!("cannot write {}", target.display());
    let folder = target.parent().with_context(failed)?;
    let aside = tempfile::Builder::new().prefix(".ggml-").tempdir_in(folder).with_context(failed)?;
    let new = aside.path().join("new");
    make(&new).and_then(|()| fs::rename(&new, target)).with_context(failed)
}

fn write(bytes: &[u8], target: &Path, count: &mut InstallCount) -> Result<()> {
    count.all += 1;
    if !target.is_symlink() && fs::read(target).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    replace(target, count, |new| fs::write(new, bytes))
}

fn link(to: &Path, target: &Path, count: &mut InstallCount) -> Result<()> {
    count.all += 1;
    if fs::read_link(target).is_ok_and(|there| there == to) {
        return Ok(());
    }
    #[cfg(unix)]
    return replace(target, count, |new| std::os::unix::fs::symlink(to, new));
    #[cfg(not(unix))]
    bail!("{}: a link to {} cannot be made here", target.display(), to.display());
}

/// The shared libraries' names for the linker; dependents first.
fn libraries(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let stem = name.strip_suffix(".so").or_else(|| name.strip_suffix(".dylib")).and_then(|s| s.strip_prefix("lib"));
        let stem = stem.or_else(|| name.strip_suffix(".lib"));
        // On macOS the version comes before the extension.
        names.extend(stem.filter(|stem| !stem.contains('.')).map(str::to_owned));
    }
    names.sort_by_key(|name| (name == "ggml-base", name.len()));
    if names.is_empty() {
        bail!("no shared library in {}", folder.display());
    }
    Ok(names)
}

/// The pkg-config file. It is relocatable.
fn pkg_config(version: &str, libraries: &[String]) -> String {
    let links: Vec<_> = libraries.iter().map(|name| format!("-l{name}")).collect();
    format!(
        "prefix=${{pcfiledir}}/../..\nlibdir=${{prefix}}/lib\nincludedir=${{prefix}}/include\n\n\
         Name: ggml\nDescription: Tensors and their computation\nVersion: {version}\n\
         Libs: -L${{libdir}} {}\nCflags: -I${{includedir}}\n",
        links.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_installed_folder_is_that_of_the_libraries() {
        let line = r#"{"reason":"build-script-executed","package_id":"path+file:///w/ggml-sys#libggml-sys@0.1.0","linked_libs":[],
            "linked_paths":["native=/t/out","native=/t/out/ggml-1a/lib","native=/usr/lib"],"out_dir":"/t/out"}"#;
        assert_eq!(installed(line), Some("/t/out/ggml-1a".into()));
        assert_eq!(installed(&line.replace("libggml-sys@", "libggml@")), None);
    }

    #[test]
    fn install_leaves_identical_files_alone() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(from.path().join("cmake")).unwrap();
        fs::write(from.path().join("cmake/a"), "a").unwrap();
        fs::write(from.path().join("libx.so.1"), "one").unwrap();
        #[cfg(unix)]
        std::os::unix::fs::symlink("libx.so.1", from.path().join("libx.so")).unwrap();
        let files = if cfg!(unix) { 3 } else { 2 };
        let copied = || {
            let mut count = InstallCount::default();
            copy(from.path(), to.path(), &mut count).unwrap();
            (count.all, count.changed)
        };
        assert_eq!(copied(), (files, files));
        assert_eq!(copied(), (files, 0));
        assert_eq!(fs::read_to_string(to.path().join("cmake/a")).unwrap(), "a");
        #[cfg(unix)]
        assert_eq!(fs::read_link(to.path().join("libx.so")).unwrap(), Path::new("libx.so.1"));
        // A program that has opened the old file keeps it.
        let mut open = fs::File::open(to.path().join("libx.so.1")).unwrap();
        fs::write(from.path().join("libx.so.1"), "two").unwrap();
        assert_eq!(copied(), (files, 1));
        let mut kept = String::new();
        std::io::Read::read_to_string(&mut open, &mut kept).unwrap();
        assert_eq!((kept.as_str(), fs::read_to_string(to.path().join("libx.so.1")).unwrap().as_str()), ("one", "two"));
        let names: Vec<_> = fs::read_dir(to.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names.len(), files, "nothing is left over: {names:?}");
    }

    #[test]
    fn pkg_config_lists_the_shared_libraries() {
        let folder = tempfile::tempdir().unwrap();
        assert!(libraries(folder.path()).is_err());
        for name in ["libggml-base.so", "libggml-cpu.so", "libggml.so", "libggml.so.0", "libggml.0.dylib", "libx.a"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let names = libraries(folder.path()).unwrap();
        assert_eq!(names, ["ggml", "ggml-cpu", "ggml-base"]);
        let text = pkg_config("1.2.3", &names);
        assert!(text.contains("\nVersion: 1.2.3\nLibs: -L${libdir} -lggml -lggml-cpu -lggml-base\n"), "{text}");
    }

    #[test]
    fn install_refuses_features_that_others_cannot_link() {
        let workspace = Workspace::find().unwrap();
        for (feature, _) in REFUSED {
            let error = install(&workspace, &workspace.pin().unwrap(), Path::new("/no/such/folder"), &["rpc", feature])
                .unwrap_err();
            assert!(error.to_string().contains(feature), "{error}");
        }
    }
}
