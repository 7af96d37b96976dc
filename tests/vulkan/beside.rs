//! The difference of results.

/// The difference of two results, relative to the magnitude of the second.
pub(crate) fn distance(got: &[f32], want: &[f32]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |x: f32| f64::from(x) * f64::from(x);
    let apart: f64 = got.iter().zip(want).map(|(&g, &w)| square(g - w)).sum();
    let size: f64 = want.iter().map(|&w| square(w)).sum();
    (apart / size.max(1e-12)).sqrt()
}
