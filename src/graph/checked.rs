//! Debug builds compare each graph with the one that ggml builds, so that all tests do.

use ggml_sys as sys;

use crate::context::raw::Pool;
use crate::entries::Store;
use crate::error::Result;
use crate::guard::guarded;

/// Fails unless ggml builds an equal graph from the same tensors.
pub(super) fn as_by_ggml(store: &Store) -> Result<()> {
    let size = store.entries.len();
    // SAFETY: the C function is pure; `grads` is off.
    let pool = Pool::new(unsafe { sys::ggml_graph_overhead_custom(size, false) })?;
    // SAFETY: the pool is live, and was sized for a graph of `size` tensors.
    let theirs = unsafe { guarded!(new, sys::ggml_new_graph_custom(pool.as_ptr(), size, false)) }?;
    // SAFETY: the graph is this crate's own, live, and not written to during this call.
    let ours = unsafe { &*store.as_ptr().cast::<sys::ggml_sys_cgraph>() };
    for e in store.entries.iter() {
        // SAFETY: the graph has room for all entries; each source was added before, so C does not recurse. ggml's graph
        // keeps pointers to the tensors, but ends with this function. Names and flags are already as C would write
        // them.
        unsafe { guarded!(call, sys::ggml_build_forward_expand(theirs.as_ptr(), e.ptr.as_ptr())) }?;
    }
    // SAFETY: ggml's graph is live, and has this layout (ggml-sys's shim asserts it).
    let theirs = unsafe { &*theirs.as_ptr().cast::<sys::ggml_sys_cgraph>() };
    // SAFETY: both are live graphs.
    assert!(unsafe { same(ours, theirs) }, "ggml builds another graph");
    Ok(())
}

/// # Safety
///
/// Both graphs must be live, with lists as long as their counts say.
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "all are reads inside the lists of live graphs, by contract")]
unsafe fn same(a: &sys::ggml_sys_cgraph, b: &sys::ggml_sys_cgraph) -> bool {
    let numbers = |g: &sys::ggml_sys_cgraph| (g.n_nodes, g.n_leafs, g.order, g.uid, g.grads, g.grad_accs);
    let list = |list: *mut *mut sys::ggml_tensor, n: i32| {
        (0..usize::try_from(n).unwrap_or(0)).map(move |i| {
            // SAFETY: `i` is in bounds of the list, by the `# Safety` of `same`.
            unsafe { *list.add(i) }
        })
    };
    let nodes = |g: &sys::ggml_sys_cgraph| list(g.nodes, g.n_nodes);
    let leafs = |g: &sys::ggml_sys_cgraph| list(g.leafs, g.n_leafs);
    // Looks up how often a tensor is used, as C does.
    let uses = |g: &sys::ggml_sys_cgraph, t: *mut sys::ggml_tensor| {
        let mut i = (t.addr() >> 4) % g.hash_size;
        // SAFETY: `i` is below `hash_size`, the tables' length, by the `# Safety` of `same`.
        unsafe {
            while *g.hash_used.add(i / 32) >> (i % 32) & 1 == 1 {
                if *g.hash_keys.add(i) == t {
                    return Some(*g.use_counts.add(i));
                }
                i = (i + 1) % g.hash_size;
            }
        }
        None
    };
    numbers(a) == numbers(b)
        && nodes(a).eq(nodes(b))
        && leafs(a).eq(leafs(b))
        && nodes(a).chain(leafs(a)).all(|t| uses(a, t).is_some() && uses(a, t) == uses(b, t))
}
