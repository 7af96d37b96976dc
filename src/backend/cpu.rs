//! Settings of CPU backends, except for threads and stopping.

use std::time::Instant;

use super::Backend;
use crate::callback;
use crate::device::{DeviceType, Registry};
use crate::error::{Error, Result};

impl Backend {
    /// Whether a CPU backend uses reference kernels only: no matrix multiplication by other libraries, no tiled
    /// attention, no norms fused with multiplication (`ggml_backend_cpu_set_use_ref`). Useful for comparing with other
    /// devices ([`Run::compare`](crate::Run::compare)).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the device is a CPU.
    #[doc(alias = "ggml_backend_cpu_set_use_ref")]
    pub fn set_use_ref(&mut self, on: bool) -> Result<()> {
        callback::check_reentry("Backend::set_use_ref")?;
        let cpu = self.cpu_registry("Backend::set_use_ref")?;
        self.raw.set_use_ref(cpu, on)
    }

    /// Suspends the threads of a CPU backend, which otherwise spin for a while, until the next computation
    /// (`ggml_threadpool_pause`, `ggml_threadpool_resume`). Has no effect on `OpenMP` threads.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] unless the device is a CPU.
    #[doc(alias = "ggml_threadpool_pause")]
    #[doc(alias = "ggml_threadpool_resume")]
    pub fn pause_threads(&mut self) -> Result<()> {
        callback::check_reentry("Backend::pause_threads")?;
        let cpu = self.cpu_registry("Backend::pause_threads")?;
        self.compute_alone(false)?;
        match &self.pool {
            Some(pool) => self.raw.pause_pool(cpu, pool),
            None => Ok(()),
        }
    }

    /// The number of threads, if it can be chosen for each computation whether the calling thread computes alone.
    pub(crate) fn can_compute_alone(&self) -> Option<usize> {
        self.alone.as_ref().map(|_| self.threads)
    }

    /// Whether earlier computations saw other work on the machine.
    pub(crate) fn is_busy(&self, now: Instant) -> bool {
        self.contention.is_high(now)
    }

    /// Looks how much of the time of a computation, which ends now, went to other work.
    pub(crate) fn computed_since(&mut self, began: Instant) {
        self.contention.computed_since(began);
    }

    /// Lets the calling thread compute graphs alone, unless all threads always compute.
    pub(crate) fn compute_alone(&mut self, alone: bool) -> Result<()> {
        let (Some(all), Some(one)) = (&self.pool, &self.alone) else { return Ok(()) };
        // C is never told of more threads than its pool has (H26).
        if alone && !self.is_alone {
            self.raw.set_n_threads(all.cpu, 1)?;
            self.raw.set_pool(all.cpu, one.raw.as_ptr())?;
        } else if !alone && self.is_alone {
            self.raw.set_pool(all.cpu, all.raw.as_ptr())?;
            self.raw.set_n_threads(all.cpu, self.threads)?;
        }
        self.is_alone = alone;
        Ok(())
    }

    /// The registry of this backend if it is a usable CPU backend; else an error, which names `call`.
    pub(super) fn cpu_registry(&self, call: &'static str) -> Result<Registry> {
        self.check()?;
        let cpu = self.device.registry().filter(|_| self.device.device_type() == DeviceType::Cpu);
        cpu.ok_or_else(|| Error::unsupported(call, [], self.device.name(), "only a CPU backend can do that"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::contention::Contention;
    use crate::{Backend, Context, DType, Graph, Sched, Threads};

    /// A product of a square matrix with rows, and the loss of what these are multiplied by.
    fn graphs(ctx: &Context, width: usize, rows: usize) -> [Graph<'_>; 2] {
        let w = ctx.input("w", DType::F32, [width, width]).unwrap();
        let x = ctx.input("x", DType::F32, [width, rows]).unwrap();
        let y = ctx.mul_mat(w, x).unwrap();
        let loss = ctx.cross_entropy_loss(y, ctx.soft_max(x).unwrap()).unwrap();
        [ctx.graph([y]).unwrap(), ctx.graph([ctx.scale(loss, 2.0).unwrap()]).unwrap()]
    }

    /// Computes a graph of [`graphs`]. Returns the bits of its result, and whether the calling thread
    /// computed the last operation alone.
    fn compute(graph: &Graph<'_>, threads: Threads, busy: bool) -> (Vec<u32>, bool) {
        let mut cpu = Backend::cpu().unwrap();
        cpu.set_threads(threads).unwrap();
        cpu.contention = Contention::seen(busy);
        let mut sched = Sched::builder().backend(cpu).build().unwrap();
        let mut run = sched.alloc(graph).unwrap();
        for x in graph.leaves() {
            let values: Vec<_> = (0..=u16::MAX).cycle().take(x.elements()).map(|i| f32::from(i).sin()).collect();
            run.set(x, &values).unwrap();
        }
        run.compute().unwrap();
        let y = graph.nodes().last().unwrap();
        let bits = run.get::<f32>(y).unwrap().into_iter().map(f32::to_bits).collect();
        (bits, run.backends()[0].is_alone)
    }

    #[test]
    fn short_graphs_are_computed_by_one_thread() {
        let ctx = Context::new();
        let three = || Threads::new(3);
        for (width, rows, busy, alone) in
            [(8, 8, false, true), (256, 8, false, false), (256, 8, true, true), (256, 256, true, false)]
        {
            let [product, _] = graphs(&ctx, width, rows);
            let (bits, is_alone) = compute(&product, three(), busy);
            assert_eq!(is_alone, alone, "{width} by {rows}, busy: {busy}");
            assert_eq!((bits, false), compute(&product, three().with_all(true), busy));
        }
    }

    #[test]
    fn results_do_not_depend_on_other_work() {
        let ctx = Context::new();
        let [_, loss] = graphs(&ctx, 100, 101);
        let three = || Threads::new(3);
        let (bits, alone) = compute(&loss, three(), true);
        assert!(alone, "the operation after the loss");
        assert_eq!((bits.clone(), false), compute(&loss, three(), false));
        // So the test compares something that would differ.
        assert_ne!(compute(&loss, Threads::new(1), false).0, bits);
    }
}
