//! Files that can't be used: one message, exit status 1, never an abort.

use std::fs;
use std::path::Path;

use demos::digits::{data, model};
use ggml::DType;
use ggml::gguf::{Reader, Writer};

use crate::demo::{Run, run, scratch};

fn run_model(path: &Path) -> Run {
    run(["--devices".as_ref(), "CPU".as_ref(), "--model".as_ref(), path.as_os_str()])
}

/// Runs with a model file of these bytes.
fn run_bytes(name: &str, bytes: &[u8]) -> Run {
    let path = scratch(name);
    fs::write(&path, bytes).unwrap();
    let run = run_model(&path);
    fs::remove_file(&path).unwrap();
    run
}

/// A tensor as it goes into a model file.
#[derive(Debug, Clone)]
struct Part {
    name: String,
    dtype: DType,
    shape: [i64; 4],
    data: Vec<u8>,
}

/// The model file with what `change` made of its tensors, and the metadata that it lets pass.
fn altered(change: impl FnOnce(&mut Vec<Part>), keep: impl Fn(&str) -> bool) -> Vec<u8> {
    let model = Reader::open(model::DEFAULT_PATH).unwrap().into_memory().unwrap();
    let mut parts: Vec<_> = model
        .tensors()
        .map(|t| Part {
            name: t.name().to_owned(),
            dtype: t.dtype(),
            shape: t.shape().ne(),
            data: model.data(t.name()).unwrap().to_vec(),
        })
        .collect();
    change(&mut parts);
    let mut writer = Writer::new();
    for (key, value) in model.key_values().filter(|(key, _)| keep(key)) {
        writer.set(key, value.clone()).unwrap();
    }
    for part in &parts {
        writer.tensor(&part.name, part.dtype, part.shape, &part.data).unwrap();
    }
    writer.to_bytes().unwrap()
}

fn part<'a>(parts: &'a mut [Part], name: &str) -> &'a mut Part {
    parts.iter_mut().find(|part| part.name == name).unwrap()
}

#[test]
fn rewritten_model_is_as_accurate() {
    // Else the following tests would pass for a reason of their own.
    let run = run_bytes("again.gguf", &altered(|_| (), |_| true));
    run.summary().assert_good();
}

