//! A process that runs programs, and writes down which, so that its parent knows where it ended.

use std::env;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::PathBuf;

use crate::program::World;

/// What a child is told through its environment.
#[derive(Debug, Clone)]
pub(crate) struct Orders {
    /// The seed of the run.
    pub(crate) seed: u64,
    /// The first program's number.
    pub(crate) first: u64,
    pub(crate) count: u64,
    /// The program from whose number on steps are printed.
    pub(crate) trace: u64,
    /// Where the number of the current program is written, and the counts at the end.
    pub(crate) folder: PathBuf,
}

const NAME: &str = "GGML_TEST_ABUSE";

impl Orders {
    pub(crate) fn environment(&self) -> (&'static str, String) {
        let Self { seed, first, count, trace, folder } = self;
        (NAME, format!("{seed} {first} {count} {trace} {}", folder.display()))
    }

    fn read() -> Option<Self> {
        let text = env::var(NAME).ok()?;
        let mut words = text.splitn(5, ' ');
        let mut number = || words.next()?.parse().ok();
        let (seed, first, count, trace) = (number()?, number()?, number()?, number()?);
        Some(Self { seed, first, count, trace, folder: words.next()?.into() })
    }

    pub(crate) fn progress(&self) -> PathBuf {
        self.folder.join("progress")
    }

    pub(crate) fn stats(&self) -> PathBuf {
        self.folder.join("stats")
    }
}

/// The seed of a program of a run.
pub(crate) fn program_seed(run: u64, number: u64) -> u64 {
    // Neighbours must not be alike (splitmix64).
    let mut z = run ^ number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[test]
#[ignore = "the driver runs it, in processes of its own"]
fn child_runs_programs() {
    let orders = Orders::read().expect("only the driver runs this");
    let mut progress = File::create(orders.progress()).unwrap();
    let mut world = World::new();
    world.alone = true;
    // Leaks are wanted here, and would hide others from who looks for them.
    world.leak = env::var_os("ABUSE_NO_LEAKS").is_none();
    for number in orders.first..orders.first + orders.count {
        progress.seek(SeekFrom::Start(0)).unwrap();
        progress.write_all(&number.to_le_bytes()).unwrap();
        world.trace = number >= orders.trace;
        // A run of one program has that program's seed.
        let seed = if orders.count == 1 && orders.first == 0 { orders.seed } else { program_seed(orders.seed, number) };
        world.run(seed);
    }
    fs::write(orders.stats(), world.stats.write()).unwrap();
}

/// What processes do one after the other, two threads do at once: they share registries, tables and logs of ggml's.
#[test]
fn programs_in_two_threads_do_not_interfere() {
    let all = env::var("ABUSE_PROGRAMS").ok().and_then(|n| n.parse::<u64>().ok());
    let count = all.map_or(u64::MAX, |n| n / 10).min(if cfg!(debug_assertions) { 200 } else { 4_000 });
    std::thread::scope(|scope| {
        for seed in [1, 2] {
            scope.spawn(move || {
                let mut world = World::new();
                world.leak = env::var_os("ABUSE_NO_LEAKS").is_none();
                (0..count).for_each(|number| world.run(program_seed(seed, number)));
            });
        }
    });
}
