//! The graphs of a device that the client may ask to repeat, and which of them the server still has.

use std::collections::HashMap;

use super::wire::KEPT_GRAPHS;

/// A record of the graphs that the client and the server keep. The two don't tell each other.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    /// The payloads of the graphs that the client believes the server has, by number.
    sent: HashMap<u64, Vec<u8>>,
    /// The numbers that have a place in the server's table, each with whether the graph is still there.
    places: HashMap<u64, bool>,
}

impl Graphs {
    /// Records that the server got this graph. A side whose table is full discards all its graphs before it adds
    /// another one.
    pub(super) fn add(&mut self, number: u64, payload: Vec<u8>) {
        if self.sent.len() >= KEPT_GRAPHS {
            self.sent.clear();
        }
        self.sent.insert(number, payload);
        if self.places.len() >= KEPT_GRAPHS {
            self.places.clear();
        }
        self.places.insert(number, true);
    }

    /// Records that the server freed a buffer, and with it all graphs, but not their places.
    pub(super) fn forget(&mut self) {
        self.places.values_mut().for_each(|there| *there = false);
    }

    /// The graph that the client asks to repeat, if the server does not have it any more. It has to be sent and
    /// [added](Self::add) again. Its payload is still right, because the client gives a changed graph another number.
    pub(super) fn recall(&mut self, number: u64) -> Option<Vec<u8>> {
        if self.places.get(&number) == Some(&true) { None } else { self.sent.remove(&number) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_is_recalled_once_for_each_time_it_was_forgotten() {
        let mut graphs = Graphs::default();
        graphs.add(1, vec![1]);
        assert_eq!(graphs.recall(1), None);
        graphs.forget();
        assert_eq!(graphs.recall(1), Some(vec![1]));
        graphs.add(1, vec![1]);
        assert_eq!(graphs.recall(1), None);
        assert_eq!(graphs.recall(2), None, "what was never sent is the server's to refuse");
    }

    #[test]
    fn a_graph_that_is_recalled_into_a_full_table_empties_it() {
        let mut graphs = Graphs::default();
        let all = 1..=KEPT_GRAPHS as u64;
        for number in all.clone() {
            graphs.add(number, vec![number.to_le_bytes()[0]]);
        }
        assert!(all.clone().all(|number| graphs.recall(number).is_none()), "all of them are there");
        graphs.forget();
        for number in all {
            let payload = graphs.recall(number).expect("the client believes that it is there");
            graphs.add(number, payload);
        }
    }
}
