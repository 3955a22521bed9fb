//! The workload options that `bench` and `compare` share.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use device::parse_bytes;
use workload::{DEFAULT_MAX_VALUE_BYTES, KeySize, Mix, Settings, SizeHistogram, ValueSize};

/// Options of a workload in addition to its name.
#[derive(Args, Debug)]
pub(crate) struct WorkloadArgs {
    /// Number of keys
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    keys: u64,
    /// Length of keys in bytes, or `etc` for Facebook's distribution [default: the workload's own;
    /// of most, 30]
    #[arg(long, value_name = "N|etc", value_parser = key_size)]
    key_size: Option<KeySize>,
    /// Length of values in bytes (KiB and MiB are understood), `etc`, or a histogram of CacheLib
    /// [default: the workload's own; of most, 270]
    #[arg(long, value_name = "N|etc|cachelib:FILE", value_parser = value_size)]
    value_size: Option<ValueSize>,
    /// Shares of the operations [default: the workload's own; of most, 1:0]
    #[arg(long, value_name = "GET:SET[:DELETE]", value_parser = Mix::parse)]
    ratio: Option<Mix>,
    /// Whether a get of one key that finds nothing is followed by a set [default: the workload's
    /// own; of uniform, zipfian, hotspot, normal, latest and single, false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    set_on_miss: Option<bool>,
    /// Exponent of Zipf's law [default: the workload's own; of most, 0.99]
    #[arg(long, value_name = "X")]
    theta: Option<f64>,
    /// normal: standard deviation as a share of the keys
    #[arg(long, default_value_t = 0.1, value_name = "SHARE")]
    deviation: f64,
    /// normal: keys by which the mean moves with each request of a client
    #[arg(
        long,
        default_value_t = 0.0,
        value_name = "KEYS",
        allow_negative_numbers = true
    )]
    drift: f64,
    /// Seed of all randomness
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
}

impl WorkloadArgs {
    /// Returns the settings of a workload with `clients` clients.
    pub(crate) fn settings(&self, clients: u64) -> Settings {
        Settings {
            keys: self.keys,
            clients,
            seed: self.seed,
            mix: self.ratio,
            key_size: self.key_size,
            value_size: self.value_size.clone(),
            set_on_miss: self.set_on_miss,
            theta: self.theta,
            deviation: self.deviation,
            drift: self.drift,
            ..Settings::default()
        }
    }
}

/// Parses a length of keys: a number or `etc`.
fn key_size(text: &str) -> Result<KeySize, String> {
    if text == "etc" {
        return Ok(KeySize::Etc);
    }
    text.parse()
        .map(KeySize::Fixed)
        .map_err(|_| wrong(text, "a number of bytes or `etc`"))
}

/// Parses a length of values: a number, `etc`, or a histogram of CacheLib.
fn value_size(text: &str) -> Result<ValueSize, String> {
    if text == "etc" {
        return Ok(ValueSize::Etc {
            max_bytes: DEFAULT_MAX_VALUE_BYTES,
        });
    }
    if let Some(path) = text.strip_prefix("cachelib:") {
        return SizeHistogram::read(Path::new(path))
            .map(|histogram| ValueSize::Measured(Arc::new(histogram)))
            .map_err(|error| error.to_string());
    }
    let bytes = parse_bytes(text).and_then(|bytes| u32::try_from(bytes).ok());
    bytes.map(ValueSize::Fixed).ok_or_else(|| {
        wrong(
            text,
            "a number of bytes, such as 270, 64KiB or 1MiB, or `etc`, or cachelib:FILE",
        )
    })
}

/// Returns the message for the wrong text of an option.
pub(crate) fn wrong(text: impl fmt::Display, wanted: &str) -> String {
    format!("'{text}' is not {wanted}")
}
