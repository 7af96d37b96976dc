//! The raw side: what a careful C program does, written on `ggml-sys`.

#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "this side is what unsafe code looks like: each call in turn, unchecked"
)]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "this side is what unsafe code looks like: each call in turn, unchecked"
)]

use std::ffi::CString;
use std::ptr;
use std::time::Duration;

use ggml::sys;

use crate::measure::time;
use crate::net::{CONTEXT, EPS, F32, HEAD, HEADS, Inputs, Net, PER_LAYER, Size, WIDTH, WORDS, place};

type Raw = *mut sys::ggml_tensor;

/// Weights and KV caches on the CPU. Lives until the process ends.
pub(crate) struct Model {
    backend: sys::ggml_backend_t,
    weights: Vec<Raw>,
    caches: Vec<Raw>,
}

impl Model {
    pub(crate) fn new(net: &Net) -> Self {
        unsafe {
            let backend = sys::ggml_backend_cpu_init();
            let mut params = sys::ggml_threadpool_params_default(1);
            let pool = sys::ggml_threadpool_new(&raw mut params);
            sys::ggml_backend_cpu_set_threadpool(backend, pool);
            sys::ggml_backend_cpu_set_n_threads(backend, 1);
            let leaves = |leaves: &[crate::net::Leaf], weights: bool| {
                let ctx = sys::ggml_init(sys::ggml_init_params {
                    mem_size: (leaves.len() + 1) * sys::ggml_tensor_overhead(),
                    mem_buffer: ptr::null_mut(),
                    no_alloc: true,
                });
                let tensors: Vec<Raw> = leaves
                    .iter()
                    .map(|leaf| {
                        let t = sys::ggml_new_tensor_2d(ctx, sys::GGML_TYPE_F32, leaf.ne[0], leaf.ne[1]);
                        sys::ggml_set_name(t, CString::new(&*leaf.name).unwrap().as_ptr());
                        t
                    })
                    .collect();
                let buffer = sys::ggml_backend_alloc_ctx_tensors(ctx, backend);
                if weights {
                    sys::ggml_backend_buffer_set_usage(buffer, sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
                }
                for (&t, leaf) in tensors.iter().zip(leaves) {
                    sys::ggml_backend_tensor_set(t, leaf.data.as_ptr().cast(), 0, leaf.data.len() * F32);
                }
                tensors
            };
            Self { backend, weights: leaves(&net.weights, true), caches: leaves(&net.caches, false) }
        }
    }
}

/// The tensors of a step that are used again after building.
#[derive(Clone, Copy)]
struct Step {
    tokens: Raw,
    positions: Raw,
    mask: Raw,
    result: Raw,
}

pub(crate) struct Program<'m> {
    model: &'m Model,
    layers: usize,
    ctx: *mut sys::ggml_context,
    /// The maximum number of nodes, and of leaves, of a graph.
    size: usize,
    /// The number of tensors that the scheduler has room for.
    capacity: usize,
    sched: sys::ggml_backend_sched_t,
    inputs: Inputs,
    _memory: Vec<u128>,
}

impl<'m> Program<'m> {
    pub(crate) fn new(model: &'m Model, net: &Net) -> Self {
        // 34 nodes per layer and 8 others; at most as many leaves.
        let size = 34 * net.layers + 8;
        let entries = size + net.weights.len() + net.caches.len() + 3;
        unsafe {
            let bytes = sys::ggml_tensor_overhead() * (size + 3) + sys::ggml_graph_overhead_custom(size, false);
            let mut memory = vec![0_u128; bytes.div_ceil(16)];
            let ctx = sys::ggml_init(sys::ggml_init_params {
                mem_size: memory.len() * 16,
                mem_buffer: memory.as_mut_ptr().cast(),
                no_alloc: true,
            });
            // The size that the safe layer chooses, too.
            let capacity = (entries + entries / 4 + 64).next_multiple_of(1024);
            let sched = ptr::null_mut();
            let mut this =
                Self { model, layers: net.layers, ctx, size, capacity, sched, inputs: Inputs::new(1), _memory: memory };
            this.renew();
            this
        }
    }

