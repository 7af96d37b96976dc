//! NumPy files with a matrix of `f32`.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// The magic string and the version of the format.
const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
/// The alignment of the data in the file.
const ALIGNMENT: usize = 64;

/// The bytes of a file with a matrix.
///
/// # Errors
/// The rows' lengths differ.
pub(crate) fn bytes(rows: &[Vec<f32>]) -> Result<Vec<u8>> {
    let columns = rows.first().map_or(0, Vec::len);
    ensure!(rows.iter().all(|row| row.len() == columns), "rows of a matrix have one length");
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {columns}), }}", rows.len());
    let start = MAGIC.len() + size_of::<u16>();
    // The header is padded with blanks and ends with a line feed.
    let end = (start + header.len() + 1).next_multiple_of(ALIGNMENT);
    let mut bytes = MAGIC.to_vec();
    bytes.extend(u16::try_from(end - start)?.to_le_bytes());
    writeln!(bytes, "{header:width$}", width = end - start - 1)?;
    bytes.extend(rows.iter().flatten().flat_map(|x| x.to_le_bytes()));
    Ok(bytes)
}

/// Reads a matrix as rows.
///
/// # Errors
/// The file can't be read, or has other contents.
pub(crate) fn read(path: &Path) -> Result<Vec<Vec<f32>>> {
    let bytes = fs::read(path).with_context(|| format!("can't read {}", path.display()))?;
    parse(&bytes).with_context(|| format!("{} is no file with a matrix of f32", path.display()))
}

fn parse(bytes: &[u8]) -> Option<Vec<Vec<f32>>> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (length, rest) = rest.split_first_chunk()?;
    let (header, data) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    let header = str::from_utf8(header).ok()?;
    let shape = header.strip_prefix("{'descr': '<f4', 'fortran_order': False, 'shape': (")?;
    let (rows, shape) = shape.split_once(", ")?;
    let (columns, _) = shape.split_once(')')?;
    let (rows, columns): (usize, usize) = (rows.parse().ok()?, columns.parse().ok()?);
    let numbers: Vec<_> = data.as_chunks().0.iter().map(|&x| f32::from_le_bytes(x)).collect();
    let whole = data.len() == rows.checked_mul(columns)?.checked_mul(size_of::<f32>())?;
    (whole && columns > 0).then(|| numbers.chunks(columns).map(<[f32]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn npy_round_trips() {
        let rows = [vec![1.0, -2.5, f32::MIN_POSITIVE], vec![0.0, f32::MAX, 3.0]];
        let bytes = bytes(&rows).unwrap();
        assert_eq!(bytes.len() % ALIGNMENT, 24);
        assert_eq!(bytes.get(..10).unwrap(), b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(parse(&bytes).unwrap(), rows);
        for n in 0..bytes.len() {
            assert_eq!(parse(bytes.get(..n).unwrap()), None);
        }
    }

    #[test]
    fn npy_refuses_rows_of_different_lengths() {
        let path = std::env::temp_dir().join(format!("embed-{}.npy", std::process::id()));
        assert!(bytes(&[vec![1.0], vec![]]).unwrap_err().to_string().contains("one length"));
        assert!(read(&path).unwrap_err().to_string().contains("can't read"));
    }
}
