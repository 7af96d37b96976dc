//! The way from C to a closure, on any thread, and of its panics back to the caller.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

use ggml_sys as sys;

use super::parts::{Operand, Operands, RowsMut};
use crate::callback::{self, Panic};
use crate::dtype::Element;
use crate::header::TensorPtr;
use crate::lock::{Held, Lock};
use crate::{buffer, ffi};

/// A user's closure, reached through C's `void *`. The context that holds its operations owns it.
pub(super) struct Closure {
    body: Box<dyn Fn(Task<'_>) + Send + Sync>,
    most_tasks: usize,
    /// Whether the operation writes to its first source.
    in_place: bool,
    /// The first panic of the current computation. After it, the closure is not called again.
    panic: Lock<Option<Panic>>,
}

impl Closure {
    pub(super) fn new<T: Element>(
        f: impl Fn(RowsMut<'_, T>, Operands<'_>) + Send + Sync + 'static,
        most_tasks: usize,
        in_place: bool,
    ) -> Self {
        let body = Box::new(move |task: Task<'_>| {
            let (out, operands) = task.open::<T>();
            f(out, operands);
        });
        Self { body, most_tasks, in_place, panic: Lock::new(None) }
    }

    /// Does one task's part. C calls this on each of its threads, as many as there are, whatever was asked for.
    ///
    /// # Safety
    ///
    /// `t` must be an operation made with this closure, in a computation whose other tasks call this with another `ith`.
    unsafe fn run(&self, t: TensorPtr, ith: c_int, nth: c_int) {
        let to_usize = |n: c_int| usize::try_from(n).unwrap_or(0);
        let (part, parts) = (to_usize(ith), to_usize(nth).min(self.most_tasks));
        let [_, n1, n2, n3] = sizes(t);
        let rows = n1 * n2 * n3;
        if part >= parts || rows * part / parts == rows * (part + 1) / parts || self.slot().is_some() {
            return;
        }
        let rows = rows * part / parts..rows * (part + 1) / parts;
        let task = Task { t, rows, in_place: self.in_place, life: PhantomData };
        // No panic may unwind through C.
        let Err(panic) = callback::run(|| (self.body)(task)) else { return };
        let mut slot = self.slot();
        if slot.is_none() {
            *slot = Some(panic);
        } else {
            callback::forget(panic);
        }
    }

    fn slot(&self) -> Held<'_, Option<Panic>> {
        self.panic.lock()
    }
}

/// One part of a custom operation's work, while it is computed.
///
/// # Invariants
///
/// `t` is being computed, its sources are, and nothing but this task uses its rows `rows` for 'a.
pub(super) struct Task<'a> {
    t: TensorPtr,
    rows: std::ops::Range<usize>,
    in_place: bool,
    life: PhantomData<&'a ()>,
}

impl<'a> Task<'a> {
    /// The rows to fill, and the operands.
    fn open<T: Element>(self) -> (RowsMut<'a, T>, Operands<'a>) {
        let (t, ne, nb) = (self.t, sizes(self.t), self.t.nb());
        let [n0, ..] = ne;
        let base = host(t);
        // Builders see to both.
        let fits = t.dtype() == T::DTYPE && nb.first() == Some(&size_of::<T>()) && base.cast::<T>().is_aligned();
        assert!(fits, "a custom operation whose result is not of its type");
        if !self.in_place {
            // What lies there is what was computed in that memory before, or nothing at all.
            let row = n0 * size_of::<T>();
            let first = base.wrapping_add(self.rows.start * row);
            // SAFETY: a result that is not in place is new, without gaps, so that these are our rows (the type's
            // invariant), in memory of the host (`host`).
            unsafe { ptr::write_bytes(first, 0, self.rows.len() * row) };
        }
        let operands = Operands::new(t.sources().skip(usize::from(self.in_place)).map(|s| {
            let len = s.span().unwrap_or(0);
            // SAFETY: a source of an operation that is being computed: it has its value in memory of the host, `len` bytes
            // from its first element on. Nothing writes to it: operations run one after the other, and what this one
            // writes to in place shares no memory with its other sources (`Context::closure`).
            let bytes = unsafe { ffi::slice(host(s).cast_const(), len) };
            Operand { dtype: s.dtype(), ne: sizes(s), nb: s.nb(), bytes }
        }));
        // SAFETY: checked above, and by the type's invariant; in place, `Context::closure` has checked that rows are
        // contiguous, and no builder makes elements that overlap.
        let out = unsafe { RowsMut::new(base, ne, nb, self.rows) };
        (out, operands)
    }
}

/// The first element, which is in memory of the host.
fn host(t: TensorPtr) -> *mut u8 {
    // The scheduler gives these operations to a CPU; this holds whatever it does.
    let reachable = t.has_data() && buffer::type_of(t).is_some_and(buffer::BufferType::is_host);
    assert!(reachable, "a custom operation on memory that is not the host's");
    t.data().cast()
}

fn sizes(t: TensorPtr) -> [usize; 4] {
    t.ne().map(|n| usize::try_from(n).unwrap_or(0))
}

/// What C keeps of a custom operation, of any of the four kinds (`ggml_custom_op_params`).
#[repr(C)]
struct Params {
    function: *const c_void,
    n_tasks: c_int,
    closure: *const Closure,
}

/// The panic of the closure behind `t` in the last computation, if it is a closure and there was one.
pub(crate) fn take_panic(t: TensorPtr) -> Option<Panic> {
    const { assert!(size_of::<Params>() <= sys::GGML_MAX_OP_PARAMS as usize, "C has room for them") };
    if !t.is_custom() {
        return None;
    }
    // SAFETY: the parameters of such an operation, as C wrote them, wherever they lie.
    let params = unsafe { ptr::read_unaligned(t.params_ptr().cast::<Params>()) };
    // SAFETY: only `Context::closure` makes such operations, with a closure that lives as long as the context, which a
    // handle to `t` borrows.
    let closure = unsafe { params.closure.as_ref() }?;
    closure.slot().take()
}

/// # Safety
///
/// C must be computing `dst`, which was made with the [`Closure`] `user`, as task `ith` of `nth`.
unsafe fn run(dst: *mut sys::ggml_tensor, ith: c_int, nth: c_int, user: *mut c_void) {
    // SAFETY: live by contract; it is shared between threads.
    let closure = unsafe { &*user.cast::<Closure>() };
    let Some(dst) = NonNull::new(dst) else { return };
    // SAFETY: live during its computation, and written to by nobody.
    let dst = unsafe { TensorPtr::new(dst) };
    // SAFETY: by contract.
    unsafe { closure.run(dst, ith, nth) };
}

macro_rules! functions {
    ($($name:ident($($source:ident),*);)*) => {
        $(
            /// # Safety
            ///
            /// As [`run`].
            pub(super) unsafe extern "C-unwind" fn $name(
                dst: *mut sys::ggml_tensor,
                $($source: *const sys::ggml_tensor,)*
                ith: c_int,
                nth: c_int,
                user: *mut c_void,
            ) {
                // SAFETY: by contract.
                unsafe { run(dst, ith, nth, user) }
            }
        )*
    };
}

functions! {
    custom();
    map_custom1(_a);
    map_custom2(_a, _b);
    map_custom3(_a, _b, _c);
}
