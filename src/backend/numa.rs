//! Processors with several memories. ggml keeps what it knows of them in globals without a lock, which computations read.

use std::ffi::OsStr;
use std::fs;

use ggml_sys as sys;

use crate::device::named::named;
use crate::device::{Device, Registry};
use crate::error::{Error, Result};
use crate::guard;
use crate::lock::Lock;

/// How threads are spread over the memories of a processor (`ggml_numa_strategy`).
#[doc(alias = "ggml_numa_strategy")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Numa {
    /// Evenly over all nodes.
    Distribute,
    /// All on the node where [`numa_init`] is called.
    Isolate,
    /// Where the program `numactl` has put the process.
    Numactl,
}

/// What was done in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Nothing,
    Initialised,
    /// Computations may be reading the globals.
    Used,
}

static STAGE: Lock<Stage> = Lock::new(Stage::Nothing);

/// The nodes that ggml has room for. It puts those beyond into none, but takes any number for the current one.
const MOST_NODES: u32 = 8;

/// To be called before anything is made that can compute on a CPU.
pub(crate) fn used() {
    *STAGE.lock() = Stage::Used;
}

/// Tells ggml to mind that parts of the memory are nearer to some of the processors (`ggml_numa_init`). Without effect where
/// they are not, and on systems other than Linux.
///
/// Threads are bound during each computation. To be called once, before the first CPU backend is made.
///
/// # Errors
///
/// [`Error::Unsupported`] after the first call, after a CPU backend or an RPC server was made, and to isolate on machines
/// with more nodes than ggml knows; else as [`Device::cpu`].
#[doc(alias = "ggml_numa_init")]
pub fn numa_init(strategy: Numa) -> Result<()> {
    let refuse = |reason: &'static str| Err(Error::unsupported("numa_init", [], "CPU", reason));
    let cpu = registry()?;
    let init = cpu.function(named!(c"ggml_backend_cpu_numa_init" as ggml_numa_init(_)))?;
    let mut stage = STAGE.lock();
    match *stage {
        Stage::Nothing => {}
        Stage::Initialised => return refuse("it was done before, and can be done once"),
        Stage::Used => return refuse("computations on a CPU may be running already"),
    }
    if strategy == Numa::Isolate && nodes().any(|n| n >= MOST_NODES) {
        return refuse("ggml has room for 8 nodes, and this may be another");
    }
    let strategy = match strategy {
        Numa::Distribute => sys::GGML_NUMA_STRATEGY_DISTRIBUTE,
        Numa::Isolate => sys::GGML_NUMA_STRATEGY_ISOLATE,
        Numa::Numactl => sys::GGML_NUMA_STRATEGY_NUMACTL,
    };
    *stage = Stage::Initialised;
    guard::call("ggml_numa_init", || {
        // SAFETY: a strategy that exists. C writes globals, which nothing reads before a CPU backend is made; that waits for
        // the lock. The node that we are on is one of those it has room for, if it counts.
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
    let cpu = registry()?;
    let is_numa = cpu.function(named!(c"ggml_backend_cpu_is_numa" as ggml_is_numa()))?;
    let _stage = STAGE.lock();
    guard::call("ggml_is_numa", || {
        // SAFETY: C reads a global, which nobody writes to now: we hold the lock.
        unsafe { is_numa() }
    })
}

fn registry() -> Result<Registry> {
    Device::cpu()?.registry().ok_or(Error::Null { call: "ggml_backend_dev_backend_reg", log: Box::default() })
}

/// The numbers of the nodes of a Linux machine, where ggml looks for them as well.
fn nodes() -> impl Iterator<Item = u32> {
    let number = |name: &OsStr| name.to_str()?.strip_prefix("node")?.parse().ok();
    fs::read_dir("/sys/devices/system/node")
        .into_iter()
        .flatten()
        .filter_map(move |entry| number(&entry.ok()?.file_name()))
}
