//! The arguments of a custom operation's closure: rows to fill, and rows to read.

use std::marker::PhantomData;
use std::ptr;

use crate::debug::debug;
use crate::dtype::Element;
use crate::ffi;
use crate::header::TensorPtr;
use crate::list;

/// The rows that one task fills: runs of consecutive rows, all equally long and equally far apart. Rows are counted
/// through the upper three dimensions. `first` and `runs` are those of runs that are left.
#[derive(Debug, Clone)]
pub(super) struct Part {
    first: usize,
    run: usize,
    distance: usize,
    runs: usize,
}

impl Part {
    /// Part `i` of `n` of a tensor with these dimensions. `split` is the dimension that is divided; `None` divides all
    /// rows. Returns `None` for an empty part.
    pub(super) fn new([_, n1, n2, n3]: [usize; 4], split: Option<usize>, i: usize, n: usize) -> Option<Self> {
        // `below`: the rows per index of the divided dimension. `size`: that dimension. `runs`: the number of indices
        // of the dimensions above it.
        let (below, size, runs) = match split {
            Some(1) => (1, n1, n2 * n3),
            Some(2) => (n1, n2, n3),
            Some(3) => (n1 * n2, n3, 1),
            _ => (1, n1 * n2 * n3, 1),
        };
        let [from, to] = [i, i + 1].map(|i| size * i.min(n) / n.max(1));
        let part = Self { first: from * below, run: (to - from) * below, distance: size * below, runs };
        (part.run * part.runs > 0).then_some(part)
    }
}

/// One task of a custom operation, while it is computed: the rows of the result that it fills.
///
/// # Invariants
///
/// `t` is being computed, its sources have been computed, and nothing else uses the rows `part` of it, of which `runs` are some.
pub(super) struct Task {
    pub(super) t: TensorPtr,
    pub(super) base: *mut u8,
    ne: [usize; 4],
    part: Part,
    /// Whether the result has its old values. Else its memory holds older results or is uninitialised, so each row is
    /// zeroed when it is taken, or filled from its start.
    pub(super) in_place: bool,
    /// What is left to fill of the runs that are filled from their starts: where, and how many bytes.
    runs: Vec<(*mut u8, usize)>,
    /// How many rows of the last run of `part` the closure hasn't taken yet, and the index of the first of them.
    left: usize,
    next: [usize; 3],
}

impl Task {
    /// # Safety
    ///
    /// The invariants must hold. `base` must be the first element of `t`, whose dimensions are `ne`, in host memory. The
    /// rows of `t` must be contiguous, without overlapping elements, and initialised if `in_place`, else without gaps.
    pub(super) unsafe fn new(t: TensorPtr, base: *mut u8, ne: [usize; 4], part: Part, in_place: bool) -> Self {
        Self { t, base, ne, part, in_place, runs: Vec::new(), left: 0, next: [0; 3] }
    }

    /// How many rows the closure hasn't taken yet.
    fn left(&self) -> usize {
        self.left + self.part.run * self.part.runs
    }

    /// Takes the next rows, up to `most` of the same plane: the index of the first in the upper three dimensions, its
    /// first element, and how many they are. They are initialised if the result is in place.
    fn take(&mut self, most: usize) -> Option<([usize; 3], *mut u8, usize)> {
        let ([_, n1, n2, _], [_, nb1, nb2, nb3]) = (self.ne, self.t.nb());
        if self.left == 0 {
            self.part.runs = self.part.runs.checked_sub(1)?;
            let n = self.part.first;
            (self.left, self.part.first) = (self.part.run, n + self.part.distance);
            self.next = [n % n1, n / n1 % n2, n / n1 / n2];
        }
        let i @ [i1, i2, i3] = self.next;
        let rows = most.min(self.left).min(n1 - i1);
        self.left -= rows;
        // Divisions would take longer than a short row.
        self.next = if i1 + rows < n1 { [i1 + rows, i2, i3] } else { [0, (i2 + 1) % n2, i3 + (i2 + 1) / n2] };
        Some((i, self.base.wrapping_add(i1 * nb1 + i2 * nb2 + i3 * nb3), rows))
    }
}

