//! Copies only the used experts of a weight from host memory to the device that computes a product of experts.
//!
//! The scheduler copies such a weight to the device for each computation. Before 0.28, ggml left out unused experts by
//! itself; since then, its caller has to.

use std::cell::{Ref, RefCell};
use std::ffi::c_void;
use std::ptr::{self, NonNull};

use ggml_sys as sys;

use crate::device::{Device, meta};
use crate::entries::{Entries, Entry, Kind};
use crate::header::TensorPtr;
use crate::rules::indices;
use crate::sched::{EngineMut, RawSched};
use crate::{ffi, list, log};

/// What the callback that copies weights needs to know of a computation.
struct Job<'a> {
    entries: &'a Entries,
    sched: *mut sys::ggml_backend_sched,
    /// The indices that were read last, and for each expert whether they name it. The products of one layer share
    /// indices.
    last: RefCell<Option<(TensorPtr, Vec<bool>)>>,
}

/// Lets `f` compute. Meanwhile, copies only the used experts of weights.
pub(super) fn copying_used<'s, R>(
    engine: &mut EngineMut<'s>,
    entries: &Entries,
    f: impl FnOnce(&mut EngineMut<'s>) -> R,
) -> R {
    let job = raw(engine).map(|raw| Job { entries, sched: raw.as_ptr(), last: RefCell::default() });
    if let (Some(raw), Some(job)) = (raw(engine), &job) {
        raw.set_copy_callback(Some(copy_used), ptr::from_ref(job).cast_mut().cast());
    }
    let result = f(engine);
    // If a failure has leaked the scheduler, it computes no more, and its callback may stay.
    if let Some(raw) = raw(engine) {
        raw.set_copy_callback(None, ptr::null_mut());
    }
    result
}

fn raw<'a>(engine: &'a mut EngineMut<'_>) -> Option<&'a mut RawSched> {
    match engine {
        EngineMut::One(..) => None,
        EngineMut::Many(splitter) => splitter.raw().ok(),
    }
}

