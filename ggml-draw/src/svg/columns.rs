//! One column for each split, so that graphs over several devices are not much taller than wide.

use std::collections::BTreeSet;

use super::layout::{self, Layout, Size};
use super::{Kind, Node};

/// The gap between columns, through which lines lead from one to the next.
const GAP: f64 = 56.0;

/// The distance of a horizontal line from the middle of a row of nodes: between that row and the next.
const ROW: f64 = 32.0;

/// The radius of a bend.
const BEND: f64 = 8.0;

/// The column of each node: that of its split. Leaves and copies stand beside their first user.
pub(super) fn of_nodes(nodes: &[Node], lines: &BTreeSet<(usize, usize)>) -> Vec<usize> {
    let split = |node: &Node| node.split.filter(|_| matches!(node.kind, Kind::Op | Kind::View));
    let mut columns: Vec<_> = nodes.iter().map(|node| split(node).unwrap_or(usize::MAX)).collect();
    let mut users: Vec<_> = lines.iter().collect();
    // The last user first: lines lead to greater indices.
    users.sort_unstable_by_key(|(_, to)| std::cmp::Reverse(*to));
    for &&(from, to) in &users {
        let column = columns.get(to).copied().unwrap_or(usize::MAX);
        if let Some(of_source) = columns.get_mut(from) {
            *of_source = column.min(*of_source);
        }
    }
    let used: BTreeSet<_> = columns.iter().copied().filter(|&column| column < usize::MAX).collect();
    let used: Vec<_> = used.into_iter().collect();
    let last = used.len().saturating_sub(1);
    columns.iter().map(|column| used.binary_search(column).unwrap_or(last)).collect()
}

/// Places each column's nodes as [`layout::arrange`] does, and the columns side by side.
pub(super) fn arrange(sizes: &[Size], lines: &BTreeSet<(usize, usize)>, columns: &[usize]) -> Layout {
    let n = columns.iter().max().map_or(0, |last| last + 1);
    let mut members = vec![Vec::new(); n];
    // The index of each node among those of its column.
    let mut places = Vec::new();
    for (i, &column) in columns.iter().enumerate() {
        let Some(members) = members.get_mut(column) else { continue };
        places.push(members.len());
        members.push(i);
    }
    let mut own = vec![BTreeSet::new(); n];
    let column = |i: usize| columns.get(i).copied().unwrap_or_default();
    let place = |i: usize| places.get(i).copied().unwrap_or_default();
    for &(from, to) in lines.iter().filter(|&&(from, to)| column(from) == column(to)) {
        if let Some(own) = own.get_mut(column(from)) {
            own.insert((place(from), place(to)));
        }
    }
    let mut whole = Layout { nodes: vec![(0.0, 0.0); sizes.len()], ..Layout::default() };
    let (mut paths, mut gaps) = (Vec::new(), Vec::new());
    let mut left = 0.0;
    for (members, own) in members.iter().zip(&own) {
        let sizes: Vec<_> = members.iter().filter_map(|&i| sizes.get(i)).copied().collect();
        let part = layout::arrange(&sizes, own, left);
        for (&i, at) in members.iter().zip(part.nodes) {
            if let Some(node) = whole.nodes.get_mut(i) {
                *node = at;
            }
        }
        paths.push(part.paths.into_iter());
        gaps.push(left - GAP / 2.0);
        whole.size.width = left + part.size.width;
        whole.size.height = part.size.height.max(whole.size.height);
        left = whole.size.width + GAP;
    }
    let size = |i: usize| sizes.get(i).copied().unwrap_or_default();
    let at = |i: usize| whole.nodes.get(i).copied().unwrap_or_default();
    let path = |&(from, to): &(usize, usize)| {
        // Lines within a column come in the column's order, which is that of all lines.
        let own = paths.get_mut(column(to)).filter(|_| column(from) == column(to));
        let gap = gaps.get(column(to)).copied().unwrap_or_default();
        own.and_then(Iterator::next).unwrap_or_else(|| across(at(from), size(from), at(to), size(to), gap))
    };
    whole.paths = lines.iter().map(path).collect();
    whole
}

/// A line to another column: down from the lower edge, through the gap on the left of that column, and down to the upper
/// edge. It passes nodes of both columns above or below.
fn across((ax, ay): (f64, f64), from: Size, (bx, by): (f64, f64), to: Size, gap: f64) -> String {
    let (start, end) = (ay + from.height / 2.0, by - to.height / 2.0);
    let (below, above) = (ay + ROW, by - ROW);
    let turn = BEND.copysign(above - below);
    format!(
        "M{ax:.1} {start:.1}L{ax:.1} {:.1}Q{ax:.1} {below:.1} {:.1} {below:.1}L{:.1} {below:.1}Q{gap:.1} {below:.1} {gap:.1} \
         {:.1}L{gap:.1} {:.1}Q{gap:.1} {above:.1} {:.1} {above:.1}L{:.1} {above:.1}Q{bx:.1} {above:.1} {bx:.1} {:.1}L{bx:.1} \
         {end:.1}",
        below - BEND,
        ax + BEND,
        gap - BEND,
        below + turn,
        above - turn,
        gap + BEND,
        bx - BEND,
        above + BEND,
    )
}