#[test]
fn missing_file_is_named() {
    let path = scratch("no-such-file");
    for option in ["--model", "--data"] {
        let run = run([option.as_ref(), path.as_os_str()]);
        let message = run.error();
        assert!(message.contains(path.to_str().unwrap()) && message.contains(option), "{message}");
        assert_eq!(message.matches("(os error 2)").count(), 1, "the cause is said once: {message}");
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn directory_is_refused_as_a_file() {
    for option in ["--model", "--data", "--svg"] {
        let run = run([option, env!("CARGO_TARGET_TMPDIR"), "--devices", "CPU"]);
        assert!(run.error().contains(env!("CARGO_TARGET_TMPDIR")), "{run:?}");
    }
}

#[test]
fn swapped_files_are_refused() {
    assert!(run(["--model", data::DEFAULT_PATH]).error().contains("this is not a GGUF file"));
    assert!(run(["--data", model::DEFAULT_PATH]).error().contains("not a gzipped CSV file"));
}

#[test]
fn truncated_model_is_an_error() {
    let whole = fs::read(model::DEFAULT_PATH).unwrap();
    let mut lengths: Vec<_> = (0..=24).step_by(4).collect();
    lengths.extend((25..1000).step_by(97));
    // The last tensor's 40 bytes are followed by 24 of padding, which nobody needs.
    lengths.extend([whole.len() / 2, whole.len() - 64, whole.len() - 25]);
    for length in lengths {
        let run = run_bytes("cut.gguf", &whole[..length]);
        let message = run.error();
        assert!(message.contains("GGUF") && message.contains("digits_train"), "{length} bytes: {message}");
    }
}

#[test]
fn damaged_model_never_ends_in_a_signal() {
    let whole = fs::read(model::DEFAULT_PATH).unwrap();
    for (i, at) in (0..1000).step_by(37).enumerate() {
        let mut bytes = whole.clone();
        bytes[at] ^= [0x80, 0xff, 0x01][i % 3];
        let run = run_bytes("damaged.gguf", &bytes);
        // A letter of the licence more or less harms nobody.
        match run.status {
            Some(0) => run.summary().assert_good(),
            _ => assert!(run.error().contains("damaged.gguf"), "byte {at}: {run:?}"),
        }
    }
}

#[test]
fn garbage_model_is_an_error() {
    let mut magic = b"GGUF\x03\0\0\0".to_vec();
    magic.extend([0xff; 4096]);
    for bytes in [&[0; 4096][..], b"hello", &magic] {
        assert!(run_bytes("garbage.gguf", bytes).error().contains("GGUF"));
    }
}

#[test]
fn missing_tensor_is_named() {
    for name in ["conv1.weight", "fc2.bias"] {
        let run = run_bytes("missing.gguf", &altered(|parts| parts.retain(|part| part.name != name), |_| true));
        assert!(run.error().contains(&format!("`{name}`")), "{run:?}");
    }
}

#[test]
fn tensor_of_another_shape_or_type_is_named() {
    type Change = fn(&mut Vec<Part>);
    let cases: [(Change, &str); 6] = [
        (|parts| part(parts, "conv2.weight").shape = [3, 3, 32, 16], "shape [3, 3, 32, 16]"),
        (|parts| part(parts, "fc1.weight").shape = [64, 128, 1, 1], "shape [64, 128, 1, 1]"),
        (|parts| part(parts, "fc1.bias").dtype = DType::I32, "i32"),
        (|parts| part(parts, "fc2.bias").name = "fc3.bias".to_owned(), "`fc3.bias` is no tensor"),
        (|parts| part(parts, "conv1.bias").data[4..8].copy_from_slice(&f32::NAN.to_le_bytes()), "`conv1.bias` holds"),
        (
            |parts| part(parts, "fc1.weight").data[..4].copy_from_slice(&f32::INFINITY.to_le_bytes()),
            "`fc1.weight` holds",
        ),
    ];
    for (change, expected) in cases {
        let run = run_bytes("wrong.gguf", &altered(change, |_| true));
        assert!(run.error().contains(expected), "{expected}: {run:?}");
    }
}

#[test]
fn model_of_another_network_is_refused() {
    for key in ["general.architecture", "digits-cnn.split_seed"] {
        let run = run_bytes("other.gguf", &altered(|_| (), |k| k != key));
        assert!(run.error().contains(&format!("`{key}` is missing")), "{run:?}");
    }
}

#[test]
fn svg_that_cannot_be_written_is_an_error() {
    let run = run(["--devices", "CPU", "--svg", "no/such/directory/graph.svg"]);
    let expected = "can't write no/such/directory/graph.svg (--svg FILE): the folder no/such/directory is not there";
    assert!(run.error().starts_with(expected), "{run:?}");
    assert_eq!(run.stdout, "", "work had begun");
}

/// Runs with a place for a drawing.
fn draw(path: &Path, more: &[&str]) -> Run {
    let fixed = ["--devices".as_ref(), "CPU".as_ref(), "--svg".as_ref(), path.as_os_str()];
    run(fixed.into_iter().chain(more.iter().map(|&argument| argument.as_ref())))
}

#[test]
fn svg_file_is_replaced_only_with_force() {
    let path = scratch("drawn.svg");
    fs::write(&path, "old").unwrap();
    let run = draw(&path, &[]);
    assert!(run.error().contains("drawn.svg is there already: --force replaces it"), "{run:?}");
    assert_eq!((run.stdout.as_str(), fs::read(&path).unwrap().as_slice()), ("", &b"old"[..]));
    draw(&path, &["--force"]).summary().assert_good();
    assert!(fs::read_to_string(&path).unwrap().contains("<svg"));
    fs::remove_file(path).unwrap();
}

#[test]
fn svg_to_a_read_only_file_is_refused_even_with_force() {
    let path = scratch("read-only.svg");
    fs::remove_file(&path).ok();
    fs::write(&path, "old").unwrap();
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    let run = draw(&path, &["--force"]);
    assert!(run.error().contains("read-only.svg (--svg FILE): it is read-only"), "{run:?}");
    assert_eq!(fs::read(&path).unwrap(), b"old");
    let below = draw(&path.join("graph.svg"), &["--force"]);
    assert!(below.error().contains("(--svg FILE)") && below.stdout.is_empty(), "{below:?}");
    fs::remove_file(path).unwrap();
    let slash = draw(&scratch("new.svg/"), &[]);
    assert!(slash.error().contains("it is no name of a file"), "{slash:?}");
}

#[cfg(unix)]
#[test]
fn svg_is_written_through_links() {
    use std::os::unix::fs::symlink;

    let (link, real) = (scratch("link.svg"), scratch("real.svg"));
    for path in [&link, &real] {
        fs::remove_file(path).ok();
    }
    symlink("real.svg", &link).unwrap();
    let run = draw(&link, &["--force"]);
    assert!(run.error().contains("it is a link to a file that is not there") && run.stdout.is_empty(), "{run:?}");
    fs::write(&real, "old").unwrap();
    assert!(draw(&link, &[]).error().contains("link.svg is there already"));
    draw(&link, &["--force"]).summary().assert_good();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read_to_string(&real).unwrap().contains("<svg"));
    for path in [link, real] {
        fs::remove_file(path).unwrap();
    }
}

/// Names in a file, and words on the command line.
#[test]
fn messages_escape_untrusted_text() {
    let evil = "\u{1b}]0;title\u{7}\u{9b}2J";
    let named = altered(|parts| part(parts, "fc2.bias").name = evil.to_owned(), |_| true);
    let devices = ["--devices".to_owned(), evil.repeat(1000)];
    for run in [run_bytes("evil.gguf", &named), run(devices), run(["--model", evil])] {
        let message = run.error().trim_end();
        assert!(message.contains("\\u{1b}]0;title\\u{7}\\u{9b}2J"), "{message:?}");
        assert!(!message.chars().any(|c| c.is_control() && c != '\n') && message.len() < 6000, "{message:?}");
    }
}
