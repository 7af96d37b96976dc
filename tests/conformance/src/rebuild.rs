//! A device that builds each node again with the safe builders, of operands with the same strides, and computes that on
//! ggml's CPU.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ggml::driver::{Driver, DriverInfo, DriverStream, Failure, NoBuffer, NoEvent, Node, Nodes};
use ggml::{DeviceType, Registry};

use crate::builder::Builder;

/// The device's name.
pub(crate) const NAME: &str = "rebuild";

/// Why the last node was refused, unless nobody asked since.
static REFUSAL: Mutex<Option<String>> = Mutex::new(None);

/// What went wrong in computations: that is never right, as `supports` has built each node before.
static FAILURES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// How many streams live.
static STREAMS: AtomicUsize = AtomicUsize::new(0);

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn take_refusal() -> Option<String> {
    lock(&REFUSAL).take()
}

pub(crate) fn take_failures() -> Vec<String> {
    std::mem::take(&mut *lock(&FAILURES))
}

pub(crate) fn streams() -> usize {
    STREAMS.load(Ordering::SeqCst)
}

pub(crate) fn register(threads: usize) -> ggml::Result<()> {
    Registry::register("Rebuild", [Rebuild { builder: Builder::start(threads), threads }])?;
    Ok(())
}

struct Rebuild {
    builder: Builder,
    threads: usize,
}

impl Driver for Rebuild {
    type Buffer = NoBuffer;
    type Stream = Stream;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        DriverInfo::new(NAME.into(), DeviceType::Accelerator).with_description("Operations, built again")
    }

    fn supports(&self, node: &Node<'_, Self>) -> bool {
        match self.builder.run(node.recipe(), None) {
            Ok(_) => true,
            Err(why) => {
                *lock(&REFUSAL) = Some(why);
                false
            }
        }
    }

    fn stream(&self, _params: &str) -> Result<Stream, Failure> {
        STREAMS.fetch_add(1, Ordering::SeqCst);
        Ok(Stream(Builder::start(self.threads)))
    }
}

struct Stream(Builder);

impl Drop for Stream {
    fn drop(&mut self) {
        STREAMS.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Stream {
    fn node(&self, mut node: Node<'_, Rebuild>) -> Result<(), Failure> {
        let recipe = node.recipe();
        node.on_host(|to, from| {
            let sources = from.iter().map(|bytes| bytes.to_vec()).collect();
            let computed = self.0.run(recipe, Some(sources)).map_err(Failure::new)?;
            recipe.store(&computed, to)
        })?
    }
}

impl DriverStream<Rebuild> for Stream {
    fn compute(&mut self, nodes: Nodes<'_, Rebuild>) -> Result<(), Failure> {
        for node in nodes {
            let what = format!("{node:?}");
            self.node(node).inspect_err(|why| lock(&FAILURES).push(format!("{what}: {why}")))?;
        }
        Ok(())
    }
}
