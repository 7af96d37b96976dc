//! The next token of an answer: what a sampler chooses of those that a grammar allows.

use anyhow::Result;

#[cfg(feature = "constrain")]
use crate::constrain::Constraint;
use crate::text::Sampler;

/// Chooses the tokens of an answer.
///
/// ```
/// use ggml_llm::Chooser;
/// use ggml_llm::text::{Sampler, SamplerOptions};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut chooser = Chooser::new(Sampler::new(SamplerOptions::new())?);
/// assert_eq!(chooser.next(&[0.0, 9.0, 1.0], &[])?, 1);
/// assert!(!chooser.is_complete());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Chooser {
    sampler: Sampler,
    #[cfg(feature = "constrain")]
    constraint: Option<Constraint>,
}

impl Chooser {
    /// Chooses any token.
    pub fn new(sampler: Sampler) -> Self {
        Self {
            sampler,
            #[cfg(feature = "constrain")]
            constraint: None,
        }
    }

    /// From now on, chooses tokens that the constraint allows, from its beginning.
    #[cfg(feature = "constrain")]
    pub fn constrain(&mut self, constraint: Option<Constraint>) {
        self.constraint = constraint;
    }

    /// The next token, by a logit for each token and the tokens so far: see [`Sampler::sample`].
    ///
    /// # Errors
    ///
    /// As [`Sampler::sample`], and if the constraint can't go on.
    pub fn next(&mut self, logits: &[f32], history: &[i32]) -> Result<i32> {
        #[cfg(feature = "constrain")]
        if let Some(constraint) = &mut self.constraint {
            let token = self.sampler.sample(constraint.masked(logits)?, history)?;
            constraint.accept(token)?;
            return Ok(token);
        }
        Ok(self.sampler.sample(logits, history)?)
    }

    /// Whether the answer is whole by its constraint, and can't go on.
    pub fn is_complete(&self) -> bool {
        #[cfg(feature = "constrain")]
        return self.constraint.as_ref().is_some_and(Constraint::is_complete);
        #[cfg(not(feature = "constrain"))]
        false
    }
}
