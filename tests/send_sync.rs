//! Which types are `Send` and which are `Sync`: checked when this file compiles.

#![cfg(test)]

use ggml::run::*;
use ggml::*;

/// Listed types must be `Send`; the table they are in says whether they must be `Sync`.
macro_rules! table {
    (sync: $($s:ty),*; send: $($m:ty),*; neither: $($n:ty),* $(;)?) => {
        const _: () = {
            const fn send<T: Send>() {}
            const fn sync<T: Sync>() {}
            /// Calling `check` is ambiguous, and so an error, for a type that implements the trait after all.
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
    send: Context, State, Sched, GraphAllocator, WeightsBuilder, Backend, Event;
    neither: Tensor<'static>, Graph<'static>, Run<'static, 'static>, GraphPlan<'static, 'static, 'static>,
        Observed<'static>, Transfers<'static, 'static>, Writable<'static>, opt::OptContext<'static>, opt::OptGraphs<'static>,
        opt::OptRun<'static, 'static, 'static>;
}

/// A backend is used by one thread at a time, through `&mut`; `&Backend` only reads its name and device.
#[test]
fn backend_moves_to_another_thread() {
    let mut backend = Backend::cpu().unwrap();
    std::thread::spawn(move || backend.synchronize().unwrap()).join().unwrap();
}
