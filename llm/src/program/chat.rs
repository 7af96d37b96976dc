//! `chat`: messages in turns.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use anyhow::Result;
use ggml_llm::Error;
use ggml_llm::text::Message;

use super::generate::Text;
use super::interrupt;
use super::options::{Place, Sampling};

#[derive(Debug, clap::Args)]
#[command(after_help = "Each line is a message. Ctrl-C stops an answer, Ctrl-D ends the chat.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// What the model is told before the first message
    #[arg(long)]
    system: Option<String>,
    /// The most tokens of an answer
    #[arg(long, short, default_value_t = 1024)]
    n: usize,
    #[command(flatten)]
    sampling: Sampling,
}

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "the program's output")]
pub(crate) fn run(arguments: Arguments) -> Result<()> {
    let model = arguments.place.load()?;
    let tokenizer = model.tokenizer()?;
    let template = model.chat_template(&tokenizer)?;
    let mut sampler = arguments.sampling.sampler()?;
    let mut text = Text::new(&arguments.place, model)?;
    let mut messages: Vec<_> = arguments.system.into_iter().map(|s| Message::new("system", s)).collect();
    let terminal = std::io::stdin().is_terminal();
    interrupt::catch()?;
    let mut lines = std::io::stdin().lock().lines();
    loop {
        if terminal {
            print!("> ");
            std::io::stdout().flush()?;
        }
        let Some(line) = lines.next().transpose()? else { break };
        if line.trim().is_empty() {
            continue;
        }
        messages.push(Message::new("user", line));
        let prompt = template.render(&messages, true)?;
        interrupt::forget();
        // The template has written the tokens that begin a text.
        match text.set(&tokenizer.encode(&prompt, false, true)?) {
            Err(error) if matches!(error.downcast_ref(), Some(Error::Full { .. })) => {
                eprintln!("[{error:#}]");
                messages.pop();
                continue;
            }
            result => result?,
        }
        let mut answer = Vec::new();
        let mut both = Tee { out: std::io::stdout(), copy: &mut answer };
        text.go_on(arguments.n, &mut sampler, Some(&tokenizer), &mut both)?;
        println!();
        eprintln!("[{}]", text.times.line());
        messages.push(Message::new("assistant", String::from_utf8_lossy(&answer)));
    }
    Ok(())
}

/// Writes to both.
struct Tee<'a, W> {
    out: W,
    copy: &'a mut Vec<u8>,
}

impl<W: std::io::Write> std::io::Write for Tee<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.out.write(bytes)?;
        self.copy.extend_from_slice(bytes.get(..n).unwrap_or_default());
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
