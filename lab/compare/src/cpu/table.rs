//! The cost of each kind of work.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use runtime::work::{Work, WorkDone};

/// The table of every run under virtual time.
const FROZEN: &str = include_str!("../../cpu.toml");

/// Names in a table: of a request, and of the kinds of work in the order of [`Work::ALL`].
const REQUEST: &str = "request";
const NAMES: [&str; Work::ALL.len()] = [
    "index_step",
    "tier_entry",
    "item_copied",
    "byte_copied",
    "device_command",
];

const PICOS_PER_NANO: f64 = 1000.0;
/// Highest cost of a unit of work: one second.
const MOST_NANOS: f64 = 1e9;

/// Processor time of a request and of each kind of work.
///
/// Costs are whole picoseconds, so that a sum is the same on every machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuTable {
    request_ps: u64,
    by_work_ps: [u64; Work::ALL.len()],
}

/// Error in a table, as one line.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum TableError {
    #[error("the table of processor costs: {}", .0.message())]
    Toml(#[from] toml::de::Error),
    #[error("the table of processor costs: missing field `{0}`")]
    Missing(&'static str),
    #[error("the table of processor costs: unknown field `{0}`")]
    Unknown(String),
    #[error("the table of processor costs: {name} is {nanos}, but must be 0 to 1e9 nanoseconds")]
    Range { name: &'static str, nanos: f64 },
}

impl CpuTable {
    /// Returns the table of the repository.
    ///
    /// # Panics
    /// Never: a test parses it.
    pub fn frozen() -> Self {
        Self::parse(FROZEN).expect("the frozen table is a table")
    }

    /// Parses a table in the format of `lab/compare/cpu.toml`.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let mut written: BTreeMap<String, f64> = toml::from_str(text)?;
        let mut take = |name| written.remove(name).ok_or(TableError::Missing(name));
        let request = take(REQUEST)?;
        let costs = NAMES.into_iter().map(take).collect::<Result<Vec<_>, _>>()?;
        match written.into_keys().next() {
            Some(other) => Err(TableError::Unknown(other)),
            None => Self::of_nanos(request, |work| costs[work as usize]),
        }
    }

    /// Returns a table of costs in nanoseconds.
    ///
    /// # Errors
    /// If a cost is not between 0 and 1e9.
    pub fn of_nanos(request: f64, cost: impl Fn(Work) -> f64) -> Result<Self, TableError> {
        let picos = |name, nanos: f64| {
            if (0.0..=MOST_NANOS).contains(&nanos) {
                Ok((nanos * PICOS_PER_NANO).round() as u64)
            } else {
                Err(TableError::Range { name, nanos })
            }
        };
        let mut by_work_ps = [0; Work::ALL.len()];
        for work in Work::ALL {
            by_work_ps[work as usize] = picos(NAMES[work as usize], cost(work))?;
        }
        Ok(Self {
            request_ps: picos(REQUEST, request)?,
            by_work_ps,
        })
    }

    /// Sets the cost of a request beside the work that the engine does for it.
    pub fn with_request(mut self, time: Duration) -> Self {
        self.request_ps = (time.as_nanos() as u64).saturating_mul(PICOS_PER_NANO as u64);
        self
    }

    /// Multiplies the costs of copied items and bytes, by writes and by reclaim, by `scale`.
    pub fn with_copies_times(mut self, scale: u32) -> Self {
        for work in [Work::ItemCopied, Work::ByteCopied] {
            self.by_work_ps[work as usize] *= u64::from(scale);
        }
        self
    }

    /// Returns the nanoseconds of one unit of `work`.
    pub fn nanos(&self, work: Work) -> f64 {
        self.by_work_ps[work as usize] as f64 / PICOS_PER_NANO
    }

    /// Returns the nanoseconds of a request beside the work that the engine does for it.
    pub fn request_nanos(&self) -> f64 {
        self.request_ps as f64 / PICOS_PER_NANO
    }

    #[inline]
    pub(super) fn picos(&self, requests: u64, done: &WorkDone) -> u64 {
        let mut picos = requests * self.request_ps;
        for work in Work::ALL {
            picos += done[work] * self.by_work_ps[work as usize];
        }
        picos
    }
}

/// Writes the table as TOML that [`CpuTable::parse`] reads.
impl fmt::Display for CpuTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "request = {:?}", self.request_nanos())?;
        for (work, name) in Work::ALL.into_iter().zip(NAMES) {
            writeln!(f, "{name} = {:?}", self.nanos(work))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frozen_table_parses_and_is_written_as_it_is_read() {
        let frozen = CpuTable::frozen();
        assert!(frozen.request_nanos() > 0.0);
        assert_eq!(CpuTable::parse(&frozen.to_string()).unwrap(), frozen);
    }

    #[test]
    fn a_cost_that_is_none_is_named() {
        let table = "request=1\nindex_step=1\ntier_entry=1\nitem_copied=-1\nbyte_copied=1\ndevice_command=1";
        let error = CpuTable::parse(table).unwrap_err().to_string();
        assert!(error.contains("item_copied is -1"), "{error}");
        let error = CpuTable::parse("request=1").unwrap_err().to_string();
        assert!(error.contains("index_step"), "{error}");
        assert!(CpuTable::parse(&format!("{table}\nidle=1")).is_err());
    }
}
