//! The report of a comparison of two devices.

use std::fmt;

use crate::dtype::DType;
use crate::header::TensorPtr;
use crate::shape::Shape;

/// The results of two devices, made by [`Run::compare`](crate::Run::compare). `Display` prints a table.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::run::Compare;
/// # let ctx = Context::new();
/// let y = ctx.soft_max(ctx.scale(ctx.arange(0.0, 4.0, 1.0)?, 0.5)?)?;
/// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?;
/// let comparison = run.compare(&mut Backend::cpu()?, Compare::new())?;
/// assert!(comparison.agrees() && comparison.nodes.len() == 3, "{comparison}");
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Comparison {
    /// The name of the reference backend.
    pub reference: String,
    /// The name of the backend that is compared with the reference.
    pub other: String,
    /// The compared operations in execution order. Views are left out. So are operations after an early stop
    /// ([`Compare::with_stop`](crate::run::Compare::with_stop)).
    pub nodes: Vec<Compared>,
}

/// The two results of one operation.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::run::Compare;
/// # let ctx = Context::new();
/// let y = ctx.sqr(ctx.arange(0.0, 4.0, 1.0)?)?;
/// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?;
/// let comparison = run.compare(&mut Backend::cpu()?, Compare::new())?;
/// let square = &comparison.nodes[1];
/// assert_eq!((&*square.op, square.max_abs, square.deviates), ("sqr", 0.0, false));
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Compared {
    /// The index in [`Comparison::nodes`].
    pub position: usize,
    /// The name of the result's tensor.
    pub name: String,
    /// The operation, such as `mul_mat`.
    pub op: String,
    /// The result's element type.
    pub dtype: DType,
    /// The result's shape.
    pub shape: Shape,
    /// The largest absolute difference of the two results; infinite if an infinity or NaN has no equal counterpart.
    pub max_abs: f64,
    /// The mean square difference of the two results, divided by the mean square of the reference.
    pub nmse: f64,
    /// The first element whose difference exceeds the tolerance times the root mean square of the reference.
    pub mismatch: Option<Mismatch>,
    /// Whether the two results differ by more than the tolerance.
    pub deviates: bool,
}

/// An element that differs between the two devices.
///
/// ```
/// # use ggml::prelude::*;
/// use std::sync::atomic::{AtomicU8, Ordering};
/// use ggml::{ops::CustomOptions, run::Compare};
/// # let ctx = Context::new();
///
/// let calls = AtomicU8::new(3);
/// let y = ctx.map_custom1::<f32>(ctx.arange(0.0, 4.0, 1.0)?, CustomOptions::new().with_n_tasks(1), move |out, _| {
///     let value = f32::from(calls.fetch_add(1, Ordering::Relaxed)); // differs from call to call
///     out.for_each(|(_, row)| row.fill(value));
/// })?;
/// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?;
/// let comparison = run.compare(&mut Backend::cpu()?, Compare::new())?;
/// let deviation = comparison.first_deviation().and_then(|node| node.mismatch.as_ref()).unwrap();
/// assert_eq!(deviation.at, [0; 4]);
/// assert_ne!(deviation.reference, deviation.other);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Mismatch {
    /// The element's indices, in `ne` order.
    pub at: [i64; 4],
    /// The reference's value.
    pub reference: f64,
    /// The other backend's value.
    pub other: f64,
}

impl Comparison {
    /// Whether no result deviates.
    pub fn agrees(&self) -> bool {
        self.first_deviation().is_none()
    }

    /// The first operation whose results deviate.
    pub fn first_deviation(&self) -> Option<&Compared> {
        self.nodes.iter().find(|n| n.deviates)
    }
}

impl Compared {
    pub(super) fn new(position: usize, t: TensorPtr, left: &[f64], right: &[f64], tolerance: f64) -> Self {
        let pairs = || left.iter().copied().zip(right.iter().copied());
        let squares: f64 = left.iter().filter(|x| x.is_finite()).map(|x| x * x).sum();
        let differences: f64 = pairs().map(|(a, b)| difference(a, b).powi(2)).sum();
        let nmse = if differences == 0.0 { 0.0 } else { differences / squares };
        #[expect(
            clippy::cast_precision_loss,
            reason = "a tensor of more than 2^53 elements takes more memory than there is"
        )]
        let limit = tolerance * (squares / left.len().max(1) as f64).sqrt();
        let mismatch = pairs().position(|(a, b)| difference(a, b) > limit);
        let shape = Shape::from(t.ne());
        Self {
            position,
            name: t.name(),
            op: TensorPtr::op_name(t),
            dtype: t.dtype(),
            shape,
            max_abs: pairs().map(|(a, b)| difference(a, b)).fold(0.0, f64::max),
            nmse,
            mismatch: mismatch.zip(mismatch.and_then(|i| pairs().nth(i))).map(|(i, (reference, other))| Mismatch {
                at: place(i, shape.ne()),
                reference,
                other,
            }),
            deviates: nmse.is_nan() || nmse > tolerance.powi(2),
        }
    }
}

/// The absolute difference of two values. Equal infinities, and two NaNs, count as equal.
fn difference(a: f64, b: f64) -> f64 {
    if a.is_finite() && b.is_finite() {
        (a - b).abs()
    } else if a.total_cmp(&b).is_eq() || (a.is_nan() && b.is_nan()) {
        0.0
    } else {
        f64::INFINITY
    }
}

/// The indices of element `i`, in the order of `ne`.
fn place(i: usize, ne: [i64; 4]) -> [i64; 4] {
    let mut rest = i64::try_from(i).unwrap_or(i64::MAX);
    ne.map(|n| {
        let at = rest % n.max(1);
        rest /= n.max(1);
        at
    })
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { reference, other, nodes } = self;
        let shapes: Vec<_> = nodes.iter().map(|n| format!("{} {:?}", n.dtype, n.shape.ne())).collect();
        let width = |title: &str, lengths: &mut dyn Iterator<Item = usize>| lengths.fold(title.len(), usize::max);
        let name = width("name", &mut nodes.iter().map(|n| n.name.chars().count()));
        let op = width("operation", &mut nodes.iter().map(|n| n.op.len()));
        let shape = width("result", &mut shapes.iter().map(String::len));
        writeln!(f, "{other} compared with {reference}")?;
        writeln!(
            f,
            "{:>5}  {:<name$}  {:<op$}  {:<shape$}  {:>10}  {:>10}  first mismatch",
            "", "name", "operation", "result", "max abs", "nmse"
        )?;
        for (n, result) in nodes.iter().zip(&shapes) {
            let mark = if n.deviates { '!' } else { ' ' };
            write!(
                f,
                "{:>4}{mark}  {:<name$}  {:<op$}  {result:<shape$}  {:>10.3e}  {:>10.3e}",
                n.position, n.name, n.op, n.max_abs, n.nmse
            )?;
            if let Some(m) = n.mismatch {
                write!(f, "  {:?}: {:e} instead of {:e}", m.at, m.other, m.reference)?;
            }
            writeln!(f)?;
        }
        match self.first_deviation() {
            Some(n) => write!(f, "the results of {} (`{}`) deviate first", n.op, n.name),
            None => write!(f, "no result deviates"),
        }
    }
}
