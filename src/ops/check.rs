//! The words in which builders state what they need.

use std::fmt;
use std::ops::Deref;

use ggml_sys as sys;

use crate::dtype::DType;
use crate::error::{Error, Result, TensorInfo};
use crate::header::{Owner, TensorPtr};
use crate::rules::{cpu, indices};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// A call of a builder: what an error about it names.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a, 'c> {
    pub(crate) op: &'static str,
    pub(crate) operands: &'a [Tensor<'c>],
}

impl Call<'_, '_> {
    fn infos(self) -> Box<[TensorInfo]> {
        self.operands.iter().map(|t| t.info()).collect()
    }

    #[cold]
    fn wrong_shape(self, expected: &'static str) -> Error {
        Error::Shape { op: self.op, operands: self.infos(), expected: expected.into() }
    }

    #[cold]
    fn wrong_dtype(self, expected: &'static str) -> Error {
        Error::DType { op: self.op, operands: self.infos(), expected: expected.into() }
    }

    /// Shapes, strides or memory must be so.
    #[inline]
    pub(crate) fn shape(self, holds: bool, expected: &'static str) -> Result<()> {
        if holds { Ok(()) } else { Err(self.wrong_shape(expected)) }
    }

    /// Element types must be so.
    #[inline]
    pub(crate) fn dtype(self, holds: bool, expected: &'static str) -> Result<()> {
        if holds { Ok(()) } else { Err(self.wrong_dtype(expected)) }
    }

    /// All of these operands must be `f32`, whatever kernels make of it (H18).
    pub(crate) fn all_f32(self, operands: &[Tensor<'_>]) -> Result<()> {
        self.dtype(operands.iter().all(|t| t.dtype() == DType::F32), "all operands must be f32")
    }

    /// All of these operands must be contiguous.
    pub(crate) fn all_contiguous(self, operands: &[Tensor<'_>]) -> Result<()> {
        self.shape(operands.iter().all(|t| t.is_contiguous()), "all operands must be contiguous; use `cont`")
    }

    /// The result must be a tensor that can exist: builders multiply dimensions, and C asserts that the product fits.
    pub(crate) fn result(self, ne: [i64; 4], dtype: DType) -> Result<()> {
        self.shape(Shape::from(ne).bytes(dtype).is_ok(), "the result is too large for the address space")
    }

    /// A parameter must be so. What needs formatting is best given as `format_args!`, which costs nothing if it is.
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
        Error::Param { op: self.op, name, value: format!("{value:?}").into(), expected: expected.to_string().into() }
    }

    /// `t` is written to, so it must lie neither in frozen weights nor in an input: the values of an input that holds
    /// indices were checked when it was set.
    pub(crate) fn writable(self, t: Tensor<'_>) -> Result<()> {
        let root = t.ptr().root();
        match root.owner() {
            Owner::Weights | Owner::Packed => Err(Error::Frozen { op: self.op, tensor: t.info() }),
            Owner::Graph => {
                self.shape(root.op() != sys::GGML_OP_NONE, "an operation can't write into an input")?;
                self.shape(!indices::is_trusted(root), "an operation can't write into the indices that another made")?;
                self.shape(!cpu::readies(root), "an operation can't write into what was made ready for a sort")
            }
            Owner::State => Ok(()),
        }
    }

    /// `a` is written to while `others` are read, element by element: they must not share its memory, unless they are
    /// the very same elements.
    pub(crate) fn in_place(self, a: Tensor<'_>, others: &[Tensor<'_>]) -> Result<()> {
        self.writable(a)?;
        let a = a.ptr();
        let same = |b: TensorPtr| (a.layout(), a.view_offs()) == (b.layout(), b.view_offs());
        // The CPU computes a norm together with a product that follows it, and then reads what the norm is of.
        let normed = |b: TensorPtr| (b.op() == sys::GGML_OP_RMS_NORM).then(|| b.sources().next()).flatten();
        let mut read = others.iter().flat_map(|b| [Some(b.ptr()), normed(b.ptr())]).flatten();
        let apart = read.all(|b| !a.overlaps(b) || same(b));
        self.shape(apart, "the operand that is written to must not share memory with another; copy that (`dup`) before")
    }

    /// `a` is written to while `others` are read in another order: they must not share its memory at all.
    pub(crate) fn apart(self, a: Tensor<'_>, others: &[Tensor<'_>]) -> Result<()> {
        let shared = others.iter().any(|&b| a.ptr().overlaps(b.ptr()));
        self.shape(
            !shared,
            "the operand that is written to must not share memory with this one; copy it (`dup`) before",
        )
    }

    /// `b` must fill `a` when repeated (`ggml_can_repeat`).
    pub(crate) fn repeats(self, b: Tensor<'_>, a: Tensor<'_>) -> Result<()> {
        let fits = a.ne().into_iter().zip(b.ne()).all(|(a, b)| divides(b, a));
        self.shape(fits, "every dimension of the second operand must divide that of the first")
    }
}

/// The operands of a builder some of which may be missing, without those.
pub(crate) struct Operands<'c> {
    all: [Tensor<'c>; sys::GGML_MAX_SRC as usize],
    n: usize,
}

impl<'c> Operands<'c> {
    /// The first, which is there, and those of the others that are. There can be no more than sources of a tensor.
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

impl<'c> Deref for Operands<'c> {
    type Target = [Tensor<'c>];

    fn deref(&self) -> &[Tensor<'c>] {
        self.all.get(..self.n).unwrap_or_default()
    }
}

/// Whether `n` is positive and `of` a multiple of it. Divisions are slow, and nearly never needed.
#[inline]
pub(crate) fn divides(n: i64, of: i64) -> bool {
    n > 0 && (n == 1 || n == of || of % n == 0)
}
