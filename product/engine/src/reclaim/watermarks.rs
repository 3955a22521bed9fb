//! How many segments to keep free: the low and the high watermark (`DIDACache`, TOS 2018, section 4.1.4).
//!
//! Reclaim begins below the high watermark, and is urgent below the low one. `Heuristic` and `Queueing` move both with
//! the load, so that as much of the flash as possible holds items.
//!
//! `Queueing` is the paper's model, with one server for each reclaimer. Clients open segments at a rate λ; each of c
//! reclaimers takes 1/μ to drop one. That is an M/M/c queue. The low watermark is the expected number of segments in
//! it, waiting or being dropped: this many are opened before the segment dropped for them is free. With c = 1 it is λ /
//! (μ - λ), equation 1. With λ ≥ cμ no reserve is large enough, and writes go at the pace of reclaim whatever is free.
//! The queue then has its greatest length: each buffer waits for a segment, and each reclaimer has one.

use std::time::Duration;

use runtime::Instant;

use crate::settings::{Reserve, StaticReserve};
use crate::sync::Mutex;

/// Distance between the watermarks in percent of the flash, as in the paper.
const APART_PERCENT: u32 = 15;
/// First low watermark of the heuristic, in percent.
const FIRST_LOW_PERCENT: u32 = 5;
/// The highest low watermark, in percent: the static over-provisioning of a conventional drive.
const MOST_LOW_PERCENT: u32 = 25;
/// Time constant of the EWMA of rates.
const AVERAGED: Duration = Duration::from_secs(1);
/// The least time between two measurements of a rate.
const LEAST_STEP: Duration = Duration::from_millis(20);

/// Low and high watermark, as numbers of free segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Below this number of free segments reclaim is urgent.
    pub low: u32,
    /// Below this number of free segments reclaim begins.
    pub high: u32,
}

/// View of the cache for the watermarks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The watermarks that an orderly stop needs.
    pub(super) for_stop: Watermarks,
    pub(super) free: u32,
    /// Number of channels in use; a free segment is kept for each.
    pub(super) channels: u32,
    /// Number of segments in use, free ones included.
    pub(super) segments: u32,
    /// Number of segments opened for writes so far.
    pub(super) opened: u64,
    /// Time to drop a segment and erase it.
    pub(super) service: Duration,
    /// Number of segments reclaimed at once.
    pub(super) reclaimers: u32,
    /// Maximum number of segments in memory, which bounds the number that can wait to be opened.
    pub(super) buffers: u32,
    /// Whether the cache was empty at first and nothing has been reclaimed since: free segments have never been used.
    pub(super) is_first_fill: bool,
}

/// Finds the watermarks.
pub(super) struct Regulator {
    reserve: Reserve,
    state: Mutex<State>,
}

struct State {
    last: Watermarks,
    /// Time of the last measurement of the rate, and the number of segments opened by then.
    seen_at: Instant,
    opened: u64,
    /// Segments opened a second.
    rate: f64,
    /// The last arguments of [`queued_segments`], and its answer.
    queued: Option<((f64, Duration, u32), f64)>,
    /// The heuristic's low watermark, and whether free segments have risen above it since it was last hit.
    low: Option<u32>,
    is_armed: bool,
    /// Number of segments opened when the heuristic last lowered its watermark.
    lowered_at: u64,
}

impl Regulator {
    /// Creates a regulator that reports the watermarks `first` until watermarks are first computed.
    pub(super) fn new(reserve: Reserve, first: Watermarks) -> Self {
        let state = State {
            last: first,
            seen_at: runtime::now(),
            opened: 0,
            rate: 0.0,
            queued: None,
            low: None,
            is_armed: true,
            lowered_at: 0,
        };
        Self {
            reserve,
            state: Mutex::new(state),
        }
    }

    /// Returns whether the watermarks follow from the load alone, without a look at memory.
    pub(super) fn follows_load(&self) -> bool {
        matches!(self.reserve, Reserve::Heuristic | Reserve::Queueing)
    }

    /// Returns the watermarks computed last.
    pub(super) fn last(&self) -> Watermarks {
        self.state.lock().last
    }

    /// Computes the present watermarks.
    pub(super) fn watermarks(&self, load: &Load) -> Watermarks {
        let found = self.find(load);
        self.state.lock().last = found;
        found
    }

    fn find(&self, load: &Load) -> Watermarks {
        let least = load.channels.min(load.segments / 8).max(1);
        let low = match self.reserve {
            Reserve::ForStop => return load.for_stop,
            Reserve::Static(StaticReserve {
                low_percent,
                high_percent,
            }) => {
                let low = percent(load.segments, low_percent).max(least);
                let high = percent(load.segments, high_percent).max(low + 1);
                return Watermarks { low, high };
            }
            Reserve::Heuristic => self.heuristic(load, least),
            Reserve::Queueing => {
                let queued = self.queued(load);
                let longest = load.buffers.saturating_add(load.reclaimers);
                let most = longest.min(most_low(load, least)).max(least);
                // A conversion from float to integer saturates.
                let low = (queued.ceil() as u32).clamp(least, most);
                // The first fill needs no reserve: no segment is reclaimed before the flash is full.
                if load.is_first_fill { least } else { low }
            }
        };
        with_high(load, low)
    }

