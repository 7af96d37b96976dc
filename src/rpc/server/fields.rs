//! The fields of requests.

use ggml_sys as sys;

use super::end::{End, Outcome};
use crate::dtype::{CType as _, DType};
use crate::header::Layout;
use crate::op::OpParams;

/// The number of source slots in a tensor's description.
pub(super) const SLOTS: usize = sys::GGML_MAX_SRC as usize;

/// Reads the fields of a request, in order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn bytes(&mut self, n: usize) -> Outcome<&'a [u8]> {
        self.0.split_off(..n).ok_or_else(|| End::refused("the request is shorter than its fields"))
    }

    fn array<const N: usize>(&mut self) -> Outcome<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N)?);
        Ok(array)
    }

    pub(super) fn byte(&mut self) -> Outcome<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn word(&mut self) -> Outcome<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn long(&mut self) -> Outcome<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Checks that there are no more fields.
    pub(super) fn end(self) -> Outcome {
        if self.0.is_empty() { Ok(()) } else { Err(End::refused("the request is longer than its fields")) }
    }

    fn words<const N: usize>(&mut self) -> Outcome<[u32; N]> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.word()?;
        }
        Ok(words)
    }

    pub(super) fn tensor(&mut self) -> Outcome<WireTensor> {
        let (id, dtype, buffer) = (self.long()?, self.word()?, self.long()?);
        let (ne, nb, op) = (self.words()?, self.words()?, self.word()?);
        let params = self.words::<16>()?.map(u32::cast_signed);
        let is_computed = self.word()? & sys::GGML_TENSOR_FLAG_COMPUTE != 0;
        let mut sources = [0; SLOTS];
        for source in &mut sources {
            *source = self.long()?;
        }
        let (view_src, view_offs, data) = (self.long()?, self.long()?, self.long()?);
        let _name = self.bytes(sys::GGML_MAX_NAME as usize)?;
        let _use_count = self.word()?;
        Ok(WireTensor { id, dtype, buffer, ne, nb, op, params, is_computed, sources, view_src, view_offs, data })
    }
}

/// A tensor's description, as it was sent. Nothing of it is believed.
///
/// The name, the number of uses and most flags are left out, because nothing here depends on them: they tell a backend
/// which results it need not store, and each result is stored.
#[derive(Debug, Clone, Copy)]
pub(super) struct WireTensor {
    pub(super) id: u64,
    dtype: u32,
    pub(super) buffer: u64,
    ne: [u32; 4],
    nb: [u32; 4],
    op: u32,
    params: [i32; 16],
    is_computed: bool,
    pub(super) sources: [u64; SLOTS],
    pub(super) view_src: u64,
    pub(super) view_offs: u64,
    pub(super) data: u64,
}

impl WireTensor {
    /// Whether the tensor has no elements. Nothing is computed for it, then, nor read from it.
    pub(super) fn is_empty(&self) -> bool {
        self.ne.contains(&0)
    }

    /// The operation with its parameters.
    pub(super) fn params(&self) -> OpParams {
        OpParams::new(sys::ggml_op::from_ne_bytes(self.op.to_ne_bytes()), self.params, self.ne.map(i64::from))
    }

    /// Whether something is computed for the tensor: it is neither a leaf nor a plain view, it has elements, and the
    /// client did not select another branch of its graph.
    pub(super) fn is_computed(&self) -> bool {
        self.is_computed && !self.is_view_op() && !self.is_empty()
    }

    pub(super) fn is_view_op(&self) -> bool {
        matches!(
            self.params().op(),
            sys::GGML_OP_NONE
                | sys::GGML_OP_RESHAPE
                | sys::GGML_OP_VIEW
                | sys::GGML_OP_PERMUTE
                | sys::GGML_OP_TRANSPOSE
        )
    }

    fn known_dtype(&self) -> Outcome<DType> {
        let raw = sys::ggml_type::from_ne_bytes(self.dtype.to_ne_bytes());
        let dtype = DType::from_raw(raw).filter(|dtype| dtype.is_known());
        dtype.ok_or_else(|| End::refused(format!("ggml has no type {}", self.dtype)))
    }

    /// The tensor's layout: one that builders give to a new tensor, or to a view, whose axes may be permuted.
    ///
    /// The protocol cuts strides to 32 bits. That of a dimension of 1 may be larger without being used, so it is
    /// restored.
    pub(super) fn layout(&self) -> Outcome<Layout> {
        let dtype = self.known_dtype()?;
        let (unit, ne) = (dtype.type_size(), self.ne.map(i64::from));
        let wrong = |what: &str| {
            End::refused(format!("a tensor of {ne:?} {} with strides of {:?} bytes {what}", dtype.name(), self.nb))
        };
        if ne.contains(&0) {
            return Err(wrong("is empty"));
        }
        let row = dtype.row_size(ne[0]).ok_or_else(|| wrong("is no whole number of blocks"))?;
        let mut nb = self.nb.map(|nb| nb as usize);
        let mut above = row;
        for ((nb, short), &n) in nb.iter_mut().zip(self.nb).zip(&ne).skip(1) {
            if n == 1 && above as u64 & u64::from(u32::MAX) == u64::from(short) {
                *nb = above;
            }
            above = nb.saturating_mul(usize::try_from(n).unwrap_or(usize::MAX));
        }
        let layout = Layout { dtype, ne, nb };
        let first = nb.iter().position(|&nb| nb == unit).ok_or_else(|| wrong("has gaps between its elements"))?;
        if first > 0 && dtype.block_size() > 1 {
            return Err(wrong("has rows that are not its first dimension"));
        }
        let mut axes = [0, 1, 2, 3];
        axes.swap(0, first);
        if !nb.iter().all(|nb| nb.is_multiple_of(unit)) {
            return Err(wrong("has elements at parts of others"));
        }
        if !layout.permuted(axes).is_disjoint() {
            return Err(wrong("has elements that overlap"));
        }
        if layout.span().is_none() || layout.count().is_none() {
            return Err(wrong("is larger than the address space"));
        }
        Ok(layout)
    }
}
