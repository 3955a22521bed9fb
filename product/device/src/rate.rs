//! [`WriteRate`]: the text form of a limit on a drive's writes.

use std::num::NonZeroU64;
use std::str::FromStr;

use crate::parse_bytes;

/// Seconds in each unit of a lifetime.
const LIFETIMES: [(&str, f64); 3] = [
    ("d", 86_400.0),
    ("w", 7.0 * 86_400.0),
    ("y", 365.25 * 86_400.0),
];

/// A rate in bytes a second: `20MiB`, `20MiB/s`, or a drive's rated writes over its intended lifetime in days, weeks or years:
/// `600TB/5y`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteRate(pub NonZeroU64);

/// Error of a text that is no [`WriteRate`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteRateError {
    /// The text has no known form.
    #[error(
        "'{0}' is no rate of writes: write 20MiB for as much a second, or 600TB/5y for a drive's rated writes and its lifetime"
    )]
    Unreadable(String),
    /// The rate is lower than a cache needs.
    #[error(
        "'{0}' is less than 64KiB a second, which a cache needs to start, to stop and to keep its index: name more, or leave the \
         limit out"
    )]
    TooLow(String),
    /// The rate is higher than that of any drive.
    #[error(
        "'{0}' is more than 100 GB a second: did you mean {bytes}/5y, for a drive's rated writes and its lifetime?",
        bytes = .0.split('/').next().unwrap_or(.0)
    )]
    TooHigh(String),
}

impl WriteRate {
    /// Lowest rate, in bytes a second.
    pub const LEAST: u64 = 64 << 10;
    /// Highest rate, in bytes a second.
    const MOST: u64 = 100_000_000_000;
}

impl FromStr for WriteRate {
    type Err = WriteRateError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unreadable = || WriteRateError::Unreadable(text.to_owned());
        let (bytes, time) = text.split_once('/').unwrap_or((text, "s"));
        let bytes = parse_bytes(bytes.trim()).ok_or_else(unreadable)?;
        let seconds = if time.trim() == "s" {
            1.0
        } else {
            let count = time.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            let unit = LIFETIMES
                .iter()
                .find(|(name, _)| *name == &time[count.len()..]);
            let count: f64 = count.trim().parse().map_err(|_| unreadable())?;
            count * unit.ok_or_else(unreadable)?.1
        };
        if !seconds.is_finite() || seconds <= 0.0 {
            return Err(unreadable());
        }
        let rate = NonZeroU64::new((bytes as f64 / seconds) as u64);
        if rate.is_some_and(|rate| rate.get() > Self::MOST) {
            return Err(WriteRateError::TooHigh(text.to_owned()));
        }
        rate.filter(|rate| rate.get() >= Self::LEAST)
            .map(Self)
            .ok_or_else(|| WriteRateError::TooLow(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        for (text, bytes_per_s) in [
            ("20MiB", 20 << 20),
            ("20MiB/s", 20 << 20),
            ("65536", 65_536),
            ("600TB/5y", 3_802_570),
            ("1.2 PB / 3y", 12_675_235),
            ("8.64GB/1d", 100_000),
            ("700GB/2w", 578_703),
        ] {
            let rate: WriteRate = text.parse().unwrap();
            assert_eq!(rate.0.get(), bytes_per_s, "{text}");
        }
        for (text, says) in [
            ("", "600TB/5y"),
            ("fast", "no rate"),
            ("20MiB/", "no rate"),
            ("20MiB/0y", "no rate"),
            ("20MiB/-1y", "no rate"),
            ("20MiB/5", "no rate"),
            ("20MiB/5h", "no rate"),
            ("0", "64KiB"),
            ("0/5y", "64KiB"),
            ("65535", "64KiB"),
            ("1TB/5y", "64KiB"),
            ("600TB", "did you mean 600TB/5y"),
            ("600TB/s", "did you mean 600TB/5y"),
        ] {
            let error = text.parse::<WriteRate>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
