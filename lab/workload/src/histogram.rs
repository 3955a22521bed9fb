//! Measured distributions in the form that CacheLib publishes: JSON files with a histogram of value sizes or
//! of popularity.
//!
//! - Sizes: `valSizeRange` and `valSizeRangeProbability`. If both have the same length, the ranges are the
//!   sizes themselves. With one range more, they are the edges of bins in which every size is equally likely,
//!   the upper edge excluded.
//! - Popularity: the `popularityBuckets[i]` objects of bucket `i` share `popularityWeights[i]`
//!   accesses.
//!
//! Weights are counts or probabilities; only their proportion matters. A file of another form is refused with
//! one line that names it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::weighted::Weighted;

/// Reason why a histogram cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}: {what}", path.display())]
pub struct HistogramError {
    path: PathBuf,
    what: String,
}

/// Maximum bytes of a histogram's file.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// A histogram of sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeHistogram {
    /// The smallest size of each bin, and the number of sizes in the bin.
    bins: Weighted<(u32, u32)>,
    /// The largest possible size, in bytes.
    pub(crate) longest: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SizeFile {
    val_size_range: Vec<u32>,
    val_size_range_probability: Vec<f64>,
}

impl SizeHistogram {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Self, HistogramError> {
        let file: SizeFile = read_json(path)?;
        Self::from_file(file).map_err(|what| at(path, what))
    }

    fn from_file(file: SizeFile) -> Result<Self, String> {
        let (sizes, weights) = (file.val_size_range, file.val_size_range_probability);
        let bins: Vec<(u32, u32)> = if sizes.len() == weights.len() {
            sizes.iter().map(|&size| (size, 1)).collect()
        } else if sizes.len() == weights.len() + 1 {
            if let Some(edges) = sizes.windows(2).find(|edges| edges[0] >= edges[1]) {
                let (lower, upper) = (edges[0], edges[1]);
                return Err(format!(
                    "valSizeRange must ascend, but {upper} follows {lower}"
                ));
            }
            let width = |edges: &[u32]| (edges[0], edges[1] - edges[0]);
            sizes.windows(2).map(width).collect()
        } else {
            return Err(format!(
                "{} sizes in valSizeRange do not fit {} weights in valSizeRangeProbability; \
                 there must be as many, or one more",
                sizes.len(),
                weights.len()
            ));
        };
        let last = bins.iter().map(|&(smallest, sizes)| smallest + (sizes - 1));
        Ok(Self {
            longest: last.max().unwrap_or(0),
            bins: Weighted::new(bins.into_iter().zip(weights)).ok_or(NO_WEIGHT)?,
        })
    }

    /// Returns the size that two random words choose.
    #[inline]
    pub(crate) fn size(&self, bin: u64, within: u64) -> u32 {
        let &(smallest, sizes) = self.bins.choose(bin);
        smallest + ((u128::from(within) * u128::from(sizes)) >> 64) as u32
    }
}

/// A histogram of popularity: the shares of accesses of objects, the most popular objects first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PopularityHistogram {
    /// The start and the length of each bucket, as shares of the objects.
    buckets: Weighted<(f64, f64)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PopularityFile {
    popularity_buckets: Vec<u64>,
    popularity_weights: Vec<f64>,
}

impl PopularityHistogram {
    /// Reads the file at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, HistogramError> {
        let file: PopularityFile = read_json(path)?;
        Self::from_file(file).map_err(|what| at(path, what))
    }

    fn from_file(file: PopularityFile) -> Result<Self, String> {
        let (sizes, weights) = (file.popularity_buckets, file.popularity_weights);
        if sizes.len() != weights.len() {
            return Err(format!(
                "{} popularityBuckets do not fit {} popularityWeights; there must be as many",
                sizes.len(),
                weights.len()
            ));
        }
        if sizes.contains(&0) {
            return Err("a bucket of popularityBuckets is empty".to_owned());
        }
        let add = |sum: u64, &size| sum.checked_add(size);
        let objects = sizes
            .iter()
            .try_fold(0, add)
            .ok_or("popularityBuckets hold more objects than can be counted")?;
        let mut before = 0u64;
        let buckets = sizes.iter().map(|&size| {
            let bucket = (before as f64 / objects as f64, size as f64 / objects as f64);
            before += size;
            bucket
        });
        let buckets = Weighted::new(buckets.zip(weights)).ok_or(NO_WEIGHT)?;
        Ok(Self { buckets })
    }

    /// Returns the position among the objects, in `[0, 1)`, that a random word and a fraction choose.
    #[inline]
    pub(crate) fn quantile(&self, bucket: u64, within: f64) -> f64 {
        let (start, length) = self.buckets.choose(bucket);
        start + length * within
    }
}

