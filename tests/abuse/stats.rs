//! What programs did, operation by operation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ggml::Error;

/// Counts of one operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Calls of its builder.
    pub(crate) calls: u64,
    /// Those that made a tensor.
    pub(crate) accepted: u64,
    /// Those whose tensor the CPU has no kernel for.
    pub(crate) no_kernel: u64,
    /// Those whose tensor was computed.
    pub(crate) computed: u64,
    /// Those whose value was compared with the model's.
    pub(crate) compared: u64,
}

/// Programs that did what no sane one does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Hostile {
    /// Those whose closures, loggers or destructors called the library again.
    pub(crate) reentered: u64,
    /// Those that forgot an allocation.
    pub(crate) forgot: u64,
    /// Those for which there was too little memory.
    pub(crate) out_of_memory: u64,
    /// Those with copies between devices.
    pub(crate) two_devices: u64,
    /// Those whose closures, loggers or destructors panicked.
    pub(crate) panicked: u64,
}

impl Hostile {
    pub(crate) fn all(mut self) -> [u64; 5] {
        self.numbers().map(|n| *n)
    }

    fn numbers(&mut self) -> [&mut u64; 5] {
        let Self { reentered, forgot, out_of_memory, two_devices, panicked } = self;
        [reentered, forgot, out_of_memory, two_devices, panicked]
    }
}

impl std::fmt::Display for Hostile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { reentered, forgot, out_of_memory, two_devices, panicked } = self;
        write!(
            f,
            "reentered={reentered} forgot={forgot} out_of_memory={out_of_memory} two_devices={two_devices} panicked={panicked}"
        )
    }
}

/// Counts of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stats {
    pub(crate) programs: u64,
    pub(crate) hostile: Hostile,
    /// Numbers that were compared with the model's, or between two computations.
    pub(crate) values: u64,
    /// Steps of optimisers that were made, and trainings that were refused.
    pub(crate) trainings: [u64; 2],
    pub(crate) ops: Vec<Counts>,
    pub(crate) refused: BTreeMap<String, u64>,
}

/// Names an error's variant. Panics where it is one that no safe call should end in.
pub(crate) fn variant(e: &Error) -> &'static str {
    match e {
        Error::Shape { .. } => "Shape",
        Error::DType { .. } => "DType",
        Error::Param { .. } => "Param",
        Error::Frozen { .. } => "Frozen",
        Error::Length { .. } => "Length",
        Error::Range { .. } => "Range",
        Error::ElementType { .. } => "ElementType",
        Error::Index { .. } => "Index",
        Error::Repeated { .. } => "Repeated",
        Error::NotPart { .. } => "NotPart",
        Error::NotKept { .. } => "NotKept",
        Error::NotComputed { .. } => "NotComputed",
        Error::InputNotSet { .. } => "InputNotSet",
        Error::InUse { .. } => "InUse",
        Error::EmptyGraph => "EmptyGraph",
        Error::Unsupported { .. } => "Unsupported",
        Error::OutOfMemory { .. } => "OutOfMemory",
        Error::Duplicate { .. } => "Duplicate",
        Error::NoSuch { .. } => "NoSuch",
        Error::Cancelled => "Cancelled",
        Error::Nested { .. } => "Nested",
        // The check comes before C's own, which would be told in C's words.
        e => panic!("not an error of a check: {e}"),
    }
}

/// What must be refused, by a check of this crate's.
pub(crate) fn must_fail<T: std::fmt::Debug>(stats: &mut Stats, what: &str, result: ggml::Result<T>) {
    match result {
        Err(e) => stats.refuse(&e),
        Ok(value) => panic!("{what} went through: {value:?}"),
    }
}

/// What may go either way.
pub(crate) fn may_fail<T>(stats: &mut Stats, result: ggml::Result<T>) {
    if let Err(e) = result {
        stats.refuse(&e);
    }
}

impl Stats {
    pub(crate) fn new(ops: usize) -> Self {
        Self { ops: vec![Counts::default(); ops], ..Self::default() }
    }

    pub(crate) fn refuse(&mut self, e: &Error) {
        let name = variant(e);
        match self.refused.get_mut(name) {
            Some(n) => *n += 1,
            None => drop(self.refused.insert(name.to_owned(), 1)),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.programs += other.programs;
        self.values += other.values;
        let mut hostile = other.hostile;
        for (to, from) in self.hostile.numbers().into_iter().zip(hostile.numbers()) {
            *to += *from;
        }
        self.trainings = [0, 1].map(|i| self.trainings[i] + other.trainings[i]);
        for (to, from) in self.ops.iter_mut().zip(&other.ops) {
            to.calls += from.calls;
            to.accepted += from.accepted;
            to.no_kernel += from.no_kernel;
            to.computed += from.computed;
            to.compared += from.compared;
        }
        for (name, n) in &other.refused {
            *self.refused.entry(name.clone()).or_default() += n;
        }
    }

    pub(crate) fn sum(&self) -> Counts {
        let mut sum = Self::new(1);
        for &op in &self.ops {
            sum.add(&Self { ops: vec![op], ..Self::default() });
        }
        sum.ops[0]
    }

    /// As text, for another process.
    pub(crate) fn write(&self) -> String {
        let [steps, refused] = self.trainings;
        let mut text = format!("{} {} {steps} {refused}", self.programs, self.values);
        let mut hostile = self.hostile;
        for n in hostile.numbers() {
            write!(text, " {n}").unwrap();
        }
        text.push('\n');
        for c in &self.ops {
            writeln!(text, "{} {} {} {} {}", c.calls, c.accepted, c.no_kernel, c.computed, c.compared).unwrap();
        }
        for (name, n) in &self.refused {
            writeln!(text, "{name} {n}").unwrap();
        }
        text
    }

    /// What `write` wrote, of as many operations.
    pub(crate) fn read(text: &str, ops: usize) -> Option<Self> {
        let mut lines = text.lines();
        let first: Vec<u64> = lines.next()?.split(' ').map(|n| n.parse().ok()).collect::<Option<_>>()?;
        let (&[programs, values, steps, refused], rest) = first.split_first_chunk()?;
        let mut stats = Self { programs, values, trainings: [steps, refused], ..Self::default() };
        for (to, &from) in stats.hostile.numbers().into_iter().zip(rest) {
            *to = from;
        }
        for line in lines.by_ref().take(ops) {
            let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().ok()).collect::<Option<_>>()?;
            let &[calls, accepted, no_kernel, computed, compared] = numbers.as_slice() else { return None };
            stats.ops.push(Counts { calls, accepted, no_kernel, computed, compared });
        }
        for line in lines {
            let (name, n) = line.split_once(' ')?;
            stats.refused.insert(name.to_owned(), n.parse().ok()?);
        }
        Some(stats)
    }
}
