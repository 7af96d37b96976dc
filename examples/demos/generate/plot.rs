//! A plot of the loss.

use std::fmt::{self, Write as _};

const WIDTH: f32 = 640.0;
const HEIGHT: f32 = 320.0;
/// Margin for the axis labels.
const MARGIN: f32 = 40.0;

/// Writes an SVG of the loss per step, in bits.
pub(crate) fn svg(losses: &[f32]) -> Result<String, fmt::Error> {
    let most = losses.iter().copied().fold(1.0, f32::max).ceil();
    #[expect(clippy::cast_precision_loss, reason = "a few thousand steps")]
    let right = losses.len().saturating_sub(1).max(1) as f32;
    let y = |bits: f32| (HEIGHT - MARGIN).mul_add(1.0 - bits / most, MARGIN / 2.0);
    let mut svg = String::new();
    let start = "<svg xmlns=\"http://www.w3.org/2000/svg\"";
    writeln!(svg, "{start} viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">")?;
    writeln!(svg, "<title>Bits per byte, step by step</title>")?;
    writeln!(svg, "<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>")?;
    let mut bits = 0.0;
    while bits <= most {
        let y = y(bits);
        writeln!(
            svg,
            "<path d=\"M{MARGIN} {y:.1}H{WIDTH}\" stroke=\"#ccc\"/><text x=\"20\" y=\"{y:.1}\">{bits}</text>"
        )?;
        bits += 1.0;
    }
    write!(svg, "<path fill=\"none\" stroke=\"#36c\" d=\"")?;
    let (mut command, mut x) = ('M', MARGIN);
    for &loss in losses {
        write!(svg, "{command}{x:.1} {:.1}", y(loss))?;
        (command, x) = ('L', x + (WIDTH - MARGIN) / right);
    }
    writeln!(svg, "\"/>\n<text x=\"{MARGIN}\" y=\"{}\">{} steps</text>\n</svg>", HEIGHT - 4.0, losses.len())?;
    Ok(svg)
}
