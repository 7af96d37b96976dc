//! What a program's own code finds when it is called, and what it does there.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use ggml::GraphAllocator;
use ggml::prelude::*;

use super::acts::{self, Act, Kind};
use super::bomb::{defuse, payload};
use super::kept::Kept;
use crate::leaves::Leaves;
use crate::stats::variant;

/// Where code of the program's is called from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The closure of a custom operation.
    Custom,
    /// The closure that may stop a computation.
    Abort,
    /// The two closures of an observed computation.
    Ask,
    See,
    Logger,
    /// The destructor of something that a closure had, or of a panic's payload.
    Drop,
    /// The closure that chooses memory for a graph.
    Choose,
    /// The closure that divides weights.
    Split,
    /// What runs beside a computation.
    Meanwhile,
    Transfers,
}

/// What the rules say of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// `Error::Nested`, unless it was no call that can be made anywhere.
    Nested,
    /// `Error::InUse`, likewise.
    InUse,
    /// It goes well.
    Fine,
    /// As anywhere else.
    Free,
    /// Any of these.
    Either,
}

/// The model of the rules. Closures and loggers that run within a call into ggml can't make another. What runs beside a
/// computation can't look at what is computed, and can't do anything if that writes to a state.
fn rule(place: Place, kind: Kind, writes: bool) -> Rule {
    match (place, kind) {
        (_, Kind::Pure) => Rule::Fine,
        (Place::Custom | Place::Abort | Place::Ask | Place::See | Place::Logger, _) => Rule::Nested,
        (Place::Meanwhile, _) if writes => Rule::Nested,
        (Place::Meanwhile, Kind::Same) => Rule::InUse,
        (Place::Choose | Place::Split | Place::Transfers, _) | (Place::Meanwhile, Kind::Call) => Rule::Free,
        // What was kept may be of the same tensors; destructors run wherever their owner is dropped.
        (Place::Meanwhile, Kind::Kept) | (Place::Drop, _) => Rule::Either,
    }
}

/// All that is within reach.
pub(crate) struct Stage {
    pub(crate) rng: fastrand::Rng,
    pub(crate) ctx: &'static Context,
    pub(crate) graph: &'static Graph<'static>,
    pub(crate) outputs: Vec<Tensor<'static>>,
    pub(crate) leaves: &'static Leaves,
    pub(crate) kept: Vec<Kept>,
    /// Whether computing the graph may write to a state.
    pub(crate) writes: bool,
    /// Things to drop.
    pub(crate) loose: Vec<Box<dyn Any>>,
    /// How often something is done yet.
    pub(crate) left: u32,
    /// One in how many times it is done.
    pub(crate) seldom: u32,
    pub(crate) panics: bool,
    pub(crate) calls: u32,
    pub(crate) thrown: u32,
    surfaced: u32,
    /// For calls with nothing else to do.
    pulse: GraphAllocator,
    /// 1 where it did.
    pub(crate) forgot: u64,
    pub(crate) out_of_memory: u64,
    pub(crate) trace: bool,
    trouble: Vec<String>,
}

thread_local! {
    static STAGE: RefCell<Option<Box<Stage>>> = const { RefCell::new(None) };
}

impl Stage {
    pub(crate) fn new(
        rng: fastrand::Rng,
        ctx: &'static Context,
        graph: &'static Graph<'static>,
        outputs: Vec<Tensor<'static>>,
        leaves: &'static Leaves,
    ) -> Self {
        Self {
            rng,
            ctx,
            graph,
            outputs,
            leaves,
            kept: Vec::new(),
            writes: false,
            loose: Vec::new(),
            left: 0,
            seldom: 1,
            panics: false,
            calls: 0,
            thrown: 0,
            surfaced: 0,
            pulse: GraphAllocator::new(Device::cpu().unwrap().buffer_type()),
            forgot: 0,
            out_of_memory: 0,
            trace: false,
            trouble: Vec::new(),
        }
    }

