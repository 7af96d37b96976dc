//! Choosing the next token. An option is a field of `SamplerOptions`, a line of `setters!`, a check in `Sampler::new`, a step
//! of `Sampler::sample`, a flag of the program (`program/options.rs`), and a field of the server's requests
//! (`llm/serve/src/request.rs`).

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng as _, SeedableRng as _};

use super::error::{TextError, TextResult};

/// How tokens are chosen, in this order: biases ([`Sampler::with_logit_bias`]), penalties, `top_k`, `top_p`, `min_p`, temperature.
///
/// ```
/// use ggml_llm::text::{Sampler, SamplerOptions};
/// # fn main() -> Result<(), ggml_llm::text::TextError> {
/// let options = SamplerOptions::new().with_temperature(0.7).with_top_k(40).with_top_p(0.9).with_seed(7);
/// let mut sampler = Sampler::new(options)?;
/// let token = sampler.sample(&[0.0, 9.0, 1.0], &[])?;
/// assert_eq!(token, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct SamplerOptions {
    /// Set by [`with_temperature`](Self::with_temperature).
    pub temperature: f32,
    /// Set by [`with_top_k`](Self::with_top_k).
    pub top_k: usize,
    /// Set by [`with_top_p`](Self::with_top_p).
    pub top_p: f32,
    /// Set by [`with_min_p`](Self::with_min_p).
    pub min_p: f32,
    /// Set by [`with_repeat_penalty`](Self::with_repeat_penalty).
    pub repeat_penalty: f32,
    /// Set by [`with_frequency_penalty`](Self::with_frequency_penalty).
    pub frequency_penalty: f32,
    /// Set by [`with_presence_penalty`](Self::with_presence_penalty).
    pub presence_penalty: f32,
    /// Set by [`with_penalty_last`](Self::with_penalty_last).
    pub penalty_last: usize,
    /// Set by [`with_seed`](Self::with_seed).
    pub seed: u64,
}

