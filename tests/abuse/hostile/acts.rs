//! What code of the program's may do when it is called.

use ggml::prelude::*;
use ggml::{GraphAllocator, Result};
use ggml_draw::ToDot as _;

use super::kept::Kept;
use super::stage::Stage;

/// What a call is, to the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It goes into ggml, or changes what ggml reads.
    Call,
    /// It looks at tensors of the graph, or makes others of them, by way of ggml.
    Same,
    /// It uses what was allocated before, if that is there.
    Kept,
    /// It reads what never changes, or gives something back.
    Pure,
}

/// Something to do.
#[derive(Clone, Copy)]
pub(crate) struct Act {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) run: fn(&mut Stage) -> Result<()>,
}

const fn act(name: &'static str, kind: Kind, run: fn(&mut Stage) -> Result<()>) -> Act {
    Act { name, kind, run }
}

fn sched(n: usize) -> Result<Sched> {
    let mut builder = Sched::builder();
    for _ in 0..n {
        let mut cpu = Backend::cpu()?;
        cpu.set_threads(1)?;
        builder = builder.backend(cpu);
    }
    builder.build()
}

fn any_output(s: &mut Stage) -> Tensor<'static> {
    s.outputs[s.rng.usize(..s.outputs.len())]
}

/// Does something with the program's state, if it has one.
fn state(s: &mut Stage, f: impl FnOnce(&State, &str, &[u8]) -> Result<()>) -> Result<()> {
    let leaves = s.leaves;
    match leaves.first_of_state() {
        Some((state, name, bytes)) => f(state, name, bytes),
        // Another one, which can't be placed.
        None => WeightsBuilder::new().tensor("s", DType::F32, [4]).map(drop).and_then(|()| Backend::cpu().map(drop)),
    }
}

pub(crate) const ALL: &[Act] = &[
    act("build in the same context", Kind::Call, |s| {
        let x = s.ctx.input("inside", DType::F32, [4])?;
        s.ctx.neg(x).map(drop)
    }),
    act("build on what is computed", Kind::Same, |s| s.ctx.cont(any_output(s)).map(drop)),
    act("build a view", Kind::Same, |s| {
        let t = any_output(s);
        s.ctx.view(t, [1], [0; 3], 0).map(drop)
    }),
    act("build elsewhere", Kind::Call, |s| {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4])?;
        let y = ctx.neg(x)?;
        let graph = ctx.graph([y])?;
        assert_eq!(graph.n_nodes(), 1);
        s.loose.push(Box::new(Context::new()));
        Ok(())
    }),
    act("a graph of the same", Kind::Same, |s| {
        let t = any_output(s);
        let graph = s.ctx.graph([t])?;
        assert!(graph.to_dot().unwrap().contains("digraph"), "no graph");
        Ok(())
    }),
    act("mark an output", Kind::Same, |s| s.ctx.output(any_output(s)).map(drop)),
    act("look at the graph", Kind::Pure, |s| {
        let n = s.graph.nodes().map(|t| s.graph.sources(t).count()).sum::<usize>();
        assert!(n > 0, "operations without sources");
        assert!(s.graph.to_dot().unwrap().contains("digraph"), "no graph");
        Ok(())
    }),
    act("look at tensors", Kind::Pure, |s| {
        let t = any_output(s);
        drop((t.name(), t.op_name(), t.ne(), t.nb(), t.dtype(), t.elements(), format!("{t:?}")));
        Ok(())
    }),
    act("drop things", Kind::Pure, |s| {
        s.loose.clear();
        drop(s.kept.pop());
        Ok(())
    }),
    act("allocate the same, and keep it", Kind::Same, |s| {
        let sched = sched(s.rng.usize(1..3))?;
        let kept = Kept::sched(sched, s.graph)?;
        s.kept.push(kept);
        Ok(())
    }),
    act("allocate the same on one device, and keep it", Kind::Same, |s| {
        let allocator = GraphAllocator::new(Device::cpu()?.buffer_type());
        let kept = Kept::allocator(allocator, s.graph)?;
        s.kept.push(kept);
        Ok(())
    }),
    act("reserve", Kind::Same, |s| sched(1)?.reserve(s.graph)),
    act("sizes", Kind::Same, |s| GraphAllocator::new(Device::cpu()?.buffer_type()).sizes(s.graph).map(drop)),
    act("compute what was kept", Kind::Kept, |s| match s.kept.last_mut() {
        Some(kept) => match kept.compute() {
            // It was not set yet.
            Err(Error::InputNotSet { .. }) => Backend::cpu().map(drop),
            result => result,
        },
        None => Backend::cpu().map(drop),
    }),
    act("set a state", Kind::Call, |s| state(s, |state, name, bytes| state.set_bytes(name, bytes))),
    act("fill a state", Kind::Call, |s| state(s, |state, name, _| state.fill_bytes(name, 1))),
    act("clear a state", Kind::Call, |s| state(s, |state, _, _| state.clear_bytes(2))),
    act("read a state", Kind::Call, |s| state(s, |state, name, _| state.read_bytes(name).map(drop))),
    act("read weights", Kind::Call, |s| match s.leaves.first_of_weights() {
        Some((weights, name, bytes)) => weights.read_bytes(name).map(|got| assert_eq!(got, bytes, "weights changed")),
        None => Backend::cpu().map(drop),
    }),
    act("place weights", Kind::Call, |s| {
        let mut builder = WeightsBuilder::new();
        builder.tensor("w", DType::F32, [4])?;
        let weights = builder.place(Device::cpu()?.buffer_type())?;
        s.loose.push(Box::new(weights));
        Ok(())
    }),
    act("start a backend", Kind::Call, |s| {
        let backend = Backend::cpu()?;
        s.loose.push(Box::new(backend));
        Ok(())
    }),
    act("ask for memory", Kind::Call, |_| Device::cpu()?.memory().map(drop)),
    act("print the graph", Kind::Call, |s| s.graph.print()),
    act("ask what is supported", Kind::Same, |s| Device::cpu()?.supports_op(any_output(s)).map(drop)),
    act("ask what is offloaded", Kind::Same, |s| Device::cpu()?.offloads(any_output(s)).map(drop)),
    act("convert numbers", Kind::Call, |_| {
        let bytes = DType::Q8_0.quantize(&[1.0; 32], 32, None)?;
        DType::Q8_0.dequantize(&bytes).map(drop)
    }),
    act("log", Kind::Pure, |_| {
        log::info!(target: "abuse", "from within");
        Ok(())
    }),
];
