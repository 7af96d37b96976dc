//! Numbers to blocks and back.

use std::borrow::Cow;

use ggml_sys as sys;

use crate::dtype::DType;
use crate::error::{Error, Result, TensorInfo};
use crate::{guard, list, version};

/// What block types take: beyond it, scales overflow the 16-bit floats that hold them, and quantisers divide infinities.
const LARGEST: f32 = 65504.0;

/// What the scales of `nvfp4` reach: 448 times the largest code. What is larger would come back as this.
const LARGEST_OF_NVFP4: f32 = 2688.0;

/// A block must not come back with numbers that are larger than its largest by more than this factor. Rounding of a scale
/// that is hardly more than 0 doubles numbers, and fits with sensible weights triple some. A fit that counts next to one
/// number only, which may be an eighth of a code, makes the others ten times as large.
const GROWTH: f32 = 4.0;

/// The least scales make numbers of about this size of nearly nothing.
const GRAIN: f32 = 1e-6;

/// How many blocks are compared with what they were made from at once.
const COMPARED: usize = 256;

/// Numbers nearer to 0 count as 0 in block types, since the inverse of a block's scale would be infinite.
const SMALLEST: f32 = 1e-20;

/// What weights of columns may be: quantisers multiply them by squares, and divide by sums of that.
const WEIGHTS: std::ops::RangeInclusive<f32> = 1e-10..=1e10;

/// How many blocks are validated by one call: C counts in `int`.
const CHUNK: usize = 1 << 20;

impl DType {
    /// Turns numbers into the bytes of a tensor of this type (`ggml_quantize_chunk`), in rows of `n_per_row`.
    ///
    /// `imatrix` says how much each column matters; some types can't do without
    /// ([`requires_imatrix`](Self::requires_imatrix)), for others it is optional or not used. Block types take numbers up to
    /// 65504, `nvfp4` up to 2688; those nearer to 0 than 1e-20 count as 0, and those below a type's least scale come back as
    /// 0. What a block would give back is compared with what it was made from: where it would be over four times as large,
    /// it is refused. That happens to `iq1_s` and `iq1_m` where nearly all of a block is 0, or weighs nothing. For `f32`, `f16` and `bf16` this is a plain conversion of any number.
    ///
    /// Several threads may quantise at once. Types with a codebook (`iq1` to `iq3`) make their tables when they are first
    /// used in a process, which takes up to some seconds.
    ///
    /// ```
    /// use ggml::DType;
    /// let row: Vec<f32> = (0..64).map(|i| i as f32 / 64.0).collect();
    /// let bytes = DType::Q8_0.quantize(&row, 64, None)?;
    /// assert_eq!(bytes.len(), 68);
    /// let back = DType::Q8_0.dequantize(&bytes)?;
    /// assert!(row.iter().zip(&back).all(|(a, b)| (a - b).abs() < 0.01));
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for types that ggml can't convert to, [`Error::Param`] where rows are no whole number of blocks or
    /// `data` no whole number of rows, where a number is infinite, none, or too large (for some types and weights before it reaches 65504), where what
    /// is made of them would come back far larger, and where `imatrix` is missing, has not
    /// `n_per_row` elements, or has one outside of 1e-10 to 1e10; [`Error::OutOfMemory`].
    #[doc(alias = "ggml_quantize_chunk")]
    #[doc(alias = "ggml_quantize_init")]
    #[doc(alias = "ggml_fp32_to_fp16_row")]
    #[doc(alias = "ggml_fp32_to_bf16_row_ref")]
    #[doc(alias = "ggml_cpu_fp32_to_fp16")]
    #[doc(alias = "ggml_cpu_fp32_to_bf16")]
    pub fn quantize(self, data: &[f32], n_per_row: usize, imatrix: Option<&[f32]>) -> Result<Vec<u8>> {
        let refuse = |name, value: String, expected: String| {
            Err(Error::Param { op: "quantize", name, value: value.into(), expected: expected.into() })
        };
        if !(self.has_floats_in_blocks() || self.is_float()) {
            return Err(self.refused("quantize", data.len(), "ggml does not convert to this type"));
        }
        // H31: C checks some types only, and writes beyond the end for the others.
        let row = i64::try_from(n_per_row).ok().filter(|&n| n > 0).and_then(|n| Some((n, self.row_size(n)?)));
        let Some((columns, row_size)) = row else {
            let block = self.block_size();
            return refuse("n_per_row", n_per_row.to_string(), format!("it must be a positive multiple of {block}"));
        };
        if !data.len().is_multiple_of(n_per_row) {
            return refuse("data", format!("{} numbers", data.len()), format!("rows have {n_per_row}"));
        }
        let largest = if self == Self::NVFP4 { LARGEST_OF_NVFP4 } else { LARGEST };
        let bad = |x: f32| !(x.is_finite() && x.abs() <= largest);
        if let Some((i, x)) = data.iter().enumerate().find(|(_, x)| self.is_quantized() && bad(**x)) {
            return refuse("data", format!("{x} at {i}"), format!("its numbers must lie in -{largest} to {largest}"));
        }
        if let Some(imatrix) = imatrix {
            if imatrix.len() != n_per_row {
                return refuse("imatrix", format!("{} numbers", imatrix.len()), format!("rows have {n_per_row}"));
            }
            if let Some((i, x)) = imatrix.iter().enumerate().find(|(_, x)| !WEIGHTS.contains(*x)) {
                return refuse("imatrix", format!("{x} at {i}"), format!("weights must lie in {WEIGHTS:?}"));
            }
        } else if self.requires_imatrix() {
            return refuse("imatrix", "None".into(), format!("{self} needs one"));
        }
        let data = if self.is_quantized() { flushed(data)? } else { Cow::Borrowed(data) };
        let rows = data.len() / n_per_row;
        let mut out = aligned(rows.saturating_mul(row_size))?;
        if rows > 0 {
            let (rows, weights) = (rows.cast_signed() as i64, imatrix.map_or(std::ptr::null(), <[f32]>::as_ptr));
            guard::call("ggml_quantize_chunk", || {
                // SAFETY: the type is one that C converts to. `data` has `rows` rows of `columns`, in whole blocks and without
                // what kernels can't take; `out` is aligned and has a row's bytes for each; the weights are NULL where the
                // type allows it, or one a column. C keeps none of them. Its tables are made under a lock, and never freed.
                unsafe {
                    sys::ggml_quantize_chunk(
                        self.raw(),
                        data.as_ptr(),
                        out.as_mut_ptr().cast(),
                        0,
                        rows,
                        columns,
                        weights,
                    )
                }
            })?;
        }
        let filled = bytemuck::cast_slice(&out).get(..data.len() / n_per_row * row_size).unwrap_or_default();
        let mut bytes = list::collect(filled.iter().copied(), CONVERTED)?;
        if self == Self::IQ4NL {
            settle_empty(&mut bytes);
        }
        // Fits of scales and minima may go far beyond the numbers that they are made from.
        if self.is_quantized() && !self.validate_row_data(&bytes)? {
            return refuse(
                "data",
                format!("{} numbers", data.len()),
                "scales of so large numbers would be infinite".into(),
            );
        }
        if let Some((i, x, back)) = self.far_off(&data, &bytes)? {
            return refuse(
                "data",
                format!("{x} as the largest of the block at {i}"),
                format!("it would come back as {back}; use an imatrix of like weights, or another type"),
            );
        }
        Ok(bytes)
    }

