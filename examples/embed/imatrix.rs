//! Importance matrices: how much each column of a matrix matters, so that quantisation keeps important ones exact.
//!
//! The importance of a column is the sum of squares of the values that it is multiplied by while sentences are
//! computed. The file has the format of llama.cpp's `imatrix`, which the example `quantize` reads.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use embed::model::Model;
use ggml::gguf::Writer;
use ggml::run::Observed;
use ggml::{DType, Graph};

/// The sums of each matrix of the layers.
#[derive(Debug, Default)]
pub(crate) struct Imatrix(BTreeMap<String, Sums>);

#[derive(Debug, Default)]
struct Sums {
    /// For each column, the sum over all tokens of the squared factors.
    squares: Vec<f64>,
    tokens: usize,
}

impl Imatrix {
    /// Computes sentences, and observes the operands of the matrix products. `done` gets the size of each finished batch.
    ///
    /// # Errors
    /// As [`Model::embed`].
    pub(crate) fn of(
        model: &mut Model,
        sentences: &[Vec<i32>],
        batch: NonZeroUsize,
        mut done: impl FnMut(usize),
    ) -> Result<Self> {
        let mut imatrix = Self::default();
        model.each_batch(sentences, batch, |run, graph, batch| {
            let operands = operands(&graph.graph)?;
            let lengths: Vec<_> = batch.iter().map(|(_, sentence)| sentence.len()).collect();
            let mut added = Ok(());
            let computed = run.compute_with(
                |t| operands.contains_key(&t.name()),
                |t| {
                    added = imatrix.add(&operands, t, &lengths);
                    if added.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                },
            );
            added?;
            computed?;
            done(batch.len());
            Ok(())
        })?;
        Ok(imatrix)
    }

    /// Adds an operand `[columns, tokens, sentences]` to the sums of the matrices that it is multiplied by. Padding
    /// after the end of a sentence is ignored.
    fn add(&mut self, operands: &HashMap<String, Vec<String>>, operand: Observed<'_>, lengths: &[usize]) -> Result<()> {
        let [columns, padded, ..] = operand.tensor().ne();
        let (columns, padded) = (usize::try_from(columns)?, usize::try_from(padded)?);
        let numbers = operand.get::<f32>()?;
        let sentences = numbers.chunks_exact(columns * padded).zip(lengths);
        let mut squares = vec![0.0; columns];
        for token in sentences.flat_map(|(sentence, &tokens)| sentence.chunks_exact(columns).take(tokens)) {
            squares.iter_mut().zip(token).for_each(|(sum, &x)| *sum += f64::from(x).powi(2));
        }
        for matrix in operands.get(&operand.tensor().name()).into_iter().flatten() {
            let sums = self.0.entry(matrix.clone()).or_default();
            sums.squares.resize(columns, 0.0);
            sums.squares.iter_mut().zip(&squares).for_each(|(sum, x)| *sum += x);
            sums.tokens += lengths.iter().sum::<usize>();
        }
        Ok(())
    }

    /// Writes them to a file, which records the `datasets` of texts and their pieces' maximum length, `most` tokens.
    ///
    /// # Errors
    /// The file can't be written, or a sum is not finite.
    pub(crate) fn write(&self, path: &Path, datasets: Vec<String>, most: usize) -> Result<()> {
        let tokens = self.0.values().map(|sums| sums.tokens).max().unwrap_or(0);
        let mut writer = Writer::new();
        // llama.cpp requires all of these keys.
        writer.set("general.type", "imatrix")?;
        writer.set("imatrix.datasets", datasets)?;
        writer.set("imatrix.chunk_count", u32::try_from(tokens.div_ceil(most))?)?;
        writer.set("imatrix.chunk_size", u32::try_from(most)?)?;
        for (matrix, Sums { squares, tokens }) in &self.0 {
            #[expect(clippy::cast_possible_truncation, reason = "as the form has it; 24 bits are plenty")]
            let squares: Vec<_> = squares.iter().map(|&x| x as f32).collect();
            ensure!(squares.iter().all(|x| x.is_finite()), "`{matrix}` is multiplied by NaNs or infinities");
            #[expect(clippy::cast_precision_loss, reason = "as the form has it; 24 bits are plenty")]
            let count = (*tokens as f32).to_ne_bytes();
            let bytes: Vec<_> = squares.iter().flat_map(|x| x.to_ne_bytes()).collect();
            writer.tensor(&format!("{matrix}.in_sum2"), DType::F32, [i64::try_from(squares.len())?, 1], &bytes)?;
            writer.tensor(&format!("{matrix}.counts"), DType::F32, [1, 1], &count)?;
        }
        writer.write(path).with_context(|| format!("can't write {}", path.display()))
    }

    /// The number of matrices.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The operands that the graph multiplies weights by, named here, with the names of those weights.
fn operands(graph: &Graph<'_>) -> Result<HashMap<String, Vec<String>>> {
    let mut operands = HashMap::<_, Vec<_>>::new();
    for product in graph.nodes().filter(|t| t.op() == "MUL_MAT") {
        let mut sources = graph.sources(product);
        let (Some(matrix), Some(operand)) = (sources.next(), sources.next()) else { continue };
        // Attention multiplies results, not weights.
        if matrix.op() != "NONE" {
            continue;
        }
        let mut name = operand.name();
        if !operands.contains_key(&name) {
            name = operand.named(&format!("operand {}", operands.len()))?.name();
        }
        operands.entry(name).or_default().push(matrix.name());
    }
    Ok(operands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imatrix_refuses_sums_that_are_not_finite() {
        let path = std::env::temp_dir().join(format!("embed-example-{}-nan.gguf", std::process::id()));
        for bad in [f64::NAN, f64::INFINITY, f64::from(f32::MAX) * 2.0] {
            let sums = Sums { squares: vec![1.0, bad], tokens: 1 };
            let imatrix = Imatrix([("up.weight".to_owned(), sums)].into());
            let e = imatrix.write(&path, vec![], 7).unwrap_err().to_string();
            assert_eq!(e, "`up.weight` is multiplied by NaNs or infinities");
            assert!(!path.exists());
        }
    }
}
