//! Copies, repetitions and concatenations.

use ggml_sys as sys;

use super::check::Call;
use crate::context::Context;
use crate::dtype::DType;
use crate::error::Result;
use crate::header::Layout;
use crate::header::made::{self, Made};
use crate::shape::Shape;
use crate::tensor::Tensor;

impl Context {
    /// A copy with the operand's shape and type, contiguous (`ggml_cont`).
    ///
    /// # Errors
    ///
    /// As all builders, where memory runs out.
    #[doc(alias = "ggml_cont")]
    pub fn cont<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        self.make(
            "ggml_cont",
            &[a],
            |t| contiguous(t, a, a.shape()),
            |c| {
                // SAFETY: the context is live and has room; `a` is live for 'c. The result keeps it as source.
                unsafe { sys::ggml_cont(c, a.as_ptr()) }
            },
        )
    }

    /// A contiguous copy in another shape (`ggml_cont_4d`): the same elements in the same order.
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) unless `shape` has as many elements as `a`, in whole blocks.
    #[doc(alias = "ggml_cont_1d")]
    #[doc(alias = "ggml_cont_2d")]
    #[doc(alias = "ggml_cont_3d")]
    #[doc(alias = "ggml_cont_4d")]
    pub fn cont_4d<'c>(&'c self, a: Tensor<'c>, shape: impl Into<Shape>) -> Result<Tensor<'c>> {
        let shape = shape.into();
        let call = Call { op: "cont_4d", operands: &[a] };
        let same = shape.bytes(a.dtype()).is_ok() && shape.elements() == a.shape().elements();
        call.param(same, "shape", shape.ne(), "it must have as many elements as the operand, in whole blocks")?;
        let [n0, n1, n2, n3] = shape.ne();
        self.make(
            "ggml_cont_4d",
            &[a],
            |t| contiguous(t, a, shape),
            |c| {
                // SAFETY: the context is live and has room; `a` is live for 'c and of the shape's size, all that C asserts. The
                // result keeps it as source.
                unsafe { sys::ggml_cont_4d(c, a.as_ptr(), n0, n1, n2, n3) }
            },
        )
    }

    /// A copy (`ggml_dup`).
    ///
    /// # Errors
    ///
    /// As all builders, where memory runs out.
    #[doc(alias = "ggml_dup")]
    pub fn dup<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        self.build("ggml_dup", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c. The result keeps it as source.
            unsafe { sys::ggml_dup(c, a.as_ptr()) }
        })
    }

    /// A copy onto the operand itself (`ggml_dup_inplace`): a view of `a` that changes nothing, as a step of its own.
    ///
    /// # Errors
    ///
    /// As [`Context::relu_inplace`], for all types.
    #[doc(alias = "ggml_dup_inplace")]
    pub fn dup_inplace<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        Call { op: "dup_inplace", operands: &[a] }.in_place(a, &[])?;
        self.build("ggml_dup_inplace", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c and may be written. The result keeps it as
            // source.
            unsafe { sys::ggml_dup_inplace(c, a.as_ptr()) }
        })
    }

    /// A copy in another element type (`ggml_cast`).
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless the rows are whole blocks of `dtype`.
    #[doc(alias = "ggml_cast")]
    pub fn cast<'c>(&'c self, a: Tensor<'c>, dtype: DType) -> Result<Tensor<'c>> {
        let call = Call { op: "cast", operands: &[a] };
        call.shape(a.shape().bytes(dtype).is_ok(), "rows must be whole blocks of the new type, of a size that exists")?;
        self.build("ggml_cast", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c, its rows are whole blocks. The result keeps it
            // as source.
            unsafe { sys::ggml_cast(c, a.as_ptr(), dtype.raw()) }
        })
    }

    /// Writes `a` into `b`, which may be a [`State`](crate::State)'s tensor or a view of one, converting between element
    /// types; the result is a view of `b` (`ggml_cpy`). What reads `b` itself does not wait for the copy: read the result,
    /// or give the copy to [`Context::graph`] before what reads it.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless both have as many elements and share no memory, or where `b` lies in an
    /// input; [`Error::Frozen`](crate::Error::Frozen) where it lies in weights.
    #[doc(alias = "ggml_cpy")]
    pub fn cpy<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: "cpy", operands: &[a, b] };
        call.writable(b)?;
        call.shape(a.elements() == b.elements(), "both must have as many elements")?;
        let same_rows = a.shape() == b.shape() || (a.dtype().block_size() == 1 && b.dtype().block_size() == 1);
        call.shape(same_rows, "tensors of blocks must have one shape")?;
        // Threads copy parts in any order, with memcpy.
        call.shape(!a.ptr().overlaps(b.ptr()), "they must not share memory; copy the first (`dup`) before")?;
        let fill = |t: &mut Made<'_>| {
            t.operation(sys::GGML_OP_CPY, [a.ptr(), b.ptr()], b.layout());
            t.view(b.ptr(), 0);
            let (from, to) = (a.ptr(), b.ptr());
            match (made::name_of(&to), made::name_of(&from)) {
                (b"", from) => t.name_of_parts(&[from, b" (copy)"]),
                (to, from) => t.name_of_parts(&[to, b" (copy of ", from, b")"]),
            }
        };
        self.make("ggml_cpy", &[a, b], fill, |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c, of one size, and `b` may be written.
            // The result keeps both as sources.
            unsafe { sys::ggml_cpy(c, a.as_ptr(), b.as_ptr()) }
        })
    }

    /// `a`, repeated to the shape of `like` (`ggml_repeat`).
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless every dimension of `a` divides that of `like`.
    #[doc(alias = "ggml_repeat")]
    pub fn repeat<'c>(&'c self, a: Tensor<'c>, like: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: "repeat", operands: &[like, a] };
        call.repeats(a, like)?;
        call.dtype(a.dtype().block_size() == 1, "a tensor of blocks can't be repeated")?;
        self.build("ggml_repeat", &[a, like], |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c, and `a` repeats over `like`, all that
            // C asserts. The result keeps `a` as source.
            unsafe { sys::ggml_repeat(c, a.as_ptr(), like.as_ptr()) }
        })
    }

    /// `a`, repeated to `shape` (`ggml_repeat_4d`).
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) unless every dimension of `a` divides that of `shape`;
    /// [`Error::DType`](crate::Error::DType) for block types.
    #[doc(alias = "ggml_repeat_4d")]
    pub fn repeat_4d<'c>(&'c self, a: Tensor<'c>, shape: impl Into<Shape>) -> Result<Tensor<'c>> {
        let shape = shape.into();
        let call = Call { op: "repeat_4d", operands: &[a] };
        call.dtype(a.dtype().block_size() == 1, "a tensor of blocks can't be repeated")?;
        let divides = shape.ne().into_iter().zip(a.ne()).all(|(n, part)| n % part == 0);
        let fits = divides && shape.bytes(a.dtype()).is_ok();
        call.param(
            fits,
            "shape",
            shape.ne(),
            "its dimensions must be multiples of the operand's, of a size that exists",
        )?;
        let [n0, n1, n2, n3] = shape.ne();
        self.build("ggml_repeat_4d", &[a], |c| {
            // SAFETY: the context is live and has room; `a` is live for 'c and repeats over the shape, all that C asserts.
            // The result keeps it as source.
            unsafe { sys::ggml_repeat_4d(c, a.as_ptr(), n0, n1, n2, n3) }
        })
    }

    /// The sums of what [`Context::repeat`] would make of each element: `a`, folded to the shape of `like`
    /// (`ggml_repeat_back`).
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless every dimension of `like` divides that of `a`.
    #[doc(alias = "ggml_repeat_back")]
    pub fn repeat_back<'c>(&'c self, a: Tensor<'c>, like: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: "repeat_back", operands: &[a, like] };
        call.repeats(like, a)?;
        call.dtype(a.dtype().block_size() == 1, "a tensor of blocks can't be folded")?;
        self.build("ggml_repeat_back", &[a, like], |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c, and `like` repeats over `a`, all that
            // C asserts. The result keeps `a` as source.
            unsafe { sys::ggml_repeat_back(c, a.as_ptr(), like.as_ptr()) }
        })
    }

    /// `a` and `b`, one after the other in dimension `dim` (`ggml_concat`).
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) unless `dim` is 0 to 3; [`Error::DType`](crate::Error::DType) unless both have
    /// one type that is no block type; [`Error::Shape`](crate::Error::Shape) unless all other dimensions are equal.
    #[doc(alias = "ggml_concat")]
    pub fn concat<'c>(&'c self, a: Tensor<'c>, b: Tensor<'c>, dim: usize) -> Result<Tensor<'c>> {
        let call = Call { op: "concat", operands: &[a, b] };
        call.param(dim < 4, "dim", dim, "it must lie in 0 to 3")?;
        call.dtype(
            a.dtype() == b.dtype() && a.dtype().block_size() == 1,
            "both must have one type, and no block type",
        )?;
        let others = a.ne().into_iter().zip(b.ne()).enumerate().all(|(i, (a, b))| i == dim || a == b);
        call.shape(others, "all dimensions but the one they are joined in must be equal")?;
        let mut ne = a.ne();
        if let (Some(n), Some(more)) = (ne.get_mut(dim), b.ne().get(dim)) {
            *n = n.saturating_add(*more);
        }
        call.result(ne, a.dtype())?;
        let dim = i32::try_from(dim).unwrap_or(0);
        self.build("ggml_concat", &[a, b], |c| {
            // SAFETY: the context is live and has room; the operands are live for 'c and fit by the checks above, which are
            // all that C asserts. The result keeps both as sources.
            unsafe { sys::ggml_concat(c, a.as_ptr(), b.as_ptr(), dim) }
        })
    }
}

/// A copy without gaps.
fn contiguous(t: &mut Made<'_>, a: Tensor<'_>, shape: Shape) {
    t.operation(sys::GGML_OP_CONT, [a.ptr()], Layout::packed(a.dtype(), shape.ne()));
    t.name(a.ptr(), b" (cont)");
}
