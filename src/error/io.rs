//! Errors of the operating system as causes of this crate's errors.

use std::fmt;
use std::io;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// An [`io::Error`] that can be cloned. It dereferences to the error, so [`io::Error::kind`] tells what happened.
///
/// ```
/// # use ggml::prelude::*;
/// use std::io::ErrorKind;
/// use ggml::gguf::Reader;
///
/// match Reader::open("/there/is/no.gguf").map_err(Error::from) {
///     Err(Error::File { source, .. }) => assert_eq!(source.kind(), ErrorKind::NotFound),
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), ggml::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct IoError(Arc<io::Error>);

// A shared reference to the error allows no changes, so a panic can't leave the error half changed.
impl UnwindSafe for IoError {}
impl RefUnwindSafe for IoError {}

impl Deref for IoError {
    type Target = io::Error;

    fn deref(&self) -> &io::Error {
        &self.0
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<io::Error> for IoError {
    fn from(error: io::Error) -> Self {
        Self(Arc::new(error))
    }
}
