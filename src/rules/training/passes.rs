//! ggml's backward pass of each operation: which operands get a gradient, its layout, and what C asserts or assumes of
//! it.

use ggml_sys as sys;

use crate::dtype::DType;
use crate::header::{Layout, TensorPtr};
use crate::rules::{Refusal, Verdict, need};

/// The layout of a new gradient.
pub(super) fn fresh(ne: [i64; 4]) -> Layout {
    Layout::packed(DType::F32, ne)
}

/// A gradient that an operation passes to an operand.
pub(super) struct Pass {
    pub(super) to: TensorPtr,
    /// The gradient's layout. C computes most as new tensors, but passes some on as views.
    pub(super) layout: Layout,
    onto: Accumulator,
}

/// What C asserts of the gradient that another operation has already given to the operand, to which it adds.
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

    /// The layout of the operand's gradient after this one is added to `before`, the one that it has, if any.
    pub(super) fn join(&self, before: Option<Layout>) -> Verdict<Layout> {
        let Some(before) = before else { return Ok(self.layout) };
        let fits = match self.onto {
            Accumulator::Any => true,
            Accumulator::EvenRows => before.has_even_rows(),
            Accumulator::Contiguous => before.is_contiguous(),
        };
        // The sum is a new tensor.
        if fits { Ok(fresh(before.ne)) } else { Err(Refusal(PERMUTED)) }
    }
}

/// The sources that may get a gradient. C ignores the others when it finds what depends on a parameter.
pub(super) fn followed(t: TensorPtr) -> impl Iterator<Item = TensorPtr> {
    let overlooked = match t.op() {
        // Only the shape of the convolution's kernel is used.
        sys::GGML_OP_IM2COL => Some(0),
        sys::GGML_OP_UNARY if is_constant(t) => Some(0),
        // The target of a copy; indices of rows; positions.
        sys::GGML_OP_CPY | sys::GGML_OP_GET_ROWS | sys::GGML_OP_ROPE => Some(1),
        _ => None,
    };
    let slots = t.slots().into_iter().enumerate();
    slots.filter(move |(i, _)| Some(*i) != overlooked).filter_map(|(_, source)| source)
}

/// Whether an element-wise function is piecewise constant.
fn is_constant(t: TensorPtr) -> bool {
    matches!(unary_op(t), sys::GGML_UNARY_OP_SGN | sys::GGML_UNARY_OP_STEP)
}

fn unary_op(t: TensorPtr) -> sys::ggml_unary_op {
    let [op, ..] = t.op_params();
    op.cast_unsigned()
}

type Passes = Verdict<Vec<Pass>>;

const NONE: &str = "ggml has no backward pass for the operation with these operands";

/// The gradients that `t` passes to those of its sources that need one, in C's order.
pub(super) fn passes(t: TensorPtr, grad: Layout, needs: impl Fn(TensorPtr) -> bool) -> Passes {
    let [Some(first), second, third, ..] = t.slots() else { return Err(Refusal(NONE)) };
    let wants = |s: &TensorPtr| needs(*s);
    let (a, b, c) = (Some(first).filter(wants), second.filter(wants), third.filter(wants));
    let node = Node { t, grad, first, second, third, a, b, c };
    let families = [Node::elements, Node::sums, Node::parts, Node::rows, Node::windows];
    families.iter().find_map(|family| family(&node)).unwrap_or(Err(Refusal(NONE)))
}

/// An operation whose result has a gradient.
struct Node {
    t: TensorPtr,
    grad: Layout,
    /// All operands.
    first: TensorPtr,
    second: Option<TensorPtr>,
    third: Option<TensorPtr>,
    /// Those operands that need a gradient.
    a: Option<TensorPtr>,
    b: Option<TensorPtr>,
    c: Option<TensorPtr>,
}

impl Node {
    /// Passes on the gradient itself.
    fn same(&self, to: TensorPtr) -> Pass {
        Pass::new(to, self.grad)
    }

    /// New gradients for the first two operands, where needed.
    fn fresh(&self) -> Passes {
        collect(self.a.map(Pass::fresh), self.b.map(Pass::fresh))
    }

    /// A new gradient for the first operand, if needed.
    fn fresh_first(&self) -> Passes {
        collect(self.a.map(Pass::fresh), None)
    }

    fn in_order(&self) -> Verdict {
        need(self.grad.is_contiguous(), PERMUTED)
    }