    /// Where a block of the type begins that holds far larger numbers than those that it was made from, the largest of
    /// these, and what it gives back.
    fn far_off(self, data: &[f32], bytes: &[u8]) -> Result<Option<(usize, f32, f32)>> {
        if !self.is_quantized() {
            return Ok(None);
        }
        let of_block = usize::try_from(self.block_size()).unwrap_or(usize::MAX);
        let largest = |block: &[f32]| block.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        let parts = data.chunks(COMPARED * of_block).zip(bytes.chunks(COMPARED * self.type_size()));
        for (part, (data, bytes)) in parts.enumerate() {
            let back = self.dequantize(bytes)?;
            for (block, (data, back)) in data.chunks(of_block).zip(back.chunks(of_block)).enumerate() {
                let (was, is) = (largest(data), largest(back));
                if is > GROWTH * was + GRAIN {
                    return Ok(Some(((part * COMPARED + block) * of_block, was, is)));
                }
            }
        }
        Ok(None)
    }

    /// Whether [`quantize`](Self::quantize) needs to know how much each column matters (`ggml_quantize_requires_imatrix`).
    #[doc(alias = "ggml_quantize_requires_imatrix")]
    pub fn requires_imatrix(self) -> bool {
        // SAFETY: a comparison of numbers.
        unsafe { sys::ggml_quantize_requires_imatrix(self.raw()) }
    }

    /// Turns the bytes of a tensor of this type into numbers (`ggml_get_type_traits`, `to_float`).
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for types that ggml can't convert from: integers, `f64`, and those that only kernels make;
    /// [`Error::Param`] unless `bytes` is a whole number of blocks; [`Error::OutOfMemory`].
    #[doc(alias = "ggml_get_type_traits")]
    #[doc(alias = "ggml_fp16_to_fp32_row")]
    #[doc(alias = "ggml_bf16_to_fp32_row")]
    #[doc(alias = "ggml_cpu_fp16_to_fp32")]
    #[doc(alias = "ggml_cpu_bf16_to_fp32")]
    pub fn dequantize(self, bytes: &[u8]) -> Result<Vec<f32>> {
        let blocks = self.blocks("dequantize", bytes)?;
        if self == Self::F32 {
            return list::collect(bytes.as_chunks().0.iter().map(|&b| f32::from_ne_bytes(b)), CONVERTED);
        }
        version::check()?;
        // SAFETY: `raw` is a type that exists, so that C returns an entry of a constant table.
        let traits = unsafe { sys::ggml_get_type_traits(self.raw()) };
        // SAFETY: see above.
        let traits = unsafe { traits.as_ref() };
        let Some(to_float) = traits.and_then(|t| t.to_float) else {
            return Err(self.refused("dequantize", blocks, "ggml does not convert from this type"));
        };
        let n = blocks.saturating_mul(usize::try_from(self.block_size()).unwrap_or(usize::MAX));
        let mut out = Vec::new();
        out.try_reserve_exact(n).map_err(|_| out_of_memory(n.saturating_mul(size_of::<f32>())))?;
        out.resize(n, 0.0_f32);
        let bytes = realigned(bytes)?;
        guard::call("ggml_type_traits::to_float", || {
            // SAFETY: `bytes` is aligned and holds `n` elements in whole blocks, for which `out` has room. Decoders look up
            // tables by indices of as many bits as those have entries, so any bytes will do. C keeps neither.
            unsafe { to_float(bytes.as_ptr().cast(), out.as_mut_ptr(), n.cast_signed() as i64) }
        })?;
        Ok(out)
    }

