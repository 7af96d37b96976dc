//! The checks by which builders state what every device needs: shapes, strides, parameters. What the kernels of one device
//! need is checked when a graph is allocated, by `rules/`.

use std::fmt;
use std::ops::Deref;

use ggml_sys as sys;

use crate::callback;
use crate::dtype::DType;
use crate::error::{Error, Result, TensorInfo};
use crate::header::{Owner, TensorPtr};
use crate::rules::{cpu, indices};
use crate::shape::{CShape as _, Shape};
use crate::tensor::Tensor;

/// A call of a builder, with the name and the operands that its errors name.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a, 'c> {
    pub(crate) op: Entered,
    pub(crate) operands: &'a [Tensor<'c>],
}

/// The name of a builder, which proves that no closure called by ggml has called it. [`entered`] makes it at the start
/// of the builder. So the error in a closure names the builder that the closure called, and not one that this builder
/// calls in turn.
#[derive(Clone, Copy)]
pub(crate) struct Entered(&'static str);

impl Entered {
    /// Makes the builder's name, unless a closure called by ggml calls the builder. `path` is `name` as users write it.
    #[inline]
    pub(crate) fn new(path: &'static str, name: &'static str) -> Result<Self> {
        callback::check_reentry(path).map(|()| Self(name))
    }

    /// The name of a function that is no builder, such as `Dataset::new`. Re-entry is not checked here, because the
    /// function may never reach ggml.
    pub(crate) const fn other(name: &'static str) -> Self {
        Self(name)
    }

    pub(crate) fn name(self) -> &'static str {
        self.0
    }
}

/// The first thing that a builder does: `entered!("add")` checks that `Context::add` may be called.
macro_rules! entered {
    ($($name:tt)*) => {
        $crate::ops::check::Entered::new(concat!("Context::", $($name)*), $($name)*)?
    };
}
pub(crate) use entered;

impl Call<'_, '_> {
    fn infos(self) -> Box<[TensorInfo]> {
        self.operands.iter().map(|t| t.info()).collect()
    }

    #[cold]
    fn wrong_shape(self, expected: &'static str) -> Error {
        Error::Shape { call: self.op.name(), operands: self.infos(), expected: expected.into() }
    }

    #[cold]
    fn wrong_dtype(self, expected: &'static str) -> Error {
        Error::DType { call: self.op.name(), operands: self.infos(), expected: expected.into() }
    }

    /// Requires a condition on shapes, strides or memory.
    #[inline]
    pub(crate) fn shape(self, holds: bool, expected: &'static str) -> Result<()> {
        if holds { Ok(()) } else { Err(self.wrong_shape(expected)) }
    }

    /// Requires a condition on element types.
    #[inline]
    pub(crate) fn dtype(self, holds: bool, expected: &'static str) -> Result<()> {
        if holds { Ok(()) } else { Err(self.wrong_dtype(expected)) }
    }

