//! Calls from C to a closure, on any thread, and the return of its panics to the caller.

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Weak};

use ggml_sys as sys;

use super::CustomOptions;
use super::op::Home;
use super::parts::{Operands, Part, RawOperand, RowsMut, Task};
use crate::callback::{self, Panic};
use crate::context::Kept;
use crate::dtype::Element;
use crate::header::TensorPtr;
use crate::lock::Lock;
use crate::{buffer, ffi};

/// A user's closure, without the types of its elements; any number of operations may use it.
pub(super) type Body = Arc<dyn Fn(&mut Task) + Send + Sync>;

/// Wraps a user's closure on elements of type `T`, so that its type no longer names `T`.
pub(super) fn body<T: Element>(f: impl Fn(RowsMut<'_, T>, Operands<'_>) + Send + Sync + 'static) -> Body {
    Arc::new(move |task: &mut Task| {
        let (out, operands) = task.open::<T>();
        f(out, operands);
    })
}

/// The closure of one operation, which C reaches through a `void *`. The context of the operation owns it.
pub(super) struct Closure {
    body: Body,
    how: CustomOptions,
    /// Whether the operation writes to its first source.
    in_place: bool,
    home: Weak<Home>,
    /// The first panic of the current computation, after which the closure is not called again.
    panic: Lock<Option<Panic>>,
}

impl Closure {
    pub(super) fn new(body: Body, how: CustomOptions, in_place: bool, home: Weak<Home>) -> Self {
        Self { body, how, in_place, home, panic: Lock::new(None) }
    }

    /// Runs one task. C calls this on each of its threads, even if it has more threads than there may be tasks (H93).
    ///
    /// # Safety
    ///
    /// `t` must be an operation made with this closure, in a computation whose other tasks call this with another
    /// `ith`.
    unsafe fn run(&self, t: TensorPtr, ith: c_int, nth: c_int) {
        let to_usize = |n: c_int| usize::try_from(n).unwrap_or(0);
        let tasks = to_usize(nth).min(self.how.n_tasks.unwrap_or(usize::MAX));
        let Some(part) = Part::new(sizes(t), self.how.split, to_usize(ith), tasks) else { return };
        let work = || {
            // SAFETY: `t` is being computed, and no other task has these rows (this function's `# Safety`), so what is
            // written in place has its value. The memory is the host's (`host`). Builders make no overlapping elements
            // (H1), and rows are contiguous: a result that is not in place is a new tensor without gaps, and
            // `Context::closure` has checked one that is.
            let mut task = unsafe { Task::new(t, host(t), sizes(t), part, self.in_place) };
            // Even if the closure isn't called, the task initialises its rows: later operations read them.
            if self.panic.lock().is_none() {
                (self.body)(&mut task);
            }
        };
        // The panic is caught here, because it must not unwind through C.
        let Err(panic) = callback::run(work) else { return };
        let mut slot = self.panic.lock();
        if slot.is_none() {
            *slot = Some(panic);
        } else {
            callback::forget(panic);
        }
    }
}

impl Kept for Closure {
    fn give_back(self: Arc<Self>) {
        let Some(home) = self.home.upgrade() else { return };
        // The payload of a kept panic is leaked: its destructor is user code, which may panic.
        let panic = self.panic.lock().take();
        if let Some(panic) = panic {
            callback::forget(panic);
        }
        home.give_back(self);
    }
}

impl Task {
    /// Returns the rows that this task fills, and the operands.
    fn open<T: Element>(&mut self) -> (RowsMut<'_, T>, Operands<'_>) {
        let t = self.t;
        // `Context::closure` and the builders guarantee type, first stride and alignment of the result.
        let fits = t.dtype() == T::DTYPE && t.nb()[0] == size_of::<T>() && self.base.cast::<T>().is_aligned();
        assert!(fits, "the result of a custom operation has another type or layout than its closure");
        let operands = Operands::new(t.sources().skip(usize::from(self.in_place)).map(|s| {
            let len = s.span().unwrap_or(0);
            // SAFETY: a source of an operation that is being computed is allocated, `len` bytes from its first element
            // on, in host memory (`host`), and has its value. Nothing writes to it: operations run one after the other,
            // and the in-place target shares no memory with other sources (`Context::closure`).
            let bytes = unsafe { ffi::slice(host(s).cast_const(), len) };
            RawOperand::new(s.dtype(), sizes(s), s.nb(), bytes)
        }));
        // SAFETY: type, first stride and alignment of the result are those of `T` (asserted above).
        let out = unsafe { RowsMut::new(self) };
        (out, operands)
    }
}

/// The address of the tensor's first element, in host memory.
fn host(t: TensorPtr) -> *mut u8 {
    // The scheduler assigns custom operations to a CPU. This function checks the memory nevertheless.
    let reachable = t.has_data() && buffer::type_of(t).is_some_and(buffer::BufferType::is_host);
    assert!(reachable, "a custom operation on memory that the host can't access");
    t.data().cast()
}

fn sizes(t: TensorPtr) -> [usize; 4] {
    t.ne().map(|n| usize::try_from(n).unwrap_or(0))
}

/// A custom operation's parameters, as C lays them out for all four variants (`ggml_custom_op_params`).
#[repr(C)]
struct CallParams {
    function: *const c_void,
    n_tasks: c_int,
    closure: *const Closure,
}

/// Takes the panic of the last computation out of the closure of `t`, if there is one.
pub(crate) fn take_panic(t: TensorPtr) -> Option<Panic> {
    const { assert!(size_of::<CallParams>() <= sys::GGML_MAX_OP_PARAMS as usize, "op_params has room for them") };
    if !t.is_custom() {
        return None;
    }
    // SAFETY: `t` is a custom operation (`is_custom`), for which C wrote `CallParams` there. They fit (asserted above),
    // and may be unaligned.
    let params = unsafe { ptr::read_unaligned(t.params_ptr().cast::<CallParams>()) };
    // SAFETY: only `Context::closure` makes custom operations, with a closure that lives as long as the context, which
    // a handle to `t` borrows.
    let closure = unsafe { params.closure.as_ref() }?;
    closure.panic.lock().take()
}

/// # Safety
///
/// C must be computing `dst`, which was made with the [`Closure`] `user`, as task `ith` of `nth`.
unsafe fn run(dst: *mut sys::ggml_tensor, ith: c_int, nth: c_int, user: *mut c_void) {
    // SAFETY: `user` is the live `Closure` of `dst` (this function's `# Safety`), which is `Sync` and only shared.
    let closure = unsafe { &*user.cast::<Closure>() };
    let Some(dst) = NonNull::new(dst) else { return };
    // SAFETY: C keeps `dst` live during its computation, and nothing writes to its header then.
    let dst = unsafe { TensorPtr::new(dst) };
    // SAFETY: `dst` was made with this closure, and other tasks have another `ith` (this function's `# Safety`).
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
                // SAFETY: C calls this with the arguments that `run` requires (this function's `# Safety`).
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
