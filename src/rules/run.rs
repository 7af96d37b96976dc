//! What is checked of a graph before an allocator sees it: conditions under which ggml would abort.

use std::collections::HashMap;

use ggml_sys as sys;

use super::{Refusal, blas, cpu, indices, vulkan};
use crate::buffer::{self, BufferType};
use crate::device::meta;
use crate::device::{Device, DeviceType};
use crate::error::{Error, Result};
use crate::graph::{Entry, Graph, Kind};
use crate::header::{Owner, TensorPtr};
use crate::list;

/// Asks every table about a graph, in one walk, before the scheduler sees it: some of the devices must be able to run each
/// operation, and to use each placed tensor where it lies.
///
/// Returns the entries that a Vulkan device claims, the rules refuse, and the last device can run: they must be pinned to
/// that one, because the scheduler trusts claims.
pub(crate) fn graph(graph: &Graph<'_>, devices: &[Device]) -> Result<Vec<usize>> {
    if devices.len() > 1 {
        same_experts(graph, devices)?;
    }
    let others = devices.len().saturating_sub(1);
    let vulkan: Vec<_> = devices.iter().enumerate().map(|(i, d)| i < others && d.is_vulkan()).collect();
    let mut kept_off = Vec::new();
    for (i, e) in graph.entries().iter().enumerate() {
        multiplied_only(graph, e)?;
        let [mut near, mut able, mut by_last, mut misclaimed] = [false; 4];
        for (&device, &vulkan) in devices.iter().zip(&vulkan) {
            let claimed = device.fits_wire(e.ptr) && device.claims(e.ptr)?;
            let accepted = (claimed || vulkan) && kernel_accepts(device, e).is_ok();
            misclaimed |= vulkan && !accepted;
            by_last = claimed && accepted;
            able |= by_last;
            near |= by_last && can_reach(device, e.ptr);
        }
        if !able {
            // The reason of the CPU kernels, if that is what it comes down to, says more.
            if let Some(&cpu) = devices.last() {
                kernel_accepts(cpu, e)?;
            }
            return Err(unsupported(e.ptr, devices, "none of the devices supports the operation with these operands"));
        }
        if !near {
            let why = "its memory is on a device that is not among them, or can't run it";
            return Err(unsupported(e.ptr, devices, why));
        }
        if misclaimed && by_last && e.kind == Kind::Node && e.ptr.view_src().is_none() {
            list::push(&mut kept_off, i, "what is pinned to the CPU")?;
            // A CPU sorts what a CPU made ready.
            let clamp = graph.srcs(e).next().filter(|_| cpu::is_sort(e.ptr));
            if let Some(clamp) = clamp.and_then(|(_, t)| graph.position(t)) {
                list::push(&mut kept_off, clamp, "what is pinned to the CPU")?;
            }
        }
    }
    Ok(kept_off)
}

/// [`graph`], where nothing can be pinned.
pub(crate) fn runnable(graph: &Graph<'_>, devices: &[Device]) -> Result<()> {
    self::graph(graph, devices).map(drop)
}

/// Asks every table once more, when the scheduler has given each operation to a device.
pub(crate) fn placed(graph: &Graph<'_>, place: impl Fn(TensorPtr) -> Option<Device>) -> Result<()> {
    for e in graph.entries().iter().filter(|e| e.kind == Kind::Node) {
        let Some(device) = place(e.ptr) else { continue };
        kernel_accepts(device, e)?;
        reaches(graph, device, e)?;
        picks_by_own_numbers(graph, device, e, &place)?;
        // By the sources as they were built: the scheduler may have put a copy in between.
        sorts_numbers(device, e, || place(graph.srcs(e).next()?.1))?;
    }
    Ok(())
}

/// Checks that weights in memory that rearranges them are the first operand of products, and nothing else (H27).
fn multiplied_only(graph: &Graph<'_>, e: &Entry) -> Result<()> {
    let product = matches!(e.ptr.op(), sys::GGML_OP_MUL_MAT | sys::GGML_OP_MUL_MAT_ID);
    let misused = |(slot, t): &(usize, TensorPtr)| {
        t.owner() == Owner::Packed && (!product || *slot != 0 || t.view_src().is_some())
    };
    match graph.srcs(e).find(misused) {
        Some((_, t)) => Err(Error::Packed { call: "graph", tensor: t.info() }),
        None => Ok(()),
    }
}

