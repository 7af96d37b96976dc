//! Drivers that don't keep their word: nothing of it is undefined behaviour, and all of it is an error.

use std::sync::{Mutex, OnceLock};

use ggml::driver::{
    Driver, DriverInfo, DriverStream, Failure, HostSource, HostTarget, NoEvent, Node, Nodes, Region, TensorView,
};
use ggml::prelude::*;
use ggml::{Registry, ops::SortOrder};
use testkit::nothing::Nothing;

testkit::trials!(
    no_more_memory_is_free_than_there_is,
    transfers_end_with_the_wait,
    driver_code_cannot_call_ggml,
    indices_of_a_driver_are_not_used_elsewhere,
    experts_are_not_copied_by_indices_of_a_driver,
    capability_that_changes_is_an_error,
);

/// Keeps what it was lent, claims anything, and computes nothing.
struct Liar {
    name: String,
    claims: fn(u32) -> bool,
}

static KEPT: Mutex<Vec<(Option<HostSource>, Option<HostTarget>)>> = Mutex::new(Vec::new());
static CALLED: OnceLock<String> = OnceLock::new();
static ASKED: Mutex<u32> = Mutex::new(0);

impl Driver for Liar {
    type Buffer = Nothing;
    type Stream = Nothing;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        DriverInfo::new(self.name.clone(), DeviceType::Gpu).with_memory(true).with_async(true)
    }

    fn memory(&self) -> [usize; 2] {
        [usize::MAX, 1 << 20]
    }

    fn supports(&self, _: &Node<'_, Self>) -> bool {
        let mut asked = ASKED.lock().unwrap();
        *asked += 1;
        (self.claims)(*asked)
    }

    fn alloc_size(&self, _: TensorView<'_>) -> usize {
        0
    }

    fn allocate(&self, _: usize) -> Result<Nothing, Failure> {
        Ok(Nothing)
    }

    fn stream(&self, _: &str) -> Result<Nothing, Failure> {
        Ok(Nothing)
    }
}

impl DriverStream<Liar> for Nothing {
    fn compute(&mut self, nodes: Nodes<'_, Liar>) -> Result<(), Failure> {
        for mut node in nodes {
            assert!(node.on_host(|_, _| ()).is_err(), "nothing lies in host memory");
        }
        let text = |e: Error| e.to_string();
        CALLED.get_or_init(|| Context::new().input("x", DType::F32, [1]).map_or_else(text, |_| "it can".into()));
        Ok(())
    }

    fn set(&mut self, _: Region<'_, Liar>, from: HostSource) -> Result<(), Failure> {
        let mut byte = [0];
        assert!(from.read(from.len(), &mut byte).is_err(), "it ends there");
        from.read(from.len() - 1, &mut byte)?;
        KEPT.lock().unwrap().push((Some(from), None));
        Ok(())
    }

    fn get(&mut self, _: Region<'_, Liar>, to: HostTarget) -> Result<(), Failure> {
        to.write(0, &[7])?;
        KEPT.lock().unwrap().push((None, Some(to)));
        Ok(())
    }
}

fn liar(name: &str, claims: fn(u32) -> bool) -> Device {
    Registry::register(name, [Liar { name: name.into(), claims }]).unwrap().devices().unwrap()[0]
}

fn no_more_memory_is_free_than_there_is() {
    let memory = liar("Boaster", |_| true).memory().unwrap();
    assert_eq!((memory.free, memory.total), (1 << 20, 1 << 20));
}

