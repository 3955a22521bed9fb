//! Measured distributions in the form that CacheLib publishes: JSON files with a histogram of value
//! sizes, or of popularity.
//!
//! - Sizes: `valSizeRange` and `valSizeRangeProbability`. With equally many of both, the ranges are
//!   the sizes themselves; with one range more, they are the edges of bins in which every size is
//!   equally likely, the upper edge left out.
//! - Popularity: the `popularityBuckets[i]` objects of bucket `i` share `popularityWeights[i]`
//!   accesses.
//!
//! Weights are counts or probabilities; only their proportion matters. A file that says anything
//! else is refused with one line that names it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::alias::Alias;

/// Why a histogram cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}: {what}", path.display())]
pub struct HistogramError {
    path: PathBuf,
    what: String,
}

/// Larger files are no histograms.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// A histogram of sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeHistogram {
    /// The smallest size of each bin, and how many sizes there are in it.
    bins: Box<[(u32, u32)]>,
    alias: Alias,
    weights: Box<[f64]>,
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
        let bins: Box<[(u32, u32)]> = if sizes.len() == weights.len() {
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
        let alias = Alias::new(&weights).ok_or(NO_WEIGHT)?;
        Ok(Self {
            bins,
            alias,
            weights: weights.into(),
        })
    }

    /// The size that two random words choose.
    #[inline]
    pub(crate) fn size(&self, bin: u64, within: u64) -> u32 {
        let (smallest, sizes) = self.bins[self.alias.choose(bin)];
        smallest + ((u128::from(within) * u128::from(sizes)) >> 64) as u32
    }

    /// The largest size there can be, in bytes.
    pub fn longest(&self) -> u32 {
        let last = |&(smallest, sizes): &(u32, u32)| smallest + (sizes - 1);
        self.bins.iter().map(last).max().unwrap_or(0)
    }

    /// The mean size, in bytes.
    pub fn mean(&self) -> f64 {
        let all: f64 = self.weights.iter().sum();
        let middle =
            |&(smallest, sizes): &(u32, u32)| f64::from(smallest) + (f64::from(sizes) - 1.0) / 2.0;
        let bins = self.bins.iter().zip(&self.weights);
        bins.map(|(bin, weight)| middle(bin) * weight).sum::<f64>() / all
    }

    /// The share of sizes of at most `bytes`.
    pub fn share_up_to(&self, bytes: u32) -> f64 {
        let all: f64 = self.weights.iter().sum();
        let part = |&(smallest, sizes): &(u32, u32)| {
            let below = (u64::from(bytes) + 1).saturating_sub(u64::from(smallest));
            below.min(u64::from(sizes)) as f64 / f64::from(sizes)
        };
        let bins = self.bins.iter().zip(&self.weights);
        bins.map(|(bin, weight)| part(bin) * weight).sum::<f64>() / all
    }
}

/// A histogram of popularity: how accesses are spread over objects, the most popular ones first.
#[derive(Clone, Debug, PartialEq)]
pub struct PopularityHistogram {
    /// Where each bucket begins and how long it is, as shares of the objects.
    buckets: Box<[(f64, f64)]>,
    alias: Alias,
    weights: Box<[f64]>,
    objects: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PopularityFile {
    popularity_buckets: Vec<u64>,
    popularity_weights: Vec<f64>,
}

impl PopularityHistogram {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Self, HistogramError> {
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
        let alias = Alias::new(&weights).ok_or(NO_WEIGHT)?;
        let mut before = 0u64;
        let buckets = sizes.iter().map(|&size| {
            let bucket = (before as f64 / objects as f64, size as f64 / objects as f64);
            before += size;
            bucket
        });
        Ok(Self {
            buckets: buckets.collect(),
            alias,
            weights: weights.into(),
            objects,
        })
    }

    /// How many objects were measured.
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// The position among the objects, in `[0, 1)`, that a random word and a fraction choose.
    #[inline]
    pub(crate) fn quantile(&self, bucket: u64, within: f64) -> f64 {
        let (start, length) = self.buckets[self.alias.choose(bucket)];
        start + length * within
    }

    /// The share of accesses that go to the first `share` of the objects.
    pub fn share_of_first(&self, share: f64) -> f64 {
        let all: f64 = self.weights.iter().sum();
        let part = |&(start, length): &(f64, f64)| ((share - start) / length).clamp(0.0, 1.0);
        let buckets = self.buckets.iter().zip(&self.weights);
        buckets
            .map(|(bucket, weight)| part(bucket) * weight)
            .sum::<f64>()
            / all
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
    use crate::Stream;
    use crate::check::chi_square;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        file
    }

