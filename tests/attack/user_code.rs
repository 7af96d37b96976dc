//! Letters b, e, f and h: what closures and loggers may do while a call is under way.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use ggml::meta::{MetaDevice, SplitMode};
use ggml::prelude::*;
use ggml::{Error, GraphAllocator, ops::CustomOptions};

use crate::logger::with_hook;

/// A graph of one input and one operation, for as long as the process lives.
fn small() -> (&'static Context, Tensor<'static>, &'static Graph<'static>) {
    let ctx: &'static Context = Box::leak(Box::new(Context::new()));
    let x = ctx.input("x", DType::F32, [2]).unwrap();
    let graph = Box::leak(Box::new(ctx.graph([ctx.neg(x).unwrap()]).unwrap()));
    (ctx, x, graph)
}

/// Makes ggml log an error: 256 TiB are not to be had.
fn log_an_error() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [1 << 30, 1 << 16]).unwrap();
    let graph = ctx.graph([ctx.relu(x).unwrap()]).unwrap();
    let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    let _refused = allocator.alloc(&graph, &mut Backend::cpu().unwrap()).map(drop);
}

/// Letter b. A panic of the logger is due when `set_abort` is called: C must not get to know a closure that is then dropped.
#[test]
fn set_abort_keeps_its_closure_after_a_logger_panic() {
    struct LogsWhenDropped;
    impl Drop for LogsWhenDropped {
        fn drop(&mut self) {
            log_an_error();
        }
    }
    let (_, x, graph) = small();
    let mut backend = Backend::cpu().unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let (count, alive) = (Arc::clone(&asked), Arc::new(()));
    let captured = Arc::clone(&alive);
    let set = with_hook(
        |_| panic!("the logger panics"),
        || {
            let unwound = catch_unwind(|| {
                let _logs = LogsWhenDropped;
                panic!("unwinding");
            });
            assert!(unwound.is_err());
            catch_unwind(AssertUnwindSafe(|| {
                backend.set_abort(move || {
                    count.fetch_add(Arc::strong_count(&captured), Ordering::Relaxed);
                    false
                })
            }))
        },
    );
    // Either the panic went on before C was told, or C has the closure for good.
    let (known, kept) = (matches!(set, Ok(Ok(()))), Arc::strong_count(&alive) == 2);
    assert_eq!(known, kept, "{set:?}");
    let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    let mut run = allocator.alloc(graph, &mut backend).unwrap();
    run.set(x, &[1.0_f32, 2.0]).unwrap();
    run.compute().unwrap();
    assert_eq!(asked.load(Ordering::Relaxed) > 0, known, "asked if and only if it is there");
}

thread_local! {
    static STATE: RefCell<Option<(State, Context)>> = const { RefCell::new(None) };
    static ERRORS: RefCell<Vec<Option<Error>>> = const { RefCell::new(Vec::new()) };
}

/// Tries whatever reaches ggml by variables of the thread.
fn try_everything() {
    STATE.with_borrow(|there| {
        let (state, ctx) = there.as_ref().unwrap();
        let s = state.tensor("s").unwrap();
        let mut errors = vec![
            state.set("s", &[9.0_f32; 2]).err(),
            ctx.input("y", DType::F32, [1]).err(),
            ctx.neg(s).err(),
            ctx.add(s, s).err(),
            ctx.transpose(s).err(),
            ctx.graph([s]).map(drop).err(),
            s.read::<f32>().err(),
            Backend::cpu().err(),
            Device::cpu().err(),
            MetaDevice::new(&[], |_| SplitMode::Mirrored).err(),
        ];
        ERRORS.with_borrow_mut(|all| all.append(&mut errors));
    });
}

fn check_errors(times: usize) {
    let errors = ERRORS.take();
    assert_eq!(errors.len(), 10 * times);
    for error in errors {
        assert!(matches!(error, Some(Error::Nested { .. } | Error::Param { .. })), "{error:?}");
    }
}

fn with_state() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("s", DType::F32, [2]).unwrap();
    let state = builder.place_state(Device::cpu().unwrap().buffer_type()).unwrap();
    STATE.set(Some((state, Context::new())));
}

/// Letter e. The closure that is asked whether to stop ran with everything open.
#[test]
fn set_abort_closure_cannot_call_ggml() {
    with_state();
    let (_, x, graph) = small();
    let mut backend = Backend::cpu().unwrap();
    // It runs on the thread that computes, so the variables are this test's.
    let times = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&times);
    backend
        .set_abort(move || {
            try_everything();
            count.fetch_add(1, Ordering::Relaxed);
            false
        })
        .unwrap();
    let mut allocator = GraphAllocator::new(Device::cpu().unwrap().buffer_type());
    let mut run = allocator.alloc(graph, &mut backend).unwrap();
    run.set(x, &[1.0_f32, 2.0]).unwrap();
    run.compute().unwrap();
    assert!(times.load(Ordering::Relaxed) > 0, "it was asked");
    check_errors(times.load(Ordering::Relaxed));
    STATE.take();
}

