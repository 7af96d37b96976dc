//! Printing a graph goes to the logger, which is global: hence a test binary of its own.

#![cfg(test)]

use std::sync::Mutex;

use ggml::prelude::*;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Keep;

impl log::Log for Keep {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        LINES.lock().unwrap().push(format!("{} {}", record.level(), record.args()));
    }

    fn flush(&self) {}
}

#[test]
fn graph_print_logs_operations_and_leaves() -> ggml::Result<()> {
    log::set_logger(&Keep).unwrap();
    log::set_max_level(log::LevelFilter::Info);
    let ctx = Context::new();
    let a = ctx.input("the leaf", DType::F32, [3, 2])?;
    let graph = ctx.graph([ctx.sqr(ctx.relu(a)?)?])?;
    LINES.lock().unwrap().clear();
    graph.print()?;
    let lines = LINES.lock().unwrap();
    let line = |text: &str| lines.iter().filter(|l| l.contains(text)).count();
    assert_eq!((line("n_nodes = 2"), line("UNARY"), line("SQR"), line("the leaf")), (1, 1, 1, 1), "{lines:?}");
    assert!(lines.iter().all(|l| l.starts_with("INFO ")), "{lines:?}");
    Ok(())
}
