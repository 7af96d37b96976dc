//! Views: reshape, view, permute, transpose.

use ggml_sys as sys;

use crate::header::{Layout, init::TensorInit};
use crate::ops::prelude::*;
use crate::shape::{CShape as _, Shape};

impl Context {
    /// A view of `a` with another shape, the elements in the same order (`ggml_reshape_4d`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [12])?;
    /// assert_eq!(ctx.reshape(x, [4, 3])?.ne(), [4, 3, 1, 1]);
    /// assert!(ctx.reshape(x, [5, 3]).is_err(), "12 elements, not 15");
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Shape`](crate::Error::Shape) unless `a` is contiguous and has as many elements as `shape`.
    #[doc(alias = "ggml_reshape")]
    #[doc(alias = "ggml_reshape_1d")]
    #[doc(alias = "ggml_reshape_2d")]
    #[doc(alias = "ggml_reshape_3d")]
    #[doc(alias = "ggml_reshape_4d")]
    pub fn reshape<'c>(&'c self, a: Tensor<'c>, shape: impl Into<Shape>) -> Result<Tensor<'c>> {
        let shape = shape.into();
        let call = Call { op: entered!("reshape"), operands: &[a] };
        call.shape(a.is_contiguous(), "the operand must be contiguous; use `cont`")?;
        let same = shape.bytes(a.dtype()).is_ok() && shape.elements() == a.shape().elements();
        call.param(same, "shape", shape.ne(), "it must have as many elements as the operand, in whole blocks")?;
        let [n0, n1, n2, n3] = shape.ne();
        let fill = |t: &mut TensorInit<'_>| {
            t.operation(sys::GGML_OP_RESHAPE, [a.ptr()], Layout::packed(a.dtype(), shape.ne()));
            t.view(a.ptr(), 0);
            t.name(a.ptr(), b" (reshaped)");
        };
        build!(self, sys::ggml_reshape_4d(a; n0, n1, n2, n3), fill)
    }

    /// A view of part of a tensor's memory (`ggml_view_4d`): of `shape`, from byte `offset` of `a` on, with `strides`
    /// in bytes for the second, third and fourth dimension (`nb[1..]`).
    ///
    /// The view must lie inside the tensor whose memory `a` is or shares, and none of its elements may overlap.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// // Each token's query, key and value lie side by side; these are the keys: 64 elements of each.
    /// let qkv = ctx.input("qkv", DType::F32, [3 * 64, 10])?;
    /// let token = qkv.nb()[1];
    /// let keys = ctx.view(qkv, [64, 10], [token, 10 * token, 10 * token], 64 * size_of::<f32>())?;
    /// assert_eq!((keys.ne(), keys.is_contiguous()), ([64, 10, 1, 1], false));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) where shape, strides or offset do not fit.
    #[doc(alias = "ggml_view_2d")]
    #[doc(alias = "ggml_view_3d")]
    #[doc(alias = "ggml_view_4d")]
    pub fn view<'c>(
        &'c self,
        a: Tensor<'c>,
        shape: impl Into<Shape>,
        strides: [usize; 3],
        offset: usize,
    ) -> Result<Tensor<'c>> {
        let shape = shape.into();
        let call = Call { op: entered!("view"), operands: &[a] };
        let (dtype, unit) = (a.dtype(), a.dtype().type_size());
        call.param(shape.bytes(dtype).is_ok(), "shape", shape.ne(), "dimensions must be positive and in whole blocks")?;
        // For types without blocks, this avoids slow divisions.
        let is_whole = |n: usize| if unit.is_power_of_two() { n & (unit - 1) == 0 } else { n.is_multiple_of(unit) };
        let whole = strides.into_iter().chain([offset]).all(is_whole);
        call.param(whole, "strides, offset", (strides, offset), "they must be multiples of the type's size")?;
        let [nb1, nb2, nb3] = strides;
        let layout = Layout { dtype, ne: shape.ne(), nb: [unit, nb1, nb2, nb3] };
        call.param(layout.is_disjoint(), "strides", strides, "elements must not overlap")?;
        let root = a.ptr().root();
        let start = offset.checked_add(a.ptr().view_offs());
        let inside = start.is_some_and(|start| layout.fits(start, root.span()));
        call.param(inside, "offset", offset, "the view must end inside the tensor that owns the memory")?;
        let [n0, n1, n2, n3] = shape.ne();
        let fill = |t: &mut TensorInit<'_>| {
            t.operation(sys::GGML_OP_VIEW, [a.ptr()], layout);
            t.view(a.ptr(), offset);
            t.params(halves(offset));
            t.name(a.ptr(), b" (view)");
        };
        // C's builder checks the bounds of contiguous views only (H1), so all views are checked here.
        build!(self, sys::ggml_view_4d(a; n0, n1, n2, n3, nb1, nb2, nb3, offset), fill)
    }

    /// A view of `n` elements that follow each other in the memory of `a`, from byte `offset` of it on
    /// (`ggml_view_1d`).
    ///
    /// ```
    /// use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// let ctx = Context::new();
    /// let rows = ctx.input("rows", DType::F32, [3, 10])?;
    /// let second = ctx.view_1d(rows, 3, rows.nb()[1])?;
    /// assert_eq!(second.ne(), [3, 1, 1, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::view`].
    #[doc(alias = "ggml_view_1d")]
    pub fn view_1d<'c, N>(&'c self, a: Tensor<'c>, n: N, offset: usize) -> Result<Tensor<'c>>
    where
        [N; 1]: Into<Shape>,
    {
        entered!("view_1d");
        self.view_in_order(a, [n].into(), offset)
    }