/// Zeroes what the closure left, also if it panicked: later operations read it.
impl Drop for Task {
    fn drop(&mut self) {
        let nb1 = self.t.nb()[1];
        while !self.in_place {
            let rest = self.runs.pop().or_else(|| self.take(usize::MAX).map(|(_, row, rows)| (row, nb1 * rows)));
            let Some((at, bytes)) = rest else { return };
            // SAFETY: these bytes are the rest of a run, or rows that weren't taken: the tensor has no gaps, so rows lie one
            // after the other in a plane. They are in host memory, and nothing else uses them (the `# Safety` of `new`).
            unsafe { ptr::write_bytes(at, 0, bytes) };
        }
    }
}

/// The rows of a result that one call of a custom operation's closure fills. It is an iterator over rows, each with its
/// index in the upper three dimensions.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::ops::CustomOptions;
/// # let ctx = Context::new();
/// let x = ctx.input("x", DType::F32, [2, 3])?;
/// let y = ctx.map_custom1::<f32>(x, CustomOptions::new(), |rows, _| {
///     assert_eq!(rows.shape(), [2, 3, 1, 1]); // of the whole result, of which this call fills some rows
///     for ([i, _, _], row) in rows {
///         row.fill(i as f32);
///     }
/// })?;
/// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?;
/// # run.set(x, &[0.0_f32; 6])?;
/// # run.compute()?;
/// assert_eq!(run.get::<f32>(y)?, [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
/// # Ok::<(), ggml::Error>(())
/// ```
pub struct RowsMut<'a, T> {
    task: &'a mut Task,
    life: PhantomData<&'a mut [T]>,
}

impl<'a, T: Element> RowsMut<'a, T> {
    /// # Safety
    ///
    /// The rows must be of `T`: its type, first stride and alignment.
    pub(super) unsafe fn new(task: &'a mut Task) -> Self {
        Self { task, life: PhantomData }
    }

    /// The dimensions of the whole result, in ggml's order (`ne`).
    pub fn shape(&self) -> [usize; 4] {
        self.task.ne
    }

    /// Takes all rows that are left, to be filled by [`append`](Self::append): runs of rows that lie together in a plane, each with
    /// the index of its first row and the number of its elements. They are not zeroed before, which takes time where results are
    /// large; what isn't filled is zero at the end.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// use ggml::ops::CustomOptions;
    /// # let ctx = Context::new();
    /// let all = CustomOptions::new().with_n_tasks(1);
    /// let y = ctx.custom::<f32>(&[], [2, 3, 2], all, |mut out, _| {
    ///     for (run, ([_, plane, _], n)) in out.runs().into_iter().enumerate() {
    ///         assert_eq!(n, 2 * 3);
    ///         out.append(run, &[plane as f32; 4]);
    ///         out.append(run, &[5.0]);
    ///     }
    /// })?;
    /// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
    /// # let mut run = sched.alloc(&graph)?;
    /// # run.compute()?;
    /// assert_eq!(run.get::<f32>(y)?, [0.0, 0.0, 0.0, 0.0, 5.0, 0.0, 1.0, 1.0, 1.0, 1.0, 5.0, 0.0]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If there is no memory for the list.
    #[expect(clippy::panic, reason = "computing resumes it")]
    pub fn runs(&mut self) -> Vec<([usize; 3], usize)> {
        let ([n, n1, n2, n3], [_, nb1, ..]) = (self.task.ne, self.task.t.nb());
        let most = if nb1 == size_of::<T>() * n { usize::MAX } else { 1 };
        // At once, so that no row is taken for which there is no memory. (Of each plane, a part has one run at most.)
        let runs = (n2 * n3 * if most == 1 { n1 } else { 1 }).min(self.task.left());
        let reserved = list::reserved(runs, "runs of rows").ok().filter(|_| self.task.runs.try_reserve(runs).is_ok());
        let Some(mut list) = reserved else { panic!("no memory for {runs} runs of rows") };
        while let Some((i, row, rows)) = self.task.take(most) {
            self.task.runs.push((row, size_of::<T>() * n * rows));
            list.push((i, n * rows));
        }
        list
    }