    /// Element-wise functions of one or two operands.
    fn elements(&self) -> Option<Passes> {
        let one_shape = self.b.is_none_or(|b| b.ne() == self.first.ne());
        Some(match self.t.op() {
            sys::GGML_OP_DUP => collect(self.a.map(|a| self.same(a)), None),
            sys::GGML_OP_ADD => {
                let second = |b| if one_shape { self.same(b) } else { Pass::fresh(b) };
                collect(self.a.map(|a| self.same(a)), self.b.map(second))
            }
            sys::GGML_OP_ADD1 => {
                // C passes the mean of the gradient, which is not the scalar's gradient and has another shape.
                need(self.b.is_none(), "the scalar that it adds gets no gradient; use `add`, which repeats it")
                    .and_then(|()| collect(self.a.map(|a| self.same(a)), None))
            }
            sys::GGML_OP_SUB => need(one_shape, ONE_SHAPE)
                .and_then(|()| need(self.b.is_none() || self.grad.has_contiguous_rows(), PERMUTED))
                .and_then(|()| collect(self.a.map(|a| self.same(a)), self.b.map(Pass::fresh))),
            sys::GGML_OP_DIV => need(one_shape, ONE_SHAPE).and_then(|()| self.fresh()),
            sys::GGML_OP_MUL => self.fresh(),
            sys::GGML_OP_SQR | sys::GGML_OP_SQRT | sys::GGML_OP_LOG | sys::GGML_OP_SIN | sys::GGML_OP_COS => {
                self.fresh_first()
            }
            sys::GGML_OP_SCALE => need(self.grad.has_even_rows(), PERMUTED).and_then(|()| self.fresh_first()),
            sys::GGML_OP_UNARY => self.function(),
            sys::GGML_OP_GLU => {
                let [unit, ..] = self.t.op_params();
                let split = unit.cast_unsigned() == sys::GGML_GLU_OP_SWIGLU && self.second.is_some();
                need(split, "only `swiglu_split` has a backward pass").and_then(|()| self.fresh())
            }
            _ => return None,
        })
    }

    fn function(&self) -> Passes {
        match unary_op(self.t) {
            sys::GGML_UNARY_OP_SGN | sys::GGML_UNARY_OP_STEP => Ok(Vec::new()),
            sys::GGML_UNARY_OP_NEG => need(self.grad.has_contiguous_rows(), PERMUTED).and_then(|()| self.fresh_first()),
            sys::GGML_UNARY_OP_ABS
            | sys::GGML_UNARY_OP_RELU
            | sys::GGML_UNARY_OP_SILU
            | sys::GGML_UNARY_OP_EXP
            | sys::GGML_UNARY_OP_EXPM1
            | sys::GGML_UNARY_OP_SOFTPLUS => self.fresh_first(),
            _ => Err(Refusal(NONE)),
        }
    }

    /// Sums, repetitions and matrix products.
    fn sums(&self) -> Option<Passes> {
        let even = || collect(self.a.map(|a| Pass::fresh(a).onto(Accumulator::EvenRows)), None);
        Some(match self.t.op() {
            sys::GGML_OP_SUM_ROWS | sys::GGML_OP_REPEAT | sys::GGML_OP_REPEAT_BACK => self.fresh_first(),
            sys::GGML_OP_SUM => even(),
            sys::GGML_OP_MEAN => {
                let one = self.t.elements() == 1;
                need(one, "the mean of several rows has no backward pass; use `sum_rows`, `scale`")
                    .and_then(|()| need(self.grad.has_even_rows(), PERMUTED))
                    .and_then(|()| even())
            }
            sys::GGML_OP_MUL_MAT => self.product().and_then(|()| self.fresh()),
            _ => return None,
        })
    }

    /// The conditions of a matrix product.
    fn product(&self) -> Verdict {
        let [_, hint, ..] = self.t.op_params();
        need(hint == 0, "it has no backward pass with a hint; leave `hadamard` out")?;
        let (Some(a), Some(b)) = (self.a, self.second) else { return Ok(()) };
        need(!b.is_transposed(), "its first operand gets no gradient where the second is transposed; use `cont`")?;
        let ([_, _, a2, a3], [_, _, b2, b3]) = (a.ne(), b.ne());
        let folds = (a2, a3) == (b2, b3) || b3 == 1;
        need(folds, "a first operand that is repeated in the fourth dimension gets no gradient; use `repeat`")
    }

