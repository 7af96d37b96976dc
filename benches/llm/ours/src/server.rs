//! The server of language models, with a client for each sequence.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail, ensure};
use engine::{Engine, N_CTX, N_SEQ};
use serde_json::{Value, json};

/// A running server, which ends with this.
pub struct Server {
    child: Child,
    url: String,
}

impl Server {
    /// Starts the program that the second of the last arguments names.
    pub fn open(file: &str, threads: usize, rest: &[String]) -> Result<Self> {
        let program = rest.get(1).context("the server's program")?;
        let mut command = Command::new(program);
        command.arg(file).args(["--port", "0", "--cache", "f16"]);
        for (option, value) in [("--threads", threads), ("--ctx", N_CTX as usize), ("--parallel", N_SEQ)] {
            command.arg(option).arg(value.to_string());
        }
        let mut child = command.stderr(Stdio::piped()).spawn().with_context(|| format!("can't run {program}"))?;
        let stderr = BufReader::new(child.stderr.take().context("a pipe")?);
        let mut this = Self { child, url: String::new() };
        let mut lines = stderr.lines();
        for line in lines.by_ref() {
            if let Some((_, address)) = line?.split_once("http://") {
                let address = address.split('/').next().unwrap_or_default();
                this.url = format!("http://{address}/v1/completions");
                break;
            }
        }
        ensure!(!this.url.is_empty(), "the server has ended");
        // What it says later must not fill the pipe.
        thread::spawn(move || lines.for_each(drop));
        Ok(this)
    }

    /// Asks for `new` tokens after a prompt.
    fn complete(&self, prompt: &[i32], new: usize) -> Result<()> {
        // 257 would end the answer.
        let bias = json!({ "257": -100 });
        let body = json!({ "prompt": prompt, "max_tokens": new, "temperature": 0, "logit_bias": bias });
        let answer: Value = ureq::post(&self.url).send_json(body)?.body_mut().read_json()?;
        let found = answer.pointer("/usage/completion_tokens").and_then(Value::as_u64);
        ensure!(found == Some(new as u64), "{new} tokens were asked for: {answer}");
        Ok(())
    }
}

impl Engine for Server {
    fn clear(&mut self) -> Result<()> {
        Ok(()) // prompts are random, so that none has a beginning that is known
    }

    fn prompt(&mut self, tokens: &[i32]) -> Result<()> {
        self.complete(tokens, 1)
    }

    fn step(&mut self, _: &[i32], _: usize) -> Result<()> {
        bail!("the server takes no single steps")
    }

    fn steps(&mut self, n: usize, sequences: usize, tokens: &mut dyn FnMut(usize) -> Vec<i32>) -> Result<()> {
        let tokens = tokens(sequences);
        let this = &*self;
        thread::scope(|scope| {
            let clients: Vec<_> = tokens.iter().map(|&token| scope.spawn(move || this.complete(&[token], n))).collect();
            clients.into_iter().try_for_each(|client| client.join().ok().context("a client panicked")?)
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