    /// Fills the next elements of a run: of number `run` of what [`runs`](Self::runs) returned.
    ///
    /// # Panics
    ///
    /// If there is no such run, or it has no room for so many elements.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "the program is wrong")]
    pub fn append(&mut self, run: usize, values: &[T]) {
        let (at, left) = &mut self.task.runs[run];
        let bytes = size_of_val(values);
        assert!(bytes <= *left, "{bytes} bytes for run {run} of a result, of which {left} are left");
        // SAFETY: the run has room for so many bytes (asserted above) of rows of `T` (the `# Safety` of `new`), which are in host
        // memory, one after the other without gaps (`runs`). Nothing else uses them (the task's invariants), so `values` are others.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr().cast(), *at, bytes) };
        (*at, *left) = (at.wrapping_add(bytes), *left - bytes);
    }
}

impl<'a, T: Element> Iterator for RowsMut<'a, T> {
    type Item = ([usize; 3], &'a mut [T]);

    fn next(&mut self) -> Option<Self::Item> {
        let (n, (i, row, _)) = (self.task.ne[0], self.task.take(1)?);
        if !self.task.in_place {
            // SAFETY: the pointer is to a row of `n` elements of `T` in host memory, which nothing else uses, because each is taken
            // once (the `# Safety` of both `new`).
            unsafe { ptr::write_bytes(row.cast::<T>(), 0, n) };
        }
        // SAFETY: the pointer is to a row of `n` contiguous elements of `T` (the `# Safety` of both `new`), which are
        // initialised (above, or the task's invariants) and which nothing else uses for 'a: each is taken once. All bit
        // patterns are valid.
        Some((i, unsafe { ffi::slice_mut(row.cast::<T>(), n) }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.task.left(), Some(self.task.left()))
    }
}

impl<T: Element> ExactSizeIterator for RowsMut<'_, T> {}

debug!(RowsMut<'_; T>, |this| ne = &this.task.ne, left = &this.task.left());

/// An operand of a custom operation, of any type.
#[derive(Clone, Copy)]
pub(super) struct RawOperand<'a> {
    pub(super) dtype: crate::DType,
    pub(super) ne: [usize; 4],
    pub(super) nb: [usize; 4],
    /// The length of a row in bytes, if rows are contiguous.
    row: Option<usize>,
    /// The bytes from the operand's first element to its last.
    bytes: &'a [u8],
}

impl<'a> RawOperand<'a> {
    pub(super) fn new(dtype: crate::DType, ne: [usize; 4], nb: [usize; 4], bytes: &'a [u8]) -> Self {
        let row = i64::try_from(ne[0]).ok().and_then(|n| dtype.row_size(n));
        Self { dtype, ne, nb, row: row.filter(|_| nb[0] == dtype.type_size() || ne[0] == 1), bytes }
    }

    /// The bytes of a row. Rows must be contiguous. (It is inlined in other crates, so that what is the same for many rows is asked once.)
    #[inline]
    fn row(&self, [i1, i2, i3]: [usize; 3]) -> &'a [u8] {
        let ([_, n1, n2, n3], [_, nb1, nb2, nb3]) = (self.ne, self.nb);
        assert!(i1 < n1 && i2 < n2 && i3 < n3, "row {:?} of an operand of shape {:?}", [i1, i2, i3], self.ne);
        assert!(self.row.is_some(), "the operand's rows are not contiguous; use `Rows::at`");
        self.bytes.get(i1 * nb1 + i2 * nb2 + i3 * nb3..).and_then(|b| b.get(..self.row?)).unwrap_or_default()
    }
}

/// The operands of a custom operation, in their order.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::ops::CustomOptions;
/// # let ctx = Context::new();
/// let [a, b] = [ctx.arange(0.0, 2.0, 1.0)?, ctx.arange(5.0, 7.0, 1.0)?];
/// let y = ctx.custom::<f32>(&[a, b], [2], CustomOptions::new(), |out, operands| {
///     for (i, row) in out {
///         let last = operands.rows::<f32>(operands.len() - 1);
///         row.copy_from_slice(last.row(i));
///     }
/// })?;
/// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?; run.compute()?;
/// assert_eq!(run.get::<f32>(y)?, [5.0, 6.0]);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Operands<'a> {
    list: [Option<RawOperand<'a>>; crate::sys::GGML_MAX_SRC as usize],
}

impl<'a> Operands<'a> {
    pub(super) fn new(operands: impl Iterator<Item = RawOperand<'a>>) -> Self {
        let mut list = [None; crate::sys::GGML_MAX_SRC as usize];
        list.iter_mut().zip(operands).for_each(|(to, operand)| *to = Some(operand));
        Self { list }
    }

