//! Products of experts on the device, with weights in host memory.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ggml::prelude::*;

use crate::beside::distance;
use crate::{backend, cpu};

const WIDTH: usize = 64;
const EXPERTS: usize = 16;
const TOKENS: usize = 40;

/// Keeps what the library says of experts.
struct Keep {
    on: AtomicBool,
    lines: Mutex<Vec<String>>,
}

static LOG: Keep = Keep { on: AtomicBool::new(false), lines: Mutex::new(Vec::new()) };

impl log::Log for Keep {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = record.args().to_string();
        if self.on.load(Ordering::Relaxed) && line.contains("experts") {
            self.lines.lock().unwrap().push(line);
        }
    }

    fn flush(&self) {}
}

fn mul_mat_id_copies_only_used_experts() {
    log::set_logger(&LOG).unwrap();
    log::set_max_level(log::LevelFilter::Debug);
    LOG.on.store(true, Ordering::Relaxed);
    let mut builder = WeightsBuilder::new();
    builder.tensor("up", DType::F32, [WIDTH, WIDTH, EXPERTS].map(|n| n as i64)).unwrap();
    let mut weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    let values = |n| (0..n).map(|i| (i * 37 % 101) as f32 / 101.0 - 0.5).collect::<Vec<_>>();
    weights.set("up", &values(WIDTH * WIDTH * EXPERTS)).unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [WIDTH as i64, 1, TOKENS as i64]).unwrap();
    let ids = ctx.input("ids", DType::I32, [1, TOKENS as i64]).unwrap();
    let product = || ctx.mul_mat_id(weights.tensor("up").unwrap(), x, ids).unwrap();
    let once = product();
    let twice = ctx.add(product(), product()).unwrap();
    let compute = |backends: Vec<Backend>, y: Tensor<'_>, used: &[i32]| {
        let graph = ctx.graph([y]).unwrap();
        let mut sched = backends.into_iter().fold(Sched::builder(), ggml::SchedBuilder::backend).build().unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        run.set(x, &values(WIDTH * TOKENS)).unwrap();
        run.set(ids, &used.iter().copied().cycle().take(TOKENS).collect::<Vec<_>>()).unwrap();
        run.compute().unwrap();
        run.get::<f32>(y).unwrap()
    };
    let cases: [(Tensor<'_>, &[i32], Option<&str>); 4] = [
        (once, &[3, 4, 9], Some("copied 3 of 16 experts of up")),
        (once, &[15], Some("copied 1 of 16 experts of up")),
        (once, &[0, 2, 4], Some("copied 3 of 16 experts of up")),
        // Two products could use the same copy.
        (twice, &[3, 4, 9], None),
    ];
    for (y, used, said) in cases {
        let expected = compute(vec![cpu()], y, used);
        LOG.lines.lock().unwrap().clear();
        let far = distance(&compute(vec![backend(), cpu()], y, used), &expected);
        assert!(far < 1e-2, "{far} with {used:?}");
        assert_eq!(LOG.lines.lock().unwrap().first().map(String::as_str), said);
    }
    LOG.on.store(false, Ordering::Relaxed);
}

/// The split that copies the weight computes the indices before it uses them.
fn mul_mat_id_copies_all_experts_before_indices_are_known() {
    let values = |n: usize, seed: usize| (0..n).map(|i| (i * seed % 101) as f32 / 101.0 - 0.5).collect::<Vec<_>>();
    let made = |device: Device| {
        let mut builder = WeightsBuilder::new();
        builder.tensor("x", DType::F32, [WIDTH, 1, TOKENS].map(|n| n as i64)).unwrap();
        builder.tensor("scores", DType::F32, [EXPERTS as i64, TOKENS as i64]).unwrap();
        let mut weights = builder.place(device).unwrap();
        weights.set("x", &values(WIDTH * TOKENS, 37)).unwrap();
        weights.set("scores", &values(EXPERTS * TOKENS, 53)).unwrap();
        weights
    };
    let mut builder = WeightsBuilder::new();
    builder.tensor("up", DType::F32, [WIDTH, WIDTH, EXPERTS].map(|n| n as i64)).unwrap();
    let mut up = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    up.set("up", &values(WIDTH * WIDTH * EXPERTS, 41)).unwrap();
    let compute = |backends: Vec<Backend>| {
        let weights = made(backends[0].device());
        let ctx = Context::new();
        let ids = ctx.argsort_top_k(weights.tensor("scores").unwrap(), 2).unwrap();
        let y = ctx.mul_mat_id(up.tensor("up").unwrap(), weights.tensor("x").unwrap(), ids).unwrap();
        let graph = ctx.graph([y]).unwrap();
        let mut sched = backends.into_iter().fold(Sched::builder(), ggml::SchedBuilder::backend).build().unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        run.compute().unwrap();
        run.get::<f32>(y).unwrap()
    };
    let far = distance(&compute(vec![backend(), cpu()]), &compute(vec![cpu()]));
    assert!(far < 1e-2, "{far}");
}

testkit::trials! {
    mul_mat_id_copies_all_experts_before_indices_are_known,
    mul_mat_id_copies_only_used_experts,
}
