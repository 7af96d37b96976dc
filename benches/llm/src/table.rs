//! Tables of results.

use comfy_table::{Table, presets};

use crate::request::Request;

pub(crate) struct Row {
    pub(crate) name: String,
    /// Tokens per second.
    pub(crate) speeds: Vec<f64>,
    /// Seconds to the first token, from the start of the process.
    pub(crate) start: f64,
    /// MiB.
    pub(crate) peak: Option<u64>,
    /// Bytes of weights per second in a step of one sequence.
    pub(crate) bytes: Option<f64>,
}

fn table() -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table
}

pub(crate) fn speeds(requests: &[Request], rows: &[Row]) -> Table {
    let mut table = table();
    let more = ["GB/s in tg", "first token, s", "peak MiB"];
    let names = requests.iter().map(Request::to_string);
    table.set_header([String::new()].into_iter().chain(names).chain(more.map(String::from)));
    for row in rows {
        let speeds = row.speeds.iter().map(|speed| format!("{speed:.1}"));
        let or_none = |text: Option<String>| text.unwrap_or("-".into());
        let peak = or_none(row.peak.map(|mib| mib.to_string()));
        let more = [or_none(row.bytes.map(|bytes| format!("{:.1}", bytes / 1e9))), format!("{:.2}", row.start), peak];
        table.add_row([row.name.clone()].into_iter().chain(speeds).chain(more));
    }
    table
}

/// The first row beside the better of those whose name begins with `llama.cpp`.
pub(crate) fn ratios(dtype: &str, threads: usize, requests: &[Request], rows: &[Row]) -> String {
    let others: Vec<_> = rows.iter().filter(|row| row.name.starts_with("llama.cpp")).collect();
    let Some(ours) = rows.first().filter(|_| !others.is_empty()) else { return String::new() };
    let mut line = format!("llm-bench: type={dtype} threads={threads}");
    for (i, request) in requests.iter().enumerate() {
        let best = others.iter().map(|row| row.speeds[i]).fold(0.0, f64::max);
        line += &format!(" {request}={:.2}", ours.speeds[i] / best);
    }
    if let (Some(own), Some(least)) = (ours.peak, others.iter().filter_map(|row| row.peak).min()) {
        line += &format!(" memory={:.2}", own as f64 / least as f64);
    }
    line
}
