//! Converts floats to blocks and back.

use std::borrow::Cow;

use ggml_sys as sys;

use crate::callback;
use crate::dtype::{CType, DType};
use crate::error::{Error, Result, TensorInfo};
use crate::guard::guarded;
use crate::{guard, list, version};

/// The largest value for block types. Above it, 16-bit scales overflow, and quantisers divide infinities.
const LARGEST: f32 = 65504.0;

/// The largest value for `nvfp4`: 448 times its largest code. Larger values would be clipped to it.
const LARGEST_OF_NVFP4: f32 = 2688.0;

/// The largest accepted growth of a block's largest value by conversion, as a factor. Rounding a tiny scale doubles
/// values, and fits with sensible weights triple some. A fit dominated by the weight of one small value can make the
/// others ten times as large.
const GROWTH: f32 = 4.0;

/// The smallest scales of blocks turn values near 0 into values of about this size.
const GRAIN: f32 = 1e-6;

/// How many blocks are converted back and compared with the original at once.
const COMPARED: usize = 256;

/// Smaller values become 0 in block types, since the inverse of a block's scale would be infinite.
const SMALLEST: f32 = 1e-20;

/// The range of column weights. Quantisers multiply them by squares of values, and divide by sums of the products.
const WEIGHTS: std::ops::RangeInclusive<f32> = 1e-10..=1e10;

/// How many blocks one call of C validates. C counts in `int`.
const CHUNK: usize = 1 << 20;

/// What ggml's C does with an element type: it converts numbers to the type and from it. The prelude has this trait.
///
/// ```
/// use ggml::prelude::*;
/// let bytes = DType::Q4_0.quantize(&[0.5; 64], 32, None)?; // two rows
/// assert_eq!(bytes.len(), 2 * DType::Q4_0.type_size());
/// assert_eq!(DType::Q4_0.dequantize(&bytes)?, [0.5; 64]);
/// # Ok::<(), ggml::Error>(())
/// ```
pub trait Quantize: Copy + sealed::QuantizeSeal {
    /// Whether the ggml that this crate was compiled for has the type. A tensor of another type is an error. All
    /// versions since 0.28 have all types; 0.26 lacks `f8_e4m3`.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// assert!(DType::Q8_0.is_known());
    /// ```
    fn is_known(self) -> bool;

    /// Converts floats to the bytes of a tensor of this type (`ggml_quantize_chunk`), in rows of `n_per_row`.
    ///
    /// `imatrix` has a weight for each column; some types need it ([`requires_imatrix`](Self::requires_imatrix)),
    /// others can use it or ignore it. Block types take values up to 65504, `nvfp4` up to 2688. Values nearer to 0 than
    /// 1e-20, and those below a type's smallest scale, become 0. Each block is converted back and refused if its
    /// largest value has grown more than four times. That happens with `iq1_s` and `iq1_m` if nearly all of a block is
    /// 0 or has almost no weight. `f32`, `f16` and `bf16` accept any value.
    ///
    /// Several threads may quantise at once. Types with a codebook (`iq1` to `iq3`) build their tables at first use in
    /// a process, which takes up to some seconds.
    ///
    /// ```
    /// use ggml::prelude::*;
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
    /// [`Error::DType`] for types that ggml can't convert to; [`Error::Param`] if rows are not a whole number of
    /// blocks, if `data` is not a whole number of rows, if a value is infinite, NaN or too large (for some types and
    /// weights less than 65504; `f8_e4m3` takes 448 for larger ones), if a block would grow more than four times, or if
    /// `imatrix` is missing, hasn't `n_per_row` elements, or has one outside 1e-10 to 1e10; [`Error::OutOfMemory`].
    #[doc(alias = "ggml_quantize_chunk")]
    #[doc(alias = "ggml_quantize_init")]
    #[doc(alias = "ggml_fp32_to_fp16_row")]
    #[doc(alias = "ggml_fp32_to_bf16_row_ref")]
    #[doc(alias = "ggml_cpu_fp32_to_fp16")]
    #[doc(alias = "ggml_cpu_fp32_to_bf16")]
    fn quantize(self, data: &[f32], n_per_row: usize, imatrix: Option<&[f32]>) -> Result<Vec<u8>>;

    /// Whether [`quantize`](Self::quantize) needs an `imatrix` for this type (`ggml_quantize_requires_imatrix`).
    #[doc(alias = "ggml_quantize_requires_imatrix")]
    fn requires_imatrix(self) -> bool;

    /// Converts the bytes of a tensor of this type to floats (`ggml_get_type_traits`, `to_float`).
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// let bytes = DType::F16.quantize(&[0.5, 1.5], 2, None)?;
    /// assert_eq!(DType::F16.dequantize(&bytes)?, [0.5, 1.5]);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::DType`] for types that ggml can't convert from: integers, `f64`, and intermediate types of kernels;
    /// [`Error::Param`] unless `bytes` is a whole number of blocks; [`Error::OutOfMemory`].
    #[doc(alias = "ggml_get_type_traits")]
    #[doc(alias = "ggml_fp16_to_fp32_row")]
    #[doc(alias = "ggml_bf16_to_fp32_row")]
    #[doc(alias = "ggml_cpu_fp16_to_fp32")]
    #[doc(alias = "ggml_cpu_bf16_to_fp32")]
    fn dequantize(self, bytes: &[u8]) -> Result<Vec<f32>>;

