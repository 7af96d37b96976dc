//! Distributions of the layers over the available devices.

use std::num::NonZeroUsize;

use anyhow::Result;
use demos::loopback;
use ggml::{Device, DeviceType};

/// All devices, the CPU first, with a server in this process if the feature `rpc` is on.
///
/// # Errors
/// ggml finds no device, or the server does not start.
pub(crate) fn devices(threads: NonZeroUsize) -> Result<Vec<Device>> {
    let mut devices = Device::all()?;
    if loopback::NAME.is_some() {
        let server = loopback::start(threads)?;
        devices.retain(|&device| device != server);
        devices.push(server);
    }
    let cpu = Device::cpu()?;
    devices.sort_by_key(|&device| device != cpu);
    Ok(devices)
}

/// Whether a device is a GPU, which may multiply in f16; CPUs don't.
pub(crate) fn with_gpu(devices: &[Device]) -> bool {
    let gpu = |d: &Device| matches!(d.device_type(), DeviceType::Gpu | DeviceType::IntegratedGpu);
    devices.iter().any(|d| gpu(d) && !d.name().starts_with("RPC"))
}

/// Distributions: each device alone, and each pair in turn.
pub(crate) fn few<T: Copy + PartialEq>(devices: &[T], layers: usize) -> Vec<Vec<T>> {
    let alone = devices.iter().map(|&device| vec![device; layers]);
    let in_turn = pairs(devices).map(|(a, b)| [a, b].into_iter().cycle().take(layers).collect());
    alone.chain(in_turn).collect()
}

/// All of [`few`], and for each pair every cut between its first and its second device.
pub(crate) fn all<T: Copy + PartialEq>(devices: &[T], layers: usize) -> Vec<Vec<T>> {
    let cuts = |(a, b)| (1..layers).map(move |n| [vec![a; n], vec![b; layers - n]].concat());
    let mut splits = few(devices, layers);
    splits.extend(pairs(devices).flat_map(cuts));
    splits
}

fn pairs<T: Copy + PartialEq>(devices: &[T]) -> impl Iterator<Item = (T, T)> {
    devices.iter().flat_map(|&a| devices.iter().filter(move |&&b| b != a).map(move |&b| (a, b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_enumerate_every_assignment_of_layers() {
        let pair = ["aaa", "bbb", "aba", "bab", "abb", "aab", "baa", "bba"].map(|s| s.chars().collect::<Vec<_>>());
        assert_eq!(all(&['a', 'b'], 3), pair);
        assert_eq!(few(&['a', 'b'], 3), pair[..4]);
        assert_eq!(all(&['a'], 6), [['a'; 6]]);
        assert_eq!(all(&['a', 'b', 'c'], 6).len(), 3 + 6 * (5 + 1));
    }
}
