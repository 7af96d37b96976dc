//! The file of a model, or all parts of one that was split (`model-00001-of-00003.gguf`).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ggml::gguf::{Reader, TensorInfo};
use ggml::{DType, Shape};
use memmap2::Mmap;

use crate::declare::Source;
use crate::error::{Error, Result};
use crate::metadata::{refused, shown};

/// The keys of parts: how many there are, which one this is, and how many tensors all of them have.
const COUNT: &str = "split.count";
const NUMBER: &str = "split.no";
const TENSORS: &str = "split.tensors.count";

/// More parts than any file has.
const MOST: u64 = 9999;

/// A mapped file, shared by the reader and the weights.
#[derive(Debug, Clone)]
pub(crate) struct Mapped(Arc<Mmap>);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The parts, in order; the first has the metadata.
#[derive(Debug)]
pub(crate) struct Files {
    first: Reader<Mapped>,
    others: Vec<Reader<Mapped>>,
    pub(crate) paths: Vec<PathBuf>,
}

/// Opens a file for reading.
pub(crate) fn open(path: &Path) -> Result<File> {
    let fault = |source| Error::File { path: path.into(), source };
    // Opening a pipe would block, and a device may have no end.
    if !std::fs::metadata(path).map_err(fault)?.is_file() {
        return Err(fault(std::io::Error::other("it is not a regular file")));
    }
    File::open(path).map_err(fault)
}

fn map(path: &Path) -> Result<Reader<Mapped>> {
    let file = open(path)?;
    // SAFETY: the bytes are read only. That nobody changes the file meanwhile can't be checked; `ModelOptions::map`
    // demands it, as all who map files do.
    let bytes = unsafe { Mmap::map(&file) }.map_err(|source| Error::File { path: path.into(), source })?;
    Ok(Reader::from_bytes(Mapped(Arc::new(bytes)))?)
}

impl Files {
    /// Opens a file, and the other parts if it is the first of several.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let first = map(path)?;
        let number = |file: &Reader<Mapped>, key: &str| match file.metadata(key) {
            None => Ok(None),
            Some(value) => match value.as_u64().filter(|n| *n <= MOST || key == TENSORS) {
                Some(n) => Ok(Some(n)),
                None => Err(refused(key, shown(value), "a number of parts")),
            },
        };
        let count = number(&first, COUNT)?.unwrap_or(1);
        let mut files = Self { first, others: Vec::new(), paths: vec![path.into()] };
        if count <= 1 {
            return Ok(files);
        }
        if let Some(other) = number(&files.first, NUMBER)?.filter(|n| *n != 0) {
            let expected = format!("0, that of the first part: name that one, which ends with {}", ending(1, count));
            return Err(refused(NUMBER, other.to_string(), expected));
        }
        let name =
            path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(&ending(1, count)));
        let Some(name) = name else {
            let expected = format!("1, or a file whose name ends with {}, to find the others", ending(1, count));
            return Err(refused(COUNT, count.to_string(), expected));
        };
        for part in 2..=count {
            let path = path.with_file_name(format!("{name}{}", ending(part, count)));
            let file = map(&path)?;
            for (key, expected) in [(COUNT, count), (NUMBER, part - 1)] {
                if number(&file, key)? != Some(expected) {
                    let found = file.metadata(key).map_or_else(|| "missing".into(), shown);
                    return Err(refused(key, format!("{found} in {}", path.display()), expected.to_string()));
                }
            }
            files.others.push(file);
            files.paths.push(path);
        }
        files.check_tensors(number(&files.first, TENSORS)?)?;
        Ok(files)
    }

    /// Checks that the parts have as many tensors together as the first one says, and none twice.
    fn check_tensors(&self, expected: Option<u64>) -> Result<()> {
        let mut names: Vec<_> = self.tensors().map(TensorInfo::name).collect();
        let found = names.len();
        if let Some(expected) = expected.filter(|n| *n != found as u64) {
            return Err(refused(TENSORS, expected.to_string(), format!("{found}, the tensors of all parts")));
        }
        names.sort_unstable();
        match names.iter().zip(names.iter().skip(1)).find(|(a, b)| a == b) {
            None => Ok(()),
            Some((name, _)) => Err(refused(
                COUNT,
                format!("{} parts", self.paths.len()),
                format!("parts that don't both have `{name}`"),
            )),
        }
    }

    /// What has the metadata.
    pub(crate) fn first(&self) -> &Reader<Mapped> {
        &self.first
    }

    pub(crate) fn parts(&self) -> impl Iterator<Item = &Reader<Mapped>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// The part that has a tensor, with its number; the first if there is none.
    pub(crate) fn part(&self, name: &str) -> (usize, &Reader<Mapped>) {
        self.parts().enumerate().find(|(_, part)| part.tensor(name).is_ok()).unwrap_or((0, &self.first))
    }

    pub(crate) fn tensor(&self, name: &str) -> ggml::Result<&TensorInfo> {
        Ok(self.part(name).1.tensor(name)?)
    }

    pub(crate) fn data(&self, name: &str) -> ggml::Result<&[u8]> {
        Ok(self.part(name).1.data(name)?)
    }

    pub(crate) fn tensors(&self) -> impl Iterator<Item = &TensorInfo> {
        self.parts().flat_map(Reader::tensors)
    }
}

/// How the name of a part ends.
fn ending(part: u64, count: u64) -> String {
    format!("-{part:05}-of-{count:05}.gguf")
}

impl Source for Files {
    fn find(&self, name: &str, _: Shape) -> Option<(DType, Shape)> {
        self.tensor(name).ok().map(|t| (t.dtype(), t.shape()))
    }
}
