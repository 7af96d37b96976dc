//! Splitting images into square windows, for attention over parts of an image.

use crate::ops::prelude::*;

impl Context {
    /// Splits an image into windows of `w` by `w` (`ggml_win_part`): `a` of `[channels, width, height]` becomes
    /// `[channels, w, w, windows]`, row by row of windows, padded with zeros at the end.
    ///
    /// ```
    /// # use ggml::prelude::*; let ctx = Context::new();
    /// let image = ctx.input("image", DType::F32, [96, 10, 10])?; // [channels, width, height]
    /// let windows = ctx.win_part(image, 4)?;
    /// assert_eq!(windows.ne(), [96, 4, 4, 9]); // 3 times 3 windows, padded with zeros
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`, [`Error::Shape`](crate::Error::Shape) unless it is
    /// contiguous and 3-d at most, [`Error::Param`](crate::Error::Param) unless `w` is positive, and its sums with
    /// width and height are less than 2³¹.
    #[doc(alias = "ggml_win_part")]
    pub fn win_part<'c>(&'c self, a: Tensor<'c>, w: i32) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("win_part"), operands: &[a] };
        let [channels, width, height, last] = a.ne();
        call.shape(last == 1, "the image must have three dimensions at most")?;
        let windows = windows(call, a, [width, height], w)?;
        call.result([channels, w.into(), w.into(), windows], DType::F32)?;
        build!(self, sys::ggml_win_part(a; w))
    }

    /// Joins the windows of [`Context::win_part`] into an image (`ggml_win_unpart`): `a` of `[channels, w, w, windows]`
    /// becomes `[channels, width, height]`.
    ///
    /// # Errors
    ///
    /// [`Error::DType`](crate::Error::DType) unless `a` is `f32`; [`Error::Shape`](crate::Error::Shape) unless it is
    /// contiguous, its windows are square, and their number is that of such an image;
    /// [`Error::Param`](crate::Error::Param) unless `width` and `height` are positive, and their sums with the windows'
    /// size are less than 2³¹.
    #[doc(alias = "ggml_win_unpart")]
    pub fn win_unpart<'c>(&'c self, a: Tensor<'c>, width: i32, height: i32) -> Result<Tensor<'c>> {
        let call = Call { op: entered!("win_unpart"), operands: &[a] };
        let [channels, w, h, count] = a.ne();
        call.shape(w == h, "the windows must be square")?;
        let w = i32::try_from(w).unwrap_or(0);
        let windows = windows(call, a, [width.into(), height.into()], w)?;
        call.shape(count == windows, "the number of windows must be that of an image of this size")?;
        call.result([channels, width.into(), height.into(), 1], DType::F32)?;
        build!(self, sys::ggml_win_unpart(a; width, height, w))
    }
}

/// Checks an image and a window size, and returns the number of windows.
fn windows(call: Call<'_, '_>, a: Tensor<'_>, size: [i64; 2], w: i32) -> Result<i64> {
    call.dtype(a.dtype() == DType::F32, "the operand must be f32")?;
    call.shape(a.is_contiguous(), "the operand must be contiguous; use `cont`")?;
    // C computes positions up to the end of the last window in 32 bits, so width and height plus a window must fit.
    let w = i64::from(w);
    let counted = size.iter().all(|&n| n > 0 && n.checked_add(w).is_some_and(|n| i32::try_from(n).is_ok()));
    call.param(w > 0, "w", w, "windows must be at least 1 wide")?;
    call.param(counted, "width, height", size, "they must be positive, and with a window added below 2^31")?;
    let count: i64 = size.iter().map(|n| (n + w - 1) / w).product();
    call.shape(i32::try_from(count).is_ok(), "there must be less than 2^31 windows")?;
    Ok(count)
}
