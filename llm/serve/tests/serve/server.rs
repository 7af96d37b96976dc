//! A server with a made-up model, and plain requests to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ggml::DType;
use ggml_llm::Architecture;
use ggml_llm::made_up::{Recipe, byte_tokenizer};
use serde_json::Value;

/// Settings of glibc's allocator, for which the process's memory shows what is held. Else each thread has a heap and lists of
/// freed blocks of its own, which fill for minutes, and ever larger blocks are kept.
const HEAP: &str =
    "glibc.malloc.arena_max=1:glibc.malloc.mmap_threshold=131072:glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0";

/// A small model whose vocabulary is all bytes, and a token that ends an answer: 257.
pub(crate) fn model(folder: &Path, architecture: Architecture) -> PathBuf {
    let path = folder.join("made-up.gguf");
    let mut recipe = Recipe::new(architecture);
    recipe.dtype = DType::F32;
    (recipe.n_layer, recipe.n_embd, recipe.n_ff, recipe.n_head) = (2, 64, 64, 4);
    write(recipe, &path);
    path
}

/// Writes a model with that vocabulary.
pub(crate) fn write(mut recipe: Recipe, path: &Path) {
    recipe.n_vocab = 258;
    recipe.tokenizer = byte_tokenizer(recipe.n_vocab, true);
    let template = "{% for m in messages %}<|begin|>{{ m.role }}: {{ m.content }}{% endfor %}<|begin|>";
    recipe.tokenizer.push(("tokenizer.chat_template".into(), template.into()));
    recipe.write(path).unwrap();
}

/// A running server, which ends with this.
pub(crate) struct Server {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    address: String,
    _folder: tempfile::TempDir,
    pub(crate) file: PathBuf,
}

/// A status and a body.
pub(crate) type Reply = (u16, String);

impl Server {
    pub(crate) fn start(architecture: Architecture, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = model(folder.path(), architecture);
        let usual = ["--threads", "1", "--ggml-kernels", "--cache", "f32"];
        Self::of(folder, file, &[&usual[..], arguments].concat())
    }

    /// A server of a file in a folder, which goes with the server.
    pub(crate) fn of(folder: tempfile::TempDir, file: PathBuf, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ggml-llm-serve"))
            .arg(&file)
            .args(["--port", "0"])
            .args(arguments)
            .env_remove("GGML_LLM_API_KEY")
            .env("GLIBC_TUNABLES", HEAP)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("http://") {
            line.clear();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "the server has ended: {:?}", child.wait());
        }
        let address = line.split("http://").nth(1).unwrap().split('/').next().unwrap().to_owned();
        Self { child, stderr, address, _folder: folder, file }
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        stream
    }

    /// Sends a request, with HTTP/1.0 so that its answer comes in one piece.
    pub(crate) fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> TcpStream {
        let mut stream = self.connect();
        let head = format!("{method} {path} HTTP/1.0\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
        // A server that refuses the request doesn't read it to the end.
        let _sent = stream.write_all(&[head.as_bytes(), body].concat()).is_ok();
        stream
    }

    pub(crate) fn request(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Reply {
        reply(self.send(method, path, headers, body))
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.request("GET", path, "", b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.request("POST", path, "", body.to_string().as_bytes())
    }

    /// The answer, which must be one.
    #[track_caller]
    pub(crate) fn ask(&self, path: &str, body: &Value) -> Value {
        let (status, text) = self.post(path, body);
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// The value of a metric that counts.
    #[track_caller]
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let (_, text) = self.get("/metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("ggml_llm_{name} ")));
        line.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
    }

    /// Waits until something holds.
    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            assert!(start.elapsed() < Duration::from_secs(60), "{what}: {}", self.get("/metrics").1);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The number of the process, and where it listens.
    #[cfg(feature = "constrain")]
    pub(crate) fn place(&self) -> (u32, &str) {
        (self.child.id(), &self.address)
    }

    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id()); // built into every shell
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    /// Waits for the end: whether it went well, and what was said.
    pub(crate) fn end(mut self) -> (bool, String) {
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().success(), said)
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended = self.child.kill().is_err();
        let _status = self.child.wait().is_ok();
        let mut said = String::new();
        if std::thread::panicking() && self.stderr.read_to_string(&mut said).is_ok() {
            eprintln!("the server has said: {said}");
        }
    }
}

pub(crate) fn reply(mut stream: TcpStream) -> Reply {
    let mut bytes = Vec::new();
    // A connection may be reset after an early refusal, whose text has come.
    let _reset = stream.read_to_end(&mut bytes).is_err();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status: {text:?}")), body.to_owned())
}

/// The parts of a stream, and whether it ended as it should.
pub(crate) fn parts(body: &str) -> (Vec<Value>, bool) {
    let data: Vec<_> = body.split("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    let done = data.last() == Some(&"[DONE]");
    let parts = data.iter().take(data.len() - usize::from(done));
    (parts.map(|part| serde_json::from_str(part).unwrap()).collect(), done)
}
