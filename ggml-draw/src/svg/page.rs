//! Writes the SVG document.

use std::fmt::Write as _;

use super::layout::{Layout, Size};
use super::{CHAR, Drawing, Kind, Node, Sample, chars};

/// Fill and line colours by device index; they repeat after the last.
const COLOURS: [(&str, &str); 6] = [
    ("#fde8cf", "#b45309"),
    ("#dbe9fe", "#1d4ed8"),
    ("#d9f2e1", "#15803d"),
    ("#ece1fc", "#7e22ce"),
    ("#d5f1f2", "#0e7490"),
    ("#fbe0ec", "#be185d"),
];
/// For nodes without a device.
const NO_DEVICE: (&str, &str) = ("#f1f5f9", "#64748b");
const COPY: &str = "#c81e1e";
const INK: &str = "#0f172a";
const FAINT: &str = "#64748b";

const MARGIN: f64 = 24.0;
const LEGEND_ROW: f64 = 22.0;
const TITLE: f64 = 34.0;

fn colours(device: Option<usize>) -> (&'static str, &'static str) {
    device.and_then(|d| COLOURS.iter().cycle().nth(d)).copied().unwrap_or(NO_DEVICE)
}

/// An SVG document and its layout.
pub(super) struct Page<'a> {
    pub(super) drawing: &'a Drawing,
    pub(super) sizes: Vec<Size>,
    pub(super) layout: Layout,
}

impl Page<'_> {
    /// The whole document.
    pub(super) fn write(&self) -> String {
        let mut out = String::new();
        // Writing to a String can't fail.
        let _ok = self.write_to(&mut out);
        out
    }

    fn write_to(&self, out: &mut String) -> std::fmt::Result {
        let legend = self.drawing.legend();
        let legend_width = legend.iter().map(|(_, text)| chars(text)).fold(0.0, f64::max) * CHAR + 56.0;
        let title_width = chars(&self.drawing.title) * CHAR * 1.4;
        let inner = self.layout.size.width.max(legend_width).max(title_width);
        #[expect(clippy::cast_precision_loss, reason = "a few rows")]
        let top = MARGIN + TITLE + legend.len() as f64 * LEGEND_ROW + MARGIN;
        let (width, height) = (inner + 2.0 * MARGIN, top + self.layout.size.height + MARGIN);
        writeln!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0}" height="{height:.0}" viewBox="0 0 {width:.1} {height:.1}" font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="12" fill="{INK}">
