//! Arrays of strings.

use std::fmt;

use crate::error::Result;
use crate::room;

/// The strings of an array, stored back to back in one allocation: a vocabulary has a hundred thousand, most of them
/// shorter than a `String` itself.
///
/// ```
/// use ggml_gguf::Strings;
/// let tokens = Strings::from(vec!["<s>", "a", "the"]);
/// assert_eq!((tokens.len(), tokens.get(2)), (3, Some("the")));
/// assert!(tokens.iter().any(|token| token == "a"));
/// ```
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Strings {
    text: String,
    /// The end of each string in `text`.
    ends: Vec<usize>,
}

impl Strings {
    /// The strings of `text` that end at `ends`, which must ascend and lie on character boundaries.
    pub(crate) fn new(text: String, ends: Vec<usize>) -> Self {
        Self { text, ends }
    }

    /// `Clone::clone`, fallible.
    pub(crate) fn copied(&self) -> Result<Self> {
        Ok(Self { text: room::text(&self.text)?, ends: room::copy(&self.ends)? })
    }

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at index `i`.
    ///
    /// ```
    /// use ggml_gguf::Strings;
    /// let words: Strings = ["a", "b"].into_iter().collect();
    /// assert_eq!((words.get(1), words.get(2)), (Some("b"), None));
    /// ```
    pub fn get(&self, i: usize) -> Option<&str> {
        let end = *self.ends.get(i)?;
        let start = i.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        self.text.get(start..end)
    }

    /// All strings, in order.
    ///
    /// ```
    /// use ggml_gguf::Strings;
    /// let words: Strings = ["a", "b"].into_iter().collect();
    /// assert_eq!(words.iter().collect::<String>(), "ab");
    /// ```
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        let mut start = 0;
        self.ends.iter().map(move |&end| self.text.get(std::mem::replace(&mut start, end)..end).unwrap_or_default())
    }
}

impl<S: AsRef<str>> FromIterator<S> for Strings {
    fn from_iter<I: IntoIterator<Item = S>>(texts: I) -> Self {
        let mut all = Self::default();
        for text in texts {
            all.text.push_str(text.as_ref());
            all.ends.push(all.text.len());
        }
        all
    }
}

impl<S: AsRef<str>> From<Vec<S>> for Strings {
    fn from(texts: Vec<S>) -> Self {
        texts.into_iter().collect()
    }
}

impl fmt::Debug for Strings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_return_their_texts() {
        let texts = vec!["a", "", "Ω世", "", "b c"];
        let strings = Strings::from(texts.clone());
        assert!(strings.iter().eq(texts.iter().copied()) && strings.iter().len() == 5);
        assert_eq!((strings.get(2), strings.get(3), strings.get(5)), (Some("Ω世"), Some(""), None));
        assert_eq!(format!("{strings:?}"), format!("{texts:?}"));
        assert_ne!(strings, Strings::from(vec!["a", "Ω", "世", "", "b c"]), "the same text, cut elsewhere");
        assert!(Strings::default().is_empty() && Strings::default().get(0).is_none());
    }
}