/// Copies the used experts of `weight` to `copy`. Returns `false` if that is impossible: then C copies all experts.
///
/// # Safety
///
/// C calls this from within a computation: `weight` lies in host memory and is an input of a split on `backend`, `copy`
/// is its copy there, all other inputs of the split that are not weights were copied, `split` is a live graph of its
/// nodes, which nothing changes meanwhile, and `job` is the [`Job`] of the computation.
unsafe extern "C-unwind" fn copy_used(
    backend: *mut sys::ggml_backend,
    weight: *const sys::ggml_tensor,
    copy: *mut sys::ggml_tensor,
    split: *mut sys::ggml_cgraph,
    job: *mut c_void,
) -> bool {
    // SAFETY: `job` is the live `Job`, by this function's `# Safety`. `copying_used` keeps it alive during the
    // computation, and nothing borrows it mutably.
    let job = unsafe { &*job.cast_const().cast::<Job<'_>>() };
    // SAFETY: the backend is live, by this function's `# Safety`; C reads a field.
    let device = unsafe { sys::ggml_backend_get_device(backend) };
    // SAFETY: `device` is NULL, or a device, which is never freed.
    let device = unsafe { Device::from_raw(device) };
    let Some(weight) = NonNull::new(weight.cast_mut()).filter(|_| device.is_some_and(|d| !meta::is_meta(d))) else {
        return false;
    };
    // SAFETY: the weight is live during the call, by this function's `# Safety`.
    let weight = unsafe { TensorPtr::new(weight) };
    // SAFETY: the split is live during the call, by this function's `# Safety`.
    let n = unsafe { sys::ggml_graph_n_nodes(split) };
    // SAFETY: the split is live during the call, by this function's `# Safety`.
    let nodes = unsafe { sys::ggml_graph_nodes(split) }.cast_const();
    // SAFETY: the split's list has `n` nodes.
    let nodes = unsafe { ffi::slice(nodes, usize::try_from(n).unwrap_or(0)) };
    let Some(used) = job.used(weight, nodes) else { return false };
    let ([_, _, size, _], n) = (weight.nb(), used.len());
    let mut next = 0;
    while let Some(first) = used.iter().skip(next).position(|&is| is).map(|i| next + i) {
        let end = used.iter().skip(first).position(|&is| !is).map_or(n, |i| first + i);
        // Some devices also compute with the bytes after the last copied expert, and ignore the result unless it is
        // NaN. So some of these bytes are copied, too.
        let after = if end < n { size.min(512) } else { 0 };
        let (offset, bytes) = (first * size, (end - first) * size + after);
        let data = weight.data().wrapping_byte_add(offset);
        // SAFETY: the bytes lie inside both tensors, which have the same contiguous layout (`used`). The weight is live and
        // unchanged until the caller of the computation has waited for the devices.
        unsafe { sys::ggml_backend_tensor_set_async(backend, copy, data, offset, bytes) };
        next = end;
    }
    if ::log::max_level() >= ::log::Level::Debug {
        let count = used.iter().filter(|&&is| is).count();
        log::say(::log::Level::Debug, format!("copied {count} of {n} experts of {}", weight.name()));
    }
    true
}

impl Job<'_> {
    /// For each expert of a weight, whether the only operation that uses the weight names that expert. `None` if that
    /// can't be known before the split's nodes are computed, or if no expert is named.
    fn used(&self, weight: TensorPtr, split: &[*mut sys::ggml_tensor]) -> Option<Ref<'_, [bool]>> {
        let (user, ids) = self.only_product(weight)?;
        // If the indices lie in weights, C may copy them to the device only after the weight, so they can't be read
        // here.
        let built = self.entries.src_entries(user).find(|(slot, _)| *slot == ids)?.1;
        if matches!(built.root_kind, Kind::Placed(_)) || !weight.is_contiguous() {
            return None;
        }
        let ids = user.ptr.source(ids).filter(|ids| ids.has_data())?; // as the device reads them: a copy, maybe
        if split.contains(&ids.root().as_ptr()) {
            return None;
        }
        let [_, _, experts, _] = weight.ne();
        let experts = usize::try_from(experts).ok()?;
        let is_last = matches!(&*self.last.borrow(), Some((last, used)) if *last == ids && used.len() == experts);
        if !is_last {
            let used = self.read(ids, experts)?;
            self.last.replace(Some((ids, used)));
        }
        Ref::filter_map(self.last.borrow(), |last| last.as_ref().map(|(_, used)| used.as_slice())).ok()
    }

    /// For each expert, whether the indices `ids` name it. `None` if an index is out of range, or if there are no
    /// indices.
    fn read(&self, ids: TensorPtr, experts: usize) -> Option<Vec<bool>> {
        let mut bytes = list::filled(0_u8, ids.span()?, "indices of experts").ok()?;
        // SAFETY: the scheduler computes, so it is live; all work that was submitted may be waited for.
        unsafe { sys::ggml_backend_sched_synchronize(self.sched) };
        // SAFETY: the tensor `ids` has memory, and `bytes` has as many bytes as the tensor.
        unsafe { sys::ggml_backend_tensor_get(ids.as_ptr(), bytes.as_mut_ptr().cast(), 0, bytes.len()) };
        let mut used = list::filled(false, experts, "used experts").ok()?;
        let ([n, tokens, ..], [stride, row, ..]) = (ids.ne(), ids.nb());
        for (token, i) in (0..usize::try_from(tokens).ok()?).flat_map(|token| (0..n).map(move |i| (token, i))) {
            let at = token * row + usize::try_from(i).ok()? * stride;
            let id = i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
            *used.get_mut(usize::try_from(id).ok()?)? = true;
        }
        used.contains(&true).then_some(used)
    }

    /// The product of experts that uses a weight, if nothing else does, and the product's slot of indices. Any other
    /// user would read an incomplete copy.
    fn only_product(&self, weight: TensorPtr) -> Option<(&Entry, usize)> {
        let index = self.entries.position(weight)?;
        let mut users = self.entries.iter().filter(|e| self.entries.src_indices(e).any(|i| i == index));
        let user = users.next().filter(|_| users.next().is_none())?;
        let (first, _) = self.entries.srcs(user).next()?;
        let is_first = self.entries.src_indices(user).next() == Some(index) && first == 0;
        let ids = indices::of_experts(user.ptr).filter(|_| is_first)?;
        Some((user, ids))
    }
}
