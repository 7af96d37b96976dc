//! Reads and writes single elements of weights and states.

use super::placed::Placed;
use super::{State, Weights};
use crate::dtype::Element;
use crate::error::{Error, Result};
use crate::header::TensorPtr;
use crate::tensor::pieces::{self, Pieces};
use crate::tensor::transfer;

/// How many elements one write fills.
const CHUNK: usize = 1 << 14;

impl Placed {
    fn element<T: Element>(&self, call: &'static str, name: &str, at: [i64; 4]) -> Result<T> {
        let t = self.find(name)?;
        let mut value = [T::zeroed()];
        pieces::read(call, t, one(call, t, at)?, &mut value)?;
        let [value] = value;
        Ok(value)
    }

    fn set_element<T: Element>(&self, call: &'static str, name: &str, at: [i64; 4], value: T) -> Result<()> {
        let t = self.writable(call, name)?;
        pieces::write(call, t, one(call, t, at)?, &[value])
    }

    fn fill_with<T: Element>(&self, call: &'static str, name: &str, value: T) -> Result<()> {
        let t = self.writable(call, name)?;
        transfer::check_plain(call, t)?;
        let n = t.elements();
        let chunk = vec![value; n.min(CHUNK)];
        (0..n).step_by(CHUNK).try_for_each(|first| {
            let rest = chunk.get(..n - first).unwrap_or(&chunk);
            transfer::write_at(call, t, first, rest)
        })
    }
}

/// A single element as [`Pieces`].
fn one(call: &'static str, t: TensorPtr, at: [i64; 4]) -> Result<Pieces> {
    let ne = t.ne();
    if at.iter().zip(ne).any(|(i, n)| !(0..n).contains(i)) {
        return Err(Error::param(
            call,
            "at",
            format!("{at:?}"),
            format!("it must lie below the tensor's dimensions, {ne:?}"),
        ));
    }
    let offset = at.iter().zip(ne).rev().fold(0, |offset, (i, n)| offset * n + i);
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    Ok(Pieces { offset, len: 1, count: 1, step: 1, data_step: 1 })
}

macro_rules! elements {
    ($($t:ident, [$($mutable:tt)?], $made:literal, $get:literal, $set:literal, $fill:literal;)*) => {
        $(
            impl $t {
                /// Reads one element of a tensor by its index in each dimension (`ggml_get_f32_nd`).
                /// [`Tensor::unravel_index`](crate::Tensor::unravel_index) converts a linear index.
                ///
                /// ```
                /// # use ggml::prelude::*;
                /// let mut builder = WeightsBuilder::new();
                /// builder.tensor("t", DType::F32, [3, 2])?;
                #[doc = $made]
                /// tensors.fill_with("t", 7.0_f32)?;
                /// tensors.set_element("t", [2, 1, 0, 0], 5.0_f32)?; // column 2 of row 1
                /// assert_eq!(tensors.element::<f32>("t", [2, 1, 0, 0])?, 5.0);
                /// assert_eq!(tensors.element::<f32>("t", [1, 1, 0, 0])?, 7.0);
                /// # Ok::<(), ggml::Error>(())
                /// ```
                ///
                /// # Errors
                ///
                /// [`Error::NoSuch`]; [`Error::ElementType`]; [`Error::Param`] if an index is out of bounds;
                /// [`Error::Packed`].
                #[doc(alias = "ggml_get_f32_nd")]
                #[doc(alias = "ggml_get_f32_1d")]
                #[doc(alias = "ggml_get_i32_nd")]
                #[doc(alias = "ggml_get_i32_1d")]
                pub fn element<T: Element>(&self, name: &str, at: [i64; 4]) -> Result<T> {
                    self.0.element($get, name, at)
                }

                /// Overwrites one element of a tensor by its index in each dimension (`ggml_set_f32_nd`). [`element`](Self::element)
                /// has an example.
                ///
                /// # Errors
                ///
                /// [`Error::NoSuch`]; [`Error::ElementType`]; [`Error::Param`] if an index is out of bounds;
                /// [`Error::Frozen`]; [`Error::Packed`].
                #[doc(alias = "ggml_set_f32_nd")]
                #[doc(alias = "ggml_set_f32_1d")]
                #[doc(alias = "ggml_set_i32_nd")]
                #[doc(alias = "ggml_set_i32_1d")]
                pub fn set_element<T: Element>(&$($mutable)? self, name: &str, at: [i64; 4], value: T) -> Result<()> {
                    self.0.set_element($set, name, at, value)
                }

                /// Overwrites all elements of a tensor with one value (`ggml_set_f32`).
                ///
                /// # Errors
                ///
                /// [`Error::NoSuch`], [`Error::ElementType`], [`Error::Frozen`], [`Error::Packed`].
                #[doc(alias = "ggml_set_f32")]
                #[doc(alias = "ggml_set_i32")]
                pub fn fill_with<T: Element>(&$($mutable)? self, name: &str, value: T) -> Result<()> {
                    self.0.fill_with($fill, name, value)
                }
            }
        )*
    };
}

elements! {
    Weights, [mut], "let mut tensors = builder.place(Device::cpu()?)?;", "Weights::element", "Weights::set_element", "Weights::fill_with";
    State, [], "let tensors = builder.place_state(Device::cpu()?)?;", "State::element", "State::set_element", "State::fill_with";
}
