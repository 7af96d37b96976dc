//! ggml's backward pass of each operation: which operands get a gradient, its layout, and what C asserts or assumes of
//! it.

use crate::dtype::DType;
use crate::header::{Layout, TensorPtr};
use crate::rules::table::row_of;
use crate::rules::{Refusal, Verdict, need};

/// The layout of a gradient that C computes as a new tensor.
pub(super) fn fresh(ne: [i64; 4]) -> Layout {
    Layout::packed(DType::F32, ne)
}

/// A gradient that an operation passes to an operand.
pub(super) struct Pass {
    pub(super) to: TensorPtr,
    /// The gradient's layout. C computes most gradients as new tensors, but passes some on as views.
    pub(super) layout: Layout,
    onto: Accumulator,
}

/// What C asserts of the gradient that an operand already has, before another gradient is added to it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Accumulator {
    Any,
    EvenRows,
    Contiguous,
}

const PERMUTED: &str = "the gradient that comes back through `permute` or `transpose` is not contiguous; a `reshape` to the \
                        same shape, put before those, copies it";

impl Pass {
    fn new(to: TensorPtr, layout: Layout) -> Self {
        Self { to, layout, onto: Accumulator::Any }
    }

    /// A gradient that C computes as a new tensor.
    fn fresh(to: TensorPtr) -> Self {
        Self::new(to, fresh(to.ne()))
    }

    fn onto(self, onto: Accumulator) -> Self {
        Self { onto, ..self }
    }

    /// The layout of the operand's gradient, after this one was added to `before`, the gradient that the operand
    /// already has.
    pub(super) fn join(&self, before: Option<Layout>) -> Verdict<Layout> {
        let Some(before) = before else { return Ok(self.layout) };
        let fits = match self.onto {
            Accumulator::Any => true,
            Accumulator::EvenRows => before.has_even_rows(),
            Accumulator::Contiguous => before.is_contiguous(),
        };
        // The sum of two gradients is a new tensor.
        if fits { Ok(fresh(before.ne)) } else { Err(Refusal(PERMUTED)) }
    }
}

/// ggml's backward pass of an operation: which operands get a gradient, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backward {
    None,
    /// The first operand gets a new gradient.
    First,
    FirstOfEven,
    FirstOfRows,
    /// The first operand gets the gradient of the result itself.
    Same,
    /// The first two operands get new gradients.
    Both,
    /// The function is piecewise constant, so no operand gets a gradient.
    Constant,
    Acc,
    Add,
    Add1,
    Cont,
    Cpy,
    Div,
    GetRows,
    Glu {
        swiglu: bool,
    },
    Im2col {
        two: bool,
    },
    Loss,
    Mean,
    MulMat {
        hadamard: bool,
    },
    Permute([usize; 4]),
    Rope {
        offset: bool,
    },
    Set,
    SoftMax {
        bias: bool,
    },
    Sub,
    Sum,
    View,
}

/// The sources that may get a gradient. When C looks for what depends on a parameter, it ignores the other sources.
pub(super) fn followed(t: TensorPtr) -> impl Iterator<Item = TensorPtr> {
    let overlooked = match row_of(t).map(|row| row.backward) {
        // Of the convolution's kernel, only the shape is used, so it is ignored.
        Ok(Backward::Im2col { .. } | Backward::Constant) => Some(0),
        // The second source is ignored: the target of a copy, the indices of rows, or positions.
        Ok(Backward::Cpy | Backward::GetRows | Backward::Rope { .. }) => Some(1),
        _ => None,
    };
    let slots = t.slots().into_iter().enumerate();
    slots.filter(move |(i, _)| Some(*i) != overlooked).filter_map(|(_, source)| source)
}

type Passes = Verdict<Vec<Pass>>;

const NONE: &str = "ggml has no backward pass for the operation with these operands";

