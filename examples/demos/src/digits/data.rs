//! The images: reading, checking and splitting them.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use flate2::bufread::MultiGzDecoder;

/// Width and height of an image.
pub const SIDE: usize = 8;
/// Pixels of an image.
pub const PIXELS: usize = SIDE * SIDE;
/// The digits 0 to 9.
pub const CLASSES: usize = 10;
/// The darkest pixel value; pixels are divided by it.
const DARKEST: u8 = 16;
/// The data set in this repository, independent of the working directory.
pub const DEFAULT_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/digits.csv.gz");
/// The seed that selects the test images. A model stores it, so that it is never tested on its training images.
pub const SPLIT_SEED: u64 = 1998;
/// One of this many images is a test image.
const TEST_EVERY: usize = 5;

/// Images, stored back to back, and the digit that each shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Images {
    /// `PIXELS` values from 0 to 1 for each image, row by row.
    pub pixels: Vec<f32>,
    /// One digit for each image.
    pub labels: Vec<u8>,
}

impl Images {
    /// The number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The first `n`, or all if there are fewer, and the rest.
    pub fn split_at(&self, n: usize) -> (Self, Self) {
        let rows: Vec<_> = self.pixels.chunks_exact(PIXELS).zip(self.labels.iter().copied()).collect();
        let (first, rest) = rows.split_at(n.min(rows.len()));
        (first.iter().copied().collect(), rest.iter().copied().collect())
    }
}

impl<T: AsRef<[f32]>> FromIterator<(T, u8)> for Images {
    fn from_iter<I: IntoIterator<Item = (T, u8)>>(rows: I) -> Self {
        let mut images = Self { pixels: Vec::new(), labels: Vec::new() };
        for (image, label) in rows {
            images.pixels.extend_from_slice(image.as_ref());
            images.labels.push(label);
        }
        images
    }
}

/// The two disjoint parts of the data set.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// Four fifths, for training.
    pub train: Images,
    /// One fifth, for testing.
    pub test: Images,
}

/// Reads the data set and splits it.
///
/// # Errors
/// If the file can't be read, is not gzip, or contains anything other than 8x8 images with their digits.
pub fn load(path: &Path) -> Result<Split> {
    let file = File::open(path)
        .with_context(|| format!("can't open the data set {} (name another with --data FILE)", path.display()))?;
    let images = read(BufReader::new(MultiGzDecoder::new(BufReader::new(file)))).with_context(|| {
        format!("{} is not a gzipped CSV file of 8x8 digits (see examples/data/README.md)", path.display())
    })?;
    Ok(split(&images, SPLIT_SEED))
}

fn read(lines: impl BufRead) -> Result<Images> {
    let images = lines
        .lines()
        .enumerate()
        .map(|(i, line)| parse(&line?).with_context(|| format!("line {}", i + 1)))
        .collect::<Result<Images>>()?;
    ensure!(images.len() >= TEST_EVERY, "it holds {} images, but at least {TEST_EVERY} are needed", images.len());
    Ok(images)
}

fn parse(line: &str) -> Result<([f32; PIXELS], u8)> {
    let mut image = [0.0; PIXELS];
    let mut fields = line.trim_end().split(',');
    let mut next = |what: &str, max: u8| -> Result<u8> {
        let Some(field) = fields.next() else {
            bail!("it ends before {what}; {PIXELS} pixels and a digit were expected")
        };
        match field.parse() {
            Ok(value) if value <= max => Ok(value),
            _ => bail!("{what} is `{field}`, but has to be a whole number from 0 to {max}"),
        }
    };
    for (i, pixel) in image.iter_mut().enumerate() {
        *pixel = f32::from(next(&format!("pixel {i}"), DARKEST)?) / f32::from(DARKEST);
    }
    let label = next("the digit", 9)?;
    ensure!(fields.next().is_none(), "it goes on after the digit; {PIXELS} pixels and a digit were expected");
    Ok((image, label))
}

/// Takes every fifth image of each digit, selected by the seed, so that each digit is tested equally often.
fn split(images: &Images, seed: u64) -> Split {
    let mut rows: Vec<_> = images.pixels.chunks_exact(PIXELS).zip(images.labels.iter().copied()).collect();
    shuffle(&mut rows, seed);
    rows.sort_by_key(|&(_, label)| label); // stable: within a digit the shuffled order stays
    let (mut test, mut train): (Vec<_>, Vec<_>) = rows.into_iter().enumerate().partition(|(i, _)| i % TEST_EVERY == 0);
    shuffle(&mut test, seed);
    shuffle(&mut train, seed);
    Split {
        train: train.into_iter().map(|(_, row)| row).collect(),
        test: test.into_iter().map(|(_, row)| row).collect(),
    }
}

