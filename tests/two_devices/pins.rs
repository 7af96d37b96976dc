//! Operations and inputs that are pinned to a backend.

use super::*;

/// `neg`, `abs`, `sqr` of an input.
fn chain(ctx: &Context) -> [Tensor<'_>; 4] {
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let a = ctx.neg(x).unwrap();
    let b = ctx.abs(a).unwrap();
    [x, a, b, ctx.sqr(b).unwrap()]
}

fn place(run: &Run<'_, '_>, t: Tensor<'_>) -> usize {
    let backend = run.backend_of(t).unwrap();
    usize::from(backend.device() == Device::cpu().unwrap())
}

#[test]
fn alloc_pinned_places_tensors_and_is_part_of_the_plan() {
    let ctx = Context::new();
    let [x, a, b, c] = chain(&ctx);
    let graph = ctx.graph([c]).unwrap();
    let mut sched = sched();
    let mut plans = 0;
    for places in [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 1, 1], [1, 1, 0, 1], [0, 0, 0, 0]] {
        let pins: Vec<_> = [x, a, b, c].into_iter().zip(places).collect();
        plans += 1;
        for order in 0..3 {
            let mut pins = pins.clone();
            pins.rotate_left(order);
            let mut run = sched.alloc_pinned(&graph, &pins).unwrap();
            assert_eq!([x, a, b, c].map(|t| place(&run, t)), places);
            let splits = 1 + places[1..].windows(2).filter(|p| p[0] != p[1]).count();
            assert_eq!((run.n_splits(), run.splits().unwrap().len()), (splits, splits), "{places:?}");
            run.set(x, &[1.0_f32, -2.0, 3.0, -4.0]).unwrap();
            run.compute().unwrap();
            assert_eq!(run.get::<f32>(c).unwrap(), [1.0, 4.0, 9.0, 16.0], "{places:?}");
        }
        assert_eq!(sched.plans(), plans, "one for each choice");
    }
    drop(sched.alloc(&graph).unwrap());
    assert_eq!(sched.plans(), plans + 1, "without pins it is another plan");
    sched.reserve_pinned(&graph, &[(a, 0)]).unwrap();
    drop(sched.alloc_pinned(&graph, &[(a, 0)]).unwrap());
    assert_eq!(sched.plans(), plans + 2, "reserved with the same pins");
}

#[test]
fn alloc_pinned_refuses_unsuitable_pins() {
    let weights = weights();
    let w = weights.tensor("w1").unwrap();
    let ctx = Context::new();
    let [_, a, b, c] = chain(&ctx);
    let view = ctx.reshape(c, [2, 2]).unwrap();
    let closure = ctx.map_custom1::<f32>(ctx.neg(view).unwrap(), CustomOptions::new(), |_, _| ()).unwrap();
    let end = ctx.cont(closure).unwrap();
    let rows = ctx.sum_rows(w).unwrap();
    let graph = ctx.graph([end, rows]).unwrap();
    let stranger = ctx.neg(a).unwrap();
    let mut sched = sched();
    let mut refused = |pins: &[(Tensor<'_>, usize)]| {
        let again = sched.reserve_pinned(&graph, pins).unwrap_err();
        let error = sched.alloc_pinned(&graph, pins).map(drop).unwrap_err();
        assert_eq!(std::mem::discriminant(&error), std::mem::discriminant(&again), "{error} / {again}");
        error
    };
    assert!(matches!(refused(&[(stranger, 0)]), Error::NotPart { .. }));
    assert!(matches!(refused(&[(a, 2)]), Error::Param { name: "backend", .. }));
    assert!(matches!(refused(&[(a, 0), (b, 0), (a, 1)]), Error::Param { name: "pins", .. }));
    for t in [w, view] {
        let message = refused(&[(t, 1)]).to_string();
        assert!(message.contains("memory of its own or another tensor's"), "{message}");
    }
    let message = refused(&[(closure, 0)]).to_string();
    assert!(message.contains("closures run on this process's CPU only"), "{message}");
    drop(sched.alloc_pinned(&graph, &[(closure, 1), (end, 0), (a, 1)]).unwrap());
}

/// The result of an in-place operation is in its operand's memory, so it can't be pinned.
#[test]
fn alloc_pinned_refuses_inplace_operations() {
    let ctx = Context::new();
    let [_, a, ..] = chain(&ctx);
    let y = ctx.scale_inplace(a, 2.0).unwrap();
    let graph = ctx.graph([y]).unwrap();
    assert!(matches!(sched().alloc_pinned(&graph, &[(y, 1)]), Err(Error::Unsupported { .. })));
}

/// ggml moves even pinned tensors to a backend of higher priority that uses the same buffer type. The error must appear
/// every time, whether the plan is new or reused.
#[test]
fn alloc_pinned_reports_pins_that_ggml_ignores() {
    let ctx = Context::new();
    let [_, a, _, c] = chain(&ctx);
    let graph = ctx.graph([c]).unwrap();
    let two = || Sched::builder().backend(Backend::cpu().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap();
    let mut sched = two();
    for _ in 0..2 {
        let message = sched.alloc_pinned(&graph, &[(a, 1)]).unwrap_err().to_string();
        assert!(message.contains("ggml puts it on a backend of higher priority"), "{message}");
        sched.reserve_pinned(&graph, &[(a, 1)]).unwrap();
        assert!(matches!(sched.alloc_pinned(&graph, &[(a, 1)]), Err(Error::Unsupported { .. })));
        drop(sched.alloc_pinned(&graph, &[(a, 0)]).unwrap());
    }
}

/// CPU kernels can't sort NaN, which a clamp on another device lets pass.
#[test]
fn alloc_pinned_keeps_a_sort_with_its_clamp() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [8]).unwrap();
    let y = ctx.top_k(ctx.neg(x).unwrap(), 3).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let find = |op: &str| graph.nodes().find(|t| t.op().contains(op)).unwrap();
    let (clamp, sort) = (find("CLAMP"), find("TOP_K"));
    let mut sched = sched();
    for _ in 0..2 {
        let message = sched.alloc_pinned(&graph, &[(clamp, 0), (sort, 1)]).unwrap_err().to_string();
        assert!(message.contains("it can't sort"), "{message}");
        sched.reserve_pinned(&graph, &[(clamp, 0), (sort, 1)]).unwrap();
    }
    drop(sched.alloc_pinned(&graph, &[(clamp, 1), (sort, 1)]).unwrap());
}
