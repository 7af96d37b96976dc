//! What was found after the letters: user code that ran while headers said where a graph lies.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use ggml::meta::{MetaDevice, SplitMode};
use ggml::prelude::*;
use ggml::{GraphAllocator, Run, ops::CustomOptions, run::Compare};

thread_local! {
    static WHEN_DROPPED: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

/// What a panic carries, whose destructor does what this thread wants.
struct Payload;

impl Drop for Payload {
    fn drop(&mut self) {
        if let Some(f) = WHEN_DROPPED.take() {
            f();
        }
    }
}

/// `-f(f(x))`, for as long as the process lives. Both closures panic while they are told to.
struct Panicking {
    x: Tensor<'static>,
    y: Tensor<'static>,
    graph: &'static Graph<'static>,
    panics: Arc<AtomicBool>,
}

fn panicking() -> Panicking {
    let ctx: &'static Context = Box::leak(Box::new(Context::new()));
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let panics = Arc::new(AtomicBool::new(true));
    let custom = |a| {
        let panics = Arc::clone(&panics);
        ctx.map_custom1::<f32>(a, CustomOptions::new(), move |rows, a| {
            if panics.load(Ordering::Relaxed) {
                panic_any(Payload);
            }
            rows.for_each(|(i, row)| row.copy_from_slice(a.row(i)));
        })
        .unwrap()
    };
    let y = ctx.neg(custom(custom(x))).unwrap();
    let graph = Box::leak(Box::new(ctx.graph([y]).unwrap()));
    Panicking { x, y, graph, panics }
}

/// Computes once with both closures panicking: one panic goes on, the other one's payload stays until the next computation
/// begins. Its destructor then computes the same graph elsewhere.
fn payload_that_computes(compute: impl Fn(&mut Run<'_, '_>)) {
    let Panicking { x, y, graph, panics } = panicking();
    let mut backend = Backend::cpu().unwrap();
    let mut allocator = GraphAllocator::new(backend.device().buffer_type());
    let mut run = allocator.alloc(graph, &mut backend).unwrap();
    run.set(x, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    let failed = catch_unwind(AssertUnwindSafe(|| run.compute()));
    assert!(failed.is_err_and(|payload| payload.is::<Payload>()));
    panics.store(false, Ordering::Relaxed);
    let ran = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&ran);
    WHEN_DROPPED.set(Some(Box::new(move || {
        let mut backend = Backend::cpu().unwrap();
        let mut allocator = GraphAllocator::new(backend.device().buffer_type());
        let mut run = allocator.alloc(graph, &mut backend).unwrap();
        run.set(x, &[5.0_f32; 4]).unwrap();
        run.compute().unwrap();
        assert_eq!(run.get::<f32>(y).unwrap(), [-5.0; 4]);
        done.store(true, Ordering::Relaxed);
    })));
    compute(&mut run);
    assert!(ran.load(Ordering::Relaxed), "the payload was dropped");
    assert_eq!(run.get::<f32>(y).unwrap(), [-1.0, -2.0, -3.0, -4.0]);
}

/// The destructor of a payload computed the same graph elsewhere when headers had been made ready for C: SIGSEGV.
#[test]
fn panic_payload_that_computes_is_dropped_before_headers_are_written() {
    payload_that_computes(|run| run.compute().unwrap());
    payload_that_computes(|run| run.compute_async(|| ()).unwrap());
    payload_that_computes(|run| run.plan().unwrap().compute().unwrap());
    payload_that_computes(|run| {
        let mut other = Backend::cpu().unwrap();
        assert!(run.compare(&mut other, Compare::new()).unwrap().agrees());
    });
}

/// Devices that work as one compute asynchronously while another thread computes with them and a closure: the wait at the end
/// was refused as busy, and what had been computed was lost.
#[test]
fn compute_async_on_a_meta_device_waits_while_others_are_busy() {
    let cpu = Device::cpu().unwrap();
    let meta = MetaDevice::new(&[cpu, cpu], |_| SplitMode::Mirrored).unwrap().device();
    let sched =
        move || Sched::builder().backend(meta.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.neg(x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut first = sched();
    let mut run = first.alloc(&graph).unwrap();
    run.set(x, &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    let (inside, is_inside) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let other = move || {
        let (inside, may_go) = (Mutex::new(inside), Mutex::new(may_go));
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        let how = CustomOptions::new().with_n_tasks(1);
        let y = ctx.map_custom1::<f32>(x, how, move |rows, a| {
            inside.lock().unwrap().send(()).unwrap();
            let _waited = may_go.lock().unwrap().recv_timeout(Duration::from_secs(20));
            rows.for_each(|(i, row)| row.copy_from_slice(a.row(i)));
        });
        let graph = ctx.graph([y.unwrap()]).unwrap();
        let mut sched = sched();
        let mut run = sched.alloc(&graph).unwrap();
        run.set(x, &[0.0_f32; 4]).unwrap();
        run.compute()
    };
    let mut thread = None;
    let done = run.compute_async(|| {
        thread = Some(std::thread::spawn(other));
        let _entered = is_inside.recv_timeout(Duration::from_secs(5));
    });
    go.send(()).unwrap_or_default();
    let theirs = thread.unwrap().join().unwrap();
    println!("ours {done:?} theirs {theirs:?}");
    done.unwrap();
    assert_eq!(run.get::<f32>(y).unwrap(), [-1.0, -2.0, -3.0, -4.0]);
}

/// The closure of an operation and that beside the computation both panic. The payload that is not gone on with was dropped
/// while the other was on its way: where its destructor panics as well, that ends the process.
#[test]
fn second_panic_payload_is_not_dropped_while_the_first_unwinds() {
    struct PanicsWhenDropped;
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            panic!("a payload's destructor");
        }
    }
    let Panicking { x, graph, .. } = panicking();
    let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
    let mut run = sched.alloc(graph).unwrap();
    run.set(x, &[1.0_f32; 4]).unwrap();
    let beside = || -> () { panic_any(PanicsWhenDropped) };
    let Err(payload) = catch_unwind(AssertUnwindSafe(|| run.compute_async(beside))) else { panic!("no panic") };
    assert!(payload.is::<PanicsWhenDropped>() || payload.is::<Payload>());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(payload))).is_err());
}