    /// Copies, parts and views. C finds parts of gradients by the strides of the forward pass.
    fn parts(&self) -> Option<Passes> {
        Some(match self.t.op() {
            sys::GGML_OP_ACC => need(self.b.is_none() || self.grad.is_contiguous(), PERMUTED)
                .and_then(|()| collect(self.a.map(|a| self.same(a)), self.b.map(Pass::fresh))),
            sys::GGML_OP_SET => self.in_order().and_then(|()| self.fresh()),
            sys::GGML_OP_CPY => self.in_order().and_then(|()| self.fresh_first()),
            sys::GGML_OP_CONT => self.in_order().and_then(|()| {
                let pass = |a: TensorPtr| if a.ne() == self.t.ne() { self.same(a) } else { Pass::fresh(a) };
                collect(self.a.map(|a| pass(a).onto(Accumulator::Contiguous)), None)
            }),
            sys::GGML_OP_RESHAPE => self.fresh_first(),
            sys::GGML_OP_VIEW => part(self.t, self.first)
                .and_then(|()| collect(self.a.map(|a| Pass::fresh(a).onto(Accumulator::Contiguous)), None)),
            sys::GGML_OP_PERMUTE => {
                let [x0, x1, x2, x3, ..] = self.t.op_params();
                let axes = [x0, x1, x2, x3].map(|x| usize::try_from(x).unwrap_or(0));
                collect(self.a.map(|a| Pass::new(a, self.grad.permuted(axes))), None)
            }
            sys::GGML_OP_TRANSPOSE => collect(self.a.map(|a| Pass::new(a, self.grad.permuted([1, 0, 2, 3]))), None),
            _ => return None,
        })
    }

    /// Functions of rows, and rows picked by index.
    fn rows(&self) -> Option<Passes> {
        let holds = match self.t.op() {
            sys::GGML_OP_RMS_NORM | sys::GGML_OP_DIAG_MASK_INF | sys::GGML_OP_DIAG_MASK_ZERO => Ok(()),
            sys::GGML_OP_GET_ROWS => {
                let vector = |rows: TensorPtr| rows.ne().iter().skip(1).all(|&n| n == 1);
                let known = is_matrix(self.first) && self.second.is_some_and(vector);
                need(known, "only `get_rows` of a matrix by a vector of indices has a backward pass")
            }
            sys::GGML_OP_SOFT_MAX => {
                // C passes no gradient to mask and sinks, and ignores sinks in that of the operand.
                let [_, max_bias, ..] = self.t.op_params();
                let plain = self.b.is_none() && self.third.is_none() && max_bias == 0;
                need(plain, "it has no backward pass with sinks, `max_bias`, or a mask made of parameters")
            }
            sys::GGML_OP_ROPE => {
                // C ignores the offset, and rotates other elements back.
                let [.., offset] = self.t.op_params();
                need(offset == 0, "it has no backward pass with an offset; use a `view` of part of each row")
                    .and_then(|()| need(self.c.is_none(), "frequency factors get no gradient"))
            }
            sys::GGML_OP_CROSS_ENTROPY_LOSS => need(self.b.is_none(), "the labels can't depend on a parameter"),
            _ => return None,
        };
        Some(holds.and_then(|()| self.fresh_first()))
    }

    /// Operations on the windows of images.
    fn windows(&self) -> Option<Passes> {
        match self.t.op() {
            sys::GGML_OP_POOL_2D => Some(self.fresh_first()),
            sys::GGML_OP_IM2COL => {
                let [_, _, _, _, _, _, two, ..] = self.t.op_params();
                let holds = need(two == 1, "only `im2col` of two dimensions has a backward pass");
                Some(holds.and_then(|()| collect(None, self.b.map(Pass::fresh))))
            }
            _ => None,
        }
    }
}

/// The gradients in C's order, that of the operands.
#[expect(clippy::unnecessary_wraps, reason = "the end of a chain of checks")]
fn collect(a: Option<Pass>, b: Option<Pass>) -> Passes {
    Ok(a.into_iter().chain(b).collect())
}

const ONE_SHAPE: &str = "its second operand gets no gradient unless both have one shape; use `repeat`";

/// The exclusive upper bound of strides and offsets, which C keeps in 32 bits.
const END: usize = 1 << 31;

/// The conditions of a view `t` of `a`. C adds the gradient to a part of that of `a`, which it finds by the strides of
/// the view (H73).
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
