//! A graph that has memory: what both allocators hand out, and the only way to a computation's data.

use std::panic::resume_unwind;

use ggml_sys as sys;

use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::graph::{Entry, Graph, Kind};
use crate::guard;
use crate::header::TensorPtr;
use crate::ops::custom;
use crate::rules::indices as index;
use crate::tensor::Tensor;
use crate::tensor::transfer;

/// A graph between allocation and release.
///
/// Made before ggml touches the graph; its drop leaves the tensors as the user built them, whether the allocation went
/// well or not: no address into memory that is given to others (H21), sources restored (H25).
pub(crate) struct Bound<'g, 'c> {
    graph: &'g Graph<'c>,
    /// Which entries are inputs that have no value yet.
    unset: Vec<usize>,
    computed: bool,
    /// Whether the allocator changed nothing of the tensors but where they are.
    moved_only: bool,
}

impl<'g, 'c> Bound<'g, 'c> {
    /// Takes hold of a graph none of whose tensors has memory in another allocation.
    pub(crate) fn new(call: &'static str, graph: &'g Graph<'c>) -> Result<Self> {
        guard::check_open(call)?;
        let mut unset = graph.take_unset();
        unset.clear();
        for (i, e) in graph.entries().iter().enumerate() {
            // A view of placed memory gets its address only in an allocation, a leaf of the graph's likewise. What was
            // leaked (`mem::forget`) keeps its address for ever and is refused for ever.
            if e.is_allocated_by_graph() && !e.ptr.buffer().is_null() {
                return Err(Error::InUse { call, tensor: e.ptr.info() });
            }
            if e.kind == Kind::Input {
                unset.push(i);
            }
        }
        Ok(Self { graph, unset, computed: false, moved_only: false })
    }

    pub(crate) fn graph(&self) -> &'g Graph<'c> {
        self.graph
    }

    pub(crate) fn graph_ptr(&self) -> *mut sys::ggml_cgraph {
        self.graph.as_ptr()
    }

    pub(crate) fn set_moved_only(&mut self, it_is: bool) {
        self.moved_only = it_is;
    }

    /// Puts back what a scheduler changed, so that the graph can be planned again.
    pub(crate) fn restore(&self) {
        for e in self.graph.entries().iter().filter(|e| e.is_allocated_by_graph()) {
            if self.moved_only {
                e.ptr.leave_home(e.views_placed());
                continue;
            }
            e.ptr.release_from(e.views_placed());
            for (i, src) in self.graph.srcs(e) {
                e.ptr.set_source(i, src);
            }
        }
    }

    fn entry(&self, call: &'static str, t: Tensor<'_>) -> Result<(usize, &'g Entry)> {
        let found = self.graph.position(t.ptr()).and_then(|i| Some((i, self.graph.entries().get(i)?)));
        found.ok_or_else(|| Error::NotPart { call, tensor: t.info(), whole: "the allocated graph" })
    }

    /// The input behind `t`.
    fn input(&self, call: &'static str, t: Tensor<'_>) -> Result<(usize, &'g Entry)> {
        let (i, e) = self.entry(call, t)?;
        if e.kind != Kind::Input {
            return Err(Error::NotPart { call, tensor: t.info(), whole: "the graph's inputs" });
        }
        Ok((i, e))
    }

    /// Checks that `data` may be put into an input: kernels don't check all indices, and none without ending the process.
    fn check_values<T: bytemuck::Pod>(&self, call: &'static str, e: &Entry, data: &[T]) -> Result<()> {
        let Some(below) = e.below else { return Ok(()) };
        let bytes: &[u8] = bytemuck::cast_slice(data);
        if e.ptr.dtype() == DType::I64 {
            let indices = bytes.chunks_exact(size_of::<i64>()).map(bytemuck::pod_read_unaligned::<i64>);
            self.check_indices(call, e, indices, below)
        } else {
            let indices = bytes.chunks_exact(size_of::<i32>()).map(bytemuck::pod_read_unaligned::<i32>);
            self.check_indices(call, e, indices.map(i64::from), below)
        }
    }

