//! Tables of results.

use comfy_table::{Table, presets};

pub(crate) struct Row<const N: usize> {
    pub(crate) name: String,
    /// Tokens per second.
    pub(crate) speeds: [f64; N],
    /// Seconds to the first token, from the start of the process.
    pub(crate) start: f64,
    /// MiB.
    pub(crate) peak: Option<u64>,
    /// Bytes of weights per second in a step.
    pub(crate) bytes: f64,
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table
}

pub(crate) fn speeds<const N: usize>(names: &[&str; N], rows: &[Row<N>]) -> Table {
    let mut table = table();
    let more = ["GB/s in tg", "first token, s", "peak MiB"];
    table.set_header([""].iter().chain(names).chain(&more));
    for row in rows {
        let speeds = row.speeds.iter().map(|speed| format!("{speed:.1}"));
        let peak = row.peak.map_or("-".into(), |mib| mib.to_string());
        let more = [format!("{:.1}", row.bytes / 1e9), format!("{:.2}", row.start), peak];
        table.add_row([row.name.clone()].into_iter().chain(speeds).chain(more));
    }
    table
}

/// The first row beside the better of those whose name begins with `llama.cpp`.
pub(crate) fn ratios<const N: usize>(dtype: &str, threads: usize, names: &[&str; N], rows: &[Row<N>]) -> String {
    let others: Vec<_> = rows.iter().filter(|row| row.name.starts_with("llama.cpp")).collect();
    let Some(ours) = rows.first().filter(|_| !others.is_empty()) else { return String::new() };
    let mut line = format!("llm-bench: type={dtype} threads={threads}");
    for (i, name) in names.iter().enumerate() {
        let best = others.iter().map(|row| row.speeds[i]).fold(0.0, f64::max);
        line += &format!(" {}={:.2}", name.replace(' ', "-"), ours.speeds[i] / best);
    }
    if let (Some(own), Some(least)) = (ours.peak, others.iter().filter_map(|row| row.peak).min()) {
        line += &format!(" memory={:.2}", own as f64 / least as f64);
    }
    line
}
