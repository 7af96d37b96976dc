//! Sampling the next token.

use fastrand::Rng;

/// A sampler with its settings and reused buffers.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// The temperature; 0 is greedy.
    temperature: f32,
    /// The number of most likely tokens to sample from.
    top_k: usize,
    rng: Rng,
    /// Tokens with their logits, most likely first.
    order: Vec<(f32, i32)>,
}

impl Sampler {
    pub(crate) fn new(temperature: f32, top_k: usize, seed: u64) -> Self {
        Self { temperature, top_k, rng: Rng::with_seed(seed), order: Vec::new() }
    }

    /// A greedy sampler.
    pub(crate) fn greedy() -> Self {
        Self::new(0.0, 1, 0)
    }

    /// Picks a token by the logits after the last one.
    pub(crate) fn pick(&mut self, logits: &[f32]) -> i32 {
        self.order.clear();
        self.order.extend(logits.iter().copied().zip(0..));
        self.order.sort_unstable_by(|(a, x), (b, y)| b.total_cmp(a).then(x.cmp(y)));
        self.order.truncate(self.top_k.max(1));
        let Some(&(most, likeliest)) = self.order.first() else { return 0 };
        if self.temperature <= 0.0 {
            return likeliest;
        }
        let weight = |(x, _): &(f32, i32)| ((x - most) / self.temperature).exp();
        let mut left = self.rng.f32() * self.order.iter().map(weight).sum::<f32>();
        let found = self.order.iter().find(|entry| {
            left -= weight(entry);
            left < 0.0
        });
        found.map_or(likeliest, |&(_, token)| token)
    }
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "small numbers")]
mod tests {
    use super::*;

    /// Logits that give token `i` the probability `shares[i]`, and all others almost 0.
    fn logits(shares: &[f32]) -> Vec<f32> {
        let mut logits = vec![-50.0; 256];
        logits.iter_mut().zip(shares).for_each(|(to, share)| *to = share.ln());
        logits
    }

    /// The frequencies of the first four tokens.
    fn picked(mut sampler: Sampler, logits: &[f32]) -> [f32; 4] {
        const N: usize = 20_000;
        let mut counts = [0_usize; 4];
        for _ in 0..N {
            counts[usize::try_from(sampler.pick(logits)).unwrap()] += 1;
        }
        counts.map(|n| n as f32 / N as f32)
    }

    fn close(a: [f32; 4], b: [f32; 4]) {
        assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 0.015), "{a:?} is not {b:?}");
    }

    #[test]
    fn sampler_draws_by_probability() {
        let logits = logits(&[0.1, 0.2, 0.4, 0.3]);
        close(picked(Sampler::new(1.0, 256, 1), &logits), [0.1, 0.2, 0.4, 0.3]);
        // A temperature of 0.5 squares the probabilities.
        close(picked(Sampler::new(0.5, 256, 2), &logits), [1.0 / 30.0, 4.0 / 30.0, 16.0 / 30.0, 9.0 / 30.0]);
        close(picked(Sampler::new(1.0, 2, 3), &logits), [0.0, 0.0, 4.0 / 7.0, 3.0 / 7.0]);
        close(picked(Sampler::new(0.0, 256, 4), &logits), [0.0, 0.0, 1.0, 0.0]);
        close(picked(Sampler::new(1.0, 0, 5), &logits), [0.0, 0.0, 1.0, 0.0]);
    }

    #[test]
    fn sampler_is_deterministic_for_a_seed() {
        let logits = vec![0.0; 256];
        let text = |seed| {
            let mut sampler = Sampler::new(1.0, 256, seed);
            [(); 32].map(|()| sampler.pick(&logits))
        };
        assert!(text(1) == text(1) && text(1) != text(2));
    }
}
