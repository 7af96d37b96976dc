//! Faults at a call of a function.

/// The functions that can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Supports,
    AllocSize,
    Allocate,
    Stream,
    Event,
    WaitFor,
    BufferSet,
    BufferGet,
    BufferFill,
    BufferCopy,
    Optimize,
    Compute,
    Synchronize,
    Set,
    Get,
    Copy,
    Record,
    Wait,
    /// The work itself, after it was submitted.
    Work,
    DropBuffer,
    DropStream,
}

impl Call {
    pub const ALL: [Self; 21] = [
        Self::Supports,
        Self::AllocSize,
        Self::Allocate,
        Self::Stream,
        Self::Event,
        Self::WaitFor,
        Self::BufferSet,
        Self::BufferGet,
        Self::BufferFill,
        Self::BufferCopy,
        Self::Optimize,
        Self::Compute,
        Self::Synchronize,
        Self::Set,
        Self::Get,
        Self::Copy,
        Self::Record,
        Self::Wait,
        Self::Work,
        Self::DropBuffer,
        Self::DropStream,
    ];
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Fail,
    Lose,
    Panic,
    /// A copy says that it can't.
    Refuse,
}

#[derive(Default)]
pub(super) struct Faults {
    next: Option<(Call, usize, Fault)>,
    happened: bool,
}

impl Faults {
    pub(super) fn set(&mut self, call: Call, n: usize, fault: Fault) {
        *self = Self { next: Some((call, n, fault)), happened: false };
    }

    pub(super) fn happened(&self) -> bool {
        self.happened
    }

    /// The fault of this call.
    pub(super) fn next(&mut self, call: Call) -> Option<Fault> {
        let (of, n, fault) = self.next.as_mut()?;
        if *of != call {
            return None;
        }
        if *n > 0 {
            *n -= 1;
            return None;
        }
        let fault = *fault;
        (self.next, self.happened) = (None, true);
        Some(fault)
    }
}
