//! Reproducible random numbers for shuffling.

/// A random number generator that gives the same sequence for the same seed (`SplitMix64`). For shuffling data, not for
/// secrets.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::opt::Rng;
/// let (mut rng, mut order) = (Rng::new(42), [0, 1, 2, 3, 4]);
/// rng.shuffle(&mut order);
/// let mut again = [0, 1, 2, 3, 4];
/// Rng::new(42).shuffle(&mut again);
/// assert_eq!(order, again);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng(u64);

impl Rng {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    /// Shuffles items uniformly (Fisher–Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let below = last as u128 + 1;
            #[expect(clippy::cast_possible_truncation, reason = "at most `last`")]
            let other = ((u128::from(self.next_u64()) * below) >> 64) as usize;
            items.swap(last, other);
        }
    }
}