    /// Begins with a new scheduler.
    pub(crate) fn renew(&mut self) {
        let mut backends = [self.model.backend];
        unsafe {
            sys::ggml_backend_sched_free(self.sched);
            self.sched =
                sys::ggml_backend_sched_new(backends.as_mut_ptr(), ptr::null_mut(), 1, self.capacity, false, true);
        }
    }

    /// Builds step `i`, and adds it to `graph` unless that is NULL.
    unsafe fn write(&self, i: usize, size: Size, graph: *mut sys::ggml_cgraph) -> Step {
        unsafe {
            let (c, n, past) = (self.ctx, size.tokens as i64, size.past);
            let input = |name: &std::ffi::CStr, dtype, ne0, ne1| {
                let t = sys::ggml_new_tensor_2d(c, dtype, ne0, ne1);
                sys::ggml_set_name(t, name.as_ptr());
                sys::ggml_set_input(t);
                t
            };
            let tokens = input(c"tokens", sys::GGML_TYPE_F32, WIDTH, n);
            let positions = input(c"positions", sys::GGML_TYPE_I32, n, 1);
            let mask = input(c"mask", sys::GGML_TYPE_F32, past, n);
            let rope = |t| {
                let mode = sys::GGML_ROPE_TYPE_NORMAL.cast_signed();
                let (null, dims) = (ptr::null_mut(), HEAD as i32);
                sys::ggml_rope_ext(c, t, positions, null, dims, mode, 0, 10_000.0, 1.0, 0.0, 1.0, 32.0, 1.0)
            };
            let (row, head, column) = (WIDTH as usize * F32, HEAD as usize * F32, CONTEXT as usize * F32);
            let mut x = tokens;
            for l in 0..self.layers {
                let w = &self.model.weights[l * PER_LAYER..][..PER_LAYER];
                let (k_cache, v_cache) = (self.model.caches[2 * l], self.model.caches[2 * l + 1]);
                let h = sys::ggml_mul(c, sys::ggml_rms_norm(c, x, EPS), w[0]);
                let q = rope(sys::ggml_reshape_3d(c, sys::ggml_mul_mat(c, w[1], h), HEAD, HEADS, n));
                let k = rope(sys::ggml_reshape_3d(c, sys::ggml_mul_mat(c, w[2], h), HEAD, HEADS, n));
                let v = sys::ggml_mul_mat(c, w[3], h);
                let to = sys::ggml_view_3d(c, k_cache, HEAD, HEADS, n, head, row, place(i) * row);
                let k = sys::ggml_cpy(c, k, to);
                let to = sys::ggml_view_2d(c, v_cache, n, WIDTH, column, place(i) * F32);
                let v = sys::ggml_cpy(c, sys::ggml_transpose(c, v), to);
                if !graph.is_null() {
                    sys::ggml_build_forward_expand(graph, k);
                    sys::ggml_build_forward_expand(graph, v);
                }
                let keys = sys::ggml_view_3d(c, k_cache, HEAD, past, HEADS, row, head, 0);
                let values = sys::ggml_view_3d(c, v_cache, past, HEAD, HEADS, column, column * HEAD as usize, 0);
                let q = sys::ggml_permute(c, q, 0, 2, 1, 3);
                let s = sys::ggml_soft_max_ext(c, sys::ggml_mul_mat(c, keys, q), mask, 0.2, 0.0);
                let o = sys::ggml_permute(c, sys::ggml_mul_mat(c, values, s), 0, 2, 1, 3);
                let o = sys::ggml_reshape_2d(c, sys::ggml_cont(c, o), WIDTH, n);
                x = sys::ggml_add(c, x, sys::ggml_mul_mat(c, w[4], o));
                let h = sys::ggml_mul(c, sys::ggml_rms_norm(c, x, EPS), w[5]);
                let (gate, up) = (sys::ggml_mul_mat(c, w[6], h), sys::ggml_mul_mat(c, w[7], h));
                x = sys::ggml_add(c, x, sys::ggml_mul_mat(c, w[8], sys::ggml_swiglu_split(c, gate, up)));
            }
            let w = &self.model.weights[self.layers * PER_LAYER..];
            let result = sys::ggml_mul_mat(c, w[1], sys::ggml_mul(c, sys::ggml_rms_norm(c, x, EPS), w[0]));
            sys::ggml_set_output(result);
            if !graph.is_null() {
                sys::ggml_build_forward_expand(graph, result);
            }
            Step { tokens, positions, mask, result }
        }
    }

