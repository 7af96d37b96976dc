//! Prints the measurements as tables.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};

use crate::engine::Kind;

/// The work of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) sentences: usize,
    pub(crate) tokens: usize,
}

impl Cell {
    pub(crate) const fn new(sentences: usize, tokens: usize) -> Self {
        Self { sentences, tokens }
    }

    pub(crate) fn tokens_of_call(self) -> usize {
        self.sentences * self.tokens
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.sentences, self.tokens)
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers = text.split_once('x').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let fits = numbers.filter(|&(sentences, tokens)| (1..=32).contains(&sentences) && (2..=256).contains(&tokens));
        let (sentences, tokens) = fits.ok_or("it has to be like 32x128: at most 32 sentences of 2 to 256 tokens")?;
        Ok(Self { sentences, tokens })
    }
}

/// An engine's results.
pub(crate) struct Row {
    kind: Kind,
    start: Duration,
    /// By cell.
    pub(crate) tokens_per_second: Vec<f64>,
    /// The smallest of all cells; infinite without a reference.
    pub(crate) cosine: f64,
    /// In MiB.
    pub(crate) peak: Option<u64>,
}

impl Row {
    pub(crate) fn new(kind: Kind, start: Duration) -> Self {
        Self { kind, start, tokens_per_second: vec![], cosine: f64::INFINITY, peak: None }
    }
}

pub(crate) fn speeds(cells: &[Cell], rows: &[Row]) -> Table {
    let mut table = table(cells, &["cosine", "peak MiB", "first vector s"]);
    for row in rows {
        let mut line = vec![row.kind.name().to_owned()];
        line.extend(row.tokens_per_second.iter().map(|speed| format!("{speed:.0}")));
        line.push(if row.cosine.is_finite() { format!("{:.5}", row.cosine) } else { "-".into() });
        line.push(row.peak.map_or("-".into(), |mib| mib.to_string()));
        line.push(format!("{:.2}", row.start.as_secs_f64()));
        table.add_row(line);
    }
    align(table)
}

pub(crate) fn ratios(cells: &[Cell], rows: &[Row]) -> Table {
    let mut table = table(cells, &[]);
    let is_ours = |row: &&Row| matches!(row.kind, Kind::Ours | Kind::OursQ8_0 | Kind::OursMixed);
    for ours in rows.iter().filter(is_ours) {
        for other in rows.iter().filter(|row| !is_ours(row)) {
            let mut line = vec![format!("{} / {}", ours.kind.name(), other.kind.name())];
            line.extend((0..cells.len()).map(|i| format!("{:.2}", ratio(ours, other, i))));
            table.add_row(line);
        }
    }
    align(table)
}

/// This crate's goals, and whether it reached them.
pub(crate) fn goals(cells: &[Cell], rows: &[Row]) -> Vec<String> {
    let find = |kind: Kind| rows.iter().find(|row| row.kind == kind);
    let mut lines = Vec::new();
    for (ours, other, at_one, at_more) in [
        (Kind::Ours, Kind::Llama, 1.3, 1.7),
        (Kind::Ours, Kind::Candle, 2.0, 2.0),
        (Kind::Ours, Kind::Onnx, 1.0, 1.0),
        (Kind::Ours, Kind::Torch, 1.0, 1.0),
        (Kind::OursQ8_0, Kind::LlamaQ8_0, 1.3, 1.3),
        (Kind::OursQ8_0, Kind::OnnxInt8, 1.0, 1.0),
    ] {
        let (Some(ours), Some(other)) = (find(ours), find(other)) else { continue };
        for (i, cell) in cells.iter().enumerate() {
            let goal = if cell.sentences == 1 { at_one } else { at_more };
            let ratio = ratio(ours, other, i);
            let reached = if ratio >= goal { "reached" } else { "MISSED" };
            let (ours, other) = (ours.kind.name(), other.kind.name());
            lines.push(format!("goal: {ours} / {other} at {cell}: {ratio:.2} of {goal:.1}, {reached}"));
        }
    }
    lines
}

fn ratio(ours: &Row, other: &Row, cell: usize) -> f64 {
    let of = |row: &Row| row.tokens_per_second.get(cell).copied().unwrap_or(f64::NAN);
    of(ours) / of(other)
}

fn table(cells: &[Cell], more: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let head = std::iter::once(String::new()).chain(cells.iter().map(Cell::to_string));
    table.set_header(head.chain(more.iter().map(|&name| name.to_owned())));
    table
}

fn align(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