    /// The number of operands.
    pub fn len(&self) -> usize {
        self.list.iter().flatten().count()
    }

    /// Whether there are no operands.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Operand `n`, whose elements must be of type `T`.
    ///
    /// # Panics
    ///
    /// If there is no operand `n`, or it has another type.
    pub fn rows<T: Element>(&self, n: usize) -> Rows<'a, T> {
        let operand = *self.operand(n);
        assert!(operand.dtype == T::DTYPE, "operand {n} is {}, not `{}`", operand.dtype, T::NAME);
        Rows { operand, life: PhantomData }
    }

    /// The bytes of a row of operand `n`, of any type, such as a block type.
    ///
    /// # Panics
    ///
    /// If there is no such operand or row, or its rows are not contiguous.
    #[inline]
    pub fn bytes(&self, n: usize, row: [usize; 3]) -> &'a [u8] {
        self.operand(n).row(row)
    }

    #[inline]
    #[expect(clippy::panic, reason = "as indexing does")]
    fn operand(&self, n: usize) -> &RawOperand<'a> {
        self.list.get(n).and_then(Option::as_ref).unwrap_or_else(|| panic!("operand {n} of {}", self.len()))
    }
}

debug!(Operands<'_>, |this| list = &this.list.iter().flatten().map(|o| (o.dtype, o.ne)).collect::<Vec<_>>());

/// The rows of an operand of a custom operation, to read.
///
/// ```
/// # use ggml::prelude::*;
/// use ggml::ops::CustomOptions;
/// # let ctx = Context::new();
/// let x = ctx.transpose(ctx.reshape(ctx.arange(0.0, 6.0, 1.0)?, [3, 2])?)?;
/// let y = ctx.custom::<f32>(&[x], [1, 3], CustomOptions::new(), |out, operands| {
///     let x = operands.rows::<f32>(0);
///     for ([i, _, _], row) in out {
///         row[0] = x.at([0, i, 0, 0]) + x.at([1, i, 0, 0]); // `x.row` needs contiguous rows
///     }
/// })?;
/// # let (graph, mut sched) = (ctx.graph([y])?, Sched::builder().backend(Backend::cpu()?).build()?);
/// # let mut run = sched.alloc(&graph)?; run.compute()?;
/// assert_eq!(run.get::<f32>(y)?, [3.0, 5.0, 7.0]);
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Rows<'a, T> {
    operand: RawOperand<'a>,
    life: PhantomData<&'a [T]>,
}

impl<'a, T: Element> Rows<'a, T> {
    /// The dimensions, in ggml's order (`ne`).
    pub fn shape(&self) -> [usize; 4] {
        self.operand.ne
    }

    /// The row at an index in the upper three dimensions.
    ///
    /// # Panics
    ///
    /// If there is no such row, or rows are not contiguous, as in a transposed operand; use [`Rows::at`] then.
    #[inline]
    pub fn row(&self, i: [usize; 3]) -> &'a [T] {
        bytemuck::cast_slice(self.operand.row(i))
    }

    /// The element at an index, with any strides.
    ///
    /// # Panics
    ///
    /// If there is no such element.
    pub fn at(&self, i: [usize; 4]) -> T {
        let RawOperand { ne, nb, bytes, .. } = self.operand;
        assert!(i.iter().zip(ne).all(|(&i, n)| i < n), "element {i:?} of an operand of shape {ne:?}");
        let offset: usize = i.iter().zip(nb).map(|(i, nb)| i * nb).sum();
        let element = bytes.get(offset..).and_then(|b| b.get(..size_of::<T>()));
        bytemuck::pod_read_unaligned(element.unwrap_or_default())
    }
}

debug!(Rows<'_; T>, |this| ne = &this.operand.ne);