    /// A contiguous matrix in the memory of `a`, from byte `offset` of it on: `ne` is the length of a row and the
    /// number of rows, which follow each other without gaps (`ggml_view_2d`, whose stride is that of a new tensor). For
    /// rows with gaps there is [`Context::view`].
    ///
    /// ```
    /// use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// let ctx = Context::new();
    /// let cache = ctx.input("cache", DType::F16, [64, 512])?;
    /// let (first, n) = (8, 24);
    /// let some = ctx.view_2d(cache, [64, n], first * cache.nb()[1])?;
    /// assert_eq!(some.ne(), [64, 24, 1, 1]);
    /// assert!(some.is_contiguous());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::view`].
    #[doc(alias = "ggml_view_2d")]
    pub fn view_2d<'c, N>(&'c self, a: Tensor<'c>, ne: [N; 2], offset: usize) -> Result<Tensor<'c>>
    where
        [N; 2]: Into<Shape>,
    {
        entered!("view_2d");
        self.view_in_order(a, ne.into(), offset)
    }

    /// A contiguous tensor of three dimensions in the memory of `a`, from byte `offset` of it on (`ggml_view_3d`, whose
    /// strides are those of a new tensor). For rows or planes with gaps there is [`Context::view`].
    ///
    /// ```
    /// use ggml::prelude::*;
    /// # fn main() -> ggml::Result<()> {
    /// let ctx = Context::new();
    /// let keys = ctx.input("keys", DType::F32, [64, 512])?;
    /// // Rows of 4 heads with 16 elements each: 32 rows, from the first one on.
    /// assert_eq!(ctx.view_3d(keys, [16, 4, 32], 0)?.ne(), [16, 4, 32, 1]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::view`].
    #[doc(alias = "ggml_view_3d")]
    pub fn view_3d<'c, N>(&'c self, a: Tensor<'c>, ne: [N; 3], offset: usize) -> Result<Tensor<'c>>
    where
        [N; 3]: Into<Shape>,
    {
        entered!("view_3d");
        self.view_in_order(a, ne.into(), offset)
    }

    /// A view that has the strides of a new tensor.
    fn view_in_order<'c>(&'c self, a: Tensor<'c>, shape: Shape, offset: usize) -> Result<Tensor<'c>> {
        // Strides for an impossible shape are never used: `view` refuses the shape first.
        let possible = shape.bytes(a.dtype()).is_ok();
        let [_, strides @ ..] = if possible { Layout::packed(a.dtype(), shape.ne()).nb } else { [0; 4] };
        self.view(a, shape, strides, offset)
    }

    /// The dimensions in another order (`ggml_permute`): dimension `i` of `a` becomes dimension `axes[i]` of the
    /// result.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let heads = ctx.input("q", DType::F32, [64, 8, 10])?; // [size, heads, tokens]
    /// assert_eq!(ctx.permute(heads, [0, 2, 1, 3])?.ne(), [64, 10, 8, 1]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`](crate::Error::Param) unless `axes` are 0 to 3, each once, and block types keep their first
    /// dimension.
    #[doc(alias = "ggml_permute")]
    pub fn permute<'c>(&'c self, a: Tensor<'c>, axes: [usize; 4]) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("permute"), operands: &[a] };
        let each_once = (0..4).all(|i| axes.contains(&i));
        call.param(each_once, "axes", axes, "each of 0 to 3 must appear once")?;
        // H3: ggml computes a wrong size for block types whose rows are not the first dimension.
        let keeps_rows = axes[0] == 0 || a.dtype().block_size() == 1;
        call.param(keeps_rows, "axes", axes, "the first dimension of a block type must stay the first")?;
        let to @ [x0, x1, x2, x3] = axes.map(|x| i32::try_from(x).unwrap_or(0));
        let fill = |t: &mut TensorInit<'_>| {
            let from = [0, 1, 2, 3].map(|i| axes.iter().position(|&to| to == i).unwrap_or(i));
            t.operation(sys::GGML_OP_PERMUTE, [a.ptr()], a.layout().permuted(from));
            t.view(a.ptr(), 0);
            t.params(to);
            t.name(a.ptr(), b" (permuted)");
        };
        build!(self, sys::ggml_permute(a; x0, x1, x2, x3), fill)
    }

    /// A view of `a` with the first two dimensions swapped (`ggml_transpose`).
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let x = ctx.input("x", DType::F32, [3, 2])?;
    /// let t = ctx.transpose(x)?;
    /// assert_eq!((t.ne(), t.nb()[0]), ([2, 3, 1, 1], x.nb()[1])); // a view: strides change places
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) for block types.
    #[doc(alias = "ggml_transpose")]
    pub fn transpose<'c>(&'c self, a: Tensor<'c>) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("transpose"), operands: &[a] };
        call.dtype(a.dtype().block_size() == 1, "a block type can't be transposed; `cast` it first")?; // H3
        let fill = |t: &mut TensorInit<'_>| {
            t.operation(sys::GGML_OP_TRANSPOSE, [a.ptr()], a.layout().permuted([1, 0, 2, 3]));
            t.view(a.ptr(), 0);
            t.name(a.ptr(), b" (transposed)");
        };
        build!(self, sys::ggml_transpose(a), fill)
    }
}

/// A 64-bit size, split into two 32-bit parameters.
fn halves(n: usize) -> [i32; 2] {
    bytemuck::cast(n as u64)
}
