//! What a run logs, and at which level. The logger keeps the lines of each thread apart.

use std::cell::RefCell;

use ggml::gguf::{Reader, Writer};
use ggml::prelude::*;
use log::{Level, LevelFilter, Log, Metadata, Record};

thread_local! {
    static LINES: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) };
}

struct Keep;

impl Log for Keep {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        assert_eq!(record.target(), "ggml");
        LINES.with_borrow_mut(|lines| lines.push((record.level(), record.args().to_string())));
    }

    fn flush(&self) {}
}

/// The lines since the last call.
fn lines() -> Vec<(Level, String)> {
    LINES.take()
}

#[test]
fn log_tells_of_devices_plans_and_computations() {
    log::set_logger(&Keep).unwrap();
    log::set_max_level(LevelFilter::Trace);
    let has = |lines: &[(Level, String)], level, text: &str| {
        assert!(lines.iter().any(|(l, line)| *l == level && line.contains(text)), "{level} {text}: {lines:?}");
    };

    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [16]).unwrap();
    builder.tensor("v", DType::F32, [16]).unwrap();
    let weights = builder.place(Device::cpu().unwrap()).unwrap();
    has(&lines(), Level::Debug, "placed 2 tensors in CPU: 128 bytes in 1 buffers");

    let cpu = Backend::cpu().unwrap();
    has(&lines(), Level::Debug, &format!("opened CPU, threads: {}", cpu.threads()));

    let mut sched = Sched::builder().backend(cpu).build().unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [16]).unwrap();
    let y = ctx.neg(ctx.add(x, weights.tensor("w").unwrap()).unwrap()).unwrap();
    let graph = ctx.graph([y]).unwrap();
    lines();
    let mut run = sched.alloc(&graph).unwrap();
    has(&lines(), Level::Debug, "planned a graph of 2 nodes: ");
    run.set(x, &[1.0_f32; 16]).unwrap();
    assert_eq!(lines(), []);
    run.compute().unwrap();
    assert_eq!(lines(), [(Level::Trace, "computed a graph of 2 nodes on CPU".to_owned())]);
    drop(run);
    let run = sched.run(&graph, (x, &[1.0_f32; 16])).unwrap();
    assert_eq!(lines().len(), 1, "the plan is that of before");
    drop(run);

    // Several backends: ggml's scheduler.
    let builder = Sched::builder().backend(Backend::cpu().unwrap()).backend(Backend::cpu().unwrap());
    let mut both = builder.build().unwrap();
    lines();
    drop(both.run(&graph, (x, &[1.0_f32; 16])).unwrap());
    let told = lines();
    has(&told, Level::Debug, "planned a graph of 2 nodes in 1 splits: ");
    has(&told, Level::Trace, "computed a graph of 2 nodes on CPU, CPU");

    let mut writer = Writer::new();
    writer.tensor("w", DType::F32, [8], &[0; 32]).unwrap();
    let mut space = vec![0; 1024];
    let at = space.as_ptr().align_offset(64);
    let file = writer.to_bytes().unwrap();
    space[at..at + file.len()].copy_from_slice(&file);
    let aligned: &'static [u8] = &space.leak()[at..at + file.len()];
    drop(Reader::from_bytes(aligned).unwrap().map(Device::cpu().unwrap()).unwrap());
    has(&lines(), Level::Debug, "1 of 1 tensors are used where they lie in the file");

    log::set_max_level(LevelFilter::Info);
    drop(sched.run(&graph, (x, &[1.0_f32; 16])).unwrap());
    assert_eq!(lines(), [], "nobody listens");
}
