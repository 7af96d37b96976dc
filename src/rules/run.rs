//! The checks of a graph before it is allocated. ggml would abort, or compute something else, without them.

use std::collections::HashMap;

use super::{Refusal, blas, cpu, cuda, indices, vulkan};
use crate::buffer::{self, BufferType};
use crate::device::meta;
use crate::device::{Device, DeviceType};
use crate::entries::{Entries, Entry, Kind};
use crate::error::{Error, Result};
use crate::header::{Owner, TensorPtr};
use crate::list;
use crate::op::Operation;

/// Checks a graph against every table, in one walk, before the scheduler sees it. For each operation, one of the
/// devices must be able to run it, and to use the memory that the tensor already has.
///
/// Returns the entries that Vulkan or CUDA claims, the rules refuse, and the last device accepts. They must be pinned to the
/// last device, because the scheduler trusts claims.
///
/// `which` selects the entries to check: those that differ from a graph that passed.
pub(crate) fn graph(graph: &Entries, which: Option<&[usize]>, devices: &[Device]) -> Result<Vec<usize>> {
    if devices.len() > 1 {
        same_experts(graph, devices)?;
    }
    let others = devices.len().saturating_sub(1);
    let boasts = |d: &Device| d.is_vulkan() || d.is_cuda();
    let boasters: Vec<_> = devices.iter().enumerate().map(|(i, d)| i < others && boasts(d)).collect();
    let mut forced_to_last = Vec::new();
    for (i, e) in selected(graph, which) {
        multiplied_only(graph, e)?;
        let [mut near, mut able, mut by_last, mut misclaimed] = [false; 4];
        for (&device, &boasts) in devices.iter().zip(&boasters) {
            let claimed = device.fits_wire(e.ptr) && device.claims(e.ptr)?;
            let accepted = (claimed || boasts) && kernel_accepts(device, e).is_ok();
            misclaimed |= boasts && !accepted;
            by_last = claimed && accepted;
            able |= by_last;
            near |= by_last && can_reach(device, e.ptr);
        }
        if !able {
            // The last device is a CPU. If its kernels refuse the operation, their reason says more than the error
            // below.
            if let Some(&cpu) = devices.last() {
                kernel_accepts(cpu, e)?;
            }
            return Err(unsupported(e.ptr, devices, "none of the devices supports the operation with these operands"));
        }
        if !near {
            let why = "its memory is on another device, or on one that can't run the operation; place it on one of these devices";
            return Err(unsupported(e.ptr, devices, why));
        }
        if misclaimed && by_last && e.kind == Kind::Node && e.ptr.view_src().is_none() {
            list::push(&mut forced_to_last, i, "the list of entries pinned to the CPU")?;
            // If a sort is pinned to the CPU, the clamp before it must be on the CPU, too (`sorts_numbers`).
            let clamp = graph.srcs(e).next().filter(|_| indices::is_trusted(e.ptr));
            if let Some(clamp) = clamp.and_then(|(_, t)| graph.position(t)) {
                list::push(&mut forced_to_last, clamp, "the list of entries pinned to the CPU")?;
            }
        }
    }
    Ok(forced_to_last)
}

/// The entries with these indices; all entries for `None`.
fn selected<'g>(graph: &'g Entries, which: Option<&'g [usize]>) -> impl Iterator<Item = (usize, &'g Entry)> {
    let all = if which.is_none() { 0..graph.len() } else { 0..0 };
    all.chain(which.into_iter().flatten().copied()).filter_map(|i| Some((i, graph.get(i)?)))
}

/// Checks each operation again after planning, on the device to which the scheduler assigned it.
pub(crate) fn placed(graph: &Entries, place: impl Fn(TensorPtr) -> Option<Device>) -> Result<()> {
    for e in graph.iter().filter(|e| e.kind == Kind::Node) {
        let Some(device) = place(e.ptr) else { continue };
        kernel_accepts(device, e)?;
        if device.is_cuda() {
            let is_here = |t| place(t) == Some(device);
            cuda::gate(e.ptr, is_here)
                .and_then(|()| cuda::together(graph, e))
                .map_err(|refusal| refusal.of(e.ptr, device.name()))?;
        }
        reaches(graph, device, e)?;
        uses_own_indices(graph, device, e, &place)?;
        // The clamp is looked up among the sources as built, because the scheduler may have put a copy in between.
        sorts_numbers(device, e, || place(graph.srcs(e).next()?.1))?;
    }
    Ok(())
}

/// Checks that repacked weights are used only as the first operand of matrix products (H27).
fn multiplied_only(graph: &Entries, e: &Entry) -> Result<()> {
    let product = || matches!(Operation::of(e.ptr), Some(Operation::MulMat(_) | Operation::MulMatId(_)));
    let misused = |(slot, t): &(usize, TensorPtr)| {
        t.owner() == Owner::Packed && (*slot != 0 || t.view_src().is_some() || !product())
    };
    match graph.srcs(e).find(misused) {
        Some((_, t)) => Err(Error::Packed { call: "graph", tensor: t.info() }),
        None => Ok(()),
    }
}

