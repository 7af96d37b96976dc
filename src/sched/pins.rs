//! Tensors that the user pinned to backends.

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::list;
use crate::rules::run as check;
use crate::tensor::Tensor;

/// Which entries are pinned: pairs of an entry's index and a backend's index, sorted by entry.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pins(Vec<(usize, usize)>);

impl Pins {
    /// Finds the entries of the pinned tensors in the graph.
    pub(crate) fn new(
        call: &'static str,
        graph: &Graph<'_>,
        n_backends: usize,
        pins: &[(Tensor<'_>, usize)],
    ) -> Result<Self> {
        let mut found = list::reserved(pins.len(), "the list of pinned tensors")?;
        let refuse = |name, value, expected: String| Error::Param { call, name, value, expected: expected.into() };
        for &(t, backend) in pins {
            let Some(i) = graph.entries().position(t.ptr()) else {
                return Err(Error::NotPart { call, tensor: t.info(), whole: "the graph" });
            };
            if backend >= n_backends {
                let expected = format!("the scheduler has {n_backends} backends");
                return Err(refuse("backend", backend.to_string().into(), expected));
            }
            found.push((i, backend));
        }
        found.sort_unstable();
        let twice = found.windows(2).find_map(|pair| match *pair {
            [(a, _), (b, _)] if a == b => graph.entries().get(a),
            _ => None,
        });
        if let Some(e) = twice {
            return Err(refuse("pins", e.ptr.name().into(), "it is pinned twice; pin it once".into()));
        }
        Ok(Self(found))
    }

    /// Checks that each backend can run the entries that are pinned to it.
    pub(super) fn check(&self, graph: &Graph<'_>, backends: &[Backend]) -> Result<()> {
        self.iter().try_for_each(|(i, backend)| match (graph.entries().get(i), backends.get(backend)) {
            (Some(e), Some(backend)) => check::pinned(backend.device(), e),
            _ => Ok(()),
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, usize)> {
        self.0.iter().copied()
    }
}
