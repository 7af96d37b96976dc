//! Assigns nodes to layers, and orders each layer.
#![expect(clippy::indexing_slicing, reason = "indices into vectors that are made here, of a length for each")]

use std::collections::BTreeSet;
use std::ops::Range;

/// How often the layers are reordered to put connected nodes near each other.
const SWEEPS: usize = 6;

/// Bends per node where lines pass through layers. The longest lines get none, and run straight behind the nodes.
pub(super) const BENDS: usize = 4;

/// A node, or a bend of a line that passes through a layer.
#[derive(Debug, Clone, Default)]
pub(super) struct Item {
    pub(super) node: Option<usize>,
    pub(super) layer: usize,
    /// Its neighbours in the layer above, and in the one below.
    pub(super) above: Vec<usize>,
    pub(super) below: Vec<usize>,
    /// The item straight above and the one straight below on a straight line; these form the longest data paths.
    pub(super) behind: Option<usize>,
    pub(super) before: Option<usize>,
}

/// Nodes in layers. In the list of items, nodes come first, then bends.
#[derive(Debug, Clone, Default)]
pub(super) struct Layers {
    pub(super) items: Vec<Item>,
    /// The items of each layer, from left to right.
    pub(super) rows: Vec<Vec<usize>>,
    /// The bends of each line.
    pub(super) bends: Vec<Range<usize>>,
}

impl Layers {
    pub(super) fn new(nodes: usize, lines: &BTreeSet<(usize, usize)>) -> Self {
        debug_assert!(lines.iter().all(|&(from, to)| from < to && to < nodes), "edges lead to greater indices");
        let lines: Vec<_> = lines.iter().copied().collect();
        let depths = depths(nodes, &lines);
        let mut layers = depths.clone();
        // As low as its users allow, so that leaves are next to them. Lines are sorted by their start.
        let mut seen = vec![false; nodes];
        for &(from, to) in lines.iter().rev() {
            let above = layers[to].saturating_sub(1);
            layers[from] = if seen[from] { above.min(layers[from]) } else { above };
            seen[from] = true;
        }
        let item = |(node, &layer)| Item { node: Some(node), layer, ..Item::default() };
        let items = layers.iter().enumerate().map(item).collect();
        let mut all = Self { items, rows: Vec::new(), bends: vec![0..0; lines.len()] };
        all.bend(&lines);
        all.join(&lines, &depths);
        let mut rows = vec![Vec::new(); layers.iter().max().map_or(0, |last| last + 1)];
        for (i, item) in all.items.iter().enumerate() {
            rows[item.layer].push(i);
        }
        all.rows = rows;
        all.order();
        all
    }

    /// Gives lines a bend in each layer that they pass, the shortest lines first.
    fn bend(&mut self, lines: &[(usize, usize)]) {
        let mut left = BENDS * self.items.len();
        let passed = |items: &[Item], (from, to): (usize, usize)| items[from].layer + 1..items[to].layer;
        let mut order: Vec<_> = (0..lines.len()).collect();
        order.sort_by_key(|&i| passed(&self.items, lines[i]).len());
        for i in order {
            let layers = passed(&self.items, lines[i]);
            if layers.len() > left {
                break;
            }
            left -= layers.len();
            let first = self.items.len();
            self.items.extend(layers.map(|layer| Item { layer, ..Item::default() }));
            self.bends[i] = first..self.items.len();
        }
    }

    /// Connects items of neighbouring layers, and aligns each node below the source with the longest path to it, unless
    /// a longer path continues from there.
    fn join(&mut self, lines: &[(usize, usize)], depths: &[usize]) {
        let mut heights = vec![0; depths.len()];
        for &(from, to) in lines.iter().rev() {
            heights[from] = heights[from].max(heights[to] + 1);
        }
        let mut main: Vec<Option<usize>> = vec![None; depths.len()];
        for &(from, to) in lines {
            if main[to].is_none_or(|best| depths[from] > depths[best]) {
                main[to] = Some(from);
            }
        }
        let mut heir: Vec<Option<usize>> = vec![None; depths.len()];
        for (to, from) in main.iter().enumerate() {
            let Some(from) = *from else { continue };
            if heir[from].is_none_or(|best| heights[to] > heights[best]) {
                heir[from] = Some(to);
            }
        }
        for (i, &(from, to)) in lines.iter().enumerate() {
            let bends = self.bends[i].clone();
            let far = bends.is_empty() && self.items[from].layer + 1 < self.items[to].layer;
            let in_row = main[to] == Some(from) && heir[from] == Some(to);
            let mut last = from;
            for next in bends.clone().chain([to]) {
                if !far {
                    self.items[last].below.push(next);
                    self.items[next].above.push(last);
                }
                // A line is straight between its first bend and its last, too.
                if in_row || (last != from && next != to) {
                    self.items[last].before = Some(next);
                    self.items[next].behind = Some(last);
                }
                last = next;
            }
        }
    }

    /// Sorts each layer by the mean position of its neighbours, downwards and upwards in turn.
    fn order(&mut self) {
        let mut places = vec![0.0_f64; self.items.len()];
        for row in &self.rows {
            number(row, &mut places);
        }
        for sweep in 0..SWEEPS {
            let down = sweep % 2 == 0;
            for i in 0..self.rows.len() {
                let at = if down { i } else { self.rows.len() - 1 - i };
                let mut keyed: Vec<_> = (self.rows[at].iter())
                    .map(|&item| {
                        let joined = if down { &self.items[item].above } else { &self.items[item].below };
                        (mean(joined, &places).unwrap_or(places[item]), item)
                    })
                    .collect();
                keyed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
                self.rows[at] = keyed.into_iter().map(|(_, item)| item).collect();
                number(&self.rows[at], &mut places);
            }
        }
    }
}

/// The length of the longest path to each node.
fn depths(nodes: usize, lines: &[(usize, usize)]) -> Vec<usize> {
    let mut depths = vec![0; nodes];
    // Sorted by start: no later line changes the depth of this one's start.
    for &(from, to) in lines {
        depths[to] = depths[to].max(depths[from] + 1);
    }
    depths
}

/// Positions in a row, relative to its middle, since rows are centred.
fn number(row: &[usize], places: &mut [f64]) {
    let mut place = 0.5;
    for &item in row {
        places[item] = place;
        place += 1.0;
    }
    for &item in row {
        places[item] -= place / 2.0;
    }
}

/// The mean of some items' values.
pub(super) fn mean(items: &[usize], values: &[f64]) -> Option<f64> {
    let mut n = 0.0;
    let mut sum = 0.0;
    for &item in items {
        n += 1.0;
        sum += values[item];
    }
    (n > 0.0).then(|| sum / n)
}
