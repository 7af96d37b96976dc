//! What an engine does: it reads requests from its standard input, and prints the seconds that each took.

use std::io::{BufRead, Write, stdin, stdout};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

/// The tokens of each model.
pub const N_VOCAB: i32 = 32_000;
/// The tokens that fit, of all sequences.
pub const N_CTX: u32 = 8448;
/// The tokens that are computed at once.
pub const N_BATCH: u32 = 512;
/// The most sequences.
pub const N_SEQ: usize = 32;

/// A model, with a cache.
pub trait Engine {
    /// Forgets all tokens.
    fn clear(&mut self) -> Result<()>;

    /// Computes tokens of one sequence, and the logits of the last one.
    fn prompt(&mut self, tokens: &[i32]) -> Result<()>;

    /// Computes the next token of sequences 0 and so on, and the logits of each; `position` is that of all tokens.
    fn step(&mut self, tokens: &[i32], position: usize) -> Result<()>;

    /// Computes so many steps; `tokens` makes up the tokens of one.
    fn steps(&mut self, n: usize, sequences: usize, tokens: &mut dyn FnMut(usize) -> Vec<i32>) -> Result<()> {
        (0..n).try_for_each(|position| self.step(&tokens(sequences), position))
    }
}

/// Answers requests until the input ends: `prompt LENGTH`, `steps NUMBER SEQUENCES`. The arguments of the program are a
/// model's file, the threads, and what else the engine takes.
pub fn serve<E: Engine>(open: impl FnOnce(&str, usize, &[String]) -> Result<E>) -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, threads, rest @ ..] = &*arguments else { bail!("arguments: a file, and a number of threads") };
    let mut engine = open(file, threads.parse()?, rest)?;
    let mut rng = fastrand::Rng::with_seed(1);
    let mut tokens = |n: usize| (0..n).map(|_| rng.i32(0..N_VOCAB)).collect::<Vec<_>>();
    for line in stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let what = words.next().context("an empty request")?;
        let numbers = words.map(str::parse).collect::<Result<Vec<usize>, _>>()?;
        engine.clear()?;
        let start = Instant::now();
        match (what, &*numbers) {
            ("prompt", &[n]) => engine.prompt(&tokens(n))?,
            ("steps", &[n, sequences]) => engine.steps(n, sequences, &mut tokens)?,
            _ => bail!("an unknown request: {line}"),
        }
        let mut out = stdout().lock();
        writeln!(out, "{}", start.elapsed().as_secs_f64())?;
        out.flush()?;
    }
    Ok(())
}
