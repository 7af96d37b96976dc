//! Which types may move between threads, and which may be shared: checked when this file compiles.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    clippy::cast_possible_wrap,
    clippy::float_cmp,
    clippy::mem_forget,
    clippy::missing_assert_message,
    reason = "a test fails by panicking, and its numbers are small"
)]

use ggml::*;

/// `Send` where a type is listed; `Sync` or not by the table it is listed in.
macro_rules! table {
    (sync: $($s:ty),*; send: $($m:ty),*; neither: $($n:ty),* $(;)?) => {
        const _: () = {
            const fn send<T: Send>() {}
            const fn sync<T: Sync>() {}
            /// `check` is ambiguous, and so an error, for a type that has the trait after all.
            trait NotSync<A> { fn check() {} }
            impl<T: ?Sized> NotSync<()> for T {}
            impl<T: ?Sized + Sync> NotSync<u8> for T {}
            trait NotSend<A> { fn check() {} }
            impl<T: ?Sized> NotSend<()> for T {}
            impl<T: ?Sized + Send> NotSend<u8> for T {}
            $( send::<$s>(); sync::<$s>(); )*
            $( send::<$m>(); let _ = <$m as NotSync<_>>::check; )*
            $( let _ = <$n as NotSend<_>>::check; let _ = <$n as NotSync<_>>::check; )*
        };
    };
}

table! {
    sync: Comparison, cpu::Features, Device, Registry, BufferType, Weights, DType, Shape, Error, TensorInfo, DeviceType, Capabilities, Memory;
    send: Context, State, Sched, GraphAllocator, WeightsBuilder;
    neither: Tensor<'static>, Graph<'static>, Allocated<'static, 'static>, GraphMemory<'static, 'static>,
        GraphPlan<'static, 'static, 'static>,
        Observed<'static>, opt::OptContext<'static>, opt::OptGraphs<'static>,
        opt::OptRun<'static, 'static, 'static>;
}

/// A backend is used by one thread at a time, through `&mut`; `&Backend` only reads its name and device.
#[test]
fn a_backend_moves_to_another_thread() {
    let mut backend = Backend::cpu().unwrap();
    std::thread::spawn(move || backend.synchronize().unwrap()).join().unwrap();
}

#[test]
fn weights_are_used_by_two_threads_at_once() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w", DType::F32, [64, 64]).unwrap();
    let mut weights = builder.place(Device::cpu().unwrap().buffer_type()).unwrap();
    weights.set("w", &[0.5_f32; 64 * 64]).unwrap();
    let step = |value: f32| {
        let mut sched = Sched::builder().backend(Backend::cpu().unwrap()).build().unwrap();
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [64, 8]).unwrap();
        let y = ctx.mul_mat(weights.get("w").unwrap(), x).unwrap();
        let graph = ctx.graph([y]).unwrap();
        for _ in 0..50 {
            let mut run = sched.alloc(&graph).unwrap();
            run.set(x, &[value; 64 * 8]).unwrap();
            run.compute().unwrap();
            assert!(run.get::<f32>(y).unwrap().iter().all(|&v| v == 32.0 * value));
        }
    };
    std::thread::scope(|s| {
        s.spawn(|| step(1.0));
        s.spawn(|| step(2.0));
    });
}
