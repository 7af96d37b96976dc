//! How tokens are chosen: options of several commands.

use anyhow::{Context as _, Result};
use ggml::gguf::Value;
use ggml_llm::text::{Sampler, SamplerOptions, StopStrings};
use ggml_llm::{Chooser, Metadata};

/// How tokens are chosen.
#[derive(Debug, clap::Args)]
pub(crate) struct Sampling {
    /// Above 0, tokens are drawn: the higher, the more different from one another [default: the file's, or 0]
    #[arg(long)]
    temperature: Option<f32>,
    /// Draw from so many of the likeliest tokens; 0 for all [default: the file's, or 40]
    #[arg(long)]
    top_k: Option<usize>,
    /// Draw from the likeliest tokens that have this probability together [default: the file's, or 0.95]
    #[arg(long)]
    top_p: Option<f32>,
    /// Draw from tokens at least this times as likely as the likeliest [default: the file's, or 0.05]
    #[arg(long)]
    min_p: Option<f32>,
    /// Makes tokens that came before less likely; 1 for not at all [default: the file's, or 1]
    #[arg(long)]
    repeat_penalty: Option<f32>,
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
    pub(crate) fn chooser(&self, file: &dyn Metadata) -> Result<Chooser> {
        Ok(Chooser::new(Sampler::new(self.options(file)?)?.with_logit_bias(self.logit_bias.clone())?))
    }

    fn options(&self, file: &dyn Metadata) -> Result<SamplerOptions> {
        // As llama.cpp's converter writes what a model's makers recommend.
        let number = |name: &str| file.get(&format!("general.sampling.{name}")).and_then(Value::as_f32);
        let count = |name: &str| file.get(&format!("general.sampling.{name}")).and_then(Value::as_u64);
        let count = |name| count(name).map(usize::try_from).transpose();
        Ok(SamplerOptions::new()
            .with_temperature(self.temperature.or_else(|| number("temp")).unwrap_or(0.0))
            .with_top_k(self.top_k.map_or_else(|| count("top_k"), |k| Ok(Some(k)))?.unwrap_or(40))
            .with_top_p(self.top_p.or_else(|| number("top_p")).unwrap_or(0.95))
            .with_min_p(self.min_p.or_else(|| number("min_p")).unwrap_or(0.05))
            .with_repeat_penalty(self.repeat_penalty.or_else(|| number("penalty_repeat")).unwrap_or(1.0))
            .with_frequency_penalty(self.frequency_penalty)
            .with_presence_penalty(self.presence_penalty)
            .with_penalty_last(self.penalty_last)
            .with_seed(self.seed))
    }

    pub(crate) fn stops(&self) -> StopStrings {
        StopStrings::new(&self.stop)
    }
}

fn bias(text: &str) -> Result<(i32, f32)> {
    let (token, bias) = text.split_once('=').context("expected TOKEN=BIAS, such as 13=-5")?;
    Ok((token.parse().context("the token is no number")?, bias.parse().context("the bias is no number")?))
}

#[cfg(test)]
mod tests {
    use ggml::gguf::{Reader, Writer};

    use super::*;

    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        sampling: Sampling,
    }

    #[test]
    fn options_come_before_the_file_and_it_before_defaults() {
        let options = |arguments: &[&str], file: &Writer| {
            let cli = <Cli as clap::Parser>::parse_from([&["llm"], arguments].concat());
            cli.sampling.options(&Reader::from_bytes(file.to_bytes().unwrap()).unwrap()).unwrap()
        };
        let usual = SamplerOptions::new().with_top_k(40).with_top_p(0.95).with_min_p(0.05);
        let mut file = Writer::new();
        assert_eq!(options(&[], &file), usual);
        file.set("general.sampling.temp", 0.5_f32).unwrap().set("general.sampling.top_k", 20_u32).unwrap();
        file.set("general.sampling.top_p", 0.75_f32).unwrap().set("general.sampling.min_p", 0.25_f32).unwrap();
        file.set("general.sampling.penalty_repeat", 1.25_f32).unwrap();
        let told =
            usual.with_temperature(0.5).with_top_k(20).with_top_p(0.75).with_min_p(0.25).with_repeat_penalty(1.25);
        assert_eq!(options(&[], &file), told);
        let all =
            ["--temperature", "0", "--top-k", "40", "--top-p", "0.95", "--min-p", "0.05", "--repeat-penalty", "1"];
        assert_eq!(options(&all, &file), usual);
    }
}
