//! How many threads suit a graph: what its operations take, beside what threads wait for each other.

use ggml_sys as sys;

use super::Graph;
use crate::entries::Kind;
use crate::header::TensorPtr;

/// What threads wait for each other after an operation, in nanoseconds, if nothing else runs.
const WAIT: u64 = 1000;

/// What one thread does in a nanosecond.
const PRODUCTS: u64 = 24;
const ELEMENTS: u64 = 2;

/// What one thread's share of an operation must take at least, in nanoseconds, so that the threads of a busy machine don't
/// wait for each other most of the time.
const LONG: u64 = 50_000;

/// What computes a graph on a CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Team {
    /// The calling thread: all of them would be about as slow, or slower.
    One,
    /// The calling thread while the machine is busy, and all threads otherwise.
    Either,
    /// All threads.
    All,
}

/// What is known of the time that a graph takes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    /// What one thread takes.
    nanoseconds: u64,
    operations: u64,
}

impl Graph<'_> {
    /// What computes the graph on this many threads. The estimate depends on nothing but the graph.
    pub(crate) fn team(&self, threads: usize) -> Team {
        let Work { nanoseconds, operations } = *self.work.get_or_init(|| {
            let nodes = self.entries().iter().filter(|e| e.kind == Kind::Node && !e.ptr.is_view_op());
            nodes.fold(Work { nanoseconds: 0, operations: 0 }, |work, e| Work {
                nanoseconds: work.nanoseconds.saturating_add(nanoseconds(e.ptr)),
                operations: work.operations + 1,
            })
        });
        let threads = threads as u64;
        let share = nanoseconds / threads.max(1);
        if share * (threads - 1) < WAIT * operations {
            Team::One
        } else if share < LONG * operations {
            Team::Either
        } else {
            Team::All
        }
    }
}

/// Whether the last bits of the operation's result depend on the number of threads.
pub(crate) fn depends_on_threads(t: TensorPtr) -> bool {
    match t.op() {
        sys::GGML_OP_FLASH_ATTN_EXT | sys::GGML_OP_CROSS_ENTROPY_LOSS => true,
        // Some processors compute two rows of quantised weights at once, if a thread has an even number of them.
        sys::GGML_OP_MUL_MAT | sys::GGML_OP_MUL_MAT_ID => {
            cfg!(target_arch = "aarch64") && t.source(0).is_some_and(|weights| weights.dtype().is_quantized())
        }
        _ => false,
    }
}

/// About how long one thread takes for the operation. Custom operations, and those whose work doesn't follow from their
/// shapes in one of these ways, are never short.
fn nanoseconds(t: TensorPtr) -> u64 {
    let source = |i| t.source(i).unwrap_or(t);
    let elements = |t: TensorPtr| t.elements() as u64;
    let products = |of: TensorPtr, depth: i64| elements(of).saturating_mul(depth.cast_unsigned()) / PRODUCTS;
    let weights = source(0).ne();
    match t.op() {
        sys::GGML_OP_MUL_MAT | sys::GGML_OP_MUL_MAT_ID => products(t, weights[0]),
        sys::GGML_OP_OUT_PROD => products(t, weights[1]),
        sys::GGML_OP_CONV_2D | sys::GGML_OP_CONV_2D_DW => products(t, weights[0] * weights[1] * weights[2]),
        sys::GGML_OP_CONV_TRANSPOSE_1D => products(source(1), weights[0] * weights[1]),
        sys::GGML_OP_CONV_TRANSPOSE_2D => products(source(1), weights[0] * weights[1] * weights[2]),
        sys::GGML_OP_FLASH_ATTN_EXT => products(t, source(1).ne()[1].saturating_mul(2)),
        sys::GGML_OP_GET_ROWS => elements(t) / ELEMENTS,
        sys::GGML_OP_SET_ROWS => elements(source(0)) / ELEMENTS,
        sys::GGML_OP_DUP..=sys::GGML_OP_CLAMP
        | sys::GGML_OP_IM2COL..=sys::GGML_OP_IM2COL_3D
        | sys::GGML_OP_POOL_1D..=sys::GGML_OP_TIMESTEP_EMBEDDING
        | sys::GGML_OP_LEAKY_RELU..=sys::GGML_OP_FILL
        | sys::GGML_OP_CROSS_ENTROPY_LOSS..=sys::GGML_OP_GLU
        | sys::GGML_OP_UNARY => elements(t).max(elements(source(0))) / ELEMENTS,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::Team;
    use crate::ops::{Conv2dOptions, CustomOptions, Rows, RowsMut};
    use crate::{Context, DType, Graph};

    /// Fifty products of square matrices with eight rows.
    fn products(ctx: &Context, width: usize) -> Graph<'_> {
        let w = ctx.input("w", DType::F32, [width, width]).unwrap();
        let x = ctx.input("x", DType::F32, [width, 8]).unwrap();
        ctx.graph([(0..50).fold(x, |x, _| ctx.mul_mat(w, x).unwrap())]).unwrap()
    }

    #[test]
    fn threads_share_operations_that_take_long() {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        let [short, middle, long] = [64, 256, 2048].map(|width| products(&ctx, width));
        let nothing = |_: RowsMut<'_, f32>, _: Rows<'_, f32>| ();
        let custom = ctx.graph([ctx.map_custom1(x, CustomOptions::new(), nothing).unwrap()]).unwrap();
        let cached = ctx.input("cache", DType::F32, [64, 100_000]).unwrap();
        let row = ctx.input("row", DType::I32, [1]).unwrap();
        let read = ctx.graph([ctx.get_rows(cached, row).unwrap()]).unwrap();
        let image = ctx.input("image", DType::F32, [8, 8, 3]).unwrap();
        let kernel = ctx.input("kernel", DType::F16, [3, 3, 3, 4]).unwrap();
        let convolved = ctx.graph([ctx.conv_2d(kernel, image, Conv2dOptions::new()).unwrap()]).unwrap();
        for (graph, team) in [
            (&short, Team::One),
            (&middle, Team::Either),
            (&long, Team::All),
            (&custom, Team::All),
            (&read, Team::One),
            (&convolved, Team::One),
        ] {
            assert_eq!([2, 3].map(|n| graph.team(n)), [team; 2], "{graph:?}");
        }
    }
}
