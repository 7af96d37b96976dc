//! The program, run on small files.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use ggml::DType;
use ggml::gguf::{Reader, Value, Writer};

use crate::cli::Cli;

/// A folder with a file in it, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("gguf-example-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut writer = Writer::new();
        writer.set("general.name", "old").unwrap().set("sizes", vec![1_u32; 100]).unwrap();
        writer.set("words", vec!["a".to_owned(), "b c".to_owned()]).unwrap();
        let numbers: Vec<u8> = (0..40_u8).flat_map(|i| (f32::from(i) / 2.0).to_ne_bytes()).collect();
        writer.tensor("up", DType::F32, [10, 4], &numbers).unwrap();
        writer.tensor("down", DType::Q8_0, [32], &[1; 34]).unwrap();
        writer.write(folder.join("in.gguf")).unwrap();
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("in.gguf")
    }

    /// Runs `command FILE arguments`.
    fn run(&self, command: &str, arguments: &[&str]) -> Result<String, String> {
        let file = self.file();
        let all = ["gguf", command, file.to_str().unwrap()].into_iter().chain(arguments.iter().copied());
        let mut out = Vec::new();
        let cli = Cli::try_parse_from(all).map_err(|e| e.to_string())?;
        crate::run(&cli, &mut out).map_err(|e| format!("{e:#}"))?;
        Ok(String::from_utf8(out).unwrap())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn value(file: &Path, key: &str) -> Option<Value> {
    Reader::open(file).unwrap().metadata(key).cloned()
}

#[test]
fn list_and_dump_show_the_file() {
    let folder = Folder::new("list");
    let list = folder.run("list", &[]).unwrap();
    for part in
        ["version 3, 3 keys, 2 tensors of 194 bytes, aligned to 32", "\"old\"", "u32[100]", "…", "up", "q8_0", "160"]
    {
        assert!(list.contains(part), "{part} in {list}");
    }
    let dump = folder.run("dump", &[]).unwrap();
    assert!(dump.contains("words: str[2] = [\"a\", \"b c\"]\n") && !dump.contains('…'), "{dump}");
    let up = folder.run("dump", &["up", "--limit", "12"]).unwrap();
    assert!(up.starts_with("up: f32 [10, 4") && up.contains("5.500000e0\n… 28 more"), "{up}");
    // Ten numbers a row: a full line, and one of two.
    assert_eq!(up.lines().count(), 1 + 2 + 1 + 1, "{up}");
    assert!(folder.run("dump", &["up", "--limit", "0"]).unwrap().contains("1.950000e1\n"));
    assert!(folder.run("dump", &["left"]).unwrap_err().contains("down, up"));
}

#[test]
fn get_prints_only_the_value() {
    let folder = Folder::new("get");
    assert_eq!(folder.run("get", &["general.name"]).unwrap(), "old\n");
    assert_eq!(folder.run("get", &["words"]).unwrap(), "a\nb c\n");
    assert!(folder.run("get", &["none"]).unwrap_err().contains("there are general.name, sizes, words"));
}

#[test]
fn output_file_is_replaced_only_with_force() {
    let folder = Folder::new("force");
    let old = fs::read(folder.file()).unwrap();
    let other = folder.0.join("out.gguf");
    let output = other.to_str().unwrap();
    let refused = folder.run("set", &["general.name", "str", "new"]).unwrap_err();
    assert!(refused.contains("in.gguf is there already: --force"), "{refused}");
    folder.run("set", &["general.name", "str", "new", "-o", output]).unwrap();
    assert_eq!((value(&other, "general.name"), fs::read(folder.file()).unwrap()), (Some("new".into()), old));
    assert!(folder.run("remove", &["sizes", "-o", output]).unwrap_err().contains("out.gguf is there already"));
    folder.run("set", &["general.name", "str", "new", "--force"]).unwrap();
    assert_eq!(fs::read(folder.file()).unwrap(), fs::read(other).unwrap());
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 2, "nothing else is left");
}

#[test]
fn set_keeps_everything_else() {
    let folder = Folder::new("stays");
    let old = fs::read(folder.file()).unwrap();
    folder.run("set", &["numbers", "i8[]", "-1", "2", "--force"]).unwrap();
    assert_eq!(value(&folder.file(), "numbers"), Some(vec![-1_i8, 2].into()));
    folder.run("remove", &["numbers", "--force"]).unwrap();
    assert_eq!(fs::read(folder.file()).unwrap(), old);
    // Data lie elsewhere, but are the same.
    folder.run("set", &["general.alignment", "u32", "256", "--force"]).unwrap();
    let (new, old) = (Reader::open(folder.file()).unwrap().into_memory().unwrap(), Reader::from_bytes(old).unwrap());
    assert_eq!(new.tensor("down").unwrap().offset(), 256);
    for name in ["up", "down"] {
        assert_eq!(new.data(name).unwrap(), old.data(name).unwrap());
    }
    for refused in [&["remove", "none"][..], &["set", "general.alignment", "u32", "3"], &["set", "a", "u8", "256"]] {
        let before = fs::read(folder.file()).unwrap();
        folder.run(refused[0], &[&refused[1..], &["--force"]].concat()).unwrap_err();
        assert_eq!(fs::read(folder.file()).unwrap(), before);
    }
}

#[test]
fn read_only_file_is_not_replaced_even_with_force() {
    let folder = Folder::new("read-only");
    let old = fs::read(folder.file()).unwrap();
    let mut permissions = fs::metadata(folder.file()).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(folder.file(), permissions).unwrap();
    for arguments in [&["general.name", "str", "new", "--force"][..], &["general.name", "str", "new"]] {
        let refused = folder.run("set", arguments).unwrap_err();
        assert!(refused.contains("in.gguf (--output FILE): it is read-only"), "{refused}");
    }
    assert_eq!(fs::read(folder.file()).unwrap(), old);
}

#[cfg(unix)]
#[test]
fn dangling_link_is_refused_as_output() {
    let folder = Folder::new("dangling");
    let link = folder.0.join("link.gguf");
    std::os::unix::fs::symlink("gone.gguf", &link).unwrap();
    let refused = folder.run("remove", &["sizes", "--force", "-o", link.to_str().unwrap()]).unwrap_err();
    assert!(refused.contains("it is a link to a file that is not there"), "{refused}");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && !folder.0.join("gone.gguf").exists());
}

#[test]
fn untrusted_names_are_escaped_and_truncated() {
    let folder = Folder::new("escaped");
    let (evil, shown) = ("\u{1b}]0;title\u{7}\u{9b}2J", r"\u{1b}]0;title\u{7}\u{9b}2J");
    let mut writer = Writer::new();
    writer.set(evil, evil).unwrap().set(&"k".repeat(u16::MAX.into()), vec![evil.repeat(1 << 20); 2]).unwrap();
    writer.tensor(evil, DType::F32, [1], &[0; 4]).unwrap();
    writer.write(folder.file()).unwrap();
    let runs = [("list", vec![]), ("dump", vec![evil]), ("get", vec!["none"]), ("dump", vec!["none"])];
    for (command, arguments) in runs {
        let text = folder.run(command, &arguments).unwrap_or_else(|e| e);
        assert!(text.contains(shown), "{command}: {text:?}");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n') && text.len() < 3000, "{command}: {text:?}");
    }
    let all = folder.run("dump", &[]).unwrap();
    assert!(all.contains(shown) && !all.chars().any(|c| c.is_control() && c != '\n'));
    assert_eq!(folder.run("get", &[evil]).unwrap(), format!("{evil}\n"), "for programs");
}
