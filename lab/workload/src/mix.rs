//! The choice of the next operation.

use crate::error::WorkloadError;
use crate::stream::{Stream, word_of};

/// An operation on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Read the value.
    Get,
    /// Store a value.
    Set,
    /// Remove the key.
    Delete,
}

/// The shares of the operations, as cumulated thresholds over 64 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    gets_below: u64,
    sets_below: u64,
}

impl Mix {
    /// Only reads.
    pub const READS: Self = Self {
        gets_below: u64::MAX,
        sets_below: u64::MAX,
    };

    /// Returns a mix with the given weights; only their proportion matters. Fails if a weight is negative or
    /// not finite, or if all are 0.
    pub fn new(gets: f64, sets: f64, deletes: f64) -> Result<Self, WorkloadError> {
        let all = gets + sets + deletes;
        let valid = [gets, sets, deletes].iter().all(|weight| *weight >= 0.0);
        if !valid || !all.is_finite() || all <= 0.0 {
            return Err(WorkloadError::Ratio(format!("{gets}:{sets}:{deletes}")));
        }
        // If no other weight is left, the share is 1, and `pick` counts the largest word as below.
        let below = |weight: f64, rest: f64| word_of(if rest == 0.0 { 1.0 } else { weight / all });
        Ok(Self {
            gets_below: below(gets, sets + deletes),
            sets_below: below(gets + sets, deletes),
        })
    }

    /// Parses `GET:SET` or `GET:SET:DELETE`, for example `9:1` or `90:9:1`.
    pub fn parse(text: &str) -> Result<Self, WorkloadError> {
        let bad = || WorkloadError::Ratio(text.to_owned());
        let weights = text
            .split(':')
            .map(|part| part.trim().parse::<f64>().map_err(|_| bad()))
            .collect::<Result<Vec<_>, _>>()?;
        match weights[..] {
            [gets, sets] => Self::new(gets, sets, 0.0),
            [gets, sets, deletes] => Self::new(gets, sets, deletes),
            _ => Err(bad()),
        }
        .map_err(|_| bad())
    }

    /// Returns the operation of the next request.
    #[inline]
    pub(crate) fn pick(&self, stream: &mut Stream) -> Op {
        let word = stream.next_u64();
        if word < self.gets_below || self.gets_below == u64::MAX {
            Op::Get
        } else if word < self.sets_below || self.sets_below == u64::MAX {
            Op::Set
        } else {
            Op::Delete
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tally;
    use crate::error::assert_refused;

    #[test]
    fn a_weight_of_zero_never_happens_and_a_weight_alone_always_does() {
        let counts = |ratio| {
            let mix = Mix::parse(ratio).unwrap();
            let mut stream = Stream::new(3, 0);
            tally(3, 1000, |_| mix.pick(&mut stream) as usize)
        };
        assert_eq!(counts("1:0"), [1000, 0, 0]);
        assert_eq!(counts("0:1"), [0, 1000, 0]);
        assert_eq!(counts("0:0:3"), [0, 0, 1000]);
        assert_eq!(counts("1:1:0")[2], 0);
        assert_eq!(Mix::parse("5:0").unwrap(), Mix::READS);
    }

    #[test]
    fn a_malformed_ratio_is_refused() {
        for text in [
            "", "1", "1:", "a:b", "0:0", "1:-1", "1:2:3:4", "nan:1", "inf:1",
        ] {
            assert_refused(Mix::parse(text), "GET:SET");
        }
    }
}
