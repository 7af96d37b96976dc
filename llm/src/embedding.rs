//! Embeddings of length 1.

use crate::session::Session;

impl Session {
    /// [`Session::embedding`] with length 1, so that the product of two is the cosine between them.
    pub fn unit_embedding(&self, i: usize) -> Option<Vec<f32>> {
        let embedding = self.embedding(i)?;
        let length = embedding.iter().map(|x| x * x).sum::<f32>().sqrt();
        let scale = if length > 0.0 { 1.0 / length } else { 0.0 };
        Some(embedding.iter().map(|x| x * scale).collect())
    }
}
