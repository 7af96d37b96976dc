//! Settings of CPU backends, except for threads and stopping.

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
        self.compute_alone(|_| false)?;
        match &self.pool {
            Some(pool) => self.raw.pause_pool(cpu, pool),
            None => Ok(()),
        }
    }

    /// Lets the calling thread of a CPU backend compute graphs alone, if that is wanted of so many threads. It isn't asked
    /// where all threads always compute.
    pub(crate) fn compute_alone(&mut self, is_wanted: impl FnOnce(usize) -> bool) -> Result<()> {
        let (Some(all), Some(one)) = (&self.pool, &self.alone) else { return Ok(()) };
        let alone = is_wanted(self.threads);
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
    use crate::{Backend, Context, DType, Graph, Sched, Threads};

    fn product(ctx: &Context, width: usize) -> Graph<'_> {
        let x = ctx.input("x", DType::F32, [width, width]).unwrap();
        ctx.graph([ctx.mul_mat(x, x).unwrap()]).unwrap()
    }

    #[test]
    fn short_graphs_are_computed_by_one_thread() {
        let ctx = Context::new();
        let (short, long) = (product(&ctx, 8), product(&ctx, 256));
        for (threads, alone) in [(Threads::new(3), [true, false, true]), (Threads::new(3).with_all(true), [false; 3])] {
            let mut cpu = Backend::cpu().unwrap();
            cpu.set_threads(threads).unwrap();
            let mut sched = Sched::builder().backend(cpu).build().unwrap();
            let seen = [&short, &long, &short].map(|graph| {
                let x = graph.leaves().next().unwrap();
                let mut run = sched.alloc(graph).unwrap();
                run.set(x, &vec![1.0_f32; x.elements()]).unwrap();
                run.compute().unwrap();
                assert_eq!(run.backends()[0].threads(), 3);
                run.backends()[0].is_alone
            });
            assert_eq!(seen, alone);
        }
    }
}
