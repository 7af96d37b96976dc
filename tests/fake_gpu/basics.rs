//! A driver's device is a device like any other.

use ggml::driver::{Driver, DriverInfo, DriverStream, Failure, NoBuffer, NoEvent, Node, Nodes, Operation};
use ggml::prelude::*;
use ggml::{Registry, ops::UnaryOp};
use testkit::fake_gpu::{FakeOptions, devices};

use crate::assert_no_races;

testkit::trials!(
    device_is_listed_with_its_properties,
    memory_is_set_and_read,
    bad_registrations_are_refused,
    node_on_host_lends_sources_and_result,
);

fn device_is_listed_with_its_properties() {
    let [(device, control), (other, _)] = devices(FakeOptions { limit: 1 << 20, ..FakeOptions::default() });
    assert_eq!(Device::by_name(&control.name).unwrap(), device);
    assert!(Device::all().unwrap().contains(&other));
    assert_eq!(device.registry().unwrap().devices().unwrap(), [device, other]);
    let (capabilities, memory) = (device.capabilities().unwrap(), device.memory().unwrap());
    assert!(capabilities.async_compute && capabilities.events && !capabilities.host_buffer);
    assert_eq!((memory.free, memory.total), (1 << 20, 1 << 20));
    assert_eq!((device.device_type(), device.description()), (DeviceType::Gpu, "The CPU, pretending".into()));
    assert!(!device.buffer_type().is_host());
    assert!(device.supports_buffer_type(device.buffer_type()));
    assert!(!device.supports_buffer_type(other.buffer_type()));
    assert_eq!(device.init().unwrap().name(), control.name);
}

fn memory_is_set_and_read() {
    let [(device, control), (other, _)] = devices(FakeOptions::default());
    let state_on = |device: Device| {
        let mut builder = WeightsBuilder::new();
        builder.tensor("a", DType::F32, [4]).unwrap();
        builder.tensor("b", DType::F32, [4]).unwrap();
        builder.place_state(device).unwrap()
    };
    let (state, second) = (state_on(device), state_on(other));
    state.set("b", &[1.0_f32, 2.0, 3.0, 4.0]).unwrap();
    assert_eq!(state.tensor("a").unwrap().read::<f32>().unwrap(), [0.0; 4], "new memory is zero");
    state.copy("a", state.tensor("b").unwrap()).unwrap();
    second.copy("b", state.tensor("a").unwrap()).unwrap();
    assert_eq!(second.tensor("b").unwrap().read::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
    state.fill_bytes("a", 0).unwrap();
    assert_eq!(state.tensor("a").unwrap().read::<f32>().unwrap(), [0.0; 4]);
    assert!(control.used() > 0);
    drop(state);
    assert_eq!(control.used(), 0);
    assert_no_races("transfers");
}

/// Doubles numbers.
struct Doubler(DriverInfo);

impl Doubler {
    fn new(name: &str) -> Self {
        Self(DriverInfo::new(name.into(), DeviceType::Accelerator))
    }
}

impl Driver for Doubler {
    type Buffer = NoBuffer;
    type Stream = Doubling;
    type Event = NoEvent;

    fn info(&self) -> DriverInfo {
        self.0.clone()
    }

    fn supports(&self, node: &Node<'_, Self>) -> bool {
        matches!(node.operation(), Ok(Operation::Unary(UnaryOp::Neg)))
    }

    fn stream(&self, _params: &str) -> Result<Doubling, Failure> {
        Ok(Doubling)
    }
}

struct Doubling;

impl DriverStream<Doubler> for Doubling {
    fn compute(&mut self, nodes: Nodes<'_, Doubler>) -> Result<(), Failure> {
        let mut nodes: Vec<_> = nodes.collect();
        let Some((first, others)) = nodes.split_first_mut() else { return Ok(()) };
        first.on_host(|to, from| {
            // Another node's memory could be the same.
            for other in others.iter_mut() {
                assert!(other.on_host(|_, _| ()).is_err());
            }
            assert_eq!(to.len(), from[0].len());
            for (to, from) in to.chunks_exact_mut(4).zip(from[0].chunks_exact(4)) {
                let x = f32::from_le_bytes(from.try_into().unwrap());
                to.copy_from_slice(&(2.0 * x).to_le_bytes());
            }
        })?;
        for other in others {
            other.on_host(|to, from| to.copy_from_slice(from[0]))?;
        }
        Ok(())
    }
}

fn node_on_host_lends_sources_and_result() {
    let device = Registry::register("Doublers", [Doubler::new("doubler")]).unwrap().devices().unwrap()[0];
    let mut sched = Sched::builder().backend(device.init().unwrap()).backend(Backend::cpu().unwrap()).build().unwrap();
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [3]).unwrap();
    let doubled = ctx.neg(ctx.relu(x).unwrap()).unwrap();
    let twice = ctx.neg(doubled).unwrap();
    let graph = ctx.graph([twice, doubled]).unwrap();
    let mut run = sched.alloc(&graph).unwrap();
    run.set(x, &[1.0_f32, -2.0, 3.0]).unwrap();
    run.compute().unwrap();
    assert_eq!(run.get::<f32>(doubled).unwrap(), [2.0, 0.0, 6.0]);
    assert_eq!(run.get::<f32>(twice).unwrap(), [2.0, 0.0, 6.0]);
}

fn bad_registrations_are_refused() {
    let refused = |name: &str, driver: Doubler| Registry::register(name, [driver]).unwrap_err().to_string();
    for name in ["CPU", "blas", "Vulkan", "RPC7"] {
        assert!(refused(name, Doubler::new("d")).contains("already exists"), "{name}");
    }
    for name in ["", "a\0b"] {
        assert!(refused(name, Doubler::new("d")).contains("`name`"), "{name:?}");
        assert!(refused("d", Doubler::new(name)).contains("device name"), "{name:?}");
    }
    assert!(refused("d", Doubler::new("cpu")).contains("a device named `cpu` already exists"));
    let with = |info: fn(DriverInfo) -> DriverInfo| Doubler(info(Doubler::new("d").0));
    assert!(refused("d", with(|info| info.with_alignment(48))).contains("`alignment`"));
    assert!(refused("d", with(|info| info.with_alignment(1 << 17))).contains("`alignment`"));
    assert!(refused("d", with(|info| info.with_max_size(0))).contains("`max_size`"));
    let kind = Doubler(DriverInfo::new("d".into(), DeviceType::Cpu));
    assert!(refused("d", kind).contains("`kind`"));
    assert!(Registry::register("d", Vec::<Doubler>::new()).unwrap_err().to_string().contains("`drivers`"));
    let twice = Registry::register("d", [Doubler::new("same"), Doubler::new("Same")]);
    assert!(twice.unwrap_err().to_string().contains("already exists"));
}
