//! Files of the file system.

use std::fs;
use std::path::PathBuf;

use ggml::Error;
use ggml::gguf::{Reader, Writer};

use crate::{everything, tensors};

/// A new, empty folder.
pub(crate) fn folder(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("gguf-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn a_file_is_written_and_replaced_as_a_whole() {
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
fn a_replaced_file_keeps_its_permissions_and_the_link_to_it() {
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
fn what_is_no_regular_file_is_neither_read_nor_replaced() {
    let folder = folder("irregular");
    for e in [Reader::open(&folder).unwrap_err(), everything().write(&folder).unwrap_err()] {
        assert!(matches!(&e, Error::File { path, .. } if **path == *folder.to_string_lossy()), "{e}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    fs::remove_dir_all(folder).unwrap();
}

#[cfg(target_os = "linux")]
#[test]
fn a_device_that_never_ends_is_refused() {
    assert!(matches!(Reader::open("/dev/zero"), Err(Error::File { .. })));
}

#[cfg(target_os = "linux")]
#[test]
fn a_pipe_is_refused_without_waiting_for_a_writer() {
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
fn messages_name_the_file() {
    let folder = folder("messages");
    let missing = folder.join("missing.gguf");
    let e = Reader::open(&missing).unwrap_err();
    assert!(matches!(&e, Error::File { .. }) && e.to_string().contains("missing.gguf"), "{e}");
    let e = everything().write(folder.join("no folder").join("x.gguf")).unwrap_err();
    assert!(matches!(&e, Error::File { .. }) && e.to_string().contains("no folder"), "{e}");
    let damaged = folder.join("damaged.gguf");
    fs::write(&damaged, b"GGML").unwrap();
    let e = Reader::open(&damaged).unwrap_err();
    assert!(matches!(&e, Error::Gguf { .. }) && e.to_string().contains("damaged.gguf"), "{e}");
    fs::remove_dir_all(folder).unwrap();
}