/// Checks that experts that are picked by one tensor are equally many. Where weights are copied to another device, the
/// scheduler copies those that are picked only; it looks at the numbers once, and for a later operation with more experts
/// reads beyond its list.
fn same_experts(graph: &Graph<'_>, devices: &[Device]) -> Result<()> {
    let mut seen = HashMap::new();
    for e in graph.entries().iter().filter(|e| e.ptr.op() == sys::GGML_OP_MUL_MAT_ID) {
        let [Some(experts), _, Some(ids), ..] = e.ptr.slots() else { continue };
        let [_, _, n, _] = experts.ne();
        seen.try_reserve(1).map_err(|_| Error::no_memory("the lists of experts"))?;
        if *seen.entry(ids).or_insert(n) != n {
            let why = "another operation picks from more or fewer experts by the same tensor; give one of them a view of it \
                       (`reshape`)";
            return Err(unsupported(e.ptr, devices, why));
        }
    }
    Ok(())
}

/// Checks that the device an operation was given to has kernels for it.
pub(crate) fn kernel_accepts(device: Device, e: &Entry) -> Result<()> {
    accepts(device, e.ptr, e.kind == Kind::Node)
}

pub(crate) fn accepts(device: Device, t: TensorPtr, is_node: bool) -> Result<()> {
    carries(device, t)?;
    if meta::is_meta(device) && is_node {
        if !super::meta::knows(t) {
            let why = "it is not known how the operation goes with several devices that work as one";
            return Err(unsupported(t, &[device], why));
        }
        return meta::members(device).iter().try_for_each(|&d| accepts(d, t, is_node));
    }
    if t.is_custom() && !device.runs_closures() {
        return Err(unsupported(t, &[device], "closures run on this process's CPU only"));
    }
    if !is_node {
        return Ok(());
    }
    if device.is_blas() && !device.claims(t)? {
        // The scheduler heeds what devices claim; that BLAS computes nothing else is worth another look.
        return Err(unsupported(t, &[device], "BLAS has no code for the operation with these operands"));
    }
    if blas::computes(t) && device.runs_blas() {
        blas::accepts(t).map_err(|refusal| refusal.of(t, device.name()))?;
    }
    if device.is_vulkan() {
        vulkan::accepts_on(device, t)?.map_err(|refusal| refusal.of(t, device.name()))?;
    }
    if !device.runs_cpu_kernels() {
        return Ok(());
    }
    cpu::accepts(t).map_err(|refusal| refusal.of(t, device.name()))
}

fn carries(device: Device, t: TensorPtr) -> Result<()> {
    if t.sources().chain([t]).all(|t| device.fits_wire(t)) {
        return Ok(());
    }
    Err(unsupported(t, &[device], "RPC can't carry dimensions or strides of 2^32 and more"))
}

/// Checks that a device can be asked about all tensors of a graph.
pub(crate) fn fits_wire(graph: &Graph<'_>, device: Device) -> Result<()> {
    graph.entries().iter().try_for_each(|e| carries(device, e.ptr))
}

/// Checks that what the user puts on a device can be there: made there by the device, in memory of its own.
pub(crate) fn pinned(device: Device, e: &Entry) -> Result<()> {
    if e.ptr.view_src().is_some() || !e.is_allocated_by_graph() {
        let why = "it can't be pinned, for it lies in memory of its own or another tensor's: it goes where that is";
        return Err(unsupported(e.ptr, &[device], why));
    }
    kernel_accepts(device, e)?;
    if !device.claims(e.ptr)? {
        return Err(unsupported(e.ptr, &[device], "the device that it is pinned to does not support the operation"));
    }
    Ok(())
}

/// The error where ggml put what was pinned to `device` somewhere else.
pub(crate) fn moved(device: Device, e: &Entry) -> Error {
    let why = "it is pinned, but ggml puts it on a backend of higher priority with the same kind of memory";
    unsupported(e.ptr, &[device], why)
}