    fn sizes(text: &str) -> Result<SizeHistogram, String> {
        SizeHistogram::read(file(text).path()).map_err(|error| error.to_string())
    }

    #[test]
    fn as_many_ranges_as_weights_are_the_sizes_themselves() {
        let sizes = sizes(r#"{"valSizeRange":[100,31],"valSizeRangeProbability":[3,1]}"#).unwrap();
        let mut stream = Stream::new(1, 0);
        let mut counts = [0u64; 2];
        for _ in 0..40_000 {
            let size = sizes.size(stream.next_u64(), stream.next_u64());
            counts[usize::from(size == 31)] += 1;
            assert!(size == 31 || size == 100);
        }
        assert!(chi_square(&counts, &[30_000.0, 10_000.0]).is_good());
        assert_eq!((sizes.longest(), sizes.mean()), (100, 82.75));
        assert_eq!(
            [30, 31, 99, 100].map(|bytes| sizes.share_up_to(bytes)),
            [0.0, 0.25, 0.25, 1.0]
        );
    }

    #[test]
    fn one_range_more_than_weights_makes_even_bins() {
        let sizes =
            sizes(r#"{"valSizeRange":[10,20,24],"valSizeRangeProbability":[0.5,0.5]}"#).unwrap();
        let mut stream = Stream::new(2, 0);
        let mut counts = [0u64; 14];
        for _ in 0..100_000 {
            counts[sizes.size(stream.next_u64(), stream.next_u64()) as usize - 10] += 1;
        }
        let mut expected = [5_000.0; 14];
        expected[10..].fill(12_500.0);
        assert!(chi_square(&counts, &expected).is_good());
        assert_eq!((sizes.longest(), sizes.mean()), (23, 18.0));
    }

    #[test]
    fn accesses_are_spread_over_objects_as_measured() {
        let file =
            file(r#"{"oneHits":0.1,"popularityBuckets":[1,9,90],"popularityWeights":[50,30,20]}"#);
        let popularity = PopularityHistogram::read(file.path()).unwrap();
        assert_eq!(popularity.objects(), 100);
        let mut stream = Stream::new(3, 0);
        let mut counts = [0u64; 100];
        for _ in 0..200_000 {
            let position = popularity.quantile(stream.next_u64(), stream.unit());
            counts[(position * 100.0) as usize] += 1;
        }
        let mut expected = [200_000.0 * 0.2 / 90.0; 100];
        expected[0] = 100_000.0;
        expected[1..10].fill(60_000.0 / 9.0);
        assert!(chi_square(&counts, &expected).is_good());
        assert!((popularity.share_of_first(0.1) - 0.8).abs() < 1e-12);
    }

    #[test]
    fn what_is_no_histogram_is_refused_with_its_name() {
        for (text, words) in [
            ("", "no CacheLib histogram"),
            ("[1,2]", "no CacheLib histogram"),
            (r#"{"valSizeRange":[1]}"#, "valSizeRangeProbability"),
            (
                r#"{"valSizeRange":[-1],"valSizeRangeProbability":[1]}"#,
                "no CacheLib",
            ),
            (
                r#"{"valSizeRange":[1,2,3],"valSizeRangeProbability":[1]}"#,
                "3 sizes",
            ),
            (
                r#"{"valSizeRange":[1,5,5],"valSizeRangeProbability":[1,1]}"#,
                "must ascend",
            ),
            (
                r#"{"valSizeRange":[],"valSizeRangeProbability":[]}"#,
                "above 0",
            ),
            (
                r#"{"valSizeRange":[4],"valSizeRangeProbability":[-1]}"#,
                "0 or more",
            ),
        ] {
            let error = sizes(text).unwrap_err();
            assert!(
                error.contains(words) && error.contains("tmp"),
                "{text}: {error}"
            );
        }
        for (text, words) in [
            (
                r#"{"popularityBuckets":[1],"popularityWeights":[1,2]}"#,
                "as many",
            ),
            (
                r#"{"popularityBuckets":[0],"popularityWeights":[1]}"#,
                "empty",
            ),
        ] {
            let file = file(text);
            let error = PopularityHistogram::read(file.path())
                .unwrap_err()
                .to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let error = SizeHistogram::read(Path::new("/nowhere/sizes.json"))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("/nowhere/sizes.json: "), "{error}");
    }
}
