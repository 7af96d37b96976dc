//! `perplexity`: how well a model predicts a text.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use ggml_llm::place::ModelPlace;
use ggml_llm::{Batch, Session};

#[derive(Debug, clap::Args)]
pub(crate) struct PerplexityArguments {
    #[command(flatten)]
    place: ModelPlace,
    /// A text file
    text: PathBuf,
}

/// Tokens whose logits are in memory at once.
const AT_ONCE: usize = 64;

pub(crate) fn run(arguments: &PerplexityArguments) -> Result<()> {
    let model = arguments.place.load()?;
    let tokenizer = model.tokenizer()?;
    let text = String::from_utf8_lossy(&std::fs::read(&arguments.text)?).into_owned();
    let mut tokens = tokenizer.encode(&text, true, false)?;
    let mut session = arguments.place.devices.session(model, 1)?;
    // Parts as long as the context, each of which begins anew. The first half of each is only read: it has little before
    // it that would help.
    let length = session.n_ctx();
    let parts = tokens.len() / length;
    ensure!(parts > 0, "the text has {} tokens; one part has {length} (--ctx)", tokens.len());
    let (mut sum, mut n) = (0.0, 0);
    for (i, part) in tokens.chunks_exact_mut(length).enumerate() {
        if let (Some(first), Some(bos)) = (part.first_mut(), tokenizer.added_bos()) {
            *first = bos;
        }
        sum += surprise(&mut session, part)?;
        n += length - 1 - length / 2;
        let perplexity = (sum / f64::from(u32::try_from(n)?)).exp();
        writeln!(std::io::stdout(), "{} of {parts}: perplexity {perplexity:.4}", i + 1)?;
    }
    Ok(())
}

/// The negative logarithms of the probabilities of the second half's tokens, added up.
fn surprise(session: &mut Session, part: &[i32]) -> Result<f64> {
    session.truncate(0, 0)?;
    let mut batch = Batch::new();
    let (half, mut sum) = (part.len() / 2, 0.0);
    for start in (0..part.len()).step_by(AT_ONCE) {
        batch.clear();
        // The logits after a token predict the next one.
        let pairs = part.iter().zip(part.iter().skip(1).map(Some).chain([None])).enumerate();
        let pairs: Vec<_> = pairs.skip(start).take(AT_ONCE).collect();
        let wanted = |i: usize, next: Option<&i32>| next.filter(|_| i >= half).copied();
        for &(i, (&token, next)) in &pairs {
            batch.push(0, token, wanted(i, next).is_some());
        }
        session.decode(&batch)?;
        for (row, next) in pairs.iter().filter_map(|&(i, (_, next))| wanted(i, next)).enumerate() {
            let logits = session.logits(row).unwrap_or_default();
            let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let total: f64 = logits.iter().map(|x| f64::from(x - most).exp()).sum();
            let own = usize::try_from(next).ok().and_then(|i| logits.get(i)).copied().unwrap_or(f32::NEG_INFINITY);
            sum += total.ln() - f64::from(own - most);
        }
    }
    Ok(sum)
}