    /// Checks what is put into an input of indices.
    fn check_indices(
        &self,
        call: &'static str,
        e: &Entry,
        indices: impl Iterator<Item = i64> + Clone,
        below: i64,
    ) -> Result<()> {
        if let Some((position, value)) = indices.clone().enumerate().find(|(_, value)| !(0..below).contains(value)) {
            return Err(Error::Index { call, tensor: e.ptr.info(), position, value, below });
        }
        if !e.distinct || e.ptr.elements() == 1 {
            return Ok(());
        }
        let values: Vec<i64> = indices.collect();
        let repeated = self.graph.distinct(e.ptr).find_map(|rows| index::repeated(rows, &values));
        repeated
            .map_or(Ok(()), |(position, value)| Err(Error::Repeated { call, tensor: e.ptr.info(), position, value }))
    }

    pub(crate) fn set<T: Element>(&mut self, call: &'static str, t: Tensor<'_>, data: &[T]) -> Result<()> {
        let (i, e) = self.input(call, t)?;
        self.check_values(call, e, data)?;
        transfer::write(call, e.ptr, data)?;
        self.mark_set(i);
        Ok(())
    }

    pub(crate) fn set_at<T: Element>(
        &mut self,
        call: &'static str,
        t: Tensor<'_>,
        offset: usize,
        data: &[T],
    ) -> Result<()> {
        let (i, e) = self.input(call, t)?;
        if e.distinct && data.len() < e.ptr.elements() {
            let expected = "an operation needs the numbers of a row to differ: set it as a whole";
            let value = format!("{offset}").into();
            return Err(Error::Param { op: call, name: "offset", value, expected: expected.into() });
        }
        self.check_values(call, e, data)?;
        if self.unset.contains(&i) {
            transfer::zero(e.ptr)?; // the rest would be whatever lay there
        }
        transfer::write_at(call, e.ptr, offset, data)?;
        self.mark_set(i);
        Ok(())
    }

    pub(crate) fn set_bytes(&mut self, call: &'static str, t: Tensor<'_>, data: &[u8]) -> Result<()> {
        let (i, e) = self.input(call, t)?;
        self.check_values(call, e, data)?;
        transfer::write_raw(call, e.ptr, data)?;
        self.mark_set(i);
        Ok(())
    }

    fn mark_set(&mut self, i: usize) {
        self.unset.retain(|&u| u != i);
    }

    /// The tensor behind `t`, if its value can be read now.
    fn readable(&self, call: &'static str, t: Tensor<'_>) -> Result<TensorPtr> {
        let (i, e) = self.entry(call, t)?;
        if !e.kept {
            return Err(Error::NotKept { call, tensor: t.info() });
        }
        match e.kind {
            Kind::Input if self.unset.contains(&i) => Err(Error::InputNotSet { call, tensor: t.info() }),
            Kind::Node if !self.computed => Err(Error::NotComputed { call, tensor: t.info() }),
            _ => Ok(e.ptr),
        }
    }

    pub(crate) fn get<T: Element>(&self, call: &'static str, t: Tensor<'_>) -> Result<Vec<T>> {
        transfer::read(call, self.readable(call, t)?)
    }

    pub(crate) fn get_into<T: Element>(&self, call: &'static str, t: Tensor<'_>, out: &mut [T]) -> Result<()> {
        transfer::read_into(call, self.readable(call, t)?, out)
    }

    pub(crate) fn get_bytes(&self, call: &'static str, t: Tensor<'_>) -> Result<Vec<u8>> {
        transfer::read_raw(call, self.readable(call, t)?)
    }

    /// To be called before a computation: all inputs must have values.
    pub(crate) fn check_inputs(&self, call: &'static str) -> Result<()> {
        guard::check_open(call)?;
        let first = self.unset.first().and_then(|&i| self.graph.entries().get(i));
        first.map_or(Ok(()), |e| Err(Error::InputNotSet { call, tensor: e.ptr.info() }))
    }

    /// To be called when a computation begins: results of the last one are gone.
    pub(crate) fn begin(&mut self) {
        self.computed = false;
        // Panics that were not gone on with, because something else failed.
        self.graph.closures().iter().for_each(|&t| drop(custom::take_panic(t)));
    }

    /// To be called when C has returned from a computation: goes on with the panic of a closure, if there was one.
    pub(crate) fn go_on(&self) {
        if let Some(panic) = self.graph.closures().iter().find_map(|&t| custom::take_panic(t)) {
            resume_unwind(panic);
        }
    }

    /// To be called when a computation went well.
    pub(crate) fn set_computed(&mut self) {
        self.computed = true;
    }
}

impl Drop for Bound<'_, '_> {
    fn drop(&mut self) {
        self.restore();
        self.graph.keep_unset(std::mem::take(&mut self.unset));
    }
}
