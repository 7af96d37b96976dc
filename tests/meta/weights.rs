//! Split weights.

use std::io::Cursor;

use ggml::gguf::{Reader, Writer};
use ggml::meta::{MetaDevice, SplitMode};
use ggml::prelude::*;

use crate::support::{by_name, cpus, meta, noise};

#[test]
fn meta_weights_round_trip() {
    for n in [2, 3] {
        let mut builder = WeightsBuilder::new();
        let ne = [96, 7, 5, 2];
        for name in ["whole", "a.0", "a.1", "a.2"] {
            builder.tensor(name, DType::F32, ne).unwrap();
        }
        builder.tensor("q.0", DType::Q8_0, [96, 4]).unwrap();
        builder.tensor("q.1", DType::Q8_0, [96, 4]).unwrap();
        let mut weights = builder.place(meta(n).buffer_type()).unwrap();
        for (i, name) in ["whole", "a.0", "a.1", "a.2"].into_iter().enumerate() {
            assert!(
                weights.tensor(name).unwrap().read::<f32>().unwrap().iter().all(|&v| v.to_bits() == 0),
                "zero at first"
            );
            let values = noise(96 * 7 * 5 * 2, i as u64);
            weights.set(name, &values).unwrap();
            assert_eq!(weights.tensor(name).unwrap().read::<f32>().unwrap(), values, "{name} on {n}");
            weights.fill_bytes(name, 0).unwrap();
            assert!(
                weights.tensor(name).unwrap().read::<f32>().unwrap().iter().all(|&v| v.to_bits() == 0),
                "zero again"
            );
        }
        for name in ["q.0", "q.1"] {
            let bytes = DType::Q8_0.quantize(&noise(96 * 4, 9), 96, None).unwrap();
            weights.set_bytes(name, &bytes).unwrap();
            assert_eq!(weights.read_bytes(name).unwrap(), bytes, "{name} on {n}");
        }
    }
}

/// A file is read in chunks, except for tensors of a meta device.
#[test]
fn meta_weights_stream_from_a_file() {
    let values = noise(64 * 4, 8);
    let mut writer = Writer::new();
    writer
        .tensor("w.0", DType::F32, [64, 4], &values.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<_>>())
        .unwrap();
    let file = writer.to_bytes().unwrap();
    let buft = meta(2).buffer_type();
    let streamed = Reader::from_stream(Cursor::new(&file)).unwrap().stream(buft, |_, _| ()).unwrap();
    let loaded = Reader::from_bytes(&file[..]).unwrap().load(buft).unwrap();
    let mapped = Reader::from_bytes(file).unwrap().map(buft).unwrap(); // copied: no memory of the host's
    for weights in [streamed, loaded, mapped] {
        assert_eq!(weights.tensor("w.0").unwrap().read::<f32>().unwrap(), values);
    }
}

/// Each device receives its parts of whole rows: ggml would assert if a chunk ended inside a row.
#[test]
fn h104_meta_stream_passes_tensors_whole() {
    // Rows of 12,000 bytes, 9 MB in total: several chunks, none of which would end with a row.
    let values = noise(3000 * 768, 3);
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
    let mut writer = Writer::new();
    for name in ["w.0", "w.1", "whole"] {
        writer.tensor(name, DType::F32, [3000, 768], &bytes).unwrap();
    }
    let file = writer.to_bytes().unwrap();
    let buft = meta(2).buffer_type();
    let weights = Reader::from_stream(Cursor::new(&file)).unwrap().stream(buft, |_, _| ()).unwrap();
    for name in ["w.0", "w.1", "whole"] {
        assert!(weights.tensor(name).unwrap().read::<f32>().unwrap() == values, "{name}");
    }
}

#[test]
fn meta_members_hold_only_their_part() {
    let mut builder = WeightsBuilder::new();
    builder.tensor("w.1", DType::F32, [64, 64]).unwrap();
    let weights = builder.place(meta(4).buffer_type()).unwrap();
    assert_eq!(weights.buffers()[0].size(), 64 * 64 * 4 / 4, "the most that one of them has");
}

#[test]
fn meta_device_answers_like_any_device() {
    let cpu = Device::cpu().unwrap();
    let device = cpus(3);
    assert_eq!(device.device_type(), DeviceType::Meta);
    assert_eq!(device.name(), "Meta(CPU,CPU,CPU)");
    assert_eq!(device.init().unwrap().name(), "Meta(CPU,CPU,CPU)");
    assert!(device.registry().is_none(), "no backend of its own");
    assert!(device.memory().unwrap().total >= cpu.memory().unwrap().total, "that of all");
    assert!(!device.capabilities().unwrap().events, "no events");
    assert!(!device.buffer_type().is_host(), "no addresses, whatever C says");
    assert!(device.supports_buffer_type(device.buffer_type()), "its own");
    assert!(!device.supports_buffer_type(cpu.buffer_type()), "not one device's");
    assert!(!cpu.supports_buffer_type(device.buffer_type()), "nor the other way round");
    assert!(device.extra_buffer_types().unwrap().is_empty(), "none");
    let mut backend = device.init().unwrap();
    backend.set_threads(1).unwrap();
    assert_eq!(backend.threads(), 1, "those of each CPU");
    assert!(backend.set_threads(0).is_err() && backend.set_abort(|| true).is_err(), "no more than their number");
}

#[test]
fn meta_device_is_one_per_configuration() {
    let cpu = Device::cpu().unwrap();
    let device = |n| MetaDevice::new(&vec![cpu; n], by_name).unwrap();
    assert_eq!(device(2), device(2), "the same devices, the same function");
    assert_ne!(device(2), device(3), "other devices");
    assert_ne!(device(2), MetaDevice::new(&[cpu; 2], |_| SplitMode::Mirrored).unwrap(), "another function");
    let captures = |axis| MetaDevice::new(&[cpu; 2], move |_| SplitMode::Even { axis }).unwrap();
    assert_ne!(captures(0), captures(1), "what a closure captures can't be compared");
    assert_eq!(device(2).members(), [cpu, cpu]);
}