    /// Returns the segments opened a second. The time since the last measurement counts even if none was opened in it.
    fn rate(&self, load: &Load) -> f64 {
        let mut state = self.state.lock();
        let now = runtime::now();
        let passed = now.since(state.seen_at);
        if passed >= LEAST_STEP {
            let seconds = passed.as_secs_f64();
            let opened = load.opened.saturating_sub(state.opened) as f64;
            let weight = 1.0 - (-seconds / AVERAGED.as_secs_f64()).exp();
            state.rate += weight * (opened / seconds - state.rate);
            state.seen_at = now;
            state.opened = load.opened;
        }
        state.rate
    }

    /// Returns [`queued_segments`] at present, recomputed only if an argument has changed: it takes a step for each
    /// reclaimer, and every reclaimer asks.
    fn queued(&self, load: &Load) -> f64 {
        let asked = (self.rate(load), load.service, load.reclaimers);
        let mut state = self.state.lock();
        match state.queued {
            Some((of, queued)) if of == asked => queued,
            _ => {
                let queued = queued_segments(asked.0, asked.1, asked.2);
                state.queued = Some((asked, queued));
                queued
            }
        }
    }

    fn heuristic(&self, load: &Load, least: u32) -> u32 {
        let state = &mut *self.state.lock();
        let first = percent(load.segments, FIRST_LOW_PERCENT);
        let low = state
            .low
            .unwrap_or(first)
            .clamp(least, most_low(load, least));
        let mut next = low;
        // Reclaim stops at the low watermark, so that slightly fewer segments are free most of the time.
        if load.free < low / 2 && state.is_armed {
            next = (low * 2).min(most_low(load, least));
            state.is_armed = false;
        } else if load.free >= low {
            state.is_armed = true;
        }
        // Before the first reclaim, the number of free segments does not show whether reclaim keeps up.
        let is_light = load.free >= with_high(load, low).high && !load.is_first_fill;
        if is_light && load.opened > state.lowered_at {
            next = next.saturating_sub(percent(load.segments, 1)).max(least);
            state.lowered_at = load.opened;
        }
        state.low = Some(next);
        next
    }
}

/// Returns the expected number of segments in an M/M/c queue, waiting or in service, if `arrivals` a second come to
/// `servers` and each takes `service`. With one server, that is equation 1.
fn queued_segments(arrivals: f64, service: Duration, servers: u32) -> f64 {
    let busy = arrivals * service.as_secs_f64();
    let load = busy / f64::from(servers);
    if load >= 1.0 {
        return f64::INFINITY;
    }
    // The Erlang B recursion, and Erlang C from it: the probability that all servers are busy.
    let blocked = (1..=servers).fold(1.0, |blocked, server| {
        busy * blocked / (f64::from(server) + busy * blocked)
    });
    let all_busy = blocked / (1.0 - load * (1.0 - blocked));
    all_busy * load / (1.0 - load) + busy
}

fn most_low(load: &Load, least: u32) -> u32 {
    percent(load.segments, MOST_LOW_PERCENT).max(least)
}

fn with_high(load: &Load, low: u32) -> Watermarks {
    let high = low + percent(load.segments, APART_PERCENT).max(1);
    Watermarks { low, high }
}

/// Returns a share of the segments, at least one.
fn percent(segments: u32, percent: u32) -> u32 {
    (u64::from(segments) * u64::from(percent) / 100).max(1) as u32
}

#[cfg(test)]
mod tests {
    use runtime::sim::Sim;

    use super::*;

    const FOR_STOP: Watermarks = Watermarks { low: 2, high: 40 };

    fn load(free: u32, opened: u64) -> Load {
        Load {
            for_stop: FOR_STOP,
            free,
            channels: 12,
            segments: 1000,
            opened,
            service: Duration::from_millis(10),
            reclaimers: 1,
            buffers: 60,
            is_first_fill: false,
        }
    }

    #[test]
    fn with_one_server_the_queue_is_that_of_equation_1() {
        let service = Duration::from_millis(10);
        let of = |arrivals| queued_segments(arrivals, service, 1);
        assert_eq!(of(0.0), 0.0);
        for arrivals in [1.0, 50.0, 90.0, 99.0] {
            let expected = arrivals / (100.0 - arrivals);
            assert!(
                (of(arrivals) - expected).abs() < 1e-6,
                "{arrivals} a second"
            );
        }
        assert_eq!(of(100.0), f64::INFINITY);
        assert_eq!(of(1e9), f64::INFINITY);
    }

