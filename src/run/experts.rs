//! Copies only those experts of a weight in host memory that are used, where a device computes a product of experts.
//!
//! The scheduler copies such a weight to the device for each computation. Before 0.28, ggml left out unused experts by
//! itself; since then, whoever calls it has to.

use std::ffi::c_void;
use std::ptr::{self, NonNull};

use ggml_sys as sys;

use crate::device::{Device, meta};
use crate::entries::{Entries, Entry, Kind};
use crate::header::TensorPtr;
use crate::list;
use crate::rules::indices;
use crate::sched::{Engine, RawSched};

/// What the callback needs to know of a computation.
struct Job<'a> {
    entries: &'a Entries,
    sched: *mut sys::ggml_backend_sched,
}

/// Lets `f` compute, while weights are copied in this way.
pub(super) fn copying_used<'s, R>(
    engine: &mut Engine<'s>,
    entries: &Entries,
    f: impl FnOnce(&mut Engine<'s>) -> R,
) -> R {
    let job = raw(engine).map(|raw| Job { entries, sched: raw.as_ptr() });
    if let (Some(raw), Some(job)) = (raw(engine), &job) {
        raw.set_copy_callback(Some(copy_used), ptr::from_ref(job).cast_mut().cast());
    }
    let result = f(engine);
    // Unless a failure has leaked the scheduler, which then computes no more.
    if let Some(raw) = raw(engine) {
        raw.set_copy_callback(None, ptr::null_mut());
    }
    result
}

fn raw<'a>(engine: &'a mut Engine<'_>) -> Option<&'a mut RawSched> {
    match engine {
        Engine::One(..) => None,
        Engine::Many(splitter) => splitter.raw().ok(),
    }
}

