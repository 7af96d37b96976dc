//! A copy of a graph, with leaves of its own on another device.
//!
//! `ggml_backend_graph_copy` asserts that its allocations succeed, and leaks what a failed copy has allocated.

use std::collections::HashMap;

use crate::buffer::{Buffer, BufferType};
use crate::context::Context;
use crate::dtype::DType;
use crate::entries::{Kind, StorePool};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::{Owner, TensorPtr};
use crate::list;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::transfer;

/// How out-of-memory errors name what the memory was for.
const COPY: &str = "a copy of a graph";

/// Copies a graph's tensors, in the graph's order. Copies of weights and states get memory and the originals' contents.
/// The caller keeps `buffers` alive as long as the copies are used.
pub(super) fn tensors<'c>(
    call: &'static str,
    ctx: &'c Context,
    graph: &Graph<'_>,
    memory: BufferType,
    buffers: &mut Vec<Buffer>,
) -> Result<Vec<Tensor<'c>>> {
    let mut copies: HashMap<TensorPtr, TensorPtr> = HashMap::new();
    let mut list = Vec::new();
    for e in graph.entries().iter() {
        if e.ptr.owner() == Owner::Packed {
            return Err(Error::Packed { call, tensor: e.ptr.info() });
        }
        // The new tensor is a placeholder: `become_copy` overwrites its shape and type.
        let copy = ctx.leaf(call, "", DType::I8, Shape::from([1]))?;
        // A graph lists sources and roots before what uses them. So their copies exist already, and belong to `ctx`.
        copy.ptr().become_copy(e.ptr, |t| copies.get(&t).copied());
        if let Kind::Placed(_) = e.kind {
            let buffer = Buffer::zeroed(memory, memory.alloc_size_of(copy.ptr())?)?;
            buffer.place(copy.ptr(), 0)?;
            list::push(buffers, buffer, COPY)?;
            transfer::write_raw(call, copy.ptr(), &transfer::read_raw(call, e.ptr)?)?;
        } else {
            copy.ptr().release();
        }
        copies.try_reserve(1).map_err(|_| Error::no_memory(COPY))?;
        copies.insert(e.ptr, copy.ptr());
        list::push(&mut list, copy, COPY)?;
    }
    Ok(list)
}

/// The graph of these copies: the operations of `of` in the same order, except that none is marked as an output.
pub(super) fn graph<'c>(of: &Graph<'_>, copies: &[Tensor<'c>]) -> Result<Graph<'c>> {
    let nodes = of.entries().iter().zip(copies).filter(|(e, _)| e.kind == Kind::Node);
    Graph::new(&StorePool::default(), &list::collect(nodes.map(|(_, copy)| *copy), COPY)?)
}