    /// Does something; what it wants to panic with.
    fn act(&mut self, place: Place) -> Option<Box<dyn Any + Send>> {
        if self.left == 0 || self.rng.u32(..self.seldom) > 0 {
            return None;
        }
        self.left -= 1;
        // A destructor that panics while another panic goes on ends the process, by Rust's own rule.
        let may_panic = self.panics && !(place == Place::Drop && std::thread::panicking());
        if may_panic && self.rng.u32(..4) == 0 {
            self.thrown += 1;
            if self.trace {
                crate::say(format_args!("      {place:?}: panic"));
            }
            return Some(payload(self.rng.bool()));
        }
        let act = acts::ALL[self.rng.usize(..acts::ALL.len())];
        self.calls += 1;
        if self.trace {
            crate::say(format_args!("      {place:?}: {}", act.name));
        }
        match catch_unwind(AssertUnwindSafe(|| (act.run)(self))) {
            Ok(result) => {
                if self.trace {
                    crate::say(format_args!("        {result:?}"));
                }
                self.judge(place, act, &result);
            }
            Err(payload) => self.came_back(payload),
        }
        None
    }

    fn judge(&mut self, place: Place, act: Act, result: &ggml::Result<()>) {
        let (nested, in_use) =
            (matches!(result, Err(Error::Nested { .. })), matches!(result, Err(Error::InUse { .. })));
        let arguments = matches!(result, Err(Error::Param { .. } | Error::Shape { .. }));
        let well = match rule(place, act.kind, self.writes) {
            Rule::Nested => nested || arguments,
            Rule::InUse => in_use || arguments,
            Rule::Fine => result.is_ok(),
            Rule::Free => !nested && !in_use,
            Rule::Either => true,
        };
        // No safe call ends in an error of C's.
        let well = well && result.as_ref().err().is_none_or(|e| catch_unwind(|| variant(e)).is_ok());
        if !well {
            self.trouble.push(format!("{} within {place:?}: {result:?}", act.name));
        }
    }

    /// Looks at a panic that came out of a call.
    fn came_back(&mut self, payload: Box<dyn Any + Send>) {
        match defuse(payload) {
            Ok(()) => self.surfaced += 1,
            Err(other) => self.trouble.push(format!("a panic of the library's: {}", words(&*other))),
        }
    }

    fn trouble(&self) -> bool {
        !self.trouble.is_empty()
    }
}

/// The text of a panic.
pub(super) fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "something".to_owned())
}

/// To be called by all code that the library calls.
pub(crate) fn inside(place: Place) {
    let take = || STAGE.try_with(|s| s.try_borrow_mut().ok().and_then(|mut s| s.take())).ok().flatten();
    // What is called from here finds an empty stage: there is no end to it otherwise.
    let Some(mut stage) = take() else { return };
    let panic = stage.act(place);
    STAGE.with(|s| *s.borrow_mut() = Some(stage));
    if let Some(payload) = panic {
        // Without a word of the panic hook's.
        resume_unwind(payload);
    }
}

/// Makes a call in which code of the program's finds the stage; `None` where a panic of that code came out of it.
pub(super) fn provoke<R>(stage: &mut Option<Box<Stage>>, f: impl FnOnce() -> R) -> Option<R> {
    let before = stage.as_ref().unwrap().surfaced;
    let thrown = stage.as_ref().unwrap().thrown;
    STAGE.with(|s| *s.borrow_mut() = stage.take());
    let result = catch_unwind(AssertUnwindSafe(f));
    *stage = STAGE.with(|s| s.borrow_mut().take());
    let s = stage.as_mut().unwrap();
    let result = match result {
        Ok(value) => Some(value),
        Err(payload) => {
            s.came_back(payload);
            None
        }
    };
    // A logger's comes out of a later call; more than one may wait.
    for _ in 0..2 {
        let (allocator, graph) = (&mut s.pulse, s.graph);
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(allocator.reserve(graph)))) {
            s.came_back(payload);
        }
    }
    assert!(s.thrown == thrown || s.surfaced > before, "a panic was lost");
    assert!(!s.trouble(), "{:?}", s.trouble);
    result
}