const NO_WEIGHT: &str = "the weights must be 0 or more, and one of them above 0";

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, HistogramError> {
    let length = fs::metadata(path).map_err(|error| at(path, error))?.len();
    if length > MAX_FILE_BYTES {
        return Err(at(
            path,
            format!("{length} bytes are too many for a histogram"),
        ));
    }
    let text = fs::read(path).map_err(|error| at(path, error))?;
    serde_json::from_slice(&text)
        .map_err(|error| at(path, format!("this is no CacheLib histogram: {error}")))
}

fn at(path: &Path, what: impl ToString) -> HistogramError {
    HistogramError {
        path: path.to_owned(),
        what: what.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::{assert_fits, tally};
    use crate::error::assert_refused;
    use crate::stream::Stream;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        file
    }

    fn sizes(ranges: &str, weights: &str) -> Result<SizeHistogram, HistogramError> {
        let text = format!(r#"{{"valSizeRange":{ranges},"valSizeRangeProbability":{weights}}}"#);
        SizeHistogram::read(file(&text).path())
    }

    fn popularity(buckets: &str, weights: &str) -> Result<PopularityHistogram, HistogramError> {
        let text = format!(
            r#"{{"oneHits":0.1,"popularityBuckets":{buckets},"popularityWeights":{weights}}}"#
        );
        PopularityHistogram::read(file(&text).path())
    }

    #[test]
    fn as_many_ranges_as_weights_are_the_sizes_themselves() {
        let sizes = sizes("[100,31]", "[3,1]").unwrap();
        let mut stream = Stream::new(1, 0);
        let draw = |_| sizes.size(stream.next_u64(), stream.next_u64()) as usize;
        let mut expected = [0.0; 101];
        (expected[100], expected[31]) = (3.0, 1.0);
        assert_fits(&tally(101, 40_000, draw), &expected);
        assert_eq!(sizes.longest, 100);
    }

    #[test]
    fn one_range_more_than_weights_makes_even_bins() {
        let sizes = sizes("[10,20,24]", "[0.5,0.5]").unwrap();
        let mut stream = Stream::new(2, 0);
        let draw = |_| sizes.size(stream.next_u64(), stream.next_u64()) as usize - 10;
        let mut expected = [5_000.0; 14];
        expected[10..].fill(12_500.0);
        assert_fits(&tally(14, 100_000, draw), &expected);
        assert_eq!(sizes.longest, 23);
    }

    #[test]
    fn accesses_are_spread_over_objects_as_measured() {
        let popularity = popularity("[1,9,90]", "[50,30,20]").unwrap();
        let mut stream = Stream::new(3, 0);
        let draw = |_| {
            let position = popularity.quantile(stream.next_u64(), stream.unit());
            (position * 100.0) as usize
        };
        let mut expected = [20.0 / 90.0; 100];
        expected[0] = 50.0;
        expected[1..10].fill(30.0 / 9.0);
        assert_fits(&tally(100, 200_000, draw), &expected);
    }

    #[test]
    fn what_is_no_histogram_is_refused_with_its_name() {
        for (text, words) in [
            ("", "no CacheLib histogram"),
            ("[1,2]", "no CacheLib histogram"),
            (r#"{"valSizeRange":[1]}"#, "valSizeRangeProbability"),
        ] {
            let file = file(text);
            assert_refused(SizeHistogram::read(file.path()), words);
            assert_refused(SizeHistogram::read(file.path()), "tmp");
        }
        for (ranges, weights, words) in [
            ("[-1]", "[1]", "no CacheLib"),
            ("[1,2,3]", "[1]", "3 sizes"),
            ("[1,5,5]", "[1,1]", "must ascend"),
            ("[]", "[]", "above 0"),
            ("[4]", "[-1]", "0 or more"),
        ] {
            assert_refused(sizes(ranges, weights), words);
            assert_refused(sizes(ranges, weights), "tmp");
        }
        assert_refused(popularity("[1]", "[1,2]"), "as many");
        assert_refused(popularity("[0]", "[1]"), "empty");
        let error = SizeHistogram::read(Path::new("/nowhere/sizes.json")).unwrap_err();
        assert!(
            error.to_string().starts_with("/nowhere/sizes.json: "),
            "{error}"
        );
    }
}
