//! Lists that grow with a file or a graph: each allocation fails once, in a process of its own.

#![cfg(test)]
#![cfg(target_os = "linux")]

use std::sync::{Mutex, PoisonError};

use ggml::gguf::{Reader, Writer};
use ggml::prelude::*;
use ggml::{BufferType, Result};
use ggml_draw::ToDot as _;
use testkit::counted;

#[global_allocator]
static ALLOCATOR: counted::Counted = counted::Counted;

/// What a child process says of its failing allocation.
const HAPPENED: i32 = 0;
const WAS_NONE: i32 = 7;

/// A process that forks must not be holding a lock elsewhere, such as that of a panic's message: one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// How many of the allocations of at least `least` bytes in `f` end the process when they fail.
#[expect(unsafe_code, reason = "processes have no safe function that forks")]
fn ends(least: usize, f: &dyn Fn()) -> usize {
    let mut ends = 0;
    for n in 0.. {
        // SAFETY: the child runs only this thread, uses no lock of another one, and ends by `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "no process");
        if child == 0 {
            // SAFETY: closing the standard error, to which an abort would print.
            unsafe { libc::close(2) };
            let (happened, ()) = counted::fail(n, least, f);
            // SAFETY: ends the child, without destructors.
            unsafe { libc::_exit(if happened { HAPPENED } else { WAS_NONE }) };
        }
        let mut status = 0;
        // SAFETY: a child of this process; the status is written to.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(waited, child, "it ended");
        let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
        match code {
            Some(HAPPENED) => {}
            Some(WAS_NONE) => return ends,
            _ => ends += 1,
        }
    }
    ends
}

/// Asserts that larger things have no more allocations that end the process than small ones.
fn assert_fallible(what: &str, f: impl Fn(usize)) {
    let [few, many] = [4, 40].map(|n| ends(0, &|| f(n)));
    assert_eq!(few, many, "{what}: allocations that end the process when they fail");
}

/// Whatever came out of it.
fn done<E>(result: Result<(), E>) {
    drop(result);
}

fn cpu() -> BufferType {
    Device::cpu().unwrap().buffer_type()
}

fn name(i: usize) -> String {
    format!("blk.{i}.weight")
}

fn writer(n: usize) -> Writer {
    let mut writer = Writer::new();
    for i in 0..n {
        writer.set(&name(i), u32::MAX).unwrap().tensor(&name(i), DType::F32, [4], &[0; 16]).unwrap();
    }
    writer.set("texts", vec!["a text of many"; n].into_iter().collect::<ggml::gguf::Strings>()).unwrap();
    writer
}

fn file(n: usize) -> Vec<u8> {
    writer(n).to_bytes().unwrap()
}

/// A copy that devices can use where it lies.
fn aligned(bytes: &[u8]) -> &'static [u8] {
    let space = vec![0; bytes.len() + 64].leak();
    let first = space.as_ptr().align_offset(64);
    space[first..first + bytes.len()].copy_from_slice(bytes);
    &space[first..first + bytes.len()]
}

#[test]
fn gguf_files_that_exceed_memory_are_errors() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let cpu = cpu();
    let files = [4, 40].map(|n| aligned(&file(n)));
    let bytes = |n: usize| files[usize::from(n > 4)];
    let readers = [4, 40].map(|n| Reader::from_bytes(bytes(n)).unwrap());
    let reader = |n: usize| &readers[usize::from(n > 4)];
    assert_fallible("reading", |n| done(Reader::from_bytes(bytes(n)).map(drop)));
    assert_fallible("reading a stream", |n| done(Reader::from_stream(std::io::Cursor::new(bytes(n))).map(drop)));
    assert_fallible("loading", |n| done(reader(n).load(cpu).map(drop)));
    assert_fallible("finding", |n| done(reader(n).tensor("none").map(drop)));
    assert_fallible("mapping", |n| {
        let reader = Reader::from_bytes(bytes(n));
        done(reader.map(|r| done(r.map(cpu).map(drop))));
    });
    assert_fallible("streaming", |n| {
        let reader = Reader::from_stream(std::io::Cursor::new(bytes(n)));
        done(reader.map(|mut r| done(r.stream(cpu, |_, _| ()).map(drop))));
    });
    assert_fallible("copying metadata", |n| done(Writer::new().set_kv(reader(n)).map(drop)));
    let writers = [4, 40].map(writer);
    let writer = |n: usize| &writers[usize::from(n > 4)];
    assert_fallible("writing to memory", |n| done(writer(n).to_bytes().map(drop)));
    let names: Vec<_> = (0..40).map(name).collect();
    assert_fallible("adding tensors", |n| {
        let mut writer = Writer::new();
        done(names.iter().take(n).try_for_each(|name| writer.tensor(name, DType::F32, [4], &[0; 16]).map(drop)));
    });
    assert_fallible("placing weights", |n| {
        let mut builder = WeightsBuilder::new();
        let added = names.iter().take(n).try_for_each(|name| builder.tensor(name, DType::F32, [4]).map(drop));
        done(added.and_then(|()| builder.place(cpu).map(drop)));
    });
}

#[test]
fn graphs_that_exceed_memory_are_errors() {
    const LEAST: usize = 600;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let ctx = Context::new();
    let x = ctx.input("x", DType::F32, [4]).unwrap();
    let y = (0..100).try_fold(x, |t, i| if i % 2 == 0 { ctx.neg(t) } else { ctx.add(t, x) }).unwrap();
    let graph = ctx.graph([y]).unwrap();
    let backend = || {
        let mut backend = Backend::cpu().unwrap();
        backend.set_threads(1).unwrap();
        backend
    };
    let mut sched = Sched::builder().backend(backend()).backend(backend()).parallel(true).build().unwrap();
    let pins: Vec<_> = graph.nodes().enumerate().map(|(i, t)| (t, i % 2)).collect();
    assert_eq!(ends(LEAST, &|| drop(graph.to_dot())), 0, "printing a graph");
    let run = sched.alloc(&graph).unwrap();
    assert_eq!(ends(LEAST, &|| drop(run.splits())), 0, "listing splits");
    assert_eq!(ends(LEAST, &|| drop(run.to_dot())), 0, "printing a run");
    drop(run);
    let sched = std::cell::RefCell::new(sched);
    assert_eq!(ends(LEAST, &|| drop(sched.borrow_mut().alloc_pinned(&graph, &pins))), 0, "pinning");
}
