//! The error function, and the gate that is made of it.

/// The error function: its integral by Simpson's rule.
pub fn erf(x: f64) -> f64 {
    const STEPS: u32 = 200;
    // To 11 digits.
    if x.abs() > 5.0 {
        return x.signum();
    }
    let step = x / f64::from(STEPS);
    let value = |i: u32| (-(f64::from(i) * step).powi(2)).exp();
    let inner: f64 = (1..STEPS).map(|i| f64::from(2 + 2 * (i % 2)) * value(i)).sum();
    (value(0) + inner + value(STEPS)) * step / 3.0 * std::f64::consts::FRAC_2_SQRT_PI
}

/// `gelu_erf`: `x` times the share of a normal distribution that lies below it.
pub fn gelu_erf(x: f64) -> f64 {
    0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2))
}
