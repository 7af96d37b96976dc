//! Texts that end an answer.

/// Ends a text before the first of some stop strings that is whole, while it is generated.
///
/// What may be the beginning of a stop string is held back until it is clear that it is none.
///
/// ```
/// use ggml_llm::text::StopStrings;
/// let mut stops = StopStrings::new(["\n\n", "END"]);
/// assert_eq!((stops.push("one\n"), stops.stopped()), ("one".to_owned(), false));
/// assert_eq!((stops.push("two E"), stops.stopped()), ("\ntwo ".to_owned(), false));
/// assert_eq!((stops.push("NDING"), stops.stopped()), (String::new(), true));
/// ```
#[derive(Debug, Clone, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    held: String,
    stopped: bool,
}

impl StopStrings {
    /// A text at its beginning. Empty stop strings are none.
    pub fn new(stops: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let stops = stops.into_iter().map(Into::into).filter(|stop: &String| !stop.is_empty()).collect();
        Self { stops, held: String::new(), stopped: false }
    }

    /// The text that is clear after some more of it. There is none after a stop string.
    pub fn push(&mut self, text: &str) -> String {
        if self.stopped {
            return String::new();
        }
        self.held.push_str(text);
        // The first that is whole, however the text is cut into pieces.
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop).map(|at| (at + stop.len(), at))).min();
        if let Some((_, at)) = found {
            self.stopped = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let may_begin = |&(i, _): &(usize, char)| {
            let rest = self.held.get(i..).unwrap_or_default();
            self.stops.iter().any(|stop| stop.starts_with(rest))
        };
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let near = |&(i, _): &(usize, char)| self.held.len() - i < longest;
        let at = self.held.char_indices().filter(near).find(may_begin).map_or(self.held.len(), |(i, _)| i);
        let rest = self.held.split_off(at);
        std::mem::replace(&mut self.held, rest)
    }

    /// Whether a stop string came.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// What was held back, at the end of the text.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any text, in any pieces, is what a search in the whole text gives.
    #[test]
    fn pieces_give_what_the_whole_text_gives() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut word = |n: usize| (0..n).map(|_| ['a', 'b', 'é'][rng.usize(0..3)]).collect::<String>();
        let mut stopped = 0;
        for i in 0..20_000 {
            let stops: Vec<String> = (0..i % 4).map(|n| word(1 + (i / 7 + n) % 4)).collect();
            let text = word(i % 13);
            let mut ends = (0..=text.len()).filter(|&end| text.is_char_boundary(end));
            let longest = |end: usize| {
                let whole = stops.iter().filter(|stop| text[..end].ends_with(stop.as_str()));
                whole.map(|stop| end - stop.len()).min()
            };
            let wanted = ends.find_map(longest);
            let mut stream = StopStrings::new(&stops);
            let mut got = String::new();
            let mut rest = &*text;
            let mut step = i;
            while !rest.is_empty() {
                step = step * 31 % 1009 + 1;
                let n = rest.char_indices().nth(step % 3 + 1).map_or(rest.len(), |(n, _)| n);
                got += &stream.push(&rest[..n]);
                rest = &rest[n..];
            }
            got += &stream.finish();
            stopped += usize::from(stream.stopped());
            assert_eq!(
                (&*got, stream.stopped()),
                (&text[..wanted.unwrap_or(text.len())], wanted.is_some()),
                "{stops:?}"
            );
        }
        assert!(stopped > 1000, "{stopped}");
    }
}
