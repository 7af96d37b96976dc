//! Inspecting graphs and computations: DOT and SVG, timings, traces.

#![cfg(test)]

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ggml::GraphAllocator;
use ggml::prelude::*;
use ggml_draw::{ToDot as _, ToSvg as _, ToTrace as _};

/// Two matrix products, a name that DOT and JSON must escape, and a view in between.
fn network<'c>(ctx: &'c Context, weights: &'c Weights) -> (Tensor<'c>, Tensor<'c>) {
    let x = ctx.input("x", DType::F32, [64, 3]).unwrap();
    let h = ctx.mul_mat(weights.tensor("w").unwrap(), x).unwrap().named("a \"b\\c\"").unwrap();
    let h = ctx.reshape(ctx.relu(h).unwrap(), [64, 3]).unwrap();
    (x, ctx.mul_mat(weights.tensor("w").unwrap(), h).unwrap().named("y").unwrap())
}

fn weights() -> Weights {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [64, 64]).unwrap();
    let mut weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    weights.set("w", &vec![0.5_f32; 64 * 64]).unwrap();
    weights
}

fn sched() -> Sched {
    Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap()
}

#[test]
fn to_dot_contains_every_tensor_and_source() {
    let (ctx, weights) = (Context::new(), weights());
    let (x, y) = network(&ctx, &weights);
    let graph = ctx.graph([y]).unwrap();
    let dot = graph.to_dot().unwrap();
    let count = |what: &str| dot.matches(what).count();
    assert_eq!((count("shape=box"), count("shape=ellipse"), count("shape=cylinder")), (4, 1, 1), "{dot}");
    let sources: usize = graph.nodes().map(|t| graph.sources(t).count()).sum();
    assert_eq!(count(" -> "), sources, "{dot}");
    assert!(dot.contains(r#"a \"b\\c\"\nf32 [64, 3, 1, 1]"#), "{dot}");
    let quotes = dot.matches('"').count() - dot.matches("\\\"").count();
    assert_eq!(quotes % 2, 0, "every text ends: {dot}");
    assert!(!dot.contains("CPU"), "nothing has a device yet: {dot}");
    let mut sched = sched();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[1.0_f32; 64 * 3]).unwrap();
    assert_eq!(run.to_dot().unwrap().matches("\\nCPU\"").count(), 6, "{}", run.to_dot().unwrap());
}

/// Lets `f` use the same graph on one backend and on ggml's scheduler, which pipeline copies need.
fn on_both(graph: &Graph<'_>, mut f: impl FnMut(&str, &mut Run<'_, '_>)) {
    let mut backend = Backend::cpu().unwrap();
    let mut allocator = GraphAllocator::new(backend.device().buffer_type());
    f("one", &mut allocator.alloc(graph, &mut backend).unwrap());
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).parallel(true).build().unwrap();
    f("sched", &mut sched.alloc(graph).unwrap());
}

#[test]
fn compute_with_asks_and_shows_the_same_on_one_backend_and_on_a_scheduler() {
    let (ctx, weights) = (Context::new(), weights());
    let (x, y) = network(&ctx, &weights);
    let graph = ctx.graph([y]).unwrap();
    let names: Vec<_> = graph.nodes().map(Tensor::name).collect();
    assert_eq!(names.len(), 4);
    for wanted in 0..1 << names.len() {
        let is_wanted = |t: Tensor<'_>| wanted >> names.iter().position(|n| *n == t.name()).unwrap() & 1 == 1;
        on_both(&graph, |what, run| {
            let what = format!("{what} {wanted:04b}");
            run.set(x, &[1.0_f32; 64 * 3]).unwrap();
            let order = std::cell::RefCell::new(Vec::new());
            let see = |t: Tensor<'_>, value: f32| order.borrow_mut().push(format!("{} {value}", t.name()));
            run.compute_with(
                |t| {
                    order.borrow_mut().push(t.name());
                    is_wanted(t)
                },
                |seen| {
                    see(seen.tensor(), seen.get::<f32>().unwrap()[0]);
                    ControlFlow::Continue(())
                },
            )
            .unwrap();
            let values = [32.0, 32.0, 32.0, 1024.0];
            let each = graph.nodes().zip(values).flat_map(|(t, value)| {
                let seen = is_wanted(t).then(|| format!("{} {value}", t.name()));
                [Some(t.name()), seen].into_iter().flatten()
            });
            assert_eq!(*order.borrow(), each.collect::<Vec<_>>(), "{what}");
            assert_eq!(run.get::<f32>(y).unwrap(), vec![1024.0; 64 * 3], "{what}");
        });
    }
}

#[test]
fn compute_with_ends_early_on_one_backend_and_on_a_scheduler() {
    let (ctx, weights) = (Context::new(), weights());
    let (x, y) = network(&ctx, &weights);
    let graph = ctx.graph([y]).unwrap();
    on_both(&graph, |what, run| {
        let result = run.compute_with(|_| true, |_| ControlFlow::Continue(()));
        assert!(matches!(result, Err(Error::InputNotSet { .. })), "{what}: {result:?}");
        run.set(x, &[1.0_f32; 64 * 3]).unwrap();
        run.compute().unwrap();
        let mut seen = 0;
        let result = run.compute_with(
            |_| true,
            |_| {
                seen += 1;
                if seen == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        );
        assert!(matches!(result, Err(Error::Cancelled)) && seen == 2, "{what}: {result:?} after {seen}");
        assert!(matches!(run.get::<f32>(y), Err(Error::NotComputed { .. })), "{what}");
        let panic = catch_unwind(AssertUnwindSafe(|| run.compute_with(|_| true, |_| panic!("seen"))));
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"seen"), "{what}");
        let nested = run.compute_with(|_| ctx.neg(x).is_ok(), |_| ControlFlow::Continue(()));
        nested.unwrap();
        assert_eq!(run.get::<f32>(y).unwrap(), vec![1024.0; 64 * 3], "{what}: it can be used after that");
    });
}