/// Checks that all operations which share one tensor of expert indices have equally many experts. Where weights are
/// copied to another device, the scheduler copies only the experts in use. It reads the indices once, and for a later
/// operation with more experts its list is read out of bounds (H78).
fn same_experts(graph: &Entries, devices: &[Device]) -> Result<()> {
    let mut seen = HashMap::new();
    for e in graph.iter().filter(|e| multiplies_experts(e.ptr)) {
        let [Some(experts), _, Some(ids), ..] = e.ptr.slots() else { continue };
        let [_, _, n, _] = experts.ne();
        seen.try_reserve(1).map_err(|_| Error::no_memory("the lists of experts"))?;
        if *seen.entry(ids).or_insert(n) != n {
            let why = "another operation uses the same indices with another number of experts; give one of them a \
                       view of the indices (`reshape`)";
            return Err(unsupported(e.ptr, devices, why));
        }
    }
    Ok(())
}

fn multiplies_experts(t: TensorPtr) -> bool {
    matches!(Operation::of(t), Some(Operation::MulMatId(_)))
}

/// Checks that the device to which an operation is assigned has kernels for it.
pub(crate) fn kernel_accepts(device: Device, e: &Entry) -> Result<()> {
    accepts(device, e.ptr, e.kind == Kind::Node)
}

pub(crate) fn accepts(device: Device, t: TensorPtr, is_node: bool) -> Result<()> {
    carries(device, t)?;
    if meta::is_meta(device) && is_node {
        require(super::meta::knows(t), t, device, "this crate knows no rule for the operation on a meta device")?;
        return meta::members(device).iter().try_for_each(|&d| accepts(d, t, is_node));
    }
    require(!t.is_custom() || device.runs_closures(), t, device, "closures run on this process's CPU only")?;
    if !is_node {
        return Ok(());
    }
    let written = cfg!(not(ggml_0_28)) || device.runs_closures() || device.is_vulkan() || !leaves_snapshots(t);
    let why = "since ggml 0.28, only the CPU and Vulkan are known to write more snapshots than one of more tokens";
    require(written, t, device, why)?;
    // The scheduler already respects what devices claim. BLAS ends the process for anything that it doesn't claim, so
    // this is checked again.
    let coded = !device.is_blas() || device.claims(t)?;
    require(coded, t, device, "BLAS has no code for the operation with these operands")?;
    if device.runs_blas() {
        blas::accepts(t).map_err(|refusal| refusal.of(t, device.name()))?;
    }
    if device.is_vulkan() {
        vulkan::accepts_on(device, t)?.map_err(|refusal| refusal.of(t, device.name()))?;
    }
    if device.is_cuda() {
        cuda::accepts(t).map_err(|refusal| refusal.of(t, device.name()))?;
    }
    if !device.runs_cpu_kernels() {
        return Ok(());
    }
    cpu::accepts(t).map_err(|refusal| refusal.of(t, device.name()))
}

/// Whether a device may leave snapshots of states unwritten (H53): if there are more tokens than snapshots, ggml
/// promises the last state only.
fn leaves_snapshots(t: TensorPtr) -> bool {
    let Some(Operation::GatedDeltaNet { n_snapshots }) = Operation::of(t) else { return false };
    let tokens = t.source(2).map_or(0, |v| v.ne()[2]);
    n_snapshots > 1 && tokens > n_snapshots
}

fn carries(device: Device, t: TensorPtr) -> Result<()> {
    let fits = t.sources().chain([t]).all(|t| device.fits_wire(t));
    require(fits, t, device, "RPC can't carry dimensions or strides of 2^32 and more")
}

/// Checks that the RPC protocol can carry all tensors of a graph to `device`.
pub(crate) fn fits_wire(graph: &Entries, device: Device) -> Result<()> {
    graph.iter().try_for_each(|e| carries(device, e.ptr))
}

/// Checks that the user may pin an entry to `device`: the graph allocates it, and the device can compute it.
pub(crate) fn pinned(device: Device, e: &Entry) -> Result<()> {
    let movable = e.ptr.view_src().is_none() && e.is_allocated_by_graph();
    let why =
        "it can't be pinned, because it lies in memory of its own or another tensor's; it runs where that memory is";
    require(movable, e.ptr, device, why)?;
    kernel_accepts(device, e)?;
    let claimed = device.claims(e.ptr)?;
    require(claimed, e.ptr, device, "the device that it is pinned to does not support the operation")
}

/// The error for an entry that was pinned to `device`, but which ggml put somewhere else.
pub(crate) fn moved(device: Device, e: &Entry) -> Error {
    let why = "it is pinned, but ggml puts it on a backend of higher priority with the same buffer type";
    unsupported(e.ptr, &[device], why)
}