    /// Whether bytes may be those of a tensor of this type: its numbers or scales are all finite
    /// (`ggml_validate_row_data`). ggml says on standard error what it found.
    ///
    /// # Errors
    ///
    /// [`Error::Param`] unless `bytes` is a whole number of blocks; [`Error::OutOfMemory`].
    #[doc(alias = "ggml_validate_row_data")]
    pub fn validate_row_data(self, bytes: &[u8]) -> Result<bool> {
        self.blocks("validate_row_data", bytes)?;
        let bytes = realigned(bytes)?;
        for part in bytes.chunks(CHUNK.saturating_mul(self.type_size())) {
            let fine = guard::call("ggml_validate_row_data", || {
                // SAFETY: a type that exists; `part` is aligned, as long as said, and a whole number of blocks. C only reads it.
                unsafe { sys::ggml_validate_row_data(self.raw(), part.as_ptr().cast(), part.len()) }
            })?;
            if !fine {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The number of blocks in `bytes`.
    fn blocks(self, op: &'static str, bytes: &[u8]) -> Result<usize> {
        let size = self.type_size();
        if bytes.len().is_multiple_of(size) {
            return Ok(bytes.len() / size);
        }
        let expected = format!("blocks of {self} take {size}").into();
        Err(Error::Param { op, name: "bytes", value: format!("{} bytes", bytes.len()).into(), expected })
    }

    fn refused(self, op: &'static str, n: usize, expected: &'static str) -> Error {
        let ne = [i64::try_from(n).unwrap_or(i64::MAX), 1, 1, 1];
        let operands = [TensorInfo { name: "".into(), dtype: self.name(), ne }].into();
        Error::DType { op, operands, expected: expected.into() }
    }
}

/// What there is no memory for, in errors.
const CONVERTED: &str = "converted numbers";

/// Numbers with what is too small for a block's scale made 0.
fn flushed(data: &[f32]) -> Result<Cow<'_, [f32]>> {
    let small = |x: f32| x != 0.0 && x.abs() < SMALLEST;
    if data.iter().any(|&x| small(x)) {
        list::collect(data.iter().map(|&x| if small(x) { 0.0 } else { x }), CONVERTED).map(Cow::Owned)
    } else {
        Ok(data.into())
    }
}

/// Memory for at least `bytes` bytes, aligned as any block.
fn aligned(bytes: usize) -> Result<Vec<u64>> {
    let units = bytes.div_ceil(size_of::<u64>());
    let mut out = Vec::new();
    out.try_reserve_exact(units).map_err(|_| out_of_memory(bytes))?;
    out.resize(units, 0);
    Ok(out)
}

/// Bytes at an address where blocks may lie.
enum Aligned<'a> {
    As(&'a [u8]),
    Copied(Vec<u64>, usize),
}

impl std::ops::Deref for Aligned<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::As(bytes) => bytes,
            Self::Copied(units, len) => bytemuck::cast_slice(units).get(..*len).unwrap_or_default(),
        }
    }
}

fn realigned(bytes: &[u8]) -> Result<Aligned<'_>> {
    if bytes.as_ptr().addr().is_multiple_of(align_of::<u64>()) {
        return Ok(Aligned::As(bytes));
    }
    let mut copy = aligned(bytes.len())?;
    for (to, from) in bytemuck::cast_slice_mut(&mut copy).iter_mut().zip(bytes) {
        *to = *from;
    }
    Ok(Aligned::Copied(copy, bytes.len()))
}

fn out_of_memory(bytes: usize) -> Error {
    Error::OutOfMemory { what: CONVERTED.into(), bytes: Some(bytes), log: Box::default() }
}

/// Gives blocks of `iq4_nl` whose scale is 0 the codes of zeros: ggml leaves there what was on its stack.
fn settle_empty(bytes: &mut [u8]) {
    for block in bytes.as_chunks_mut::<18>().0 {
        let [low, high, codes @ ..] = block;
        if (*low, *high & 0x7f) == (0, 0) {
            codes.fill(0x88);
        }
    }
}
