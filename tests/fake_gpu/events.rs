//! Events order what streams do, and without them the race detector fires. Streams are used by ggml's own functions: through
//! this crate's no work outlives a call, so nothing would depend on an event.

use std::ffi::CString;
use std::ptr;

use ggml_sys as sys;
use testkit::fake_gpu::{FakeOptions, devices, take_races};

use crate::{RACES, count};

testkit::trials!(
    event_orders_streams,
    event_orders_streams_in_turn,
    host_waits_for_an_event,
    stream_is_waited_for_before_the_host_reads,
);

const N: usize = 64;
const BYTES: usize = N * size_of::<f32>();

/// Streams of a device, and a tensor in its memory.
struct Streams {
    device: sys::ggml_backend_dev_t,
    context: *mut sys::ggml_context,
    buffer: *mut sys::ggml_backend_buffer,
    tensor: *mut sys::ggml_tensor,
    all: [sys::ggml_backend_t; 3],
}

/// An event of the device.
struct Event(sys::ggml_backend_event_t);

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: live, and no stream has work that waits for it: tests end by `finish`.
        unsafe { sys::ggml_backend_event_free(self.0) };
    }
}

impl Streams {
    fn new() -> Self {
        let [(_, control)] = devices(FakeOptions::default());
        control.set_delays(true);
        let name = CString::new(control.name.clone()).unwrap();
        // SAFETY: a C string.
        let device = unsafe { sys::ggml_backend_dev_by_name(name.as_ptr()) };
        assert!(!device.is_null());
        let params = sys::ggml_init_params { mem_size: 1 << 12, mem_buffer: ptr::null_mut(), no_alloc: true };
        // SAFETY: C allocates the memory.
        let context = unsafe { sys::ggml_init(params) };
        // SAFETY: the context has room for a header.
        let tensor = unsafe { sys::ggml_new_tensor_1d(context, sys::GGML_TYPE_F32, N as i64) };
        // SAFETY: a live device.
        let memory = unsafe { sys::ggml_backend_dev_buffer_type(device) };
        // SAFETY: a live context, whose tensor has no memory, and a live buffer type.
        let buffer = unsafe { sys::ggml_backend_alloc_ctx_tensors_from_buft(context, memory) };
        assert!(!buffer.is_null());
        // SAFETY: a live device.
        let all = [(); 3].map(|()| unsafe { sys::ggml_backend_dev_init(device, ptr::null()) });
        Self { device, context, buffer, tensor, all }
    }

    fn event(&self) -> Event {
        // SAFETY: a live device, which has events.
        let event = unsafe { sys::ggml_backend_event_new(self.device) };
        assert!(!event.is_null());
        Event(event)
    }

    fn record(&self, event: &Event, stream: usize) {
        // SAFETY: both are live, and of one device.
        unsafe { sys::ggml_backend_event_record(event.0, self.all[stream]) };
    }

    fn wait(&self, stream: usize, event: &Event) {
        // SAFETY: both are live, and of one device.
        unsafe { sys::ggml_backend_event_wait(self.all[stream], event.0) };
    }

    fn write(&self, stream: usize, data: &[f32; N]) {
        // SAFETY: the tensor has as many bytes; callers keep the data until `finish`.
        unsafe {
            sys::ggml_backend_tensor_set_async(self.all[stream], self.tensor, data.as_ptr().cast(), 0, BYTES);
        };
    }

    fn read(&self, stream: usize, data: &mut [f32; N]) {
        // SAFETY: the tensor has as many bytes; callers keep the data until `finish`.
        unsafe {
            sys::ggml_backend_tensor_get_async(self.all[stream], self.tensor, data.as_mut_ptr().cast(), 0, BYTES);
        };
    }

    fn read_by_host(&self) -> [f32; N] {
        let mut data = [0.0; N];
        // SAFETY: the tensor has as many bytes.
        unsafe { sys::ggml_backend_tensor_get(self.tensor, data.as_mut_ptr().cast(), 0, BYTES) };
        data
    }

