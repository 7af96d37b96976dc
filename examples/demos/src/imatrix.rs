//! Reads importance matrices.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use ggml::DType;
use ggml::Quantize as _;
use ggml::gguf::Reader;

use crate::Shown;

/// The range of weights that `DType::quantize` accepts.
const WEIGHTS: std::ops::RangeInclusive<f32> = 1e-10..=1e10;

/// Mean squares by tensor name; those of its matrices are concatenated.
#[derive(Debug, Default)]
pub struct Imatrix(HashMap<String, Vec<f32>>);

impl Imatrix {
    /// # Errors
    /// The file can't be read, or is not an importance matrix.
    pub fn read(path: &Path) -> Result<Self> {
        let mut reader = Reader::open(path)?;
        let sums: Vec<_> = reader.tensors().map(|t| (t.name().to_owned(), t.shape().ne())).collect();
        let mut found = HashMap::new();
        for (name, ne) in sums {
            let Some(tensor) = name.strip_suffix(".in_sum2") else { continue };
            let columns = usize::try_from(ne[0])?;
            let squares = numbers(&mut reader, &name)?;
            let counts = numbers(&mut reader, &format!("{tensor}.counts"))?;
            let shown = Shown::name(tensor);
            ensure!(
                squares.len() == columns * counts.len(),
                "{}: `{shown}` has {} sums in rows of {columns}, but {} counts",
                path.display(),
                squares.len(),
                counts.len()
            );
            let sum = |&x: &f32| x.is_finite() && x >= 0.0;
            ensure!(
                squares.iter().all(sum) && counts.iter().all(sum),
                "{}: sums and counts of `{shown}` have to be finite and not less than 0",
                path.display()
            );
            let means = squares.chunks(columns).zip(counts).flat_map(|(squares, count)| {
                // Columns of unused matrices get equal weights.
                squares.iter().map(move |&x| if count > 0.0 { x / count } else { 1.0 })
            });
            let means = means.map(|x| x.clamp(*WEIGHTS.start(), *WEIGHTS.end())).collect();
            found.insert(tensor.to_owned(), means);
        }
        if found.is_empty() {
            bail!("{}: there is no tensor NAME.in_sum2, so this is no importance matrix", path.display());
        }
        Ok(Self(found))
    }

    /// The weights for each of the `matrices` of a tensor with rows of `columns`.
    ///
    /// # Errors
    /// The weights in the file have another shape.
    pub fn of(&self, tensor: &str, columns: usize, matrices: usize) -> Result<Option<Vec<&[f32]>>> {
        let Some(means) = self.0.get(tensor) else { return Ok(None) };
        ensure!(
            means.len() == columns * matrices,
            "the importance matrix has {} numbers for `{}`, which has {columns} columns and {matrices} matrices",
            means.len(),
            Shown::name(tensor)
        );
        Ok(Some(means.chunks(columns).collect()))
    }
}

fn numbers(reader: &mut Reader<std::fs::File>, name: &str) -> Result<Vec<f32>> {
    let dtype = reader.tensor(name)?.dtype();
    ensure!(dtype == DType::F32, "`{}` holds {dtype}, but an importance matrix is of f32", Shown::name(name));
    dtype.dequantize(&reader.read(name)?).context("out of memory")
}