    /// Whether bytes can be those of a tensor of this type: all values or scales must be finite
    /// (`ggml_validate_row_data`). ggml prints what it found to standard error.
    ///
    /// ```
    /// # use ggml::prelude::*;
    /// assert!(DType::F32.validate_row_data(bytemuck::bytes_of(&1.0_f32))?);
    /// assert!(!DType::F32.validate_row_data(bytemuck::bytes_of(&f32::NAN))?);
    /// # Ok::<(), ggml::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Param`] unless `bytes` is a whole number of blocks; [`Error::OutOfMemory`].
    #[doc(alias = "ggml_validate_row_data")]
    fn validate_row_data(self, bytes: &[u8]) -> Result<bool>;
}

mod sealed {
    #[expect(unnameable_types, reason = "that is what seals the trait")]
    pub trait QuantizeSeal {}

    impl QuantizeSeal for ggml_gguf::DType {}
}

impl Quantize for DType {
    fn is_known(self) -> bool {
        CType::is_known(self)
    }

    fn quantize(self, data: &[f32], n_per_row: usize, imatrix: Option<&[f32]>) -> Result<Vec<u8>> {
        callback::check_reentry("Quantize::quantize")?;
        let refuse = |name, value: String, expected: String| {
            Err(Error::Param { call: "quantize", name, value: value.into(), expected: expected.into() })
        };
        let converted = self.has_floats_in_blocks() || self.is_float() || self.is_f8();
        if !(converted && CType::is_known(self)) {
            return Err(refused(self, "quantize", data.len(), "ggml does not convert to this type"));
        }
        // H31: C checks that rows are whole blocks for some types only, and writes out of bounds for the others.
        let row = i64::try_from(n_per_row).ok().filter(|&n| n > 0).and_then(|n| Some((n, self.row_size(n)?)));
        let Some((columns, row_size)) = row else {
            let block = self.block_size();
            return refuse("n_per_row", n_per_row.to_string(), format!("rows of {self} are whole blocks of {block}"));
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
                return refuse("imatrix", format!("{} weights", imatrix.len()), format!("rows have {n_per_row}"));
            }
            if let Some((i, x)) = imatrix.iter().enumerate().find(|(_, x)| !WEIGHTS.contains(*x)) {
                return refuse("imatrix", format!("{x} at {i}"), format!("weights must lie in {WEIGHTS:?}"));
            }
        } else if self.requires_imatrix() {
            return refuse("imatrix", "None".into(), format!("{self} needs one"));
        }
        let data = if self.is_quantized() { flushed(data)? } else { Cow::Borrowed(data) };
        let rows = data.len() / n_per_row;
        let mut out = list::filled(0_u64, rows.saturating_mul(row_size).div_ceil(size_of::<u64>()), CONVERTED)?;
        if rows > 0 {
            let (rows, weights) = (rows.cast_signed() as i64, imatrix.map_or(std::ptr::null(), <[f32]>::as_ptr));
            let (t, from, to) = (self.raw(), data.as_ptr(), out.as_mut_ptr().cast());
            // SAFETY: C can convert to this type; `data` is `rows` rows of `columns` valid values in whole blocks
            // (checked above). `out` is aligned and fits all rows. The weights are one per column, or NULL if the
            // type allows it. C keeps no pointer; it builds its tables under a lock and never frees them.
            unsafe { guarded!(call, sys::ggml_quantize_chunk(t, from, to, 0, rows, columns, weights)) }?;
        }
        let filled = bytemuck::cast_slice(&out).get(..data.len() / n_per_row * row_size).unwrap_or_default();
        let mut bytes = list::collect(filled.iter().copied(), CONVERTED)?;
        if self == Self::IQ4_NL {
            zero_empty_blocks(&mut bytes);
        }
        // Fitted scales and minima can exceed the values to which they are fitted, and so overflow.
        if self.is_quantized() && !self.validate_row_data(&bytes)? {
            return refuse(
                "data",
                format!("{} numbers", data.len()),
                "scales of such large numbers would be infinite".into(),
            );
        }
        if let Some((i, x, back)) = far_off(self, &data, &bytes)? {
            return refuse(
                "data",
                format!("{x} as the largest of the block at {i}"),
                format!("it would come back as {back}; use a more even imatrix, or another type"),
            );
        }
        Ok(bytes)
    }

    fn requires_imatrix(self) -> bool {
        // SAFETY: the C function is pure: it compares constants.
        unsafe { sys::ggml_quantize_requires_imatrix(self.raw()) }
    }

    fn dequantize(self, bytes: &[u8]) -> Result<Vec<f32>> {
        callback::check_reentry("Quantize::dequantize")?;
        let blocks = blocks(self, "dequantize", bytes)?;
        if self == Self::F32 {
            return list::collect(bytes.as_chunks().0.iter().map(|&b| f32::from_ne_bytes(b)), CONVERTED);
        }
        version::check()?;
        // SAFETY: the type exists, so C returns an entry of a constant table.
        let traits = unsafe { sys::ggml_get_type_traits(self.raw()) };
        // SAFETY: the pointer is NULL, or to an entry of a constant table.
        let traits = unsafe { traits.as_ref() };
        let Some(to_float) = traits.and_then(|t| t.to_float) else {
            return Err(refused(self, "dequantize", blocks, "ggml does not convert from this type"));
        };
        let n = blocks.saturating_mul(usize::try_from(self.block_size()).unwrap_or(usize::MAX));
        let (mut out, mut copy) = (list::filled(0.0_f32, n, CONVERTED)?, Vec::new());
        let bytes = list::aligned(bytes, &mut copy)?;
        guard::call("ggml_type_traits::to_float", || {
            // SAFETY: `bytes` is aligned and has `n` elements in whole blocks (`blocks`); `out` has space for them. Any
            // bytes are valid: decoders have table entries for all values of the bits by which they index. C keeps
            // neither pointer.
            unsafe { to_float(bytes.as_ptr().cast(), out.as_mut_ptr(), n.cast_signed() as i64) }
        })?;
        Ok(out)
    }

    fn validate_row_data(self, bytes: &[u8]) -> Result<bool> {
        callback::check_reentry("Quantize::validate_row_data")?;
        blocks(self, "validate_row_data", bytes)?;
        let mut copy = Vec::new();
        let bytes = list::aligned(bytes, &mut copy)?;
        for part in bytes.chunks(CHUNK.saturating_mul(self.type_size())) {
            // SAFETY: the type exists; `part` is aligned, and whole blocks of the given length. C only reads it.
            let fine =
                unsafe { guarded!(call, sys::ggml_validate_row_data(self.raw(), part.as_ptr().cast(), part.len())) }?;
            if !fine {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Finds a block whose largest value would grow too much: returns the block's offset, its largest value, and the
/// largest value after conversion.
fn far_off(t: DType, data: &[f32], bytes: &[u8]) -> Result<Option<(usize, f32, f32)>> {
    if !t.is_quantized() {
        return Ok(None);
    }
    let of_block = usize::try_from(t.block_size()).unwrap_or(usize::MAX);
    let largest = |block: &[f32]| block.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let parts = data.chunks(COMPARED * of_block).zip(bytes.chunks(COMPARED * t.type_size()));
    for (part, (data, bytes)) in parts.enumerate() {
        let back = t.dequantize(bytes)?;
        for (block, (data, back)) in data.chunks(of_block).zip(back.chunks(of_block)).enumerate() {
            let (was, is) = (largest(data), largest(back));
            if is > GROWTH * was + GRAIN {
                return Ok(Some(((part * COMPARED + block) * of_block, was, is)));
            }
        }
    }
    Ok(None)
}

/// The number of blocks in `bytes`.
fn blocks(t: DType, call: &'static str, bytes: &[u8]) -> Result<usize> {
    let size = t.type_size();
    if !CType::is_known(t) {
        return Err(refused(t, call, bytes.len() / size, "this version of ggml does not have the type"));
    }
    if bytes.len().is_multiple_of(size) {
        return Ok(bytes.len() / size);
    }
    let expected = format!("a block of {t} has {size} bytes").into();
    Err(Error::Param { call, name: "bytes", value: format!("{} bytes", bytes.len()).into(), expected })
}

fn refused(t: DType, call: &'static str, n: usize, expected: &'static str) -> Error {
    let ne = [i64::try_from(n).unwrap_or(i64::MAX), 1, 1, 1];
    let operands = [TensorInfo { name: "".into(), dtype: t.name(), ne }].into();
    Error::DType { call, operands, expected: expected.into() }
}

/// How out-of-memory errors name what the memory was for.
const CONVERTED: &str = "converted numbers";

/// Replaces values that are too small for the scale of a block by 0.
fn flushed(data: &[f32]) -> Result<Cow<'_, [f32]>> {
    let small = |x: f32| x != 0.0 && x.abs() < SMALLEST;
    if data.iter().any(|&x| small(x)) {
        list::collect(data.iter().map(|&x| if small(x) { 0.0 } else { x }), CONVERTED).map(Cow::Owned)
    } else {
        Ok(data.into())
    }
}

/// Sets the codes of `iq4_nl` blocks with scale 0 to 8, the code of the value nearest to 0: ggml leaves uninitialised
/// stack memory there.
fn zero_empty_blocks(bytes: &mut [u8]) {
    for block in bytes.as_chunks_mut::<18>().0 {
        let [low, high, codes @ ..] = block;
        if (*low, *high & 0x7f) == (0, 0) {
            codes.fill(0x88);
        }
    }
}
