//! Files in the file system.

use std::error::Error as _;
use std::path::PathBuf;
use std::{fs, io};

use ggml_gguf::{DType, Error, Reader, Writer};

use crate::{everything, tensors};

/// Creates a new, empty folder.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("gguf-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn write_replaces_the_file_as_a_whole() {
    let folder = folder("replace");
    let path = folder.join("model.gguf");
    let writer = everything();
    writer.write(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), writer.to_bytes().unwrap());
    assert_eq!(Reader::open(&path).unwrap().tensors().count(), tensors().len());

    let small = Writer::new();
    small.write(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), small.to_bytes().unwrap());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing but the file is left");
    fs::remove_dir_all(folder).unwrap();
}

#[cfg(unix)]
#[test]
fn write_keeps_permissions_and_links() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let folder = folder("link");
    let (path, link) = (folder.join("real.gguf"), folder.join("link.gguf"));
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    symlink(&path, &link).unwrap();
    let writer = everything();
    writer.write(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(&path).unwrap(), writer.to_bytes().unwrap());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn open_and_write_refuse_irregular_files() {
    let folder = folder("irregular");
    for e in [Reader::open(&folder).unwrap_err(), everything().write(&folder).unwrap_err()] {
        assert!(matches!(&e, Error::File { path, .. } if **path == *folder.to_string_lossy()), "{e}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    fs::remove_dir_all(folder).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn open_refuses_an_endless_device() {
    assert!(matches!(Reader::open("/dev/zero"), Err(Error::File { .. })));
}

#[cfg(target_os = "linux")]
#[test]
fn open_refuses_a_pipe_without_waiting() {
    use std::sync::mpsc;
    use std::time::Duration;

    let folder = folder("pipe");
    let pipe = folder.join("pipe.gguf");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || send.send(matches!(Reader::open(pipe), Err(Error::File { .. }))));
    assert_eq!(receive.recv_timeout(Duration::from_secs(20)), Ok(true));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn errors_name_the_file() {
    let folder = folder("messages");
    let missing = folder.join("missing.gguf");
    let e = Reader::open(&missing).unwrap_err();
    assert!(matches!(&e, Error::File { .. }) && e.to_string().contains("missing.gguf"), "{e}");
    let source = e.source().and_then(|source| source.downcast_ref::<io::Error>());
    assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::NotFound), "programs match on the kind");
    let e = everything().write(folder.join("no folder").join("x.gguf")).unwrap_err();
    assert!(matches!(&e, Error::File { .. }) && e.to_string().contains("no folder"), "{e}");
    let damaged = folder.join("damaged.gguf");
    fs::write(&damaged, b"GGML").unwrap();
    let e = Reader::open(&damaged).unwrap_err();
    assert!(matches!(&e, Error::Gguf { .. }) && e.to_string().contains("damaged.gguf"), "{e}");
    fs::remove_dir_all(folder).unwrap();
}

/// Creates what a killed process leaves behind, under every name that a later process with the same id (in a container)
/// could choose, if names were based on the id.
#[test]
fn write_ignores_temporary_files_left_behind() {
    let folder = folder("killed");
    for i in 0..1000 {
        fs::write(folder.join(format!(".gguf-{}-{i}.tmp", std::process::id())), "half").unwrap();
    }
    let path = folder.join("model.gguf");
    everything().write(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), everything().to_bytes().unwrap());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1001, "and nothing else");
    fs::remove_dir_all(folder).unwrap();
}

/// Kills processes during writes, repeatedly.
#[cfg(target_os = "linux")]
#[test]
fn killed_writer_leaves_a_readable_file() {
    let folder = folder("kill");
    let path = folder.join("model.gguf");
    everything().write(&path).unwrap();
    for _ in 0..5 {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "on_disk::writer_process", "--include-ignored"]).env("GGUF_WRITE_FOR_EVER", &path);
        let mut child = child.stdout(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(100));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(Reader::open(&path).unwrap().tensors().count(), tensors().len());
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
#[ignore = "run by the test above"]
fn writer_process() {
    let Some(path) = std::env::var_os("GGUF_WRITE_FOR_EVER") else { return };
    loop {
        everything().write(&path).unwrap();
    }
}

#[test]
fn write_refuses_a_read_only_file() {
    let folder = folder("read-only");
    let path = folder.join("model.gguf");
    fs::write(&path, "old").unwrap();
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    let mut asked = false;
    let mut writer = everything();
    writer.declare("late", DType::I8, [1]).unwrap();
    let e = writer.write_with(&path, |_, out| {
        asked = true;
        out.write_all(&[0])
    });
    let e = e.unwrap_err();
    assert!(matches!(&e, Error::File { source, .. } if source.to_string().contains("read-only")), "{e}");
    assert!(!asked, "nothing is asked for before");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
    fs::remove_dir_all(folder).unwrap();
}

#[cfg(unix)]
#[test]
fn write_refuses_a_dangling_link() {
    use std::os::unix::fs::symlink;

    let folder = folder("dangling");
    let (link, circle) = (folder.join("link.gguf"), folder.join("circle.gguf"));
    symlink("gone.gguf", &link).unwrap();
    symlink("circle.gguf", &circle).unwrap();
    for (path, why) in [(&link, "a link to a file that is not there"), (&circle, "symbolic links")] {
        let e = everything().write(path).unwrap_err();
        assert!(matches!(&e, Error::File { source, .. } if source.to_string().contains(why)), "{e}");
        assert!(fs::symlink_metadata(path).unwrap().is_symlink());
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
    fs::remove_dir_all(folder).unwrap();
}

/// A temporary file is private to its owner; the result must have ordinary permissions.
#[cfg(unix)]
#[test]
fn write_gives_new_files_ordinary_permissions() {
    use std::os::unix::fs::PermissionsExt;

    let folder = folder("mode");
    let [ours, other] = ["ours.gguf", "other"].map(|name| folder.join(name));
    everything().write(&ours).unwrap();
    fs::write(&other, "").unwrap();
    let mode = |path| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&ours), mode(&other));
    fs::remove_dir_all(folder).unwrap();
}