/// Checks that the device of an in-place operation can use the memory to which the operation writes: the scheduler
/// copies only what an operation reads. The scheduler can't copy repacked weights either (H27).
pub(crate) fn reaches(graph: &Entries, device: Device, e: &Entry) -> Result<()> {
    let repacked = graph.srcs(e).any(|(_, t)| t.owner() == Owner::Packed && !can_reach(device, t));
    require(!repacked, e.ptr, device, "weights that another device has repacked can't be copied")?;
    // When the scheduler copies experts to a device, it copies only those that the indices name. It reads the indices
    // from that device, and ends the process if one is out of range.
    let copied = |(slot, t): (usize, TensorPtr)| slot == 0 && !can_reach(device, t);
    let elsewhere = device.is_driven() && multiplies_experts(e.ptr) && graph.srcs(e).any(copied);
    let why = "a device implemented in Rust multiplies only experts that lie in its memory";
    require(!elsewhere, e.ptr, device, why)?;
    let in_place = e.ptr.view_src().is_some() && !e.ptr.is_view_op();
    let why = "the tensor that it writes to in place lies on another device";
    require(!in_place || can_reach(device, e.ptr), e.ptr, device, why)
}

/// Checks that a sort on `device` gets no NaN, given the device of the clamp that `ops/sort.rs` puts before it. Only
/// CPU kernels can't sort NaN. A clamp on a CPU removes NaN; one on another device may not.
pub(crate) fn sorts_numbers(device: Device, e: &Entry, clamp: impl FnOnce() -> Option<Device>) -> Result<()> {
    if !device.runs_cpu_kernels() || !indices::is_trusted(e.ptr) {
        return Ok(());
    }
    let clamped = clamp().is_some_and(|clamp| clamp == device || clamp.device_type() == DeviceType::Cpu);
    require(clamped, e.ptr, device, "it can't sort what another device has clamped: NaN may be left")
}

/// Checks that an operation on `device` uses no indices from an RPC server or a device implemented in Rust, except on
/// that device itself: data from such a device is not checked, and a lost server yields zeros.
pub(crate) fn uses_own_indices(
    graph: &Entries,
    device: Device,
    e: &Entry,
    place: impl FnOnce(TensorPtr) -> Option<Device>,
) -> Result<()> {
    let Some(slot) = indices::slot(e.ptr) else { return Ok(()) };
    // The indices are looked up among the sources as built, because the scheduler may have put a copy in their place.
    let Some((_, indices)) = graph.srcs(e).find(|(i, _)| *i == slot) else { return Ok(()) };
    let any = place(indices.root()).is_some_and(|there| (there.is_remote() || there.is_driven()) && there != device);
    let why = "its indices come from an RPC server or a device implemented in Rust, which may send any";
    require(!any, e.ptr, device, why)
}

/// Checks that the device can use memory of this buffer type.
pub(crate) fn memory(device: Device, buft: BufferType) -> Result<()> {
    if device.supports_buffer_type(buft) {
        return Ok(());
    }
    Err(Error::unsupported("graph", [], device.name(), format!("it can't use buffer type {}", buft.name())))
}

/// Whether `device` can use the memory that `t` already has. The allocator places tensors without memory as needed.
fn can_reach(device: Device, t: TensorPtr) -> bool {
    buffer::type_of(t).is_none_or(|buft| device.supports_buffer_type(buft))
}

#[inline]
fn require(holds: bool, t: TensorPtr, device: Device, otherwise: &'static str) -> Result<()> {
    if holds { Ok(()) } else { Err(unsupported(t, &[device], otherwise)) }
}

#[cold]
fn unsupported(t: TensorPtr, devices: &[Device], reason: &'static str) -> Error {
    let names: Vec<_> = devices.iter().map(|d| d.name()).collect();
    Refusal(reason).of(t, names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::dtype::DType;

    #[test]
    fn snapshots_that_a_device_may_leave_out_are_known() {
        let ctx = Context::new();
        let of = |ne: [i64; 4]| ctx.input("x", DType::F32, ne).unwrap();
        let (x, one) = ([4, 2, 3, 1], [1, 2, 3, 1]);
        let on = crate::ops::GatedDeltaNetOperands {
            q: of(x),
            k: of(x),
            v: of(x),
            g: of(one),
            beta: of(one),
            state: of([4, 4, 2, 1]),
        };
        let left = [1, 2, 3].map(|n| leaves_snapshots(ctx.gated_delta_net(on, n).unwrap().ptr()));
        assert_eq!(left, [false, true, false]);
        assert!(!leaves_snapshots(of(x).ptr()));
    }

    /// Machines with two types of devices are rare, so this test calls the check directly.
    #[test]
    fn argsort_requires_its_clamp_on_the_same_cpu() {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        let graph = ctx.graph([ctx.top_k(ctx.neg(x).unwrap(), 2).unwrap()]).unwrap();
        let cpu = Device::cpu().unwrap();
        let refused: Vec<_> = graph.entries().iter().map(|e| sorts_numbers(cpu, e, || None).is_err()).collect();
        let sorts: Vec<_> = graph.entries().iter().map(|e| indices::is_trusted(e.ptr)).collect();
        assert_eq!(refused, sorts, "no clamp");
        assert_eq!(sorts.iter().filter(|&&s| s).count(), 1, "one sort among the entries");
        assert!(graph.entries().iter().all(|e| sorts_numbers(cpu, e, || Some(cpu)).is_ok()), "clamped on a CPU");
    }
}
