//! Ordered lists with lookup by name.

use crate::error::{Error, Result};
use crate::room::{self, reserve};

/// Something with a name.
pub(crate) trait Named {
    fn name(&self) -> &str;
}

/// Entries in insertion order; names are unique.
#[derive(Debug, Clone)]
pub(crate) struct Table<T> {
    entries: Vec<T>,
    /// Indices into `entries`, sorted by name. A hash map would store every name twice.
    sorted: Vec<usize>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), sorted: Vec::new() }
    }
}

impl<T: Named> Table<T> {
    /// Builds a table of `entries`, or returns the error that `twice` makes of the first duplicate name.
    pub(crate) fn new(entries: Vec<T>, twice: impl FnOnce(&str) -> Error) -> Result<Self> {
        let name = |i: usize| entries.get(i).map(Named::name);
        let mut sorted: Vec<usize> = reserve(entries.len())?;
        sorted.extend(0..entries.len());
        sorted.sort_unstable_by_key(|&i| name(i));
        let again = sorted.windows(2).find_map(|pair| match *pair {
            [a, b] if name(a) == name(b) => name(a),
            _ => None,
        });
        match again {
            Some(name) => Err(twice(name)),
            None => Ok(Self { entries, sorted }),
        }
    }

    fn search(&self, name: &str) -> std::result::Result<usize, usize> {
        self.sorted.binary_search_by_key(&Some(name), |&i| self.entries.get(i).map(Named::name))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        let place = self.search(name).ok()?;
        self.entries.get(*self.sorted.get(place)?)
    }

    /// Appends an entry, or replaces the one of the same name.
    pub(crate) fn put(&mut self, entry: T) -> Result<()> {
        match self.search(entry.name()) {
            Ok(place) => {
                if let Some(old) = self.sorted.get(place).and_then(|&i| self.entries.get_mut(i)) {
                    *old = entry;
                }
            }
            Err(place) => {
                self.sorted.try_reserve(1).map_err(|_| Error::OutOfMemory { bytes: None })?;
                room::push(&mut self.entries, entry)?;
                self.sorted.insert(place, self.entries.len() - 1);
            }
        }
        Ok(())
    }

    /// Removes an entry; later entries move up.
    pub(crate) fn remove(&mut self, name: &str) -> Option<T> {
        let place = self.search(name).ok()?;
        let at = self.sorted.remove(place);
        for i in self.sorted.iter_mut().filter(|i| **i > at) {
            *i -= 1;
        }
        Some(self.entries.remove(at))
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &T> {
        self.entries.iter()
    }

    /// The error that nothing has this name.
    #[cold]
    pub(crate) fn no_such(&self, what: &'static str, name: &str) -> Error {
        let names = || -> Result<Box<[Box<str>]>> {
            let mut names: Vec<Box<str>> = reserve(self.len())?;
            for entry in &self.entries {
                names.push(room::text(entry.name())?.into());
            }
            names.sort_unstable();
            Ok(names.into())
        };
        match names() {
            Ok(available) => Error::NoSuch { what, name: name.into(), available },
            Err(e) => e,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
