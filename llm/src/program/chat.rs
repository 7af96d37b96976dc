//! `chat`: messages in turns.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;

use anyhow::Result;
use ggml_llm::Error;
use ggml_llm::place::{ModelPlace, TemplateChoice};
use ggml_llm::text::Message;

use super::constrain::Constraining;
use super::conversation::{self, Request};
use super::generate::{Text, TooLong};
use super::interrupt;
use super::options::Sampling;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each line is a message, except for `/save FILE` and `/load FILE`, which write and read the conversation (a \
space before them makes them messages). Ctrl-C stops an answer, Ctrl-D ends the chat."
)]
pub(crate) struct ChatArguments {
    #[command(flatten)]
    place: ModelPlace,
    #[command(flatten)]
    template: TemplateChoice,
    /// What the model is told before the first message
    #[arg(long)]
    system: Option<String>,
    /// A file with the conversation, which goes on where it ended, and is written after each answer; --system counts if
    /// there is none yet
    #[arg(long, value_name = "FILE")]
    conversation: Option<PathBuf>,
    /// The most tokens of an answer
    #[arg(long, short, default_value_t = 1024)]
    n: usize,
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    constraining: Constraining,
}

#[expect(clippy::print_stderr, reason = "the program's output")]
pub(crate) fn run(arguments: ChatArguments) -> Result<()> {
    let mut messages = conversation::begin(arguments.conversation.as_ref(), arguments.system)?;
    let model = arguments.place.load()?;
    let tokenizer = model.tokenizer()?;
    let template = arguments.template.template(&model, &tokenizer)?;
    let mut chooser = arguments.sampling.chooser(model.metadata())?;
    let beginning = arguments.constraining.compile(Some(&tokenizer))?;
    let mut text = Text::new(&arguments.place, model)?;
    let terminal = std::io::stdin().is_terminal();
    interrupt::catch()?;
    let mut input = std::io::stdin().lock();
    loop {
        if terminal {
            write!(std::io::stdout(), "> ")?;
            std::io::stdout().flush()?;
        }
        let mut line = Vec::new();
        if input.read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let Ok(line) = String::from_utf8(line) else {
            eprintln!("[the line is not UTF-8]");
            continue;
        };
        let line = line.trim_end_matches(['\n', '\r']).to_owned();
        if line.trim().is_empty() {
            continue;
        }
        if let Some(request) = Request::of(&line) {
            match request.run(&mut messages) {
                Ok(done) => eprintln!("[{done}]"),
                Err(error) => eprintln!("[{}]", super::printable(&format!("{error:#}"))),
            }
            continue;
        }
        messages.push(Message::new("user", line));
        interrupt::forget();
        let tokens = match template.encode(&tokenizer, &messages) {
            Ok(tokens) => tokens,
            // As where two messages of the same role follow each other.
            Err(error) => {
                eprintln!("[{}]", super::printable(&error.to_string()));
                messages.pop();
                continue;
            }
        };
        match text.set(&tokens) {
            Err(error) if error.is::<TooLong>() || matches!(error.downcast_ref(), Some(Error::Full { .. })) => {
                eprintln!("[{error:#}]");
                messages.pop();
                continue;
            }
            result => result?,
        }
        beginning.begin(&mut chooser);
        let mut answer = Vec::new();
        let mut both = Tee { out: std::io::stdout(), copy: &mut answer };
        text.go_on(arguments.n, &mut chooser, arguments.sampling.stops(), Some(&tokenizer), &mut both)?;
        writeln!(std::io::stdout())?;
        eprintln!("[{}]", text.times.line());
        messages.push(Message::new("assistant", String::from_utf8_lossy(&answer)));
        if let Some(path) = &arguments.conversation {
            conversation::save(path, &messages)?;
        }
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
