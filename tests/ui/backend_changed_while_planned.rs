use ggml::GraphAllocator;
use ggml::prelude::*;

fn main() {
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let graph = ctx.graph([ctx.relu(x).unwrap()]).unwrap();
    let mut backend = Backend::cpu().unwrap();
    let mut allocator = GraphAllocator::new(backend.device().buffer_type());
    let mut memory = allocator.alloc(&graph, &mut backend).unwrap();
    let mut plan = memory.plan().unwrap();
    backend.set_threads(2).unwrap();
    plan.compute().unwrap();
}