/// The gradients that `t` passes to those of its sources that need one, in C's order.
pub(super) fn passes(t: TensorPtr, grad: Layout, needs: impl Fn(TensorPtr) -> bool) -> Passes {
    let [Some(first), second, third, ..] = t.slots() else { return Err(Refusal(NONE)) };
    let wants = |s: &TensorPtr| needs(*s);
    let (a, b, c) = (Some(first).filter(wants), second.filter(wants), third.filter(wants));
    let node = Differentiated { t, grad, first, second, third, a, b, c };
    node.passes(row_of(t)?.backward)
}

/// An operation whose result has a gradient, with its operands.
struct Differentiated {
    t: TensorPtr,
    grad: Layout,
    /// All operands of the operation: `first`, `second` and `third`.
    first: TensorPtr,
    second: Option<TensorPtr>,
    third: Option<TensorPtr>,
    /// The same operands, where they need a gradient: `a`, `b` and `c`.
    a: Option<TensorPtr>,
    b: Option<TensorPtr>,
    c: Option<TensorPtr>,
}

impl Differentiated {
    /// A pass of the result's own gradient to `to`.
    fn same(&self, to: TensorPtr) -> Pass {
        Pass::new(to, self.grad)
    }

    fn passes(&self, backward: Backward) -> Passes {
        self.holds(backward)?;
        let fresh_onto = |onto| self.a.map(|a| Pass::fresh(a).onto(onto));
        let same = self.a.map(|a| self.same(a));
        Ok(match backward {
            Backward::None => return Err(Refusal(NONE)),
            Backward::Constant => Vec::new(),
            Backward::First
            | Backward::FirstOfEven
            | Backward::FirstOfRows
            | Backward::Cpy
            | Backward::GetRows
            | Backward::Loss
            | Backward::Rope { .. }
            | Backward::SoftMax { .. } => collect(self.a.map(Pass::fresh), None),
            Backward::Both | Backward::Div | Backward::Glu { .. } | Backward::MulMat { .. } | Backward::Set => {
                collect(self.a.map(Pass::fresh), self.b.map(Pass::fresh))
            }
            Backward::Same | Backward::Add1 => collect(same, None),
            Backward::Acc | Backward::Sub => collect(same, self.b.map(Pass::fresh)),
            Backward::Add => {
                let second = |b| if self.is_one_shape() { self.same(b) } else { Pass::fresh(b) };
                collect(same, self.b.map(second))
            }
            Backward::Sum | Backward::Mean => collect(fresh_onto(Accumulator::EvenRows), None),
            Backward::View => collect(fresh_onto(Accumulator::Contiguous), None),
            Backward::Cont => {
                let one = self.first.ne() == self.t.ne();
                let pass = if one {
                    same.map(|p| p.onto(Accumulator::Contiguous))
                } else {
                    fresh_onto(Accumulator::Contiguous)
                };
                collect(pass, None)
            }
            Backward::Permute(axes) => collect(self.a.map(|a| Pass::new(a, self.grad.permuted(axes))), None),
            Backward::Im2col { .. } => collect(None, self.b.map(Pass::fresh)),
        })
    }