/// What a driver doesn't write to is zero, not what was there.
fn transfers_end_with_the_wait() {
    let device = liar("Keeper", |_| true);
    let mut backend = device.init().unwrap();
    let mut builder = WeightsBuilder::new();
    builder.tensor("a", DType::I8, [4]).unwrap();
    let state = builder.place_state(device).unwrap();
    let mut read = vec![9_i8; 4];
    backend
        .transfers(|queue| {
            queue.set(&state, "a", vec![1_i8, 2, 3, 4])?;
            queue.get(state.tensor("a")?, &mut read)
        })
        .unwrap();
    assert_eq!(read, [7, 0, 0, 0]);
    let kept = std::mem::take(&mut *KEPT.lock().unwrap());
    assert_eq!(kept.len(), 2);
    for (source, target) in kept {
        let refused = match (source, target) {
            (Some(source), _) => source.read(0, &mut [0]),
            (_, Some(target)) => target.write(0, &[9]),
            _ => Ok(()),
        };
        assert!(refused.unwrap_err().to_string().contains("no longer lent"));
    }
    assert_eq!(read, [7, 0, 0, 0]);
}

fn sched(device: Device) -> Sched {
    Sched::builder().backend(device.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap()
}

fn driver_code_cannot_call_ggml() {
    let device = liar("Caller", |_| true);
    let mut sched = sched(device);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = ctx.neg(x).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let mut run = sched.alloc_pinned(&graph, &[(y, 0)]).unwrap();
    run.set(x, &[1.0_f32; 4]).unwrap();
    run.compute().unwrap();
    assert!(CALLED.get().unwrap().contains("can't call ggml itself"), "{CALLED:?}");
}

fn indices_of_a_driver_are_not_used_elsewhere() {
    let device = liar("Sorter", |_| true);
    let mut sched = sched(device);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let table = ctx.input("table", DType::F32, [2, 4]).unwrap();
    let order = ctx.argsort(x, SortOrder::Asc).unwrap();
    let picked = ctx.get_rows(table, order).unwrap();
    let graph = ctx.graph([picked]).unwrap();
    let refused = sched.alloc_pinned(&graph, &[(order, 0), (picked, 1)]).unwrap_err();
    assert!(refused.to_string().contains("a device implemented in Rust, which may send any"), "{refused}");
    sched.alloc_pinned(&graph, &[(order, 0), (picked, 0)]).unwrap();
    // What was checked when it was set may have become something else in memory of the driver.
    let rows = ctx.input("rows", DType::I32, [4]).unwrap();
    let picked = ctx.get_rows(table, rows).unwrap();
    let graph = ctx.graph([picked]).unwrap();
    let refused = sched.alloc_pinned(&graph, &[(rows, 0), (picked, 1)]).unwrap_err();
    assert!(refused.to_string().contains("a device implemented in Rust, which may send any"), "{refused}");
}

fn experts_are_not_copied_by_indices_of_a_driver() {
    let device = liar("Expert", |_| true);
    let mut sched = sched(device);
    for (place, refused) in [(Device::cpu().unwrap(), true), (device, false)] {
        let mut builder = WeightsBuilder::new();
        builder.tensor("experts", DType::F32, [4, 2, 3]).unwrap();
        let weights = builder.place(place).unwrap();
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4, 1, 1]).unwrap();
        let ids = ctx.input("ids", DType::I32, [1, 1]).unwrap();
        let y = ctx.mul_mat_id(weights.tensor("experts").unwrap(), x, ids).unwrap();
        let graph = ctx.graph([y]).unwrap();
        let result = sched.alloc_pinned(&graph, &[(y, 0)]);
        let why = "multiplies only experts that lie in its memory";
        assert_eq!(result.is_err_and(|e| e.to_string().contains(why)), refused);
    }
}

fn capability_that_changes_is_an_error() {
    let answers: [fn(u32) -> bool; 3] = [|n| n.is_multiple_of(2), |n| n.is_multiple_of(3), |n| n < 3];
    for (i, claims) in answers.into_iter().enumerate() {
        *ASKED.lock().unwrap() = 0;
        let device = liar(&format!("Fickle{i}"), claims);
        let mut sched = sched(device);
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        let mut y = x;
        for _ in 0..5 {
            y = ctx.neg(y).unwrap();
        }
        let graph = ctx.graph([y]).unwrap();
        // An error or a result, which is what the driver computes.
        if let Ok(mut run) = sched.alloc(&graph) {
            run.set(x, &[1.0_f32; 4]).unwrap();
            drop(run.compute());
        }
    }
}
