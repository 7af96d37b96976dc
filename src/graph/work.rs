//! Whether more than one thread helps with a graph: what its operations take, beside what threads wait for each other.

use ggml_sys as sys;

use super::Graph;
use crate::entries::Kind;
use crate::header::TensorPtr;

/// What threads wait for each other after an operation, in nanoseconds, if nothing else runs.
const WAIT: u64 = 1000;

/// What one thread does in a nanosecond.
const PRODUCTS: u64 = 24;
const ELEMENTS: u64 = 2;

impl Graph<'_> {
    /// Whether this many threads are about as slow as one, or slower. The estimate depends on nothing but the graph,
    /// because the last bits of some results depend on the number of threads.
    pub(crate) fn wants_one_of(&self, threads: usize) -> bool {
        let (nanoseconds, operations) = *self.work.get_or_init(|| {
            let nodes = self.entries().iter().filter(|e| e.kind == Kind::Node && !e.ptr.is_view_op());
            nodes.fold((0_u64, 0), |(sum, n), e| (sum.saturating_add(nanoseconds(e.ptr)), n + 1))
        });
        let threads = threads as u64;
        nanoseconds / threads.max(1) * (threads - 1) < WAIT * operations
    }
}

/// About how long one thread takes for the operation. Custom operations, and those whose work doesn't follow from their
/// shapes in one of these ways, are never short.
fn nanoseconds(t: TensorPtr) -> u64 {
    let source = |i| t.source(i).unwrap_or(t);
    let elements = |t: TensorPtr| t.elements() as u64;
    let products = |depth: i64| elements(t).saturating_mul(depth.cast_unsigned()) / PRODUCTS;
    match t.op() {
        sys::GGML_OP_MUL_MAT | sys::GGML_OP_MUL_MAT_ID => products(source(0).ne()[0]),
        sys::GGML_OP_OUT_PROD => products(source(0).ne()[1]),
        sys::GGML_OP_FLASH_ATTN_EXT => products(source(1).ne()[1].saturating_mul(2)),
        sys::GGML_OP_GET_ROWS => elements(t) / ELEMENTS,
        sys::GGML_OP_SET_ROWS => elements(source(0)) / ELEMENTS,
        sys::GGML_OP_DUP..=sys::GGML_OP_CLAMP
        | sys::GGML_OP_CROSS_ENTROPY_LOSS..=sys::GGML_OP_GLU
        | sys::GGML_OP_UNARY => elements(t).max(elements(source(0))) / ELEMENTS,
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use crate::ops::{CustomOptions, Rows, RowsMut};
    use crate::{Context, DType, Graph};

    /// Fifty products of square matrices with eight rows.
    fn products(ctx: &Context, width: usize) -> Graph<'_> {
        let w = ctx.input("w", DType::F32, [width, width]).unwrap();
        let x = ctx.input("x", DType::F32, [width, 8]).unwrap();
        ctx.graph([(0..50).fold(x, |x, _| ctx.mul_mat(w, x).unwrap())]).unwrap()
    }

    #[test]
    fn short_operations_get_one_thread() {
        let ctx = Context::new();
        let x = ctx.input("x", DType::F32, [4]).unwrap();
        let [short, long] = [64, 256].map(|width| products(&ctx, width));
        let nothing = |_: RowsMut<'_, f32>, _: Rows<'_, f32>| ();
        let custom = ctx.graph([ctx.map_custom1(x, CustomOptions::new(), nothing).unwrap()]).unwrap();
        let cached = ctx.input("cache", DType::F32, [64, 100_000]).unwrap();
        let row = ctx.input("row", DType::I32, [1]).unwrap();
        let read = ctx.graph([ctx.get_rows(cached, row).unwrap()]).unwrap();
        for (graph, one) in [(&short, true), (&long, false), (&custom, false), (&read, true)] {
            assert_eq!([2, 3].map(|n| graph.wants_one_of(n)), [one; 2], "{graph:?}");
        }
    }
}
