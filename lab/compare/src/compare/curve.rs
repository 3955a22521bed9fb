//! The course of a run: samples, evenly spaced in requests.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Number of samples at which every other sample is dropped.
const MOST_SAMPLES: usize = 400;

/// Counters at the moment when a number of requests had begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Requests begun, with the warm-up.
    pub requests: u64,
    /// Time since the first request, in nanoseconds.
    pub nanos: u64,
    /// Gets answered.
    pub gets: u64,
    /// Gets that were hits.
    pub hits: u64,
    /// Free segments and watermarks.
    pub segments: SegmentLevels,
}

/// Number of free segments, and the watermarks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentLevels {
    /// Free segments.
    pub free: u32,
    /// Low watermark: with fewer free segments, reclaim is urgent.
    pub low: u32,
    /// High watermark: with fewer free segments, reclaim runs.
    pub high: u32,
}

/// Samples of a run, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Curve {
    /// Samples from the first request on.
    pub samples: Vec<Sample>,
}

impl Curve {
    /// Returns (requests, hit ratio since the sample before) for each sample but the first.
    pub fn hit_ratio(&self) -> Vec<(f64, f64)> {
        self.steps(|from, to| {
            let gets = to.gets - from.gets;
            (gets > 0).then(|| (to.hits - from.hits) as f64 / gets as f64)
        })
    }

    /// Returns (requests, requests a second since the sample before) for each sample but the first.
    pub fn requests_per_s(&self) -> Vec<(f64, f64)> {
        self.steps(|from, to| {
            let nanos = to.nanos.saturating_sub(from.nanos);
            (nanos > 0).then(|| (to.requests - from.requests) as f64 * 1e9 / nanos as f64)
        })
    }

    fn steps(&self, figure: impl Fn(Sample, Sample) -> Option<f64>) -> Vec<(f64, f64)> {
        let steps = self.samples.windows(2);
        steps
            .filter(|step| step[1].requests > step[0].requests)
            .filter_map(|step| Some((step[1].requests as f64, figure(step[0], step[1])?)))
            .collect()
    }
}

/// Collects samples of a run of unknown length. Shared by the run's clients.
pub(super) struct Recorder {
    /// Number of the request before which the next sample is taken.
    next: AtomicU64,
    state: Mutex<Recorded>,
    gets: AtomicU64,
    hits: AtomicU64,
}

struct Recorded {
    every: u64,
    begun_nanos: Option<u64>,
    samples: Vec<Sample>,
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
            state: Mutex::new(Recorded {
                every: 1,
                begun_nanos: None,
                samples: Vec::with_capacity(MOST_SAMPLES),
            }),
            gets: AtomicU64::new(0),
            hits: AtomicU64::new(0),
        }
    }

    /// Counts an answered get.
    #[inline]
    pub(super) fn count_get(&self, is_hit: bool) {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.hits.fetch_add(u64::from(is_hit), Ordering::Relaxed);
    }

    /// Notes that request number `request` begins. Returns whether a sample was taken.
    #[inline]
    pub(super) fn pass(&self, request: u64, segments: impl Fn() -> SegmentLevels) -> bool {
        request >= self.next.load(Ordering::Relaxed) && self.sample(request, segments())
    }

    fn sample(&self, request: u64, segments: SegmentLevels) -> bool {
        let mut state = self.state.lock();
        if request < self.next.load(Ordering::Relaxed) {
            return false;
        }
        let now = runtime::now().as_nanos();
        let begun = *state.begun_nanos.get_or_insert(now);
        state.samples.push(Sample {
            requests: request,
            nanos: now - begun,
            gets: self.gets.load(Ordering::Relaxed),
            hits: self.hits.load(Ordering::Relaxed),
            segments,
        });
        if state.samples.len() == MOST_SAMPLES {
            let mut keep = false;
            state.samples.retain(|_| {
                keep = !keep;
                keep
            });
            state.every *= 2;
        }
        let last = state.samples.last().map_or(0, |sample| sample.requests);
        self.next.store(last + state.every, Ordering::Relaxed);
        true
    }

    pub(super) fn finish(&self, requests: u64, segments: SegmentLevels) -> Curve {
        self.next.store(0, Ordering::Relaxed);
        self.sample(requests, segments);
        Curve {
            samples: std::mem::take(&mut self.state.lock().samples),
        }
    }
}

#[cfg(test)]
mod tests {
    use runtime::sim::Sim;

    use super::*;

    #[test]
    fn samples_stay_few_and_evenly_spaced() {
        let curve = Sim::new(1).block_on(async {
            let recorder = Recorder::new();
            for request in 0..10_000 {
                recorder.pass(request, SegmentLevels::default);
                recorder.count_get(request % 4 == 0);
            }
            recorder.finish(10_000, SegmentLevels::default())
        });
        let samples = &curve.samples;
        assert!((MOST_SAMPLES / 2..=MOST_SAMPLES).contains(&samples.len()));
        let gaps: Vec<u64> = samples
            .windows(2)
            .map(|pair| pair[1].requests - pair[0].requests)
            .collect();
        assert!(gaps[..gaps.len() - 1].iter().all(|&gap| gap == gaps[0]));
        assert_eq!(samples[samples.len() - 1].hits, 2500);
        assert!(curve.hit_ratio().iter().all(|&(_, ratio)| ratio == 0.25));
        assert!(curve.requests_per_s().is_empty(), "no time has passed");
    }
}