    /// Waits for all streams, and returns the races.
    fn finish(&self) -> Vec<String> {
        for &stream in &self.all {
            // SAFETY: live.
            unsafe { sys::ggml_backend_synchronize(stream) };
        }
        take_races().iter().map(ToString::to_string).collect()
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        for &stream in &self.all {
            // SAFETY: live, and not used again.
            unsafe { sys::ggml_backend_free(stream) };
        }
        // SAFETY: live, and not used again: its streams are gone.
        unsafe { sys::ggml_backend_buffer_free(self.buffer) };
        // SAFETY: live, and not used again.
        unsafe { sys::ggml_free(self.context) };
        let races = take_races();
        count(&RACES, races.len());
        assert!(races.is_empty() || std::thread::panicking(), "{races:?}");
    }
}

const READ_WHILE_WRITTEN: &str = "a transfer from  while a transfer to  is under way";

/// How one of the waits of a test is left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lacks {
    Nothing,
    Wait,
    Record,
    /// The event is recorded before the work that it is to follow.
    Order,
}

const ALL: [Lacks; 4] = [Lacks::Nothing, Lacks::Wait, Lacks::Record, Lacks::Order];

impl Streams {
    /// Writes, and records the event behind that, unless this is what lacks.
    fn write_before(&self, event: &Event, lacks: Lacks, data: &[f32; N]) {
        if lacks == Lacks::Order {
            self.record(event, 0);
        }
        self.write(0, data);
        if matches!(lacks, Lacks::Nothing | Lacks::Wait) {
            self.record(event, 0);
        }
    }
}

fn event_orders_streams() {
    for lacks in ALL {
        let streams = Streams::new();
        let event = streams.event();
        for round in 0..20 {
            let (data, mut read) = ([round as f32; N], [0.0; N]);
            streams.write_before(&event, lacks, &data);
            if lacks != Lacks::Wait {
                streams.wait(1, &event);
            }
            streams.read(1, &mut read);
            let races = streams.finish();
            if lacks == Lacks::Nothing {
                assert_eq!((races, read), (vec![], data));
            } else {
                assert_eq!(races, [READ_WHILE_WRITTEN], "{lacks:?}");
            }
        }
    }
}

/// What a stream has waited for comes before what waits for that stream.
fn event_orders_streams_in_turn() {
    for lacks in [None, Some(0), Some(1)] {
        let streams = Streams::new();
        let [first, second] = [streams.event(), streams.event()];
        let (data, mut read) = ([5.0; N], [0.0; N]);
        streams.write(0, &data);
        streams.record(&first, 0);
        if lacks != Some(0) {
            streams.wait(1, &first);
        }
        streams.record(&second, 1);
        if lacks != Some(1) {
            streams.wait(2, &second);
        }
        streams.read(2, &mut read);
        let races = streams.finish();
        assert_eq!(races.len(), usize::from(lacks.is_some()), "without {lacks:?}: {races:?}");
        assert!(read == data || lacks.is_some());
        // A later write comes after the read only if it waits for that, too.
        streams.read(2, &mut read);
        streams.write(0, &data);
        assert_eq!(streams.finish(), ["a transfer to  while a transfer from  is under way"]);
    }
}

fn host_waits_for_an_event() {
    for lacks in ALL {
        let streams = Streams::new();
        let event = streams.event();
        let data = [7.0; N];
        streams.write_before(&event, lacks, &data);
        if lacks != Lacks::Wait {
            // SAFETY: live.
            unsafe { sys::ggml_backend_event_synchronize(event.0) };
        }
        let read = streams.read_by_host();
        let races = streams.finish();
        if lacks == Lacks::Nothing {
            assert_eq!((races, read), (vec![], data));
        } else {
            assert_eq!(races, ["the host reads  while a transfer to  is under way"], "{lacks:?}");
        }
    }
}

fn stream_is_waited_for_before_the_host_reads() {
    let streams = Streams::new();
    let data = [3.0; N];
    streams.write(0, &data);
    assert_eq!(streams.finish(), [""; 0]);
    assert_eq!(streams.read_by_host(), data);
    streams.write(1, &data);
    // SAFETY: live. It is another stream that is waited for.
    unsafe { sys::ggml_backend_synchronize(streams.all[0]) };
    let _undefined = streams.read_by_host();
    assert_eq!(streams.finish(), ["the host reads  while a transfer to  is under way"]);
}
