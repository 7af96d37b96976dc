//! What the closure of a custom operation is given: rows to fill, and rows to read.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;

use crate::dtype::Element;
use crate::ffi;

/// The rows of a result that one call of a custom operation's closure fills: an iterator over them, each with its position
/// in the upper three dimensions.
pub struct RowsMut<'a, T> {
    base: *mut u8,
    ne: [usize; 4],
    nb: [usize; 4],
    left: Range<usize>,
    life: PhantomData<&'a mut [T]>,
}

impl<T: Element> RowsMut<'_, T> {
    /// # Safety
    ///
    /// `base` must be the first element of a tensor of `T` with these dimensions and strides, in initialised memory of the
    /// host, whose elements do not overlap and those of a row lie side by side. For 'a, nothing else may use the rows
    /// `rows`, counted through the upper three dimensions, of which there are as many.
    pub(super) unsafe fn new(base: *mut u8, ne: [usize; 4], nb: [usize; 4], rows: Range<usize>) -> Self {
        Self { base, ne, nb, left: rows, life: PhantomData }
    }

    /// Elements per dimension of the whole result.
    pub fn shape(&self) -> [usize; 4] {
        self.ne
    }
}

impl<'a, T: Element> Iterator for RowsMut<'a, T> {
    type Item = ([usize; 3], &'a mut [T]);

    fn next(&mut self) -> Option<Self::Item> {
        let n = self.left.next()?;
        let [n0, n1, n2, _] = self.ne;
        let i = [n % n1, n / n1 % n2, n / n1 / n2];
        let [_, nb1, nb2, nb3] = self.nb;
        let [i1, i2, i3] = i;
        let row = self.base.wrapping_add(i1 * nb1 + i2 * nb2 + i3 * nb3);
        // SAFETY: one of our rows, which nothing else uses for 'a, of `n0` elements of `T`, any bits of which are a number
        // (the contract of `new`); each is handed out once.
        let row = unsafe { ffi::slice_mut(row.cast::<T>(), n0) };
        Some((i, row))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl<T: Element> ExactSizeIterator for RowsMut<'_, T> {}

impl<T> fmt::Debug for RowsMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowsMut").field("ne", &self.ne).field("left", &self.left).finish_non_exhaustive()
    }
}

/// An operand of a custom operation, of a type that nobody has asked for yet.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a> {
    pub(super) dtype: crate::DType,
    pub(super) ne: [usize; 4],
    pub(super) nb: [usize; 4],
    /// From the first element to the last.
    pub(super) bytes: &'a [u8],
}

impl<'a> Operand<'a> {
    /// The bytes of a row whose elements lie side by side.
    fn row(&self, [i1, i2, i3]: [usize; 3]) -> &'a [u8] {
        let [n0, n1, n2, n3] = self.ne;
        let [nb0, nb1, nb2, nb3] = self.nb;
        assert!(i1 < n1 && i2 < n2 && i3 < n3, "row {:?} of an operand of shape {:?}", [i1, i2, i3], self.ne);
        assert!(nb0 == self.dtype.type_size() || n0 == 1, "the elements of the operand's rows don't lie side by side");
        let len = i64::try_from(n0).ok().and_then(|n| self.dtype.row_size(n)).unwrap_or(usize::MAX);
        let row = self.bytes.get(i1 * nb1 + i2 * nb2 + i3 * nb3..).and_then(|b| b.get(..len));
        row.unwrap_or_default()
    }
}

/// The operands of a custom operation, in their order.
#[derive(Clone, Copy)]
pub struct Operands<'a> {
    list: [Option<Operand<'a>>; crate::sys::GGML_MAX_SRC as usize],
}

impl<'a> Operands<'a> {
    pub(super) fn new(operands: impl Iterator<Item = Operand<'a>>) -> Self {
        let mut list = [None; crate::sys::GGML_MAX_SRC as usize];
        list.iter_mut().zip(operands).for_each(|(to, operand)| *to = Some(operand));
        Self { list }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.list.iter().flatten().count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Operand `n`, whose elements must be of type `T`.
    ///
    /// # Panics
    ///
    /// Where there are fewer operands, or the type is another one.
    pub fn rows<T: Element>(&self, n: usize) -> Rows<'a, T> {
        let operand = self.operand(n);
        assert!(operand.dtype == T::DTYPE, "operand {n} is {}, not `{}`", operand.dtype, T::NAME);
        Rows { operand, life: PhantomData }
    }

    /// The bytes of a row of operand `n`, whatever its type: how blocks are read.
    ///
    /// # Panics
    ///
    /// Where there are fewer operands or rows, or the elements of a row don't lie side by side.
    pub fn bytes(&self, n: usize, row: [usize; 3]) -> &'a [u8] {
        self.operand(n).row(row)
    }

    #[expect(clippy::panic, reason = "as indexing does")]
    fn operand(&self, n: usize) -> Operand<'a> {
        let Some(operand) = self.list.get(n).copied().flatten() else { panic!("operand {n} of {}", self.len()) };
        operand
    }
}

impl fmt::Debug for Operands<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.list.iter().flatten().map(|o| (o.dtype, o.ne))).finish()
    }
}

/// An operand of a custom operation: rows to read.
pub struct Rows<'a, T> {
    operand: Operand<'a>,
    life: PhantomData<&'a [T]>,
}

impl<T> Clone for Rows<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Rows<'_, T> {}

impl<'a, T: Element> Rows<'a, T> {
    /// Elements per dimension.
    pub fn shape(&self) -> [usize; 4] {
        self.operand.ne
    }

    /// The row at a position in the upper three dimensions.
    ///
    /// # Panics
    ///
    /// Where there is no such row, or its elements don't lie side by side, as those of a transposed operand; [`Rows::at`]
    /// reads these.
    pub fn row(&self, i: [usize; 3]) -> &'a [T] {
        bytemuck::cast_slice(self.operand.row(i))
    }

    /// The element at a position, whatever the strides.
    ///
    /// # Panics
    ///
    /// Where there is no such element.
    pub fn at(&self, i: [usize; 4]) -> T {
        let Operand { ne, nb, bytes, .. } = self.operand;
        assert!(i.iter().zip(ne).all(|(&i, n)| i < n), "element {i:?} of an operand of shape {ne:?}");
        let offset: usize = i.iter().zip(nb).map(|(i, nb)| i * nb).sum();
        let element = bytes.get(offset..).and_then(|b| b.get(..size_of::<T>()));
        bytemuck::pod_read_unaligned(element.unwrap_or_default())
    }
}

impl<T> fmt::Debug for Rows<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("ne", &self.operand.ne).finish_non_exhaustive()
    }
}
