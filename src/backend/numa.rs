//! NUMA support. ggml keeps its state in globals without a lock, which computations read.

use std::ffi::OsStr;
use std::fs;

use ggml_sys as sys;

use crate::callback;
use crate::device::named::named;
use crate::device::{Device, Registry};
use crate::error::{Error, Result};
use crate::lock::Lock;

/// How threads are spread over NUMA nodes (`ggml_numa_strategy`).
///
/// ```standalone_crate
/// # use ggml::prelude::*;
/// use ggml::cpu::{Numa, is_numa, numa_init};
/// numa_init(Numa::Distribute)?; // at the program's start
/// println!("several nodes: {}", is_numa()?);
/// let backend = Backend::cpu()?;
/// assert!(numa_init(Numa::Isolate).is_err(), "too late");
/// # Ok::<(), ggml::Error>(())
/// ```
#[doc(alias = "ggml_numa_strategy")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Numa {
    /// Threads run evenly on all nodes.
    Distribute,
    /// All threads run on the node on which [`numa_init`] is called.
    Isolate,
    /// Threads run as the program `numactl` has configured the process.
    Numactl,
}

/// How far this process has come with NUMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Nothing,
    Initialised,
    /// Something was made that can compute on a CPU, so computations may read ggml's globals.
    Used,
}

static STAGE: Lock<Stage> = Lock::new(Stage::Nothing);

/// The number of nodes in ggml's table. ggml ignores further nodes, but doesn't check the current node's number.
const MAX_NODES: u32 = 8;

/// Records that computations may read ggml's globals. Called before anything is made that can compute on a CPU.
pub(crate) fn used() {
    *STAGE.lock() = Stage::Used;
}

/// Makes ggml respect that memory is nearer to some CPUs than to others (`ggml_numa_init`). Has no effect on machines
/// without NUMA, and on systems other than Linux.
///
/// Threads are bound during each computation. Call this once, before the first CPU backend is made.
///
/// # Errors
///
/// [`Error::Unsupported`] after the first call, after a CPU backend or an RPC server was made, and for
/// [`Numa::Isolate`] on machines with more nodes than ggml supports; else as [`Device::cpu`].
#[doc(alias = "ggml_numa_init")]
pub fn numa_init(strategy: Numa) -> Result<()> {
    callback::check_reentry("cpu::numa_init")?;
    let refuse = |reason: &'static str| Err(Error::unsupported("numa_init", [], "CPU", reason));
    let cpu = registry()?;
    let mut stage = STAGE.lock();
    match *stage {
        Stage::Nothing => {}
        Stage::Initialised => return refuse("it was called before; call it once"),
        Stage::Used => return refuse("computations on a CPU may be running; call it before a CPU backend is made"),
    }
    if strategy == Numa::Isolate && nodes().any(|n| n >= MAX_NODES) {
        return refuse("ggml supports 8 nodes, and this machine may have more; use another strategy");
    }
    let strategy = match strategy {
        Numa::Distribute => sys::GGML_NUMA_STRATEGY_DISTRIBUTE,
        Numa::Isolate => sys::GGML_NUMA_STRATEGY_ISOLATE,
        Numa::Numactl => sys::GGML_NUMA_STRATEGY_NUMACTL,
    };
    *stage = Stage::Initialised;
    cpu.call(named!(c"ggml_backend_cpu_numa_init" as ggml_numa_init(_)), |init| {
        // SAFETY: the strategy exists. C writes globals, which nothing reads before a CPU backend is made (`used` waits
        // for our lock). The current node is in bounds of ggml's table if the strategy needs it (checked above).
        unsafe { init(strategy) }
    })
}

/// Whether [`numa_init`] found more than one node (`ggml_is_numa`).
///
/// # Errors
///
/// As [`Device::cpu`].
#[doc(alias = "ggml_is_numa")]
pub fn is_numa() -> Result<bool> {
    callback::check_reentry("cpu::is_numa")?;
    let cpu = registry()?;
    let _stage = STAGE.lock();
    cpu.call(named!(c"ggml_backend_cpu_is_numa" as ggml_is_numa()), |is_numa| {
        // SAFETY: C reads a global, which no thread writes now: we hold the lock.
        unsafe { is_numa() }
    })
}

fn registry() -> Result<Registry> {
    Device::cpu()?.registry().ok_or(Error::Null { call: "ggml_backend_dev_backend_reg", log: Box::default() })
}

/// The node numbers of a Linux machine, read from where ggml reads them.
fn nodes() -> impl Iterator<Item = u32> {
    let number = |name: &OsStr| name.to_str()?.strip_prefix("node")?.parse().ok();
    fs::read_dir("/sys/devices/system/node")
        .into_iter()
        .flatten()
        .filter_map(move |entry| number(&entry.ok()?.file_name()))
}