/// Letter e, for the closures of `compute_with`, and loggers.
#[test]
fn compute_with_closures_and_loggers_cannot_call_ggml() {
    with_state();
    let (ctx, x, graph) = small();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(graph).unwrap();
    run.set(x, &[1.0_f32, 2.0]).unwrap();
    let mut seen = Vec::new();
    run.compute_with(
        |_| {
            try_everything();
            true
        },
        |observed| {
            try_everything();
            seen.extend(observed.get::<f32>().unwrap());
            std::ops::ControlFlow::Continue(())
        },
    )
    .unwrap();
    assert_eq!(seen, [-1.0, -2.0], "what is shown can be read");
    check_errors(2);
    let lines = std::rc::Rc::new(Cell::new(0));
    let count = std::rc::Rc::clone(&lines);
    with_hook(
        move |_| {
            try_everything();
            count.set(count.get() + 1);
        },
        log_an_error,
    );
    assert!(lines.get() > 0, "ggml logged");
    check_errors(lines.get());
    STATE.take();
    drop(run);
    assert!(ctx.input("after", DType::F32, [1]).is_ok(), "open again");
}

/// Letter t. Of several panics the first goes on; the others are not dropped where their destructors meet this crate's lists.
#[test]
fn panic_payloads_are_not_dropped_inside_a_call() {
    struct CallsWhenDropped(Arc<AtomicUsize>);
    impl Drop for CallsWhenDropped {
        fn drop(&mut self) {
            log_an_error();
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (lines, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, drops) = (Arc::clone(&lines), Arc::clone(&dropped));
    let logger = move |_: &str| {
        // What destructors log goes without.
        if count.fetch_add(1, Ordering::Relaxed) < 2 {
            std::panic::panic_any(CallsWhenDropped(Arc::clone(&drops)));
        }
    };
    with_hook(logger, || {
        let panic = catch_unwind(log_an_error).unwrap_err();
        assert_eq!(dropped.load(Ordering::Relaxed), 0, "within the call");
        assert!(panic.is::<CallsWhenDropped>());
        drop(panic);
    });
    assert!(lines.load(Ordering::Relaxed) >= 2, "ggml logs two lines");
    assert_eq!(dropped.load(Ordering::Relaxed), 1, "the first, where it was caught");
}

/// Letter f. Destructors of a thread's variables ran after those of this crate's, which panicked.
#[test]
fn thread_local_destructors_may_log_and_fail() {
    struct Late(mpsc::Sender<bool>);
    impl Drop for Late {
        fn drop(&mut self) {
            let ctx = Context::new();
            let refused = ctx.input("x", DType::F32, [-1]);
            log_an_error();
            let logged = Device::by_name("no such device").is_err();
            let _sent = self.0.send(refused.is_err() && logged);
        }
    }
    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }
    let (sender, receiver) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // First, so that it is dropped last.
        LATE.set(Some(Late(sender)));
        log_an_error();
    });
    thread.join().unwrap();
    assert!(receiver.recv().unwrap());
}

/// Letter h. The closure waits for a thread that reads a weight of the meta device, which waited for the closure.
#[test]
fn closures_never_wait_for_the_lock_of_their_computation() {
    let cpu = Device::cpu().unwrap();
    let meta = MetaDevice::new(&[cpu, cpu], |_| SplitMode::Mirrored).unwrap().device();
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [4]).unwrap();
    let mut weights = builder.place(meta.buffer_type()).unwrap();
    weights.set("w", &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    let read = |weights: &Weights| weights.tensor("w").unwrap().read::<f32>();

    let (ask, asked) = mpsc::channel::<()>();
    let (answer, answered) = mpsc::channel();
    let (ask, answered) = (Mutex::new(ask), Mutex::new(answered));
    let waited = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let weights = &weights;
        scope.spawn(move || {
            while asked.recv_timeout(Duration::from_secs(20)).is_ok() {
                let _gone = answer.send(read(weights));
            }
        });
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        let in_time = Arc::clone(&waited);
        let how = CustomOptions::new().with_n_tasks(1);
        let y = ctx
            .custom::<f32>(&[x], [4], how, move |rows, operands| {
                ask.lock().unwrap().send(()).unwrap();
                let got = answered.lock().unwrap().recv_timeout(Duration::from_secs(10));
                in_time.store(got.is_ok(), Ordering::Relaxed);
                assert!(matches!(got, Ok(Err(Error::Busy { .. }))), "{got:?}");
                let x = operands.rows::<f32>(0);
                rows.into_iter().for_each(|(i, row)| row.copy_from_slice(x.row(i)));
            })
            .unwrap();
        let z = ctx.add(y, weights.tensor("w").unwrap()).unwrap();
        let graph = ctx.graph([z]).unwrap();
        let backends = Sched::builder().backend(meta.init().unwrap()).backend(Backend::cpu().unwrap());
        let mut sched = backends.build().unwrap();
        let mut run = sched.alloc(&graph).unwrap();
        run.set(x, &[10.0_f32; 4]).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(z).unwrap(), [11.0, 12.0, 13.0, 14.0]);
        drop(run);
    });
    assert!(waited.load(Ordering::Relaxed));
    assert_eq!(read(&weights).unwrap(), [1.0, 2.0, 3.0, 4.0], "free again");
}
