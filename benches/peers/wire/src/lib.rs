//! The protocol between driver and engine: JSON lines over the engine's standard input and output.

use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// A request to embed these sentences a number of times.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// The token ids of each sentence, special tokens included.
    pub sentences: Vec<Vec<i32>>,
    pub repeat: usize,
}

/// The answer to a request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answer {
    /// The time of each repetition.
    pub seconds: Vec<f64>,
    /// The vectors of the last repetition.
    pub vectors: Vec<Vec<f32>>,
}

/// An engine to compare.
pub trait Engine {
    /// The vectors of sentences, of length 1.
    fn embed(&mut self, sentences: &[Vec<i32>]) -> Result<Vec<Vec<f32>>>;
}

/// Answers requests until the input ends.
pub fn serve(mut engine: impl Engine) -> Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let request: Request = serde_json::from_str(&line?)?;
        let mut answer = Answer { seconds: vec![], vectors: vec![] };
        for _ in 0..request.repeat {
            let start = Instant::now();
            answer.vectors = black_box(engine.embed(black_box(&request.sentences))?);
            answer.seconds.push(start.elapsed().as_secs_f64());
        }
        serde_json::to_writer(&mut out, &answer)?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}