    /// Requires `f32` of all these operands. C does not check it (H18).
    pub(crate) fn all_f32(self, operands: &[Tensor<'_>]) -> Result<()> {
        self.dtype(operands.iter().all(|t| t.dtype() == DType::F32), "all operands must be f32")
    }

    /// Requires all these operands to be contiguous.
    pub(crate) fn all_contiguous(self, operands: &[Tensor<'_>]) -> Result<()> {
        self.shape(operands.iter().all(|t| t.is_contiguous()), "all operands must be contiguous; use `cont`")
    }

    /// Requires a result that fits the address space: C multiplies its dimensions, and asserts that nothing overflows.
    pub(crate) fn result(self, ne: [i64; 4], dtype: DType) -> Result<()> {
        self.shape(Shape::from(ne).bytes(dtype).is_ok(), "the result is too large for the address space")
    }

    /// Requires a condition on a parameter. If the text is a `format_args!`, it is made only where the condition fails.
    #[inline]
    pub(crate) fn param(
        self,
        holds: bool,
        name: &'static str,
        value: impl fmt::Debug,
        expected: impl fmt::Display,
    ) -> Result<()> {
        if holds { Ok(()) } else { Err(self.wrong_param(name, &value, &expected)) }
    }

    #[cold]
    fn wrong_param(self, name: &'static str, value: &dyn fmt::Debug, expected: &dyn fmt::Display) -> Error {
        Error::Param {
            call: self.op.name(),
            name,
            value: format!("{value:?}").into(),
            expected: expected.to_string().into(),
        }
    }

    /// Requires that an operation may write to `t`: it must not lie in frozen weights, in an input, or in the result of
    /// a sort. (Indices in an input are checked only when it is set, and those from a sort are trusted.)
    pub(crate) fn writable(self, t: Tensor<'_>) -> Result<()> {
        let root = t.ptr().root();
        match root.owner() {
            Owner::Weights | Owner::Packed => Err(Error::Frozen { call: self.op.name(), tensor: t.info() }),
            Owner::Graph => {
                self.shape(root.op() != sys::GGML_OP_NONE, "an operation can't write to an input; `dup` it")?;
                self.shape(!indices::is_trusted(root), "an operation can't write to a sort's indices; `dup` it")?;
                self.shape(!cpu::clamps_nan(root), "an operation can't write to a sort's operand; `dup` it")
            }
            Owner::State => Ok(()),
        }
    }

    /// Requires that an operation may write to `a` while it reads `others`, element by element: they must not overlap
    /// `a`, unless they are exactly the same elements.
    pub(crate) fn in_place(self, a: Tensor<'_>, others: &[Tensor<'_>]) -> Result<()> {
        self.writable(a)?;
        let a = a.ptr();
        let same = |b: TensorPtr| (a.layout(), a.view_offs()) == (b.layout(), b.view_offs());
        // The CPU fuses a norm with the multiplication after it. The fused kernel reads the norm's operand, so that
        // counts as read, too.
        let normed = |b: TensorPtr| (b.op() == sys::GGML_OP_RMS_NORM).then(|| b.sources().next()).flatten();
        let mut read = others.iter().flat_map(|b| [Some(b.ptr()), normed(b.ptr())]).flatten();
        let apart = read.all(|b| !a.overlaps(b) || same(b));
        self.shape(apart, "the operand that is written to must not share memory with another; copy that (`dup`) before")
    }

    /// Requires that an operation may write to `a` while it reads `others` in another order: no overlap at all.
    pub(crate) fn apart(self, a: Tensor<'_>, others: &[Tensor<'_>]) -> Result<()> {
        let shared = others.iter().any(|&b| a.ptr().overlaps(b.ptr()));
        self.shape(
            !shared,
            "the operand that is written to must not share memory with this one; copy it (`dup`) before",
        )
    }

    /// Requires that `b` can be repeated to the shape of `a` (`ggml_can_repeat`).
    pub(crate) fn repeats(self, b: Tensor<'_>, a: Tensor<'_>) -> Result<()> {
        let fits = a.ne().into_iter().zip(b.ne()).all(|(a, b)| divides(b, a));
        self.shape(fits, "every dimension of the second operand must divide that of the first")
    }
}

/// The operands of a builder, some of which are optional: those that are there.
pub(crate) struct OperandList<'c> {
    all: [Tensor<'c>; sys::GGML_MAX_SRC as usize],
    n: usize,
}

impl<'c> OperandList<'c> {
    /// Collects `first` and those of `others` that are there, `GGML_MAX_SRC` in all at most.
    pub(crate) fn new(first: Tensor<'c>, others: impl IntoIterator<Item = Option<Tensor<'c>>>) -> Self {
        let mut this = Self { all: [first; sys::GGML_MAX_SRC as usize], n: 1 };
        for t in others.into_iter().flatten() {
            if let Some(to) = this.all.get_mut(this.n) {
                *to = t;
                this.n += 1;
            }
        }
        this
    }
}

impl<'c> Deref for OperandList<'c> {
    type Target = [Tensor<'c>];

    fn deref(&self) -> &[Tensor<'c>] {
        self.all.get(..self.n).unwrap_or_default()
    }
}

/// Whether `n` is positive and divides `of`. Avoids the slow division where possible.
#[inline]
pub(crate) fn divides(n: i64, of: i64) -> bool {
    n > 0 && (n == 1 || n == of || of % n == 0)
}
