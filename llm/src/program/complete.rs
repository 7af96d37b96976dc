//! `complete`: a text goes on.

use std::io::{Read as _, Write as _};

use anyhow::{Result, bail};
use ggml_llm::place::ModelPlace;

use super::constrain::Constraining;
use super::generate::Text;
use super::interrupt;
use super::options::Sampling;

#[derive(Debug, clap::Args)]
pub(crate) struct CompleteArguments {
    #[command(flatten)]
    place: ModelPlace,
    /// The beginning of the text; `-` for the standard input
    prompt: Option<String>,
    /// The beginning as numbers of tokens, such as 1,2,3; numbers are printed, too
    #[arg(long, value_delimiter = ',', conflicts_with = "prompt")]
    tokens: Vec<i32>,
    /// Take names of special tokens in the prompt for these
    #[arg(long)]
    special: bool,
    /// The number of new tokens
    #[arg(long, short, default_value_t = 128)]
    n: usize,
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    constraining: Constraining,
}

#[expect(clippy::print_stderr, reason = "the program's output")]
pub(crate) fn run(arguments: CompleteArguments) -> Result<()> {
    let model = arguments.place.load()?;
    let (tokens, tokenizer) = match arguments.prompt {
        Some(mut prompt) => {
            if prompt == "-" {
                prompt.clear();
                std::io::stdin().read_to_string(&mut prompt)?;
            }
            let tokenizer = model.tokenizer()?;
            (tokenizer.encode(&prompt, true, arguments.special)?, Some(tokenizer))
        }
        None => (arguments.tokens, None),
    };
    if tokens.is_empty() {
        bail!("there are no tokens to begin with: give a PROMPT or --tokens");
    }
    let mut chooser = arguments.sampling.chooser(model.metadata())?;
    arguments.constraining.compile(tokenizer.as_ref())?.begin(&mut chooser);
    let mut text = Text::new(&arguments.place, model)?;
    interrupt::catch()?;
    text.set(&tokens)?;
    let stops = arguments.sampling.stops();
    text.go_on(arguments.n, &mut chooser, stops, tokenizer.as_ref(), &mut std::io::stdout())?;
    writeln!(std::io::stdout())?;
    eprintln!("[{}]", text.times.line());
    Ok(())
}
