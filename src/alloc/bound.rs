//! An allocated graph: sets inputs, reads results, and backs the public types of the scheduler and the allocator.

use std::panic::resume_unwind;
use std::sync::Arc;

use ggml_sys as sys;

use super::placement::{Live, Placement};
use crate::callback;
use crate::dtype::{DType, Element};
use crate::entries::{Entry, Kind};
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::header::Owner;
use crate::list;
use crate::ops::custom;
use crate::rules::indices as index;
use crate::tensor::Tensor;
use crate::tensor::transfer;

/// A graph, which of its inputs are unset, and its placement once it is allocated.
///
/// Leaking one is harmless: outside of calls the headers are always as built (`placement.rs`).
pub(crate) struct Bound<'g, 'c> {
    graph: &'g Graph<'c>,
    /// `None` before allocation.
    placement: Option<Arc<Placement>>,
    /// Entry indices of inputs that have no value yet.
    unset: Vec<usize>,
    computed: bool,
}

impl<'g, 'c> Bound<'g, 'c> {
    /// Fails with [`Error::InUse`] if a running computation uses one of the graph's tensors.
    pub(crate) fn new(call: &'static str, graph: &'g Graph<'c>) -> Result<Self> {
        callback::check_open(call)?;
        graph.check_free(call)?;
        let mut unset = graph.take_unset();
        unset.clear();
        let inputs = graph.entries().iter().enumerate().filter(|(_, e)| e.kind == Kind::Input);
        inputs.map(|(i, _)| i).try_for_each(|i| list::push(&mut unset, i, "a graph's inputs"))?;
        Ok(Self { graph, placement: None, unset, computed: false })
    }

    pub(crate) fn graph(&self) -> &'g Graph<'c> {
        self.graph
    }

    pub(crate) fn graph_ptr(&self) -> *mut sys::ggml_cgraph {
        self.graph.as_ptr()
    }

    /// Sets the graph's placement.
    pub(crate) fn place(&mut self, placement: Arc<Placement>) {
        self.placement = Some(placement);
    }

    pub(crate) fn placement(&self) -> Result<&Arc<Placement>> {
        self.placement.as_ref().ok_or(Error::Poisoned { object: "allocation" })
    }

    /// Writes the placement into the headers until the result is dropped.
    pub(crate) fn live(&self, call: &'static str) -> Result<Live<'g, 'c>> {
        Live::of(call, self.graph, Arc::clone(self.placement()?))
    }

    /// Runs the transfer `f` while the entry's header has its data pointer and buffer.
    fn reach<R>(&self, call: &'static str, e: &Entry, f: impl FnOnce() -> Result<R>) -> Result<R> {
        callback::check_open(call)?;
        self.placement()?.reach(call, self.graph, e, f)
    }

    fn entry(&self, call: &'static str, t: Tensor<'_>) -> Result<(usize, &'g Entry)> {
        let found = self.graph.entries().position(t.ptr()).and_then(|i| Some((i, self.graph.entries().get(i)?)));
        found.ok_or_else(|| Error::NotPart { call, tensor: t.info(), whole: "the allocated graph" })
    }

    /// The entry of the input `t`, with its index.
    fn input(&self, call: &'static str, t: Tensor<'_>) -> Result<(usize, &'g Entry)> {
        let (i, e) = self.entry(call, t)?;
        if e.kind != Kind::Input {
            return Err(Error::NotPart { call, tensor: t.info(), whole: "the graph's inputs" });
        }
        Ok((i, e))
    }

    /// Checks indices before they reach the device: kernels check only some of them, and abort the process if they do.
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