macro_rules! setters {
    ($($(#[$doc:meta])* $with:ident($field:ident: $type:ty = $default:expr);)*) => {
        impl SamplerOptions {
            /// The most likely token, always.
            pub const fn new() -> Self {
                Self { $($field: $default),* }
            }

            $(
                $(#[$doc])*
                #[doc = ""]
                #[doc = concat!("The default is `", stringify!($default), "`.")]
                #[must_use]
                pub const fn $with(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}

setters! {
    /// Divides the logits: tokens are more alike above 1, and the likely ones likelier below. 0 takes the most likely
    /// token, of several the first.
    with_temperature(temperature: f32 = 0.0);
    /// Keeps this number of the most likely tokens; 0 keeps all.
    with_top_k(top_k: usize = 0);
    /// Keeps the fewest of the most likely tokens whose probabilities add up to at least this. 1 keeps all.
    with_top_p(top_p: f32 = 1.0);
    /// Keeps tokens at least this times as likely as the most likely one. 0 keeps all.
    with_min_p(min_p: f32 = 0.0);
    /// Divides positive logits of tokens in the history, and multiplies the others. 1 changes nothing.
    with_repeat_penalty(repeat_penalty: f32 = 1.0);
    /// Is subtracted from a token's logit for each time it is in the history.
    with_frequency_penalty(frequency_penalty: f32 = 0.0);
    /// Is subtracted from the logit of each token in the history.
    with_presence_penalty(presence_penalty: f32 = 0.0);
    /// How many tokens at the end of the history the penalties look at.
    with_penalty_last(penalty_last: usize = 64);
    /// The seed: the same logits then give the same tokens.
    with_seed(seed: u64 = 0);
}

impl Default for SamplerOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Chooses the next token by the logits of a model.
#[derive(Debug, Clone)]
pub struct Sampler {
    options: SamplerOptions,
    random: Pcg64Mcg,
    /// The logits, with biases and penalties.
    logits: Vec<f32>,
    candidates: Vec<RankedToken>,
    /// How often each token is in the history. Zeros between calls.
    counts: Vec<u32>,
    /// What is added to the logits of tokens.
    bias: Vec<(i32, f32)>,
}

#[derive(Debug, Clone, Copy)]
struct RankedToken {
    logit: f32,
    id: u32,
    /// Relative to the most likely token's.
    probability: f64,
}

impl RankedToken {
    /// The most likely first; of equals, the first.
    fn order(&self, other: &Self) -> std::cmp::Ordering {
        other.logit.partial_cmp(&self.logit).unwrap_or(std::cmp::Ordering::Equal).then(self.id.cmp(&other.id))
    }
}

impl Sampler {
    /// # Errors
    /// [`TextError::SamplerOption`] if an option is out of range.
    pub fn new(options: SamplerOptions) -> TextResult<Self> {
        let check = |option, value: f32, ok: bool, expected| {
            if ok && value.is_finite() { Ok(()) } else { Err(TextError::SamplerOption { option, value, expected }) }
        };
        let o = options;
        check("temperature", o.temperature, o.temperature >= 0.0, "0 or a positive number")?;
        check("top_p", o.top_p, o.top_p > 0.0 && o.top_p <= 1.0, "above 0 and at most 1")?;
        check("min_p", o.min_p, (0.0..=1.0).contains(&o.min_p), "from 0 to 1")?;
        check("repeat_penalty", o.repeat_penalty, o.repeat_penalty > 0.0, "a positive number")?;
        check("frequency_penalty", o.frequency_penalty, true, "a number")?;
        check("presence_penalty", o.presence_penalty, true, "a number")?;
        let random = Pcg64Mcg::seed_from_u64(options.seed);
        Ok(Self { options, random, logits: Vec::new(), candidates: Vec::new(), counts: Vec::new(), bias: Vec::new() })
    }

    /// Adds something to the logits of tokens, before anything else is done with them. Minus infinity excludes a token.
    ///
    /// # Errors
    /// [`TextError::SamplerOption`] for what is not a number, and for plus infinity.
    pub fn with_logit_bias(mut self, bias: impl IntoIterator<Item = (i32, f32)>) -> TextResult<Self> {
        self.bias = bias.into_iter().collect();
        match self.bias.iter().find(|(_, value)| value.is_nan() || *value == f32::INFINITY) {
            None => Ok(self),
            Some(&(_, value)) => {
                Err(TextError::SamplerOption { option: "logit_bias", value, expected: "a number or minus infinity" })
            }
        }
    }

    /// The next token, by a logit for each token and the tokens so far.
    ///
    /// A logit of minus infinity excludes its token. Nothing is allocated once a call with as many logits was made.
    ///
    /// # Errors
    /// [`TextError::Logits`] if a logit is NaN or plus infinity, or if no token is left. [`TextError::NoSuchToken`] if the
    /// history has a token without a logit, where penalties look at it, or if a token with a bias has none.
    pub fn sample(&mut self, logits: &[f32], history: &[i32]) -> TextResult<i32> {
        self.fill(logits)?;
        self.penalize(history)?;
        let (mut best, mut id) = (f32::NEG_INFINITY, 0);
        for (i, &logit) in (0..).zip(&self.logits) {
            if logit > best {
                (best, id) = (logit, i);
            }
        }
        if best == f32::NEG_INFINITY {
            return Err(TextError::Logits { problem: format!("of {} tokens, each is excluded", logits.len()) });
        }
        if self.options.temperature == 0.0 {
            return Ok(id);
        }
        self.candidates.clear();
        let candidate = |(id, &logit)| RankedToken { logit, id, probability: 0.0 };
        self.candidates.extend((0..).zip(&self.logits).map(candidate));
        self.keep_top_k();
        self.keep_top_p(best);
        self.keep_min_p(best);
        // Rounding may leave a little over: none is drawn then.
        Ok(self.draw(best).unwrap_or(id))
    }

    fn fill(&mut self, logits: &[f32]) -> TextResult<()> {
        // Counting has no way out, so the compiler looks at many logits at a time.
        if logits.iter().filter(|logit| **logit < f32::INFINITY).count() < logits.len() {
            let other = logits.iter().zip(0..).find(|(logit, _)| logit.is_nan() || **logit == f32::INFINITY);
            let (logit, id) = other.unwrap_or((&f32::NAN, 0));
            return Err(TextError::Logits { problem: format!("the logit of token {id} is {logit}") });
        }
        self.logits.clear();
        self.logits.extend_from_slice(logits);
        for &(id, bias) in &self.bias {
            let vocab_size = self.logits.len();
            let logit = usize::try_from(id).ok().and_then(|place| self.logits.get_mut(place));
            let logit = logit.ok_or(TextError::NoSuchToken { id, vocab_size })?;
            *logit = (*logit + bias).min(f32::MAX);
        }
        Ok(())
    }

    fn penalize(&mut self, history: &[i32]) -> TextResult<()> {
        let SamplerOptions { repeat_penalty, frequency_penalty, presence_penalty, penalty_last, .. } = self.options;
        let changes = (repeat_penalty, frequency_penalty, presence_penalty) != (1.0, 0.0, 0.0);
        let last = history.get(history.len().saturating_sub(penalty_last)..).filter(|_| changes).unwrap_or_default();
        let vocab_size = self.logits.len();
        let place = |id: i32| usize::try_from(id).ok().filter(|&place| place < vocab_size);
        if let Some(&id) = last.iter().find(|&&id| place(id).is_none()) {
            return Err(TextError::NoSuchToken { id, vocab_size });
        }
        self.counts.resize(vocab_size, 0);
        let places = || last.iter().filter_map(|&id| place(id));
        for place in places() {
            if let Some(count) = self.counts.get_mut(place) {
                *count += 1;
            }
        }
        for place in places() {
            let (Some(count), Some(logit)) = (self.counts.get_mut(place), self.logits.get_mut(place)) else {
                continue;
            };
            // Once for each token, with all its times.
            let times = std::mem::take(count);
            if times == 0 {
                continue;
            }
            if *logit == f32::NEG_INFINITY {
                continue;
            }
            // Penalties neither exclude a token nor make it the only one.
            let finite = |logit: f32| logit.clamp(f32::MIN, f32::MAX);
            let repeated = finite(if *logit > 0.0 { *logit / repeat_penalty } else { *logit * repeat_penalty });
            #[expect(clippy::cast_precision_loss, reason = "at most as many as tokens in the history")]
            let frequency = times as f32 * frequency_penalty;
            *logit = finite(repeated - finite(frequency + presence_penalty));
        }
        Ok(())
    }

    fn keep_top_k(&mut self) {
        let k = self.options.top_k;
        if k > 0 && k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(k - 1, RankedToken::order);
            self.candidates.truncate(k);
            // The selection's order is its own affair.
            self.candidates.sort_unstable_by(RankedToken::order);
        }
    }

    /// Finds the probabilities, relative to the most likely token's.
    fn weigh(&mut self, best: f32, temperature: f64) -> f64 {
        let mut sum = 0.0;
        for candidate in &mut self.candidates {
            candidate.probability = ((f64::from(candidate.logit) - f64::from(best)) / temperature).exp();
            sum += candidate.probability;
        }
        sum
    }

    fn keep_top_p(&mut self, best: f32) {
        if self.options.top_p >= 1.0 {
            return;
        }
        let enough = self.weigh(best, 1.0) * f64::from(self.options.top_p);
        // Few tokens are enough in most cases, so sort few, then more.
        let (mut sum, mut sorted, mut n) = (0.0, 0, 128);
        while sorted < self.candidates.len() {
            let rest = self.candidates.get_mut(sorted..).unwrap_or_default();
            n = rest.len().min(n);
            if n < rest.len() {
                rest.select_nth_unstable_by(n, RankedToken::order);
            }
            let part = rest.get_mut(..n).unwrap_or_default();
            part.sort_unstable_by(RankedToken::order);
            for (i, candidate) in part.iter().enumerate() {
                sum += candidate.probability;
                if sum >= enough {
                    self.candidates.truncate(sorted + i + 1);
                    return;
                }
            }
            sorted += n;
            n *= 4;
        }
    }

    fn keep_min_p(&mut self, best: f32) {
        let min_p = f64::from(self.options.min_p);
        if min_p > 0.0 {
            self.candidates.retain(|candidate| (f64::from(candidate.logit) - f64::from(best)).exp() >= min_p);
        }
    }

    /// A token at random.
    fn draw(&mut self, best: f32) -> Option<i32> {
        let sum = self.weigh(best, f64::from(self.options.temperature));
        #[expect(clippy::cast_precision_loss, reason = "53 bits, as many as a float has")]
        let random = (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let mut left = random * sum;
        let drawn = self.candidates.iter().find(|candidate| {
            left -= candidate.probability;
            left < 0.0
        });
        drawn.map(|candidate| candidate.id.cast_signed())
    }
}