    /// Whether those operands that need a gradient can get one.
    fn holds(&self, backward: Backward) -> Verdict {
        match backward {
            Backward::None
            | Backward::Constant
            | Backward::First
            | Backward::Same
            | Backward::Both
            | Backward::Add
            | Backward::Permute(_)
            | Backward::Sum => Ok(()),
            Backward::FirstOfEven => need(self.grad.has_even_rows(), PERMUTED),
            Backward::FirstOfRows => need(self.grad.has_contiguous_rows(), PERMUTED),
            Backward::Set | Backward::Cpy | Backward::Cont => need(self.grad.is_contiguous(), PERMUTED),
            Backward::Acc => need(self.b.is_none() || self.grad.is_contiguous(), PERMUTED),
            // To the scalar of `add1`, C passes the mean of the gradient, which is not the scalar's gradient and has
            // another shape.
            Backward::Add1 => {
                need(self.b.is_none(), "the scalar that it adds gets no gradient; use `add`, which repeats it")
            }
            Backward::Sub => {
                need(self.is_one_shape(), ONE_SHAPE)?;
                need(self.b.is_none() || self.grad.has_contiguous_rows(), PERMUTED)
            }
            Backward::Div => need(self.is_one_shape(), ONE_SHAPE),
            Backward::Glu { swiglu } => {
                need(swiglu && self.second.is_some(), "only `swiglu_split` has a backward pass")
            }
            Backward::Mean => {
                let one = self.t.elements() == 1;
                need(one, "the mean of several rows has no backward pass; use `sum_rows`, `scale`")?;
                need(self.grad.has_even_rows(), PERMUTED)
            }
            Backward::MulMat { hadamard } => self.product(hadamard),
            Backward::View => part(self.t, self.first),
            Backward::GetRows => {
                let vector = |rows: TensorPtr| rows.ne().iter().skip(1).all(|&n| n == 1);
                let known = is_matrix(self.first) && self.second.is_some_and(vector);
                need(known, "only `get_rows` of a matrix by a vector of indices has a backward pass")
            }
            // C passes no gradient to mask and sinks, and ignores sinks in the gradient of the operand.
            Backward::SoftMax { bias } => {
                let plain = self.b.is_none() && self.third.is_none() && !bias;
                need(plain, "it has no backward pass with sinks, `max_bias`, or a mask made of parameters")
            }
            // C ignores the offset of `rope`, and rotates other elements back.
            Backward::Rope { offset } => {
                need(!offset, "it has no backward pass with an offset; use a `view` of part of each row")?;
                need(self.c.is_none(), "frequency factors get no gradient")
            }
            Backward::Loss => need(self.b.is_none(), "the labels can't depend on a parameter"),
            Backward::Im2col { two } => need(two, "only `im2col` of two dimensions has a backward pass"),
        }
    }

    /// Whether the second operand, if it needs a gradient, has the shape of the first.
    fn is_one_shape(&self) -> bool {
        self.b.is_none_or(|b| b.ne() == self.first.ne())
    }

    /// The conditions under which a matrix product has a backward pass.
    fn product(&self, hadamard: bool) -> Verdict {
        need(!hadamard, "it has no backward pass with a hint; leave `hadamard` out")?;
        let (Some(a), Some(b)) = (self.a, self.second) else { return Ok(()) };
        need(!b.is_transposed(), "its first operand gets no gradient where the second is transposed; use `cont`")?;
        let ([_, _, a2, a3], [_, _, b2, b3]) = (a.ne(), b.ne());
        let folds = (a2, a3) == (b2, b3) || b3 == 1;
        need(folds, "a first operand that is repeated in the fourth dimension gets no gradient; use `repeat`")
    }
}

/// The gradients in C's order, which is the order of the operands.
fn collect(a: Option<Pass>, b: Option<Pass>) -> Vec<Pass> {
    a.into_iter().chain(b).collect()
}

const ONE_SHAPE: &str = "its second operand gets no gradient unless both have one shape; use `repeat`";

/// The exclusive upper bound of strides and offsets, which C keeps in 32 bits.
const END: usize = 1 << 31;

/// The conditions under which a view `t` of `a` has a backward pass. C adds the view's gradient to a part of the
/// gradient of `a`, and finds that part by the strides of the view (H73).
fn part(t: TensorPtr, a: TensorPtr) -> Verdict {
    need(a.is_contiguous(), "a view of a tensor that is not contiguous has no backward pass; use `cont`")?;
    let [_, strides @ ..] = t.nb();
    let offset = t.view_offs().checked_sub(if a.view_src().is_some() { a.view_offs() } else { 0 });
    let inside = offset.is_some_and(|offset| t.layout().fits(offset, a.span()));
    need(inside, "a view that extends past its source has no backward pass")?;
    let near = strides.iter().all(|nb| (1..END).contains(nb)) && offset.is_some_and(|n| n < END);
    need(near, "a view with a stride of 0, or with a stride or offset of 2^31 or more, has no backward pass")
}

fn is_matrix(t: TensorPtr) -> bool {
    let [_, _, n2, n3] = t.ne();
    n2 == 1 && n3 == 1
}