#[test]
fn run_answers_the_same_on_one_backend_and_on_a_scheduler() {
    let (ctx, weights) = (Context::new(), weights());
    let (x, y) = network(&ctx, &weights);
    let graph = ctx.graph([y]).unwrap();
    let stranger = ctx.neg(x).unwrap();
    let mut answers = Vec::new();
    on_both(&graph, |what, run| {
        run.set_at(x, 0, &[1.0_f32; 64]).unwrap();
        run.compute_async(|| ()).unwrap();
        let mut into = vec![0.0_f32; 64 * 3];
        run.get_into(y, &mut into).unwrap();
        assert_eq!(bytemuck::cast_slice::<f32, u8>(&into), run.get_bytes(y).unwrap(), "{what}");
        let splits =
            run.splits().unwrap().iter().map(|s| (s.backend.name(), s.nodes.len(), s.inputs.len())).collect::<Vec<_>>();
        assert!(run.backend_of(stranger).is_none(), "{what}");
        assert!(run.buffer_sizes().unwrap() > vec![4 * 64 * 3], "{what}");
        let places = graph.nodes().map(|t| run.backend_of(t).unwrap().name()).collect::<Vec<_>>();
        let profiled = run.profile().unwrap().timings.len();
        answers.push((into, splits, run.n_splits(), places, profiled, run.to_dot().unwrap()));
    });
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0].1, [("CPU".to_owned(), 4, 0)], "a single split");
}

#[test]
fn profile_contains_every_operation_once() {
    let (ctx, weights) = (Context::new(), weights());
    let (x, y) = network(&ctx, &weights);
    let graph = ctx.graph([y]).unwrap();
    let mut sched = sched();
    let mut run = sched.alloc(&graph).unwrap();
    assert!(matches!(run.profile(), Err(Error::InputNotSet { .. })), "as for any computation");
    run.set(x, &[1.0_f32; 64 * 3]).unwrap();
    let profile = run.profile().unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), vec![32.0 * 32.0; 64 * 3], "the graph was computed");
    let ops: Vec<_> = profile.timings.iter().map(|t| t.op.as_str()).collect();
    assert_eq!(ops, ["mul_mat", "relu", "mul_mat"], "the reshape is no work");
    let last = &profile.timings[2];
    assert_eq!((last.name.as_str(), last.backend.as_str(), last.shape.ne()), ("y", "CPU", [64, 3, 1, 1]));
    assert_eq!(last.bytes, 4 * (64 * 64 + 2 * 64 * 3), "weights, operand and result");
    let mut end = std::time::Duration::ZERO;
    for t in &profile.timings {
        assert!(t.start >= end && !t.time.is_zero(), "one after the other: {profile:?}");
        end = t.start + t.time;
    }
    assert!(end <= profile.total, "{profile:?}");
    let table = profile.to_string();
    assert_eq!(table.lines().count(), 4, "a head, two kinds of operations, the sum: {table}");
    assert!(table.lines().any(|l| l.starts_with("mul_mat") && l.contains(" 2 ")), "{table}");
}

#[test]
fn trace_is_json_for_trace_viewers() {
    let (ctx, weights) = (Context::new(), weights());
    let (x, y) = network(&ctx, &weights);
    let graph = ctx.graph([y]).unwrap();
    let mut sched = sched();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[1.0_f32; 64 * 3]).unwrap();
    let trace: serde_json::Value = serde_json::from_str(&run.profile().unwrap().to_trace()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let complete: Vec<_> = events.iter().filter(|e| e["ph"] == "X").collect();
    assert_eq!(complete.len(), 3);
    assert_eq!(complete[0]["args"]["name"], r#"a "b\c""#);
    assert_eq!(complete[1]["name"], "relu");
    for e in complete {
        assert!(e["dur"].as_f64().unwrap() > 0.0 && e["ts"].is_f64() && e["tid"].is_u64(), "{e}");
    }
    assert_eq!(events.iter().filter(|e| e["ph"] == "M" && e["args"]["name"] == "CPU").count(), 1);
}

#[test]
fn to_svg_contains_every_tensor_and_source() {
    let (ctx, weights) = (Context::new(), weights());
    let (_, y) = network(&ctx, &weights);
    let mut states = WeightsBuilder::new();
    states.tensor("s", DType::F32, [64, 3]).unwrap();
    let states = states.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
    let y = ctx.add(y, states.tensor("s").unwrap()).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = sched();
    let svg = sched.alloc(&graph).unwrap().to_svg().unwrap();
    let document = roxmltree::Document::parse(&svg).unwrap();
    let of_class = |class| document.descendants().filter(move |n| n.attribute("class") == Some(class));
    assert_eq!(of_class("node").count(), graph.n_nodes() + 3, "operations, input, weight, state");
    let sources: usize = graph.nodes().map(|t| graph.sources(t).count()).sum();
    assert_eq!(of_class("edge").count(), sources, "each use is a line");
    assert_eq!(of_class("copied").count(), 0, "there is one device");
    let texts: Vec<_> = document.descendants().filter_map(|n| n.text().filter(|_| n.is_text())).collect();
    for (badge, times) in [("input", 1), ("weight", 1), ("state", 1), ("view", 1), ("split 0", 4), ("mul_mat", 2)] {
        assert_eq!(texts.iter().filter(|&&text| text == badge).count(), times, "{badge} in {texts:?}");
    }
    assert!(texts.contains(&"5 operations in 1 splits"), "{texts:?}");
    assert!(texts.contains(&"f32 64x3 \u{b7} a \"b\\c\""), "{texts:?}");
}
