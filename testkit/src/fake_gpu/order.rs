//! Orders of nodes.

use std::hash::{DefaultHasher, Hash, Hasher};

use ggml::driver::{Failure, SplitNodes};

use super::FakeGpu;

/// How a stream orders the nodes of a split.
pub type Order = fn(&SplitNodes<'_, FakeGpu>) -> Result<Option<Vec<usize>>, Failure>;

/// One of the allowed orders, the same one for the same operations.
///
/// # Errors
///
/// None.
pub fn shuffled(nodes: &SplitNodes<'_, FakeGpu>) -> Result<Option<Vec<usize>>, Failure> {
    let mut hasher = DefaultHasher::new();
    nodes.nodes().for_each(|node| (node.op(), node.result().tensor().ne()).hash(&mut hasher));
    let mut random = fastrand::Rng::with_seed(hasher.finish());
    let mut after = vec![Vec::new(); nodes.len()];
    let mut waits: Vec<_> = (0..nodes.len()).map(|i| nodes.before(i).len()).collect();
    for i in 0..nodes.len() {
        nodes.before(i).iter().for_each(|&before| after[before].push(i));
    }
    let mut ready: Vec<_> = (0..nodes.len()).filter(|&i| waits[i] == 0).collect();
    let mut order = Vec::new();
    while !ready.is_empty() {
        let next = ready.swap_remove(random.usize(..ready.len()));
        order.push(next);
        for &i in &after[next] {
            waits[i] -= 1;
            ready.extend((waits[i] == 0).then_some(i));
        }
    }
    Ok(Some(order))
}