/// Checks, of an operation that works in place, that the device it was given to can use the memory of what it changes:
/// the scheduler copies what an operation reads, not that. Nor can it copy what was rearranged (H27).
pub(crate) fn reaches(graph: &Graph<'_>, device: Device, e: &Entry) -> Result<()> {
    if graph.srcs(e).any(|(_, t)| t.owner() == Owner::Packed && !can_reach(device, t)) {
        return Err(unsupported(e.ptr, &[device], "weights that another device has rearranged can't be copied"));
    }
    let in_place = e.ptr.view_src().is_some() && !e.ptr.is_view_op();
    if !in_place || can_reach(device, e.ptr) {
        return Ok(());
    }
    Err(unsupported(e.ptr, &[device], "what it changes in place lies on another device"))
}

/// Checks that a sort on `device` sees no NaN, given the device of the clamp that `ops/sort.rs` puts before it. Only CPU
/// kernels can't sort NaN. Their own clamp leaves none; that of another device may.
pub(crate) fn sorts_numbers(device: Device, e: &Entry, clamp: impl FnOnce() -> Option<Device>) -> Result<()> {
    if !cpu::is_sort(e.ptr) || !device.runs_cpu_kernels() {
        return Ok(());
    }
    if clamp().is_some_and(|clamp| clamp == device || clamp.device_type() == DeviceType::Cpu) {
        return Ok(());
    }
    Err(unsupported(e.ptr, &[device], "it can't sort what was made ready for it on another device"))
}

/// Checks that an operation on `device` does not pick by numbers that lie on a server, unless on that server itself: what
/// comes from there is not checked, and nothing but zeros comes from one that was lost.
pub(crate) fn picks_by_own_numbers(
    graph: &Graph<'_>,
    device: Device,
    e: &Entry,
    place: impl FnOnce(TensorPtr) -> Option<Device>,
) -> Result<()> {
    let Some(slot) = indices::slot(e.ptr) else { return Ok(()) };
    // As it was built: the scheduler may have put a copy in its place.
    let Some((_, indices)) = graph.srcs(e).find(|(i, _)| *i == slot) else { return Ok(()) };
    if place(indices.root()).is_some_and(|there| there.is_remote() && there != device) {
        return Err(unsupported(e.ptr, &[device], "it picks by numbers that an RPC server sends, which may be any"));
    }
    Ok(())
}

/// Checks that the device can use memory of this type.
pub(crate) fn memory(device: Device, buft: BufferType) -> Result<()> {
    if device.supports_buffer_type(buft) {
        return Ok(());
    }
    Err(Error::unsupported("graph", [], device.name(), format!("it can't use memory of type {}", buft.name())))
}

/// Whether `device` can use the memory that `t` has already. What has none yet gets it where it is needed.
fn can_reach(device: Device, t: TensorPtr) -> bool {
    buffer::type_of(t).is_none_or(|buft| device.supports_buffer_type(buft))
}

fn unsupported(t: TensorPtr, devices: &[Device], reason: &'static str) -> Error {
    let names: Vec<_> = devices.iter().map(|d| d.name()).collect();
    Refusal(reason).of(t, names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Context;
    use crate::dtype::DType;

    /// No two kinds of devices are at hand everywhere, so this asks the check itself.
    #[test]
    fn a_cpu_sorts_only_what_a_cpu_made_ready() {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        let graph = ctx.graph([ctx.top_k(ctx.neg(x).unwrap(), 2).unwrap()]).unwrap();
        let cpu = Device::cpu().unwrap();
        let refused: Vec<_> = graph.entries().iter().map(|e| sorts_numbers(cpu, e, || None).is_err()).collect();
        let sorts: Vec<_> = graph.entries().iter().map(|e| cpu::is_sort(e.ptr)).collect();
        assert_eq!(refused, sorts, "no clamp in sight");
        assert_eq!(sorts.iter().filter(|&&s| s).count(), 1, "one sort among the entries");
        assert!(graph.entries().iter().all(|e| sorts_numbers(cpu, e, || Some(cpu)).is_ok()), "clamped on a CPU");
    }
}
