//! Functions of single elements: their cases, and what random programs need to draw them.

use ggml::Result;
use ggml::prelude::*;

use super::case::{input, of};
use super::row::{Refused, Row};
use crate::array::Array;
use crate::encode::precision;
use crate::layout::Layout;

/// Calls a builder with operands and parameters.
pub type Make = for<'c> fn(&'c Context, &[Tensor<'c>], &[f32]) -> Result<Tensor<'c>>;

/// What the second operand is, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Second {
    /// There is none.
    None,
    /// It has the first one's type and shape.
    Same,
}

/// A parameter: the value for all tests but random programs, and the limits between which those draw it.
#[derive(Debug, Clone, Copy)]
pub struct Param {
    pub usual: f32,
    pub from: f32,
    pub to: f32,
}

/// A function of the elements at one place.
#[derive(Clone, Copy)]
pub struct Each {
    pub second: Second,
    pub params: &'static [Param],
    pub make: Make,
    pub in_place: Option<(&'static str, Make)>,
    /// The function, of an element of each operand and of the parameters.
    pub f: fn(&[f64], &[f64]) -> f64,
    /// The types for which the CPU has kernels.
    pub types: &'static [DType],
    /// The layouts that it takes.
    pub layouts: &'static [Layout],
    /// The operands' limits.
    pub limits: (f64, f64),
    /// How far kernels may be off, relative to operand and result.
    pub error: f64,
    /// Whether kernels may read a table of 16-bit floats.
    pub rough: bool,
    /// Whether all of ggml's GPUs compute it in `f32`.
    pub must: bool,
    /// If training derives it, a number around which that can be tested.
    pub slope: Option<f32>,
}

const FLOATS: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

impl Each {
    /// A function that takes any float with contiguous rows.
    pub fn new(make: Make, f: fn(&[f64], &[f64]) -> f64) -> Self {
        Self {
            second: Second::None,
            params: &[],
            make,
            in_place: None,
            f,
            types: &FLOATS,
            layouts: &Layout::ROWS,
            limits: (-3.5, 3.5),
            error: 1e-5,
            rough: false,
            must: false,
            slope: None,
        }
    }

    /// The parameters that are usual.
    pub fn usual(&self) -> Vec<f32> {
        self.params.iter().map(|p| p.usual).collect()
    }

    /// A builder with the usual parameters.
    fn usually(
        &self,
        make: Make,
    ) -> impl for<'c> Fn(&'c Context, &[Tensor<'c>]) -> Result<Tensor<'c>> + Send + Sync + 'static {
        let usual = self.usual();
        move |ctx, t| make(ctx, t, &usual)
    }

    /// How far the CPU may be from the definition, if further than the type's precision.
    pub fn off(&self) -> f64 {
        if self.rough { 2e-3 } else { 0.0 }
    }

    /// The function with the usual parameters, of whole operands.
    pub fn of_arrays(&self, operands: &[Array]) -> Array {
        let params: Vec<f64> = self.usual().into_iter().map(f64::from).collect();
        let first = &operands[0];
        Array::of(first.ne, |i| {
            let elements: Vec<f64> = operands.iter().map(|a| a.at(i)).collect();
            (self.f)(&elements, &params)
        })
    }

    /// Its row, with cases for all types and several shapes, and refusals of the types that it doesn't take.
    pub fn row(self, name: &'static str, op: &'static str) -> Row {
        let n = if self.second == Second::Same { 2 } else { 1 };
        let long: &[[usize; 4]] = &[[67, 5, 3, 2]];
        let shapes = |dtype| if dtype == DType::F32 { &[[67, 5, 3, 2], [1, 1, 1, 1], [37, 1, 1, 1]][..] } else { long };
        let cases = self.types.iter().flat_map(|&dtype| shapes(dtype).iter().map(move |&ne| (dtype, ne)));
        let mut row = Row::new(name, op).all(cases, |row, (dtype, ne)| {
            let operand = of(dtype, ne).turning(self.limits.0, self.limits.1);
            row.case(vec![operand; n], self.usually(self.make))
                .is(move |operands| self.of_arrays(operands))
                .laid(self.layouts)
                .off(precision(dtype).max(self.off()))
                .near(2e-3)
        });
        row.cases[0].must = self.must;
        for wrong in [DType::I32, DType::Q8_0] {
            let build = self.usually(self.make);
            row = row.refuses(Refused::DType, move |c| build(c, &vec![input(c, wrong, [32, 2]); n]));
        }
        for &wrong in FLOATS.iter().filter(|dtype| !self.types.contains(dtype)) {
            let build = self.usually(self.make);
            row = row.refuses(Refused::Unsupported, move |c| build(c, &vec![input(c, wrong, [4, 2]); n]));
        }
        if let Some((in_place, make)) = self.in_place {
            row = row.in_place(in_place, self.usually(make));
        }
        Row { each: Some(self), learns: self.slope.is_some(), ..row }
    }
}
