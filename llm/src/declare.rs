//! The tensors that a family needs: declared by name and shape before any are loaded.

use ggml::gguf::Reader;
use ggml::{DType, Shape};

use crate::error::{Error, Result};

/// What a tensor is for, which decides where it may lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The matrix of token embeddings, whose rows are picked.
    Embedding,
    /// A matrix that activations are multiplied by, or several of experts.
    Matrix,
    /// A small tensor of floats: the weights of a norm, a bias.
    Vector,
}

/// A declared tensor.
#[derive(Debug, Clone)]
pub(crate) struct Declared {
    pub(crate) name: Box<str>,
    pub(crate) role: Role,
    /// The layer, or `None` for embedding and output.
    pub(crate) layer: Option<usize>,
    pub(crate) shape: Shape,
    /// The number of elements that the graph needs, if it is more than the file has: ones follow.
    pub(crate) filled_to: Option<usize>,
}

/// A declared tensor, by its place in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct W(usize);

impl W {
    pub(crate) fn index(self) -> usize {
        self.0
    }
}

/// Where tensors are looked up.
pub(crate) trait Source {
    /// The type and shape of the tensor with this name. A source that makes tensors up says that there is one of the
    /// `expected` shape.
    fn find(&self, name: &str, expected: Shape) -> Option<(DType, Shape)>;
}

impl<S> Source for Reader<S> {
    fn find(&self, name: &str, _: Shape) -> Option<(DType, Shape)> {
        self.tensor(name).ok().map(|t| (t.dtype(), t.shape()))
    }
}

/// Collects tensors.
pub(crate) struct Declare<'a> {
    source: &'a dyn Source,
    layer: Option<usize>,
    list: Vec<Declared>,
}

impl<'a> Declare<'a> {
    pub(crate) fn new(source: &'a dyn Source) -> Self {
        Self { source, layer: None, list: Vec::new() }
    }

    /// The tensors that follow belong to this layer, and have its prefix.
    pub(crate) fn layer(&mut self, layer: usize) {
        self.layer = Some(layer);
    }

    /// The tensors that follow belong to no layer.
    pub(crate) fn no_layer(&mut self) {
        self.layer = None;
    }

    fn full(&self, name: &str) -> Box<str> {
        self.layer.map_or_else(|| name.into(), |i| format!("blk.{i}.{name}").into())
    }

    /// A tensor that may be missing.
    pub(crate) fn optional(&mut self, name: &str, shape: impl Into<Shape>, role: Role) -> Result<Option<W>> {
        let (name, expected) = (self.full(name), shape.into());
        let Some((dtype, found)) = self.source.find(&name, expected) else { return Ok(None) };
        if found != expected {
            return Err(Error::TensorShape { name, found, expected });
        }
        if role == Role::Vector && dtype != DType::F32 {
            let (key, value) = (format!("the type of tensor `{name}`").into(), dtype.name().into());
            return Err(Error::Key { key, value, expected: "f32".into() });
        }
        self.list.push(Declared { name, role, layer: self.layer, shape: found, filled_to: None });
        Ok(Some(W(self.list.len() - 1)))
    }

    /// A vector of `n` factors that may be missing, to which ones are added up to `all`.
    pub(crate) fn maybe_factors(&mut self, name: &str, n: usize, all: usize) -> Result<Option<W>> {
        let found = self.maybe_vector(name, n)?;
        if let Some(last) = self.list.last_mut().filter(|_| found.is_some() && n < all) {
            last.filled_to = Some(all);
        }
        Ok(found)
    }

    /// A tensor that must be there.
    pub(crate) fn need(&mut self, name: &str, shape: impl Into<Shape>, role: Role) -> Result<W> {
        let expected = shape.into();
        let found = self.optional(name, expected, role)?;
        found.ok_or_else(|| Error::MissingTensor { name: self.full(name), expected })
    }

    pub(crate) fn matrix(&mut self, name: &str, shape: impl Into<Shape>) -> Result<W> {
        self.need(name, shape, Role::Matrix)
    }

    pub(crate) fn vector(&mut self, name: &str, n: usize) -> Result<W> {
        self.need(name, [n], Role::Vector)
    }

    /// A vector that may be missing.
    pub(crate) fn maybe_vector(&mut self, name: &str, n: usize) -> Result<Option<W>> {
        self.optional(name, [n], Role::Vector)
    }

    pub(crate) fn into_list(self) -> Vec<Declared> {
        self.list
    }
}
