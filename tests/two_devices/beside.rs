//! Asynchronous computations, while the calling thread does something else.

use super::*;

#[test]
fn compute_async_returns_results_and_the_closure_value() {
    with_network(|run, x, y| {
        let mut called = 0;
        assert!(matches!(run.compute_async(|| called += 1), Err(Error::InputNotSet { .. })));
        assert_eq!(called, 0, "nothing was computed");
        for step in 0..3 {
            let data: Vec<f32> = (0..WIDTH).map(|i| (i + step) as f32 * 0.25).collect();
            run.set(x, &data).unwrap();
            let other = Context::new();
            let shape =
                run.compute_async(|| Ok::<_, Error>(other.neg(other.input("", DType::F32, [step as i64 + 1])?)?.ne()));
            assert_eq!(shape.unwrap().unwrap(), [step as i64 + 1, 1, 1, 1], "graphs can be built in the meantime");
            assert_close(&run.get::<f32>(y).unwrap(), &expected(4, &data));
        }
    });
}

#[test]
fn compute_async_resumes_the_panic_of_its_closure() {
    with_network(|run, x, y| {
        run.set(x, &[1.0_f32; WIDTH]).unwrap();
        let panic = catch_unwind(AssertUnwindSafe(|| run.compute_async(|| panic!("beside"))));
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"beside"));
        assert_close(&run.get::<f32>(y).unwrap(), &expected(4, &[1.0; WIDTH]));
    });
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.map_custom1::<f32>(x, CustomOptions::new(), |_, _| panic!("inside")).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = sched();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[1.0_f32; 4]).unwrap();
    let panic = catch_unwind(AssertUnwindSafe(|| run.compute_async(|| ())));
    assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"inside"));
    assert!(matches!(run.get::<f32>(y), Err(Error::NotComputed { .. })));
}

#[test]
fn compute_async_cancelled_at_once_runs_no_closure() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.neg(x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = sched();
    sched.backend_mut(1).unwrap().set_abort(|| true).unwrap();
    let mut run = sched.alloc_pinned(&graph, &[(y, 1)]).unwrap();
    run.set(x, &[1.0_f32; 4]).unwrap();
    let mut called = false;
    assert!(matches!(run.compute_async(|| called = true), Err(Error::Cancelled)));
    assert!(!called);
}

/// A state is accessible anywhere on its thread, while devices may be writing to it.
#[test]
fn compute_async_refuses_access_to_states() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("s", DType::F32, [4]).unwrap();
    let state = builder.place_state(remote().buffer_type()).unwrap();
    state.set("s", &[1.0_f32; 4]).unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let s = state.tensor("s").unwrap();
    let y = ctx.cpy(ctx.add(x, s).unwrap(), s).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut sched = sched();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[2.0_f32; 4]).unwrap();
    let (read, written) = run.compute_async(|| (state.read_bytes("s"), state.set("s", &[0.0_f32; 4]))).unwrap();
    assert!(matches!(read, Err(Error::Nested { .. })), "{read:?}");
    assert!(matches!(written, Err(Error::Nested { .. })), "{written:?}");
    assert_eq!(run.get::<f32>(y).unwrap(), [3.0; 4]);
}