<title>{title}</title>
<defs>{line_tip}{copy_tip}</defs>
<rect width="100%" height="100%" fill="white"/>
<text x="{MARGIN}" y="{y}" font-size="17" font-weight="bold">{title}</text>"#,
            title = escape(&self.drawing.title),
            line_tip = arrow_tip("tip", FAINT),
            copy_tip = arrow_tip("copy-tip", COPY),
            y = MARGIN + 14.0,
        )?;
        Self::legend(out, &legend)?;
        let left = MARGIN + (inner - self.layout.size.width) / 2.0;
        writeln!(out, r#"<g transform="translate({left:.1} {top:.1})">"#)?;
        self.edges(out)?;
        self.nodes(out)?;
        writeln!(out, "</g>\n</svg>")
    }

    fn legend(out: &mut String, rows: &[(Sample, String)]) -> std::fmt::Result {
        let mut y = MARGIN + TITLE;
        for (sample, text) in rows {
            match *sample {
                Sample::Device(i) => {
                    let (fill, line) = colours(Some(i));
                    writeln!(
                        out,
                        r#"<rect x="{MARGIN}" y="{y}" width="34" height="14" rx="3" fill="{fill}" stroke="{line}"/>"#
                    )?;
                }
                Sample::Copy => writeln!(
                    out,
                    r#"<path d="M{MARGIN} {0}h30" stroke="{COPY}" stroke-width="2" stroke-dasharray="6 4" marker-end="url(#copy-tip)"/>"#,
                    y + 7.0
                )?,
            }
            writeln!(out, r#"<text x="{}" y="{}">{}</text>"#, MARGIN + 46.0, y + 11.0, escape(text))?;
            y += LEGEND_ROW;
        }
        Ok(())
    }

    fn edges(&self, out: &mut String) -> std::fmt::Result {
        let copies = |index: usize| self.drawing.nodes.get(index).is_some_and(Node::is_copy);
        // A copy's line leaves its source's device above the label and arrives below it.
        for (&(from, to), path) in self.drawing.edges.iter().zip(&self.layout.paths) {
            let style = if copies(to) {
                format!(r#"class="copy" stroke="{COPY}" stroke-width="2" stroke-dasharray="6 4""#)
            } else if copies(from) {
                format!(
                    r#"class="copy" stroke="{COPY}" stroke-width="2" stroke-dasharray="6 4" marker-end="url(#copy-tip)""#
                )
            } else {
                format!(r#"class="edge" stroke="{FAINT}" stroke-width="1.2" marker-end="url(#tip)""#)
            };
            writeln!(out, r#"<path {style} d="{path}" fill="none"/>"#)?;
        }
        Ok(())
    }

    fn nodes(&self, out: &mut String) -> std::fmt::Result {
        for ((node, size), &(x, y)) in self.drawing.nodes.iter().zip(&self.sizes).zip(&self.layout.nodes) {
            let (fill, line) = colours(node.device);
            let (fill, thickness, radius) = match node.kind {
                Kind::Op => (fill, 1.2, 5.0),
                Kind::View => ("white", 0.8, 5.0),
                Kind::Weight | Kind::State => (fill, 1.2, size.height / 2.0),
                Kind::Input => (fill, 2.4, size.height / 2.0),
                Kind::Copy(_) => {
                    self.copy(out, node, *size, (x, y))?;
                    continue;
                }
            };
            let inset = if radius > 5.0 { 16.0 } else { 10.0 };
            let (left, right) = (x - size.width / 2.0, x + size.width / 2.0);
            let top = y - size.height / 2.0;
            writeln!(
                out,
                r#"<g class="node"><title>{tooltip}</title>
<rect x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}" rx="{radius}" fill="{fill}" stroke="{line}" stroke-width="{thickness}"/>
<text x="{text_left:.1}" y="{first:.1}" font-weight="bold">{headline}</text>
<text x="{text_right:.1}" y="{first:.1}" text-anchor="end" font-size="10" fill="{line}">{badge}</text>
<text x="{text_left:.1}" y="{second:.1}" font-size="11" fill="{FAINT}">{detail}</text></g>"#,
                tooltip = escape(&node.tooltip(&self.drawing.devices)),
                width = size.width,
                height = size.height,
                text_left = left + inset,
                text_right = right - inset,
                first = top + 18.0,
                second = top + 35.0,
                headline = escape(&node.headline()),
                badge = node.badge(),
                detail = escape(&node.detail()),
            )?;
        }
        Ok(())
    }

    /// The label on a copy's line.
    fn copy(&self, out: &mut String, node: &Node, size: Size, (x, y): (f64, f64)) -> std::fmt::Result {
        writeln!(
            out,
            r#"<g class="copied"><title>{tooltip}</title>
<rect x="{left:.1}" y="{top:.1}" width="{width:.1}" height="{height:.1}" rx="{radius:.1}" fill="white" stroke="{COPY}" stroke-width="0.8"/>
<text x="{x:.1}" y="{base:.1}" text-anchor="middle" font-size="11" fill="{COPY}">{label}</text></g>"#,
            tooltip = escape(&node.tooltip(&self.drawing.devices)),
            left = x - size.width / 2.0,
            top = y - size.height / 2.0,
            width = size.width,
            height = size.height,
            radius = size.height / 2.0,
            base = y + 4.0,
            label = node.headline(),
        )
    }
}

fn arrow_tip(id: &str, colour: &str) -> String {
    format!(
        r#"<marker id="{id}" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0.5L8 4L0 7.5z" fill="{colour}"/></marker>"#
    )
}

/// Escapes `text` for XML. Characters that XML can't represent become replacement characters.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
