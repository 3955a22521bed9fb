//! Counts of a phase's clients.

use hdrhistogram::Histogram;
use workload::Op;

use crate::bench::stats::{Stats, latencies};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// A get that the cache answered.
    Hit,
    /// A get that the database answered.
    Read,
    /// A get of a key that neither the cache nor the database has.
    Absent,
    /// A set or delete.
    Written,
    /// Refused by the database or the cache, and already counted as a failure.
    Failed,
}

#[derive(Clone, Debug)]
pub(super) struct Counts {
    pub(super) stats: Stats,
    /// Gets that neither the cache nor the database could answer.
    pub(super) absent: u64,
    /// Latencies of gets that the cache answered, in nanoseconds.
    pub(super) hit: Histogram<u64>,
    /// Latencies of the other gets, in nanoseconds: the read of the database, and with a cache the set that
    /// follows.
    pub(super) miss: Histogram<u64>,
}

impl Counts {
    pub(super) fn new() -> Self {
        Self {
            stats: Stats::new(false),
            absent: 0,
            hit: latencies(),
            miss: latencies(),
        }
    }

    /// Counts a request. Times are nanoseconds since the end of the warm-up.
    pub(super) fn completed(&mut self, op: Op, outcome: Outcome, sent_ns: u64, now_ns: u64) {
        let hits = match outcome {
            Outcome::Failed => return,
            Outcome::Hit => 1,
            Outcome::Read | Outcome::Absent | Outcome::Written => 0,
        };
        self.stats.completed(op, 1, hits, sent_ns, now_ns);
        let latency = now_ns.saturating_sub(sent_ns);
        match outcome {
            Outcome::Hit => self.hit.saturating_record(latency),
            Outcome::Read | Outcome::Absent => self.miss.saturating_record(latency),
            Outcome::Written | Outcome::Failed => {}
        }
        self.absent += u64::from(outcome == Outcome::Absent);
    }
}
