//! The counts of one thread; they are merged when the run is over.
//!
//! A request is counted once its response is complete, if its time to be sent came after the warm-up. A `get`
//! of several keys has one latency and counts as one request for each key. Failures always count, in the
//! warm-up as well.

use std::ops::Index;

use hdrhistogram::Histogram;
use workload::Op;

/// The longest latency recorded, in nanoseconds: a minute.
const LONGEST_NS: u64 = 60_000_000_000;
/// Resolution of latencies, in nanoseconds. No response over a socket is faster, and a coarse unit keeps the
/// histogram small enough for the processor's cache.
const UNIT_NS: u64 = 64;
const DIGITS: u8 = 3;
/// Significant digits of latencies in the timeline, fewer because each second has its own histogram.
const TIMELINE_DIGITS: u8 = 2;
/// The longest timeline, in seconds; later requests count for the last second.
pub(super) const MAX_TIMELINE_S: usize = 24 * 3600;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// A connection that could not be opened.
    Refused,
    /// A connection that the server closed or that broke; its unanswered requests are `Lost`.
    Closed,
    /// A request that was unanswered when its connection ended.
    Lost,
    /// A request answered by an error.
    Server,
    /// A connection given up because the answer was no memcached response.
    Protocol,
    /// A request without an answer when the run had to end.
    Timeout,
    /// A value that differs from the value written.
    Corrupt,
    /// A trace that could not be read to its end.
    Workload,
    /// A request that the database behind the cache refused.
    #[cfg_attr(
        not(feature = "backends"),
        expect(dead_code, reason = "there is no database")
    )]
    Database,
}