    #[test]
    fn with_more_servers_the_queue_is_shorter_and_never_less_than_what_is_in_service() {
        let service = Duration::from_millis(10);
        // Two servers, each busy for three quarters of the time: 24 / 7, by hand.
        let of_two = queued_segments(150.0, service, 2);
        assert!((of_two - 24.0 / 7.0).abs() < 1e-9, "{of_two}");
        for arrivals in [10.0, 60.0, 99.0] {
            let by_servers = [1, 2, 4, 64].map(|count| queued_segments(arrivals, service, count));
            assert!(
                by_servers.windows(2).all(|pair| pair[1] < pair[0]),
                "{by_servers:?}"
            );
            assert!(by_servers[3] >= arrivals / 100.0);
        }
        assert!(queued_segments(399.0, service, 4).is_finite());
        assert_eq!(queued_segments(400.0, service, 4), f64::INFINITY);
    }

    #[test]
    fn a_first_fill_keeps_one_segment_a_channel() {
        Sim::new(1).block_on(async {
            let regulator = Regulator::new(Reserve::Queueing, FOR_STOP);
            let at = |opened, is_first_fill| {
                let load = load(500, opened);
                regulator
                    .watermarks(&Load {
                        is_first_fill,
                        ..load
                    })
                    .low
            };
            at(0, true);
            runtime::sleep(Duration::from_secs(5)).await;
            assert_eq!(at(5000, true), 12);
            assert_eq!(
                at(5000, false),
                61,
                "the rate has been followed all the while"
            );
        });
    }

    #[test]
    fn queueing_follows_the_rate_up_and_down_within_bounds() {
        Sim::new(1).block_on(async {
            let regulator = Regulator::new(Reserve::Queueing, FOR_STOP);
            let idle = regulator.watermarks(&load(500, 0));
            assert_eq!(idle, Watermarks { low: 12, high: 162 }, "one a channel");
            let mut opened = 0;
            let mut at = async |a_second: u64, seconds: u64| {
                let mut last = idle;
                for _ in 0..seconds * 5 {
                    runtime::sleep(Duration::from_millis(200)).await;
                    opened += a_second / 5;
                    last = regulator.watermarks(&load(500, opened));
                    assert_eq!(last.high, last.low + 150);
                }
                last
            };
            assert_eq!(at(50, 10).await.low, 12, "one waits");
            let busy = at(95, 10).await.low;
            assert!((17..=20).contains(&busy), "19 wait: {busy}");
            let longest = at(500, 10).await.low;
            assert_eq!(
                longest, 61,
                "more than can be reclaimed: every buffer waits"
            );
            assert_eq!(at(0, 10).await.low, 12, "no traffic");
            at(500, 10).await;
            runtime::sleep(Duration::from_secs(10)).await;
            let after = regulator.watermarks(&load(500, 11_450));
            assert_eq!(after.low, 12, "nobody had looked meanwhile");
        });
    }

    #[test]
    fn the_heuristic_doubles_when_hit_and_falls_by_steps() {
        Sim::new(1).block_on(async {
            let regulator = Regulator::new(Reserve::Heuristic, FOR_STOP);
            let low = |free, opened| regulator.watermarks(&load(free, opened)).low;
            assert_eq!(low(100, 1), 50);
            assert_eq!(low(49, 2), 50, "reclaim stops there");
            assert_eq!(low(24, 2), 100);
            assert_eq!(low(60, 3), 100, "hit once");
            assert_eq!(low(100, 4), 100);
            assert_eq!(low(49, 5), 200);
            assert_eq!(low(210, 6), 200);
            assert_eq!(low(99, 7), 250, "no more than a quarter");
            for opened in 8..200 {
                assert_eq!(low(399, opened), 250, "below the high one");
            }
            let steps: Vec<u32> = (200..222).map(|opened| low(900, opened)).collect();
            assert!(steps.windows(2).all(|pair| pair[0] - pair[1] == 10));
            assert_eq!(low(900, 221), low(900, 221), "nothing was opened");
            for opened in 222..300 {
                low(900, opened);
            }
            assert_eq!(low(900, 300), 12, "never below one a channel");
            let regulator = Regulator::new(Reserve::Heuristic, FOR_STOP);
            for opened in 1..200 {
                let load = Load {
                    is_first_fill: true,
                    ..load(900, opened)
                };
                assert_eq!(regulator.watermarks(&load).low, 50, "a first fill");
            }
        });
    }

    #[test]
    fn small_and_worn_devices_keep_something_to_write_to() {
        Sim::new(1).block_on(async {
            let fixed = Reserve::Static(StaticReserve::default());
            for reserve in [Reserve::Queueing, Reserve::Heuristic, fixed] {
                let regulator = Regulator::new(reserve, FOR_STOP);
                let worn = Load {
                    channels: 1,
                    segments: 8,
                    ..load(0, 100)
                };
                let marks = regulator.watermarks(&worn);
                assert!(marks.low >= 1 && marks.high > marks.low && marks.high <= 4);
            }
        });
    }
}
