//! The 8-bit float `e4m3`.

/// A sign, four bits of exponent with a bias of 7, and three of the fraction; all ones are NaN.
pub(crate) fn e4m3(byte: u8) -> f64 {
    let (exponent, fraction) = (i32::from(byte >> 3 & 15), f64::from(byte & 7) / 8.0);
    let size = match byte & 0x7f {
        0x7f => f64::NAN,
        _ if exponent == 0 => fraction / 64.0,
        _ => (1.0 + fraction) * 2.0_f64.powi(exponent - 7),
    };
    if byte < 128 { size } else { -size }
}

/// The nearest byte, the even one of two, and 448 for what is larger.
pub(crate) fn to_e4m3(x: f64) -> u8 {
    let distance = |byte: u8| (e4m3(byte) - x.abs()).abs();
    let nearest = (0..0x7f).min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
    let sign = if x.is_sign_negative() { 128 } else { 0 };
    if x.is_nan() { 0x7f } else { nearest.unwrap() | sign }
}