/// Names of the kinds of failures in reports, in order.
const FAILURES: [&str; 9] = [
    "connections_refused",
    "connections_closed",
    "requests_lost",
    "server_errors",
    "protocol_errors",
    "timeouts",
    "corrupt_values",
    "workload_errors",
    "database_errors",
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Failures([u64; FAILURES.len()]);

impl Failures {
    pub(super) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the kinds of failures that happened, by name.
    pub(super) fn happened(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = FAILURES.into_iter().zip(self.0);
        all.filter(|(_, count)| *count > 0)
    }
}

impl Index<Failure> for Failures {
    type Output = u64;

    fn index(&self, kind: Failure) -> &u64 {
        &self.0[kind as usize]
    }
}

#[derive(Clone, Debug)]
pub(super) struct Second {
    pub(super) requests: u64,
    pub(super) gets: u64,
    pub(super) hits: u64,
    pub(super) latencies: Histogram<u32>,
}

/// The counters of one thread, or their sum over all threads.
#[derive(Clone, Debug)]
pub(super) struct Stats {
    /// Requests by [`Op`].
    pub(super) requests: [u64; 3],
    pub(super) hits: u64,
    /// Latencies of commands by [`Op`], in nanoseconds.
    pub(super) latencies: [Histogram<u64>; 3],
    pub(super) failures: Failures,
    /// Message of the first failure.
    pub(super) first_failure: Option<String>,
    /// Open loop: requests whose time came but which were never sent.
    pub(super) unsent: u64,
    /// Time of the last counted response, in nanoseconds since the start.
    pub(super) last_ns: u64,
    timeline: Option<Vec<Second>>,
}

pub(super) fn latencies() -> Histogram<u64> {
    histogram(DIGITS)
}

fn histogram<C: hdrhistogram::Counter>(digits: u8) -> Histogram<C> {
    Histogram::new_with_bounds(UNIT_NS, LONGEST_NS, digits).expect("constant bounds are valid")
}

impl Stats {
    pub(super) fn new(timeline: bool) -> Self {
        Self {
            requests: [0; 3],
            hits: 0,
            latencies: std::array::from_fn(|_| latencies()),
            failures: Failures::default(),
            first_failure: None,
            unsent: 0,
            last_ns: 0,
            timeline: timeline.then(Vec::new),
        }
    }

    /// Counts a completed command on `keys` keys, `hits` of which were found. Times are nanoseconds since the
    /// end of the warm-up.
    #[inline]
    pub(super) fn completed(&mut self, op: Op, keys: u32, hits: u32, sent_ns: u64, now_ns: u64) {
        let latency = now_ns.saturating_sub(sent_ns);
        self.requests[op as usize] += u64::from(keys);
        self.hits += u64::from(hits);
        self.latencies[op as usize].saturating_record(latency);
        self.last_ns = now_ns;
        if let Some(timeline) = &mut self.timeline {
            let second = ((now_ns / 1_000_000_000) as usize).min(MAX_TIMELINE_S);
            while timeline.len() <= second {
                timeline.push(Second {
                    requests: 0,
                    gets: 0,
                    hits: 0,
                    latencies: histogram(TIMELINE_DIGITS),
                });
            }
            let slot = &mut timeline[second];
            slot.requests += u64::from(keys);
            slot.hits += u64::from(hits);
            slot.gets += if op == Op::Get { u64::from(keys) } else { 0 };
            slot.latencies.saturating_record(latency);
        }
    }

    /// Counts failures of one kind and keeps the message of the first.
    #[cold]
    pub(super) fn failed(&mut self, kind: Failure, count: u64, words: impl FnOnce() -> String) {
        self.failures.0[kind as usize] += count;
        if count > 0 {
            self.first_failure.get_or_insert_with(words);
        }
    }

    /// Returns the number of completed requests of all kinds.
    pub(super) fn total(&self) -> u64 {
        self.requests.iter().sum()
    }

    pub(super) fn all_latencies(&self) -> Histogram<u64> {
        let mut all = self.latencies[0].clone();
        for part in &self.latencies[1..] {
            all.add(part).expect("histograms of one range add up");
        }
        all
    }

    pub(super) fn timeline(&self) -> Option<&[Second]> {
        self.timeline.as_deref()
    }

    /// Adds the counts of another thread.
    pub(super) fn merge(&mut self, other: &Self) {
        let requests = self.requests.iter_mut().zip(other.requests);
        let failures = self.failures.0.iter_mut().zip(other.failures.0);
        for (own, more) in requests.chain(failures) {
            *own += more;
        }
        for (own, more) in self.latencies.iter_mut().zip(&other.latencies) {
            own.add(more).expect("histograms of one range add up");
        }
        self.hits += other.hits;
        self.unsent += other.unsent;
        self.last_ns = self.last_ns.max(other.last_ns);
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
        if let (Some(own), Some(more)) = (&mut self.timeline, &other.timeline) {
            for (second, slot) in more.iter().enumerate() {
                if let Some(sum) = own.get_mut(second) {
                    sum.requests += slot.requests;
                    sum.gets += slot.gets;
                    sum.hits += slot.hits;
                    sum.latencies
                        .add(&slot.latencies)
                        .expect("histograms of one range add up");
                } else {
                    own.push(slot.clone());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_adds_everything_up() {
        let mut left = Stats::new(true);
        left.completed(Op::Get, 2, 1, 0, 1_000_000);
        left.failed(Failure::Server, 2, || "SERVER_ERROR".to_owned());
        let mut right = Stats::new(true);
        right.completed(Op::Set, 1, 0, 0, 2_000_000_000);
        right.completed(Op::Get, 1, 1, 500_000_000, 1_500_000_000);
        right.failed(Failure::Lost, 1, || "lost".to_owned());
        left.merge(&right);
        assert_eq!(left.requests, [3, 1, 0]);
        assert_eq!((left.hits, left.total(), left.failures.total()), (2, 4, 3));
        assert_eq!(left.first_failure.as_deref(), Some("SERVER_ERROR"));
        let by_second: Vec<u64> = left
            .timeline()
            .unwrap()
            .iter()
            .map(|slot| slot.requests)
            .collect();
        assert_eq!(by_second, [2, 1, 1]);
        assert_eq!(left.all_latencies().len(), 3);
    }

    #[test]
    fn latencies_are_kept_to_three_digits() {
        let mut stats = Stats::new(false);
        stats.completed(Op::Get, 1, 1, 1_000, 123_456_789);
        let seen = stats.all_latencies().value_at_quantile(0.5) as f64;
        assert!((seen / 123_455_789.0 - 1.0).abs() < 1e-3);
    }
}