    unsafe fn graph(&self, i: usize, size: Size) -> (Step, *mut sys::ggml_cgraph) {
        unsafe {
            sys::ggml_reset(self.ctx);
            let graph = sys::ggml_new_graph_custom(self.ctx, self.size, false);
            (self.write(i, size, graph), graph)
        }
    }

    unsafe fn alloc(&self, graph: *mut sys::ggml_cgraph) {
        unsafe {
            sys::ggml_backend_sched_reset(self.sched);
            assert!(sys::ggml_backend_sched_alloc_graph(self.sched, graph));
        }
    }

    unsafe fn set(&mut self, i: usize, step: Step) {
        self.inputs.set(i);
        unsafe {
            let set = |t, data: *const f32, n: usize| sys::ggml_backend_tensor_set(t, data.cast(), 0, n * F32);
            set(step.tokens, self.inputs.tokens.as_ptr(), self.inputs.tokens.len());
            set(step.positions, self.inputs.positions.as_ptr().cast(), self.inputs.positions.len());
            set(step.mask, self.inputs.mask.as_ptr(), self.inputs.mask.len());
        }
    }

    /// Builds a graph and returns its number of nodes.
    pub(crate) fn build(&mut self, i: usize) -> usize {
        let n = unsafe { sys::ggml_graph_n_nodes(self.graph(i, Size::WHOLE).1) };
        usize::try_from(n).unwrap()
    }

    pub(crate) fn nodes(&mut self, i: usize) -> Duration {
        time(|| unsafe {
            sys::ggml_reset(self.ctx);
            self.write(i, Size::WHOLE, ptr::null_mut());
        })
    }

    pub(crate) fn time_build(&mut self, i: usize) -> Duration {
        time(|| unsafe {
            self.graph(i, Size::WHOLE);
        })
    }

    pub(crate) fn time_alloc(&mut self, i: usize, size: Size) -> Duration {
        let (_, graph) = unsafe { self.graph(i, size) };
        time(|| unsafe { self.alloc(graph) })
    }

    pub(crate) fn step(&mut self, i: usize) -> &[f32] {
        unsafe {
            let (step, graph) = self.graph(i, Size::WHOLE);
            self.alloc(graph);
            self.set(i, step);
            let status = sys::ggml_backend_sched_graph_compute(self.sched, graph);
            assert_eq!(status, sys::GGML_STATUS_SUCCESS);
            let result = self.inputs.result.as_mut_ptr().cast();
            sys::ggml_backend_tensor_get(step.result, result, 0, WORDS as usize * F32);
        }
        &self.inputs.result
    }

    pub(crate) fn time_step(&mut self, i: usize) -> Duration {
        time(|| {
            self.step(i);
        })
    }

    /// Calls `f` with a closure that computes one graph each time it is called.
    pub(crate) fn computing<R>(&mut self, f: impl FnOnce(&mut dyn FnMut() -> Duration) -> R) -> R {
        let graph = unsafe {
            let (step, graph) = self.graph(1, Size::WHOLE);
            self.alloc(graph);
            self.set(1, step);
            graph
        };
        f(&mut || {
            time(|| unsafe {
                let status = sys::ggml_backend_sched_graph_compute(self.sched, graph);
                assert_eq!(status, sys::GGML_STATUS_SUCCESS);
            })
        })
    }
}
