//! Tensors at places that an RPC client chose, in memory that the server lends it.

use ggml_sys as sys;

use super::Context;
use crate::error::{Error, Result};
use crate::header::init::TensorInit;
use crate::header::{Layout, Owner, TensorPtr};
use crate::tensor::Tensor;

impl Context {
    /// A tensor of this layout in the memory of a state, at a byte offset. It has no operation, and is a view of
    /// `memory`: so builders see which tensors share memory. Unlike views that builders make, it has its address and
    /// its buffer at once, and may have another type than `memory`.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] unless the tensor lies inside `memory`, which is a state's; [`Error::OutOfMemory`].
    pub(crate) fn place<'c>(&'c self, memory: Tensor<'c>, layout: Layout, offset: usize) -> Result<Tensor<'c>> {
        let root = memory.ptr();
        let is_state = root.is_leaf() && root.view_src().is_none() && root.owner() == Owner::State;
        if !is_state || layout.ne.iter().any(|&n| n < 1) || !layout.fits(offset, root.span()) {
            return Err(Error::Shape {
                call: "place",
                operands: [memory.info()].into(),
                expected: "the tensor must lie inside the memory of a state".into(),
            });
        }
        let raw = self.arena.push(|raw| {
            let mut t = TensorInit { raw };
            t.operation(sys::GGML_OP_NONE, [], layout);
            t.view(root, offset);
        })?;
        // SAFETY: the tensor was just made in the arena of this context, which lives for 'c, as does `memory`, which
        // the tensor refers to.
        let t = unsafe { TensorPtr::new(raw) };
        t.set_buffer(root.buffer());
        // SAFETY: the tensor and `memory`, which it refers to, live for 'c.
        Ok(unsafe { Tensor::new(t) })
    }
}