    /// Checks that indices are in bounds, and distinct where an operation needs that.
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
        let values = list::collect(indices, "checking indices")?;
        let repeated = self.graph.entries().distinct(e.ptr).find_map(|rows| index::repeated(rows, &values));
        repeated
            .map_or(Ok(()), |(position, value)| Err(Error::Repeated { call, tensor: e.ptr.info(), position, value }))
    }

    pub(crate) fn set<T: Element>(&mut self, call: &'static str, t: Tensor<'_>, data: &[T]) -> Result<()> {
        let (i, e) = self.input(call, t)?;
        self.check_values(call, e, data)?;
        self.reach(call, e, || transfer::write(call, e.ptr, data))?;
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
            let expected = "its elements must be set all at once, as these row indices must be distinct";
            let value = format!("{offset}").into();
            return Err(Error::Param { call, name: "offset", value, expected: expected.into() });
        }
        self.check_values(call, e, data)?;
        let unset = self.unset.contains(&i);
        self.reach(call, e, || {
            if unset {
                transfer::zero(e.ptr)?; // the rest is uninitialised memory
            }
            transfer::write_at(call, e.ptr, offset, data)
        })?;
        self.mark_set(i);
        Ok(())
    }

    pub(crate) fn set_bytes(&mut self, call: &'static str, t: Tensor<'_>, data: &[u8]) -> Result<()> {
        let (i, e) = self.input(call, t)?;
        self.check_values(call, e, data)?;
        self.reach(call, e, || transfer::write_raw(call, e.ptr, data))?;
        self.mark_set(i);
        Ok(())
    }

    fn mark_set(&mut self, i: usize) {
        self.unset.retain(|&u| u != i);
    }

    /// The entry of `t`, if its value can be read now.
    fn readable(&self, call: &'static str, t: Tensor<'_>) -> Result<&'g Entry> {
        let (i, e) = self.entry(call, t)?;
        if !e.kept {
            return Err(Error::NotKept { call, tensor: t.info() });
        }
        match e.kind {
            Kind::Input if self.unset.contains(&i) => Err(Error::InputNotSet { call, tensor: t.info() }),
            Kind::Node if !self.computed => Err(Error::NotComputed { call, tensor: t.info() }),
            _ => Ok(e),
        }
    }

    pub(crate) fn get<T: Element>(&self, call: &'static str, t: Tensor<'_>) -> Result<Vec<T>> {
        let e = self.readable(call, t)?;
        self.reach(call, e, || transfer::read(call, e.ptr))
    }

    pub(crate) fn get_into<T: Element>(&self, call: &'static str, t: Tensor<'_>, out: &mut [T]) -> Result<()> {
        let e = self.readable(call, t)?;
        self.reach(call, e, || transfer::read_into(call, e.ptr, out))
    }

    pub(crate) fn get_bytes(&self, call: &'static str, t: Tensor<'_>) -> Result<Vec<u8>> {
        let e = self.readable(call, t)?;
        self.reach(call, e, || transfer::read_raw(call, e.ptr))
    }

    /// Runs user code while devices compute. If the graph writes to a state, that code can't call ggml.
    pub(crate) fn run_beside<R>(&self, f: impl FnOnce() -> R) -> R {
        let is_state = |e: &Entry| e.kind == Kind::Placed(Owner::State);
        if self.graph.entries().iter().any(is_state) { callback::closed(f) } else { f() }
    }

    /// Checks, before a computation, that all inputs have values.
    pub(crate) fn check_inputs(&self, call: &'static str) -> Result<()> {
        callback::check_open(call)?;
        self.graph.check_free(call)?;
        let first = self.unset.first().and_then(|&i| self.graph.entries().get(i));
        first.map_or(Ok(()), |e| Err(Error::InputNotSet { call, tensor: e.ptr.info() }))
    }

    /// Begins a computation: results of the last one are gone, and headers say where the graph lies for as long as the result
    /// lives.
    pub(crate) fn begin(&mut self, call: &'static str) -> Result<Live<'g, 'c>> {
        self.computed = false;
        // Panics that were not gone on with, because something else failed. Their destructors are user code, which may
        // compute these very tensors: they come before anything is put into headers.
        self.graph.entries().closures().iter().for_each(|&t| drop(custom::take_panic(t)));
        self.live(call)
    }

    /// Resumes a closure's panic, if there was one. Called when C has returned from a computation.
    pub(crate) fn go_on(&self) {
        if let Some(panic) = self.graph.entries().closures().iter().find_map(|&t| custom::take_panic(t)) {
            resume_unwind(panic);
        }
    }

    /// Makes results readable, after a computation succeeded.
    pub(crate) fn set_computed(&mut self) {
        self.computed = true;
    }
}

impl Drop for Bound<'_, '_> {
    fn drop(&mut self) {
        self.graph.keep_unset(std::mem::take(&mut self.unset));
    }
}
