//! A curve of losses.

use std::fmt::Write as _;

const WIDTH: f32 = 640.0;
const HEIGHT: f32 = 320.0;
/// Room for the numbers beside the axes.
const MARGIN: f32 = 40.0;

/// An SVG of losses in bits, one for each step.
pub(crate) fn svg(losses: &[f32]) -> String {
    let most = losses.iter().copied().fold(1.0, f32::max).ceil();
    #[expect(clippy::cast_precision_loss, reason = "a few thousand steps")]
    let last = losses.len().saturating_sub(1).max(1) as f32;
    let y = |loss: f32| (HEIGHT - MARGIN) * (1.0 - loss / most) + MARGIN / 2.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<title>Bits per byte, step by step</title>\n"
    );
    let mut bits = 0.0;
    while bits <= most {
        let y = y(bits);
        svg += &format!("<path d=\"M{MARGIN} {y:.1}H{WIDTH}\" stroke=\"#ccc\"/><text x=\"8\" y=\"{y:.1}\">{bits}</text>\n");
        bits += 1.0;
    }
    svg += "<path fill=\"none\" stroke=\"#36c\" d=\"";
    let mut command = 'M';
    let mut x = MARGIN;
    for &loss in losses {
        // Writing to a string does not fail.
        let _written = write!(svg, "{command}{x:.1} {:.1}", y(loss));
        (command, x) = ('L', x + (WIDTH - MARGIN) / last);
    }
    svg + &format!("\"/>\n<text x=\"{MARGIN}\" y=\"{}\">{} steps</text>\n</svg>\n", HEIGHT - 4.0, losses.len())
}