/// The Fisher–Yates shuffle with `SplitMix64`. Implemented here because the split must stay the same as long as the
/// model file is used, which no crate guarantees for its generators.
fn shuffle<T>(items: &mut [T], seed: u64) {
    let mut state = seed;
    for last in (1..items.len()).rev() {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = state;
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^= x >> 31;
        // The remainder is at most `last`, so it is a valid index.
        #[expect(clippy::cast_possible_truncation, reason = "smaller than a usize, see above")]
        items.swap(last, (x % (last as u64 + 1)) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn line(pixels: usize, rest: &str) -> String {
        format!("{}{rest}\n", "16,".repeat(pixels))
    }

    fn error(text: &str) -> String {
        format!("{:#}", read(text.as_bytes()).unwrap_err())
    }

    #[test]
    fn data_set_has_the_known_size_and_classes() {
        let Split { train, test } = load(Path::new(DEFAULT_PATH)).unwrap();
        assert_eq!((train.len(), test.len()), (1437, 360));
        assert_eq!((train.pixels.len(), test.pixels.len()), (1437 * PIXELS, 360 * PIXELS));
        let mut of_class = [0; CLASSES];
        for &label in train.labels.iter().chain(&test.labels) {
            of_class[usize::from(label)] += 1;
        }
        assert_eq!(of_class, [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]);
        assert!(train.pixels.iter().chain(&test.pixels).all(|p| (0.0..=1.0).contains(p)));
    }

    #[test]
    fn data_split_shares_no_image() {
        let Split { train, test } = load(Path::new(DEFAULT_PATH)).unwrap();
        let key = |image: &[f32]| image.iter().map(|p| p.to_bits()).collect::<Vec<_>>();
        let trained: HashSet<_> = train.pixels.chunks_exact(PIXELS).map(key).collect();
        assert_eq!(trained.len(), train.len(), "two training images are equal");
        assert!(test.pixels.chunks_exact(PIXELS).all(|image| !trained.contains(&key(image))));
    }

    #[test]
    fn data_split_is_the_one_the_model_was_trained_with() {
        let test = load(Path::new(DEFAULT_PATH)).unwrap().test;
        assert_eq!(test.labels[..20], [4, 3, 0, 8, 4, 1, 3, 8, 7, 7, 7, 3, 0, 8, 0, 5, 6, 6, 0, 7]);
        let mut of_class = [0; CLASSES];
        for &label in &test.labels {
            of_class[usize::from(label)] += 1;
        }
        assert_eq!(of_class, [36, 36, 36, 36, 37, 36, 36, 36, 35, 36]);
    }

    #[test]
    fn split_at_keeps_images_with_their_labels() {
        let image = |value| [value; PIXELS];
        let all: Images = [(image(0.25), 1), (image(0.5), 2), (image(0.75), 3)].into_iter().collect();
        let (first, rest) = all.split_at(2);
        assert_eq!(first, [(image(0.25), 1), (image(0.5), 2)].into_iter().collect());
        assert_eq!(rest, [(image(0.75), 3)].into_iter().collect());
        assert_eq!(all.split_at(4).0, all);
        assert_eq!(all.split_at(4).1.len(), 0);
    }

    #[test]
    fn parse_reads_pixels_and_label() {
        let (image, label) = parse(&format!("0,4,{}7", "16,".repeat(62))).unwrap();
        assert_eq!(image[..3], [0.0, 0.25, 1.0]);
        assert_eq!(label, 7);
    }

    #[test]
    fn parse_errors_name_line_and_value() {
        let good = line(PIXELS, "3");
        assert_eq!(
            error(&(good.clone() + &line(63, "17,3"))),
            "line 2: pixel 63 is `17`, but has to be a whole number from 0 to 16"
        );
        assert_eq!(error(&line(PIXELS, "10")), "line 1: the digit is `10`, but has to be a whole number from 0 to 9");
        assert_eq!(
            error(&line(PIXELS, "3,1")),
            "line 1: it goes on after the digit; 64 pixels and a digit were expected"
        );
        assert_eq!(error(&line(63, "3")), "line 1: it ends before the digit; 64 pixels and a digit were expected");
        assert_eq!(error(&good), "it holds 1 images, but at least 5 are needed");
        assert!(read(&b"\xff\xfe\n"[..]).is_err());
    }

    #[test]
    fn load_refuses_a_truncated_file() {
        let whole = std::fs::read(DEFAULT_PATH).unwrap();
        for length in [0, 5, 1000, whole.len() - 1] {
            let path = std::env::temp_dir().join(format!("digits-{}-{length}.csv.gz", std::process::id()));
            std::fs::write(&path, &whole[..length]).unwrap();
            let result = load(&path);
            std::fs::remove_file(&path).unwrap();
            assert!(result.is_err(), "{length} of {} bytes were taken for the whole file", whole.len());
        }
    }

    #[test]
    fn load_error_names_the_missing_file() {
        let text = format!("{:#}", load(Path::new("no/such/file")).unwrap_err());
        assert!(text.starts_with("can't open the data set no/such/file (name another with --data FILE)"), "{text}");
    }
}
