//! A row of the table: a builder, what it is tested with, and what the tests must know of it.

use ggml::Result;
use ggml::prelude::*;

use super::case::{Build, Case, Operand};
use super::draw::{Drawn, Source};
use super::each::Each;
use crate::array::Array;
use crate::layout::Layout;

/// A call that is refused.
pub type Refusal = Box<dyn for<'c> Fn(&'c Context) -> Result<Tensor<'c>> + Send + Sync>;

/// How a call is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// By the builder, for a type.
    DType,
    /// By the builder, for a shape or for strides.
    Shape,
    /// By the builder, for a parameter.
    Param,
    /// By the CPU's rules, when the result is allocated.
    Unsupported,
}

/// A builder.
pub struct Row {
    /// The method of `Context`.
    pub name: &'static str,
    /// ggml's name of the operation that it makes; empty where it makes several.
    pub op: &'static str,
    /// A call for tests that care for nothing but the builder's name, where the first case's doesn't begin with it.
    pub call: Option<Build>,
    /// What it is computed with.
    pub cases: Vec<Case>,
    /// A case with a random shape and random parameters.
    pub drawn: Option<Drawn>,
    /// The builder in place, and a call of it.
    pub in_place: Option<(&'static str, Build)>,
    /// The function, where it is one of single elements.
    pub each: Option<Each>,
    /// Calls that are refused.
    pub refused: Vec<(Refused, Refusal)>,
    /// Whether ggml has a shader for Vulkan, and this crate lets it run.
    pub vulkan: bool,
    /// Whether meta devices compute it.
    pub meta: bool,
    /// Whether ggml's backward pass knows it, mostly.
    pub learns: bool,
}

impl Row {
    /// A row without cases, of which GPUs and meta devices compute everything.
    pub fn new(name: &'static str, op: &'static str) -> Self {
        Self {
            name,
            op,
            call: None,
            cases: Vec::new(),
            drawn: None,
            in_place: None,
            each: None,
            refused: Vec::new(),
            vulkan: true,
            meta: true,
            learns: false,
        }
    }

    /// Adds a case; the methods named like one of [`Case`] change the last one.
    pub fn case(
        self,
        operands: impl IntoIterator<Item = Operand>,
        build: impl for<'c> Fn(&'c Context, &[Tensor<'c>]) -> Result<Tensor<'c>> + Send + Sync + 'static,
    ) -> Self {
        self.with(Case::new(operands, build))
    }

    /// Adds a case.
    pub fn with(mut self, case: Case) -> Self {
        self.cases.push(case);
        self
    }

    /// Its cases with random shapes and parameters.
    pub fn drawn(self, drawn: impl Fn(&mut dyn Source) -> Case + Send + Sync + 'static) -> Self {
        Self { drawn: Some(Box::new(drawn)), ..self }
    }

    /// Adds what `f` makes of each item.
    pub fn all<T>(self, items: impl IntoIterator<Item = T>, f: impl FnMut(Self, T) -> Self) -> Self {
        items.into_iter().fold(self, f)
    }

    fn last(mut self, change: impl FnOnce(Case) -> Case) -> Self {
        let case = self.cases.pop().unwrap();
        self.with(change(case))
    }

    pub fn is(self, reference: impl Fn(&[Array]) -> Array + Send + Sync + 'static) -> Self {
        self.last(|case| case.is(reference))
    }

    pub fn laid(self, layouts: &'static [Layout]) -> Self {
        self.last(|case| case.laid(layouts))
    }

    pub fn makes(self, dtype: DType) -> Self {
        self.last(|case| case.makes(dtype))
    }

    pub fn off(self, tolerance: f64) -> Self {
        self.last(|case| case.off(tolerance))
    }

    pub fn near(self, tolerance: f64) -> Self {
        self.last(|case| case.near(tolerance))
    }

    /// All of ggml's GPUs compute the last case.
    pub fn must(self) -> Self {
        self.last(|case| Case { must: true, ..case })
    }

    /// A call for tests that care for nothing but the builder's name.
    pub fn call(
        mut self,
        build: impl for<'c> Fn(&'c Context, &[Tensor<'c>]) -> Result<Tensor<'c>> + Send + Sync + 'static,
    ) -> Self {
        self.call = Some(Box::new(build));
        self
    }

    /// The builder in place.
    pub fn in_place(
        mut self,
        name: &'static str,
        build: impl for<'c> Fn(&'c Context, &[Tensor<'c>]) -> Result<Tensor<'c>> + Send + Sync + 'static,
    ) -> Self {
        self.in_place = Some((name, Box::new(build)));
        self
    }

    /// A call that is refused.
    pub fn refuses(
        mut self,
        how: Refused,
        call: impl for<'c> Fn(&'c Context) -> Result<Tensor<'c>> + Send + Sync + 'static,
    ) -> Self {
        self.refused.push((how, Box::new(call)));
        self
    }

    /// Vulkan has no shader for it, or none that this crate allows.
    pub fn no_vulkan(self) -> Self {
        Self { vulkan: false, ..self }
    }

    /// Meta devices refuse it.
    pub fn no_meta(self) -> Self {
        Self { meta: false, ..self }
    }

    /// Training can derive it, mostly.
    pub fn learns(self) -> Self {
        Self { learns: true, ..self }
    }

    /// A call with these operands, of which there must be as many as any builder takes.
    ///
    /// # Errors
    /// Those of the builder.
    pub fn call_with<'c>(&self, ctx: &'c Context, operands: &[Tensor<'c>]) -> Result<Tensor<'c>> {
        let build = self.call.as_ref().or(self.cases.first().map(|case| &case.build));
        build.unwrap_or_else(|| panic!("{} has no call", self.name))(ctx, operands)
    }

    /// Whether it is a look at memory, which nothing computes.
    pub fn looks(&self) -> bool {
        LOOKS.contains(&self.op)
    }
}

/// Operations that compute nothing.
pub const LOOKS: [&str; 5] = ["NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"];
