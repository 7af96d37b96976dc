//! Transfers to and from the device.

use ggml::Pieces;
use ggml::prelude::*;

use crate::{cpu, device, sample};

/// 4 MiB: more than drivers copy at once.
const N: usize = 1 << 20;

fn state(on: Device) -> State {
    let mut builder = WeightsBuilder::new();
    for name in ["a", "b"] {
        builder.tensor(name, DType::F32, [N as i64]).unwrap();
    }
    builder.tensor("m", DType::F32, [4, 3]).unwrap();
    builder.place_state(on.buffer_type()).unwrap()
}

fn read(state: &State, name: &str) -> Vec<f32> {
    state.tensor(name).unwrap().read().unwrap()
}

#[test]
fn state_data_round_trips() {
    let state = state(device());
    assert!(read(&state, "a").iter().all(|&x| x == 0.0), "new memory is zero");
    let data = sample(N, 1);
    state.set("a", &data).unwrap();
    assert!(read(&state, "a") == data && read(&state, "b").iter().all(|&x| x == 0.0), "its neighbour stays");
    state.copy("b", state.tensor("a").unwrap()).unwrap();
    assert!(read(&state, "b") == data, "copied on the device");
    state.fill_bytes("a", 0xff).unwrap();
    assert!(state.read_bytes("a").unwrap().iter().all(|&b| b == 0xff));
    state.clear_bytes(0).unwrap();
    assert!(read(&state, "b").iter().all(|&x| x == 0.0));
}

#[test]
fn pieces_2d_round_trip() {
    let state = state(device());
    state.set("m", &(0_u8..12).map(f32::from).collect::<Vec<_>>()).unwrap();
    let columns = Pieces { offset: 1, len: 2, count: 3, step: 4, data_step: 2 };
    let mut got = [0.0_f32; 6];
    state.read_2d("m", columns, &mut got).unwrap();
    assert_eq!(got, [1.0, 2.0, 5.0, 6.0, 9.0, 10.0]);
    state.set_2d("m", columns, &[-1.0_f32, -2.0, -3.0, -4.0, -5.0, -6.0]).unwrap();
    assert_eq!(read(&state, "m"), [0.0, -1.0, -2.0, 3.0, 4.0, -3.0, -4.0, 7.0, 8.0, -5.0, -6.0, 11.0]);
}

#[test]
fn transfers_complete_when_their_closure_returns() {
    let state = state(device());
    let mut backend = device().init().unwrap();
    let (data, mut back) = (sample(N, 2), vec![0.0_f32; N]);
    for _ in 0..5 {
        back.fill(0.0);
        backend
            .transfers(|queue| {
                queue.set(&state, "a", &data)?;
                queue.copy(state.tensor("a")?, &state, "b")?;
                queue.get(state.tensor("b")?, &mut back)
            })
            .unwrap();
        assert!(back == data);
    }
}

#[test]
fn copy_moves_data_between_devices() {
    let (here, there) = (state(cpu().device()), state(device()));
    let data = sample(N, 3);
    here.set("a", &data).unwrap();
    there.copy("b", here.tensor("a").unwrap()).unwrap();
    here.copy("b", there.tensor("b").unwrap()).unwrap();
    assert!(read(&here, "b") == data);
    let (mut one, mut two) = (cpu(), device().init().unwrap());
    let mut back = vec![0.0_f32; N];
    if one.device() != two.device() {
        two.transfers_from(&mut one, |queue| {
            queue.copy(here.tensor("a")?, &there, "a")?;
            queue.get(there.tensor("a")?, &mut back)
        })
        .unwrap();
        assert!(back == data);
    }
}

/// The device's pinned host memory, if it has any, and user memory that is registered with it.
#[test]
fn host_memory_of_the_device_is_usable() {
    let capabilities = device().capabilities().unwrap();
    let host = device().host_buffer_type();
    assert_eq!(host.is_some(), capabilities.host_buffer, "{capabilities:?}");
    if let Some(host) = host {
        assert!(host.is_host(), "{host:?}");
        let mut builder = WeightsBuilder::new();
        builder.tensor("a", DType::F32, [N as i64]).unwrap();
        let pinned = builder.place_state(host).unwrap();
        let data = sample(N, 4);
        pinned.set("a", &data).unwrap();
        let state = state(device());
        state.copy("a", pinned.tensor("a").unwrap()).unwrap();
        assert!(read(&state, "a") == data);
    }
    let bytes: Vec<u8> = sample(N, 5).into_iter().flat_map(f32::to_le_bytes).collect();
    let pinned = device().registry().unwrap().pin(bytes.clone()).unwrap();
    eprintln!("pinned: {}", pinned.is_pinned());
    let state = state(device());
    state.set_bytes("a", pinned.as_ref()).unwrap();
    drop(pinned);
    assert!(state.read_bytes("a").unwrap() == bytes);
}
