//! Sets inputs and reads results.

use super::Run;
use crate::dtype::{DType, Element};
use crate::entries::{Entry, Kind};
use crate::error::{Error, Result};
use crate::header::TensorPtr;
use crate::list;
use crate::rules::indices as index;
use crate::tensor::Tensor;
use crate::tensor::transfer;

impl<'s> Run<'s, '_> {
    /// Sets the whole of an input (`ggml_backend_tensor_set`).
    ///
    /// # Errors
    ///
    /// [`Error::NotPart`] unless `t` is an input of the graph; [`Error::ElementType`]; [`Error::Length`]; for indices,
    /// [`Error::Index`] if one is out of bounds and [`Error::Repeated`] if they must be distinct.
    #[doc(alias = "ggml_backend_tensor_set")]
    pub fn set<T: Element>(&mut self, t: Tensor<'_>, data: &[T]) -> Result<()> {
        const CALL: &str = "Run::set";
        let (_, e) = self.input(CALL, t)?;
        // The type is checked before the values are: values of another type make no sense.
        transfer::check_whole::<T>(CALL, e.ptr, data.len())?;
        self.write(CALL, t, data, |e, _| transfer::write(CALL, e.ptr, data))
    }

    /// Sets a part of an input: `data.len()` elements from element `offset` on, in ggml's order. Elements that were
    /// never set are zero.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [4])?;
    /// let y = ctx.neg(x)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?;
    /// run.set_at(x, 2, &[5.0_f32])?;
    /// run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [0.0, 0.0, -5.0, 0.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Run::set`]; [`Error::Range`] if the part exceeds the tensor; [`Error::Param`] for indices of
    /// [`Context::set_rows`](crate::Context::set_rows), which must be set as a whole.
    pub fn set_at<T: Element>(&mut self, t: Tensor<'_>, offset: usize, data: &[T]) -> Result<()> {
        const CALL: &str = "Run::set_at";
        let (_, e) = self.input(CALL, t)?;
        transfer::check_type::<T>(CALL, e.ptr)?;
        if e.distinct && data.len() < e.ptr.elements() {
            let expected = "its elements must be set all at once, as these row indices must be distinct";
            return Err(Error::param(CALL, "offset", offset.to_string(), expected));
        }
        self.write(CALL, t, data, |e, unset| {
            if unset {
                transfer::zero(e.ptr)?; // the rest is uninitialised memory
            }
            transfer::write_at(CALL, e.ptr, offset, data)
        })
    }

    /// Sets the whole of an input of any type from raw bytes, in ggml's block layout.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.input("x", DType::Q8_0, [32])?;
    /// let y = ctx.cast(x, DType::F32)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?;
    /// run.set_bytes(x, &DType::Q8_0.quantize(&[1.0; 32], 32, None)?)?;
    /// run.compute()?;
    /// assert!(run.get::<f32>(y)?.iter().all(|y| (y - 1.0).abs() < 0.01));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotPart`] unless `t` is an input of the graph; [`Error::Length`]; for indices, as [`Run::set`].
    pub fn set_bytes(&mut self, t: Tensor<'_>, data: &[u8]) -> Result<()> {
        const CALL: &str = "Run::set_bytes";
        self.write(CALL, t, data, |e, _| transfer::write_raw(CALL, e.ptr, data))
    }

    /// Reads a result, an input, or a tensor marked by [`Context::output`](crate::Context::output) before the graph was
    /// made. Elements come in ggml's order (`ne[0]` innermost), whatever the strides.
    ///
    /// # Errors
    ///
    /// [`Error::NotPart`] if `t` is not part of the graph; [`Error::NotKept`] if its memory is reused;
    /// [`Error::NotComputed`] before the first computation; [`Error::InputNotSet`]; [`Error::ElementType`].
    #[doc(alias = "ggml_backend_tensor_get")]
    pub fn get<T: Element>(&self, t: Tensor<'_>) -> Result<Vec<T>> {
        const CALL: &str = "Run::get";
        self.read(CALL, t, |t| transfer::read(CALL, t))
    }

    /// Reads a contiguous tensor as [`Run::get`] does, into `out`.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let y = ctx.sqr(ctx.arange(0.0, 3.0, 1.0)?)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// let mut squares = [0.0_f32; 3]; // used again and again
    /// run.get_into(y, &mut squares)?;
    /// assert_eq!(squares, [0.0, 1.0, 4.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Run::get`]; [`Error::Length`]; [`Error::Shape`] if the tensor is not contiguous.
    pub fn get_into<T: Element>(&self, t: Tensor<'_>, out: &mut [T]) -> Result<()> {
        const CALL: &str = "Run::get_into";
        self.read(CALL, t, |t| transfer::read_into(CALL, t, out))
    }

    /// Reads a tensor of any type as [`Run::get`] does, as raw bytes in ggml's block layout.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let y = ctx.cast(ctx.arange(0.0, 64.0, 1.0)?, DType::Q8_0)?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?; run.compute()?;
    /// assert_eq!(run.get_bytes(y)?.len(), 68); // two blocks of 34 bytes
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Run::get`], except for [`Error::ElementType`].
    pub fn get_bytes(&self, t: Tensor<'_>) -> Result<Vec<u8>> {
        const CALL: &str = "Run::get_bytes";
        self.read(CALL, t, |t| transfer::read_raw(CALL, t))
    }

    /// Checks `data` for the input `t`, and lets `f` write it. `f` learns whether the input has no value yet.
    fn write<T: bytemuck::Pod>(
        &mut self,
        call: &'static str,
        t: Tensor<'_>,
        data: &[T],
        f: impl FnOnce(&Entry, bool) -> Result<()>,
    ) -> Result<()> {
        let (i, e) = self.input(call, t)?;
        self.check_values(call, e, data)?;
        let unset = self.is_unset(i);
        self.placement.with_placed(call, self.graph, e, || f(e, unset))?;
        if let Some(of_input) = self.unset.get_mut(i).filter(|_| unset) {
            *of_input = false;
            self.n_unset -= 1;
        }
        Ok(())
    }

    /// Whether an entry is an input that has no value yet.
    fn is_unset(&self, i: usize) -> bool {
        self.unset.get(i).copied().unwrap_or_default()
    }

    /// Lets `f` read the tensor `t`, if it has a value.
    fn read<R>(&self, call: &'static str, t: Tensor<'_>, f: impl FnOnce(TensorPtr) -> Result<R>) -> Result<R> {
        let (i, e) = self.entry(call, t)?;
        if !e.kept {
            return Err(Error::NotKept { call, tensor: t.info() });
        }
        match e.kind {
            Kind::Input if self.is_unset(i) => Err(Error::InputNotSet { call, tensor: t.info() }),
            Kind::Node if !self.computed => Err(Error::NotComputed { call, tensor: t.info() }),
            _ => self.placement.with_placed(call, self.graph, e, || f(e.ptr)),
        }
    }

    /// The entry of the graph's input `t`, with the entry's index.
    fn input(&self, call: &'static str, t: Tensor<'_>) -> Result<(usize, &'s Entry)> {
        let (i, e) = self.entry(call, t)?;
        if e.kind != Kind::Input {
            return Err(Error::NotPart { call, tensor: t.info(), whole: "the graph's inputs" });
        }
        Ok((i, e))
    }

    fn entry(&self, call: &'static str, t: Tensor<'_>) -> Result<(usize, &'s Entry)> {
        let found = self.graph.entries().position(t.ptr()).and_then(|i| Some((i, self.graph.entries().get(i)?)));
        found.ok_or_else(|| Error::NotPart { call, tensor: t.info(), whole: "the allocated graph" })
    }

    /// Checks the indices in `data` before they reach the device. Kernels check only some indices, and abort the
    /// process if a check fails.
    fn check_values<T: bytemuck::Pod>(&self, call: &'static str, e: &Entry, data: &[T]) -> Result<()> {
        let below = e.below;
        if below == i64::MAX {
            return Ok(());
        }
        let bytes: &[u8] = bytemuck::cast_slice(data);
        if e.ptr.dtype() == DType::I64 {
            let indices = bytes.chunks_exact(size_of::<i64>()).map(bytemuck::pod_read_unaligned::<i64>);
            self.check_indices(call, e, indices, below)
        } else {
            let indices = bytes.chunks_exact(size_of::<i32>()).map(bytemuck::pod_read_unaligned::<i32>);
            self.check_indices(call, e, indices.map(i64::from), below)
        }
    }

    /// Checks that indices are in bounds, and distinct where an operation needs distinct ones.
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
        // Ascending indices are distinct. They are the common case.
        if !e.distinct || indices.clone().is_sorted_by(|a, b| a < b) {
            return Ok(());
        }
        let values = list::collect(indices, "checking indices")?;
        let repeated = self.graph.entries().distinct(e.ptr).find_map(|rows| index::repeated(rows, &values));
        repeated
            .map_or(Ok(()), |(position, value)| Err(Error::Repeated { call, tensor: e.ptr.info(), position, value }))
    }
}