/// Copies the used experts of `weight` to `copy`. Returns `false` if it can't: then C copies all of it.
///
/// # Safety
///
/// C calls this from within a computation: `weight` lies in host memory and is an input of a split on `backend`, `copy` is
/// its copy there, all other inputs of the split that are not weights were copied, and `job` is the [`Job`] of the
/// computation.
unsafe extern "C-unwind" fn copy_used(
    backend: *mut sys::ggml_backend,
    weight: *const sys::ggml_tensor,
    copy: *mut sys::ggml_tensor,
    _split: *mut sys::ggml_cgraph,
    job: *mut c_void,
) -> bool {
    // SAFETY: by contract; `copying_used` keeps it alive during the computation, and nothing borrows it mutably.
    let job = unsafe { &*job.cast_const().cast::<Job<'_>>() };
    // SAFETY: live by contract; C reads a field.
    let device = unsafe { sys::ggml_backend_get_device(backend) };
    // SAFETY: NULL, or a device, which is never freed.
    let device = unsafe { Device::from_raw(device) };
    let Some(weight) = NonNull::new(weight.cast_mut()).filter(|_| device.is_some_and(|d| !meta::is_meta(d))) else {
        return false;
    };
    // SAFETY: by contract, live during the call.
    let weight = unsafe { TensorPtr::new(weight) };
    let Some(used) = job.used(weight) else { return false };
    let ([_, _, size, _], n) = (weight.nb(), used.len());
    let mut next = 0;
    while let Some(first) = used.iter().skip(next).position(|&is| is).map(|i| next + i) {
        let end = used.iter().skip(first).position(|&is| !is).map_or(n, |i| first + i);
        // Some devices compute with what follows the last expert too, and ignore the result unless it is NaN.
        let after = if end < n { size.min(512) } else { 0 };
        let (offset, bytes) = (first * size, (end - first) * size + after);
        let data = weight.data().wrapping_byte_add(offset);
        // SAFETY: the bytes lie inside both tensors, which have the same contiguous layout (`used`). The weight is live and
        // unchanged until the caller of the computation has waited for the devices.
        unsafe { sys::ggml_backend_tensor_set_async(backend, copy, data, offset, bytes) };
        #[cfg(all(test, feature = "vulkan"))]
        tests::COPIED.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        next = end;
    }
    true
}

impl Job<'_> {
    /// For each expert of a weight, whether the only operation that uses the weight uses it. `None` if that can't be known,
    /// or if none is used.
    fn used(&self, weight: TensorPtr) -> Option<Vec<bool>> {
        let (user, ids) = self.only_product(weight)?;
        // Values of weights may be copied only after this.
        let built = self.entries.src_entries(user).find(|(slot, _)| *slot == ids)?.1;
        if matches!(built.root_kind, Kind::Placed(_)) || !weight.is_contiguous() {
            return None;
        }
        let ids = user.ptr.source(ids).filter(|ids| ids.has_data())?; // as the device reads them: a copy, maybe
        let mut bytes = list::filled(0_u8, ids.span()?, "indices of experts").ok()?;
        // SAFETY: the scheduler computes, so it is live; all work that was submitted may be waited for.
        unsafe { sys::ggml_backend_sched_synchronize(self.sched) };
        // SAFETY: the tensor has memory, and its bytes are as many as the list has.
        unsafe { sys::ggml_backend_tensor_get(ids.as_ptr(), bytes.as_mut_ptr().cast(), 0, bytes.len()) };
        let [_, _, experts, _] = weight.ne();
        let mut used = list::filled(false, usize::try_from(experts).ok()?, "used experts").ok()?;
        let ([n, tokens, ..], [stride, row, ..]) = (ids.ne(), ids.nb());
        for (token, i) in (0..usize::try_from(tokens).ok()?).flat_map(|token| (0..n).map(move |i| (token, i))) {
            let at = token * row + usize::try_from(i).ok()? * stride;
            let id = i32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
            *used.get_mut(usize::try_from(id).ok()?)? = true;
        }
        used.contains(&true).then_some(used)
    }

    /// The product of experts that alone uses a weight, and its slot of indices. Others would find the copy incomplete.
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

#[cfg(all(test, feature = "vulkan"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::{Backend, Context, DType, Device, Sched, SchedBuilder, Tensor, WeightsBuilder};

    pub(super) static COPIED: AtomicUsize = AtomicUsize::new(0);

    const WIDTH: u16 = 64;
    const EXPERTS: u16 = 16;
    const TOKENS: u16 = 40;

    /// The indices of a tensor's elements.
    fn elements(ne: &[u16]) -> std::ops::Range<u32> {
        0..ne.iter().map(|&n| u32::from(n)).product()
    }

    /// A GPU computes with experts in host memory: only those that are used are copied, if one operation uses the weight.
    #[test]
    fn mul_mat_id_copies_only_used_experts() {
        let cpu = Device::cpu().unwrap();
        let gpu = Device::all().unwrap().into_iter().find(|d| d.is_vulkan()).unwrap();
        let shape = [WIDTH, WIDTH, EXPERTS].map(i64::from);
        let small = |i: u32| f32::from(u8::try_from(i * 37 % 101).unwrap()) / 101.0;
        let values: Vec<_> = elements(&[WIDTH, WIDTH, EXPERTS]).map(|i| small(i) - 0.5).collect();
        let mut builder = WeightsBuilder::new();
        builder.tensor("experts", DType::F32, shape).unwrap();
        let mut weights = builder.place(cpu.buffer_type()).unwrap();
        weights.set("experts", &values).unwrap();
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [WIDTH.into(), 1, TOKENS.into()]).unwrap();
        let ids = ctx.input("ids", DType::I32, [1, TOKENS.into()]).unwrap();
        let experts = weights.tensor("experts").unwrap();
        let once = ctx.mul_mat_id(experts, x, ids).unwrap();
        let twice = ctx.add(once, ctx.mul_mat_id(experts, x, ids).unwrap()).unwrap();
        let compute = |backends: Vec<Backend>, y: Tensor<'_>, used: &[i32]| {
            let graph = ctx.graph([y]).unwrap();
            let mut sched = backends.into_iter().fold(Sched::builder(), SchedBuilder::backend).build().unwrap();
            let mut run = sched.alloc(&graph).unwrap();
            run.set(x, &elements(&[WIDTH, TOKENS]).map(small).collect::<Vec<_>>()).unwrap();
            run.set(ids, &used.iter().copied().cycle().take(TOKENS.into()).collect::<Vec<_>>()).unwrap();
            run.compute().unwrap();
            run.get::<f32>(y).unwrap()
        };
        let both = || vec![gpu.init().unwrap(), Backend::cpu().unwrap()];
        for used in [&[3, 4, 9][..], &[15], &[0, 2, 4]] {
            let expected = compute(vec![Backend::cpu().unwrap()], once, used);
            COPIED.store(0, Ordering::Relaxed);
            let got = compute(both(), once, used);
            let far = expected.iter().zip(&got).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(far < 2e-2, "{far}");
            let (copied, expert) = (COPIED.load(Ordering::Relaxed), usize::from(WIDTH * WIDTH) * 4);
            assert!((expert * used.len()..expert * used.len() + 512 * used.len() + 1).contains(&copied), "{copied}");
        }
        COPIED.store(0, Ordering::Relaxed);
        let expected = compute(vec![Backend::cpu().unwrap()], twice, &[3, 4, 9]);
        let got = compute(both(), twice, &[3, 4, 9]);
        assert!(expected.iter().zip(&got).all(|(a, b)| (a - b).abs() < 4e-2));
        assert_eq!(COPIED.load(Ordering::Relaxed), 0, "all experts are copied for two users");
    }
}
