//! The program, with made-up models whose vocabulary is all bytes.

#![cfg(test)]

mod conversations;
mod embeddings;
#[cfg(feature = "constrain")]
mod grammars;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use ggml::gguf::{Reader, Writer};
use ggml_llm::Architecture;
use ggml_llm::made_up::{Recipe, byte_tokenizer};

/// A file that is removed with its folder.
struct File {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

/// A small model that can read and write any text.
fn model(architecture: Architecture) -> File {
    model_that(architecture, true)
}

/// [`model`] that may end its answers, or that never does.
fn model_that(architecture: Architecture, ends: bool) -> File {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut recipe = Recipe::new(architecture);
    (recipe.n_layer, recipe.n_embd, recipe.n_ff, recipe.n_head, recipe.n_vocab) = (2, 64, 64, 4, 258);
    recipe.tokenizer = byte_tokenizer(recipe.n_vocab, ends);
    let template = "{% for m in messages %}<|begin|>{{ m.role }}: {{ m.content }}<|end|>{% endfor %}<|begin|>";
    recipe.tokenizer.push(("tokenizer.chat_template".into(), template.into()));
    recipe.write(&path).unwrap();
    File { _folder: folder, path }
}

/// The child process: see `testkit::server`.
#[cfg(feature = "rpc")]
#[test]
fn server_process() {
    testkit::server::server_process();
}

/// Two servers have the layers; one is killed between two messages.
#[cfg(feature = "rpc")]
#[test]
fn chat_goes_on_when_a_server_is_lost() {
    use std::io::{BufRead as _, BufReader, Read as _};
    use testkit::server::ServerProcess;
    for (architecture, parallel) in
        [(Architecture::Llama, false), (Architecture::Mamba2, false), (Architecture::Llama, true)]
    {
        let file = model(architecture);
        // Servers have ggml's kernels, and don't repack; others round otherwise.
        let usual = [SMALL, &["-n", "6", "--no-repack", "--ggml-kernels"]].concat();
        let undisturbed = text(&run("chat", &file.path, &usual, "hello\nand again\n"));

        let [first, mut second] = [ServerProcess::start(), ServerProcess::start()];
        let addresses = [&first, &second].map(|server| server.address.to_string());
        let mut child = Command::new(env!("CARGO_BIN_EXE_ggml-llm"))
            .arg("chat")
            .arg(&file.path)
            .args(usual)
            // Each server has two devices.
            .args(["--rpc", &addresses[0], "--rpc", &addresses[1], "--split", "1,0,1,0"])
            .args(parallel.then_some("--tensor-parallel"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        input.write_all(b"hello\n").unwrap();
        said.read_line(&mut line).unwrap();
        assert!(line.starts_with("[prompt: "), "{line}");
        second.kill();
        input.write_all(b"and again\n").unwrap();
        drop(input);
        line.clear();
        said.read_to_string(&mut line).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{line}");
        assert!(line.contains(&format!("RPC server {} was lost", addresses[1])), "{line}");
        let restored = line.split_once("; ").unwrap().1;
        assert!(!restored.starts_with("0 tokens"), "nothing was restored: {line}");
        // Sums of several devices round otherwise, so that other tokens may be the likeliest.
        assert!(parallel || text(&output) == undisturbed, "{line}: {:?}, not {undisturbed:?}", text(&output));
    }
}

/// Runs the program with a standard input.
fn run(command: &str, file: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ggml-llm"))
        .arg(command)
        .arg(file)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that fails early has closed its end.
    let _written = child.stdin.take().unwrap().write_all(input.as_bytes()).is_ok();
    child.wait_with_output().unwrap()
}

#[track_caller]
fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

const SMALL: &[&str] = &["--threads", "1", "--ctx", "256"];

#[test]
fn complete_goes_on_by_so_many_tokens() {
    let file = model(Architecture::Qwen3);
    let some = [SMALL, &["--tokens", "1,2,3", "-n", "7"]].concat();
    let first = text(&run("complete", &file.path, &some, ""));
    assert!((1..=7).contains(&first.split_whitespace().count()), "{first}");
    assert!(first.split_whitespace().all(|t| t.parse::<u32>().unwrap() < 258), "{first}");
    assert_eq!(first, text(&run("complete", &file.path, &some, "")));
    let output = run("complete", &file.path, &[SMALL, &["-", "-n", "5"]].concat(), "some text");
    text(&output);
    assert!(String::from_utf8_lossy(&output.stderr).contains("prompt: 9 tokens"), "{output:?}");
    // More tokens than the context has: the older half is forgotten.
    let many = [SMALL, &["--tokens", "1,2", "-n", "300", "--temperature", "1"]].concat();
    assert!(run("complete", &file.path, &many, "").status.success());
}

/// A cache that is divided among devices can't be shifted: what is kept of the context is computed again.
#[cfg(feature = "rpc")]
#[test]
fn complete_goes_on_beyond_a_divided_context() {
    let server = testkit::server::ServerProcess::start();
    let address = server.address.to_string();
    let file = model_that(Architecture::Llama, false);
    let many = [SMALL, &["--tokens", "1,2", "-n", "300"]].concat();
    let devices = ["--device", "CPU", "--rpc", &address, "--split", "1,1,0", "--tensor-parallel"];
    let output = run("complete", &file.path, &[&many, &devices[..]].concat(), "");
    assert_eq!(text(&output).split_whitespace().count(), 300, "{output:?}");
}

#[test]
fn chat_answers_each_line() {
    for architecture in [Architecture::Llama, Architecture::Mamba2] {
        let file = model(architecture);
        let arguments = [SMALL, &["-n", "6", "--system", "be short", "--temperature", "1"]].concat();
        let output = run("chat", &file.path, &arguments, "hello\n\nand again\n");
        text(&output);
        let statistics = String::from_utf8_lossy(&output.stderr);
        let lines: Vec<_> = statistics.lines().filter(|line| line.starts_with("[prompt: ")).collect();
        assert_eq!(lines.len(), 2, "{statistics}");
        // The template's text, of which each special token is one.
        assert!(lines[0].contains(" 32 tokens"), "{statistics}");
    }
}

/// Both answers would go on for ever.
#[cfg(unix)]
#[test]
fn ctrl_c_stops_the_answer_and_not_the_chat() {
    use std::io::{BufRead as _, BufReader};
    let file = model_that(Architecture::Llama, false);
    let answers = file.path.with_extension("txt");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ggml-llm"))
        .arg("chat")
        .arg(&file.path)
        .args([SMALL, &["-n", "1000000000"]].concat())
        .stdin(Stdio::piped())
        .stdout(std::fs::File::create(&answers).unwrap())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let written = || std::fs::metadata(&answers).unwrap().len();
    for message in ["hello\n", "and again\n"] {
        let before = written();
        input.write_all(message.as_bytes()).unwrap();
        while written() < before + 100 {
            assert!(child.try_wait().unwrap().is_none(), "the chat has ended");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let kill = format!("kill -INT {}", child.id()); // built into every shell
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        assert!(line.starts_with("[prompt: "), "{line}");
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}

/// Ten megabytes; a tenth of that where the program isn't optimised.
#[test]
fn a_prompt_of_megabytes_is_refused_and_the_chat_goes_on() {
    let file = model(Architecture::Llama);
    let long = "word ".repeat(if cfg!(debug_assertions) { 200_000 } else { 2_000_000 });
    let output = run("complete", &file.path, &[SMALL, &["-"]].concat(), &long);
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = format!("the prompt has {} tokens, but 256 fit; --ctx sets", long.len());
    assert!(output.status.code() == Some(1) && said.contains(&expected), "{said}");
    let output = run("chat", &file.path, &[SMALL, &["-n", "3"]].concat(), &format!("{long}\nhello\n"));
    text(&output);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("tokens, but 256 fit; --ctx") && said.contains("[prompt: 14 tokens"), "{said}");
}

/// The answer's text would be no UTF-8 either: such a line is refused, and the chat goes on.
#[test]
fn a_line_that_is_no_text_does_not_end_the_chat() {
    let file = model(Architecture::Llama);
    let mut child = Command::new(env!("CARGO_BIN_EXE_ggml-llm"))
        .arg("chat")
        .arg(&file.path)
        .args([SMALL, &["-n", "3"]].concat())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"\xff\xfe\nhello\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("not UTF-8") && said.contains("[prompt: 14 tokens"), "{said}");
}

/// `... | head` closes the pipe early.
#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let file = model(Architecture::Llama);
    let path = file.path.with_extension("txt");
    std::fs::write(&path, "It was a bright cold day in April. ".repeat(40)).unwrap();
    let text = "a long text ".repeat(8000); // more lines than a pipe holds
    let cases: [(&str, Vec<&str>); 3] =
        [("tokens", vec![&text]), ("info", vec![]), ("perplexity", [SMALL, &[path.to_str().unwrap()]].concat())];
    for (command, arguments) in cases {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ggml-llm"))
            .arg(command)
            .arg(&file.path)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !said.contains("panick") && !said.contains("pipe"), "{command}: {said}");
    }
}

/// The file with another value of a key.
fn with(file: &File, key: &str, value: impl Into<ggml::gguf::Value>) -> PathBuf {
    let reader = Reader::from_bytes(std::fs::read(&file.path).unwrap()).unwrap();
    let mut writer = Writer::new();
    writer.set_kv(&reader).unwrap();
    writer.set(key, value).unwrap();
    for t in reader.tensors() {
        writer.tensor(t.name(), t.dtype(), t.shape(), reader.data(t.name()).unwrap()).unwrap();
    }
    let path = file.path.with_extension("changed.gguf");
    writer.write(&path).unwrap();
    path
}

#[test]
fn what_a_file_says_is_no_command_for_the_terminal() {
    let file = model(Architecture::Llama);
    let path = with(&file, "general.name", "evil\u{1b}[2J\u{9b}31m\u{7}name");
    let printed = text(&run("info", &path, &[], ""));
    assert!(printed.contains("evil\\u{1b}[2J") && !printed.contains(['\u{1b}', '\u{9b}', '\u{7}']), "{printed:?}");
    let path = with(&file, "llama.\u{1b}]0;key", 1_u32);
    let output = run("info", &path, &[], "");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("u{1b}]0;key") && !said.contains('\u{1b}'), "{said:?}");
}

/// Texts begin with a special token only if the file says so.
#[test]
fn add_bos_token_counts_in_chat_and_perplexity() {
    let file = model(Architecture::Llama);
    let plain = with(&file, "tokenizer.ggml.bos_token_id", 256_u32);
    let prompt = |path: &Path, template: &str| {
        let file = File { _folder: tempfile::tempdir().unwrap(), path: path.to_owned() };
        let path = with(&file, "tokenizer.chat_template", template);
        let output = run("chat", &path, &[SMALL, &["-n", "1"]].concat(), "hi\n");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        said.split("[prompt: ").nth(1).and_then(|rest| rest.split(' ').next()).map(str::to_owned).unwrap_or(said)
    };
    let (bare, own) = ("{{ messages[0].content }}", "{{ bos_token }}{{ messages[0].content }}");
    assert_eq!([prompt(&plain, bare), prompt(&plain, own)], ["2", "3"]);
    let added =
        with(&File { _folder: tempfile::tempdir().unwrap(), path: plain }, "tokenizer.ggml.add_bos_token", true);
    assert_eq!([prompt(&added, bare), prompt(&added, own)], ["3", "3"]);
}

#[test]
fn tokens_and_info_say_what_is_in_the_file() {
    let file = model(Architecture::Gemma3);
    let printed = text(&run("tokens", &file.path, &["hé <|end|>", "--special"], ""));
    let ids: Vec<_> = printed.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(ids, ["104", "195", "169", "32", "257"], "{printed}");
    let info = text(&run("info", &file.path, &[], ""));
    assert!(info.contains("architecture gemma3") && info.contains("1 layers see the last 24 tokens only"), "{info}");
}

#[test]
fn perplexity_of_random_weights_is_about_the_size_of_the_vocabulary_or_more() {
    let file = model(Architecture::Llama);
    let path = file.path.with_extension("txt");
    std::fs::write(&path, "It was a bright cold day in April, and the clocks were striking. ".repeat(12)).unwrap();
    let printed = text(&run("perplexity", &file.path, &[SMALL, &[path.to_str().unwrap()]].concat(), ""));
    let last = printed.lines().last().unwrap();
    let value: f64 = last.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(last.starts_with("3 of 3") && value > 50.0 && value < 5000.0, "{printed}");
}

#[test]
fn bench_measures_a_made_up_model() {
    let output = Command::new(env!("CARGO_BIN_EXE_ggml-llm"))
        .args(["bench", "--made-up", "qwen2", "--dtype", "q4_0", "--layers", "1", "--width", "64", "--prompt", "8"])
        .args(["--steps", "4", "--sequences", "2", "--rounds", "1", "--threads", "1", "--ctx", "256"])
        .output()
        .unwrap();
    let printed = text(&output);
    assert!(printed.contains("pp8: ") && printed.contains("tg4 of 2 sequences: "), "{printed}");
}

#[test]
fn what_cannot_be_is_said_and_fails() {
    let file = model(Architecture::Llama);
    let failed = |command: &str, file: &Path, arguments: &[&str], why: &str| {
        let output = run(command, file, arguments, "hello\n");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(why), "{why}: {said}");
    };
    failed("complete", &file.path, SMALL, "give a PROMPT or --tokens");
    failed("complete", &file.path, &[SMALL, &["--tokens", "258"]].concat(), "the vocabulary has 258 tokens");
    failed("complete", &file.path, &[SMALL, &["--device", "none"]].concat(), "no device named");
    failed("complete", &file.path, &["--tokens", "1", "--cache", "f12"], "--cache");
    failed("info", Path::new("/no/such/file"), &[], "/no/such/file");
    let long = vec!["7"; 300].join(",");
    failed(
        "complete",
        &file.path,
        &[SMALL, &["--tokens", &long]].concat(),
        "the prompt has 300 tokens, but 256 fit; --ctx",
    );
    // Heads of 16 elements have no blocks of 32.
    failed("chat", &file.path, &[SMALL, &["--cache", "q8_0"]].concat(), "whose blocks divide the heads");
    failed("chat", &file.path, &[SMALL, &["--cache", "q6_K"]].concat(), "one of f16, f32");
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("model.gguf");
    Recipe::new(Architecture::Llama).write(&plain).unwrap();
    failed("chat", &plain, SMALL, "tokenizer.ggml");
}
