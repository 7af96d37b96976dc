//! What the driver and an engine say to each other: a line of JSON each, over the engine's standard input and output.

use std::hint::black_box;
use std::io::{self, BufRead, Write};
use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// Embed these sentences, so many times over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// The numbers of each sentence's words, marks of beginning and end included.
    pub sentences: Vec<Vec<i32>>,
    pub repeat: usize,
}

/// What came of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answer {
    /// How long each time took.
    pub seconds: Vec<f64>,
    /// The vectors of the last.
    pub vectors: Vec<Vec<f32>>,
}

/// An engine that is compared.
pub trait Engine {
    /// The vectors of sentences, of length 1.
    fn embed(&mut self, sentences: &[Vec<i32>]) -> Result<Vec<Vec<f32>>>;
}

/// Answers requests until there are no more.
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
