//! How tokens are chosen: options of several commands.

use anyhow::{Context as _, Result};
use ggml_llm::Chooser;
use ggml_llm::text::{Sampler, SamplerOptions, StopStrings};

/// How tokens are chosen.
#[derive(Debug, clap::Args)]
pub(crate) struct Sampling {
    /// Above 0, tokens are drawn: the higher, the more different from one another
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Draw from so many of the likeliest tokens; 0 for all
    #[arg(long, default_value_t = 40)]
    top_k: usize,
    /// Draw from the likeliest tokens that have this probability together
    #[arg(long, default_value_t = 0.95)]
    top_p: f32,
    /// Draw from tokens at least this times as likely as the likeliest
    #[arg(long, default_value_t = 0.05)]
    min_p: f32,
    /// Makes tokens that came before less likely; 1 for not at all
    #[arg(long, default_value_t = 1.0)]
    repeat_penalty: f32,
    /// Is subtracted from a token's logit for each time it came before
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// Is subtracted from the logit of each token that came before
    #[arg(long, default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// How many of the last tokens the penalties look at
    #[arg(long, default_value_t = 64)]
    penalty_last: usize,
    /// What is added to a token's logit, such as 13=-5; -inf excludes the token
    #[arg(long, value_name = "TOKEN=BIAS", value_parser = bias)]
    logit_bias: Vec<(i32, f32)>,
    /// A text that ends the answer, and isn't shown
    #[arg(long)]
    stop: Vec<String>,
    /// Decides what is drawn
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Sampling {
    pub(crate) fn chooser(&self) -> Result<Chooser> {
        let options = SamplerOptions::new()
            .with_temperature(self.temperature)
            .with_top_k(self.top_k)
            .with_top_p(self.top_p)
            .with_min_p(self.min_p)
            .with_repeat_penalty(self.repeat_penalty)
            .with_frequency_penalty(self.frequency_penalty)
            .with_presence_penalty(self.presence_penalty)
            .with_penalty_last(self.penalty_last)
            .with_seed(self.seed);
        Ok(Chooser::new(Sampler::new(options)?.with_logit_bias(self.logit_bias.clone())?))
    }

    pub(crate) fn stops(&self) -> StopStrings {
        StopStrings::new(&self.stop)
    }
}

fn bias(text: &str) -> Result<(i32, f32)> {
    let (token, bias) = text.split_once('=').context("expected TOKEN=BIAS, such as 13=-5")?;
    Ok((token.parse().context("the token is no number")?, bias.parse().context("the bias is no number")?))
}
