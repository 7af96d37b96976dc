//! The devices in use.

use std::num::NonZeroUsize;

use anyhow::{Context as _, Result};
use demos::loopback;
use ggml::{Device, DeviceType, Sched};

use crate::placement::{Candidate, Kind, Placement};

/// The devices, with a started RPC server if needed.
#[derive(Debug)]
pub(crate) struct Devices {
    /// All of them, in the scheduler's order.
    pub(crate) all: Vec<Device>,
    /// The device of each layer.
    pub(crate) of_layers: Vec<Device>,
}

impl Devices {
    /// Finds the devices called `wanted`, or the best ones, and starts the RPC server if it is among them.
    ///
    /// # Errors
    /// If a device does not exist, or the server does not start.
    pub(crate) fn start(wanted: Option<&[String]>, threads: NonZeroUsize) -> Result<Self> {
        let found = Device::all()?;
        let mut candidates: Vec<_> =
            found.iter().map(|device| Candidate { name: device.name(), kind: kind(*device) }).collect();
        candidates.extend(loopback::NAME.map(|name| Candidate { name: name.to_owned(), kind: Kind::Rpc }));
        let placement = Placement::choose(&candidates, wanted)?;
        let mut started = Vec::new();
        for &i in &placement.order {
            // The only candidate that ggml does not list is the server, which is not started yet.
            let device = found.get(i).map_or_else(|| loopback::start(threads), |&device| Ok(device))?;
            started.push((i, device));
        }
        let started_as = |i| started.iter().find(|(started, _)| *started == i).map(|&(_, device)| device);
        Ok(Self {
            all: started.iter().map(|&(_, device)| device).collect(),
            of_layers: placement.of_layers().filter_map(started_as).collect(),
        })
    }

    /// A scheduler that leaves each operation where its weights are.
    ///
    /// # Errors
    /// If a device does not start.
    pub(crate) fn sched(&self, threads: NonZeroUsize) -> Result<Sched> {
        let mut builder = Sched::builder().op_offload(false);
        for &device in &self.all {
            let mut backend = device.init().with_context(|| format!("device {device} does not start"))?;
            if device.device_type() == DeviceType::Cpu {
                backend.set_threads(threads.get())?;
            }
            builder = builder.backend(backend);
        }
        Ok(builder.build()?)
    }

    /// The names of the devices that hold weights, in layer order.
    pub(crate) fn holders(&self) -> Vec<String> {
        let mut names = Vec::new();
        for name in self.of_layers.iter().map(|device| device.name()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The maximum difference of a logit from the plain Rust forward pass. Some GPUs multiply in half precision.
    pub(crate) fn tolerance(&self) -> f64 {
        let gpu = |d: &Device| matches!(d.device_type(), DeviceType::Gpu | DeviceType::IntegratedGpu);
        if self.all.iter().any(|d| gpu(d) && !d.name().starts_with("RPC")) { 2e-2 } else { 1e-3 }
    }
}

/// A device's description. ggml describes a server only by its address, which differs in each run.
pub(crate) fn description(device: Device) -> String {
    if loopback::NAME == Some(&device.name()) { "RPC server in this process".to_owned() } else { device.description() }
}

fn kind(device: Device) -> Kind {
    match device.device_type() {
        DeviceType::Cpu => Kind::Cpu,
        DeviceType::Gpu => Kind::Gpu,
        DeviceType::IntegratedGpu => Kind::IntegratedGpu,
        _ => Kind::Other,
    }
}
