//! How many segments to keep free: the low and the high watermark (`DIDACache`, TOS 2018, section 4.1.4).
//!
//! Below the high one reclaim begins; below the low one it is pressing. `Heuristic` and `Queueing` move both
//! with the load, so that as much of the flash as possible holds items.

use std::time::Duration;

use runtime::Instant;

use crate::config::{Reserve, StaticReserve};
use crate::sync::Mutex;

/// Distance between the two watermarks, in percent of the flash, as in the paper.
const APART_PERCENT: u32 = 15;
/// Where the heuristic begins, in percent.
const FIRST_LOW_PERCENT: u32 = 5;
/// The highest low watermark, in percent: the static over-provisioning of a conventional drive.
const MOST_LOW_PERCENT: u32 = 25;
/// Time constant of the EWMA of rates.
const AVERAGED: Duration = Duration::from_secs(1);
/// The least time between two looks at a rate.
const LEAST_STEP: Duration = Duration::from_millis(20);

/// Two numbers of free segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// With fewer, reclaim is pressing.
    pub low: u32,
    /// With fewer, segments are reclaimed.
    pub high: u32,
}

/// What is seen of the cache when the watermarks are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The watermarks that an orderly stop needs.
    pub(super) for_stop: Watermarks,
    pub(super) free: u32,
    /// Channels in use: a free segment is kept for each.
    pub(super) channels: u32,
    /// Segments in use, those that are free among them.
    pub(super) segments: u32,
    /// Segments opened for writes so far.
    pub(super) opened: u64,
    /// How long it takes to drop a segment and to erase it.
    pub(super) service: Duration,
}

/// Finds the watermarks.
pub(super) struct Regulator {
    reserve: Reserve,
    state: Mutex<State>,
}

struct State {
    last: Watermarks,
    /// When the rate was looked at, and what had been opened then.
    seen_at: Instant,
    opened: u64,
    /// Segments opened a second.
    rate: f64,
    /// The heuristic's low watermark, and whether it has been passed upwards since it was hit.
    low: Option<u32>,
    is_armed: bool,
    /// What had been opened when the heuristic's last was lowered.
    lowered_at: u64,
}

impl Regulator {
    /// `first` are the watermarks to tell of before they have been asked for.
    pub(super) fn new(reserve: Reserve, first: Watermarks) -> Self {
        let state = State {
            last: first,
            seen_at: runtime::now(),
            opened: 0,
            rate: 0.0,
            low: None,
            is_armed: true,
            lowered_at: 0,
        };
        Self {
            reserve,
            state: Mutex::new(state),
        }
    }

    /// The watermarks as they were found last.
    pub(super) fn last(&self) -> Watermarks {
        self.state.lock().last
    }

    /// The watermarks at present.
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
                let waiting = waiting_segments(self.rate(load), load.service);
                // A float to integer conversion saturates.
                (waiting.ceil() as u32).clamp(least, most_low(load, least))
            }
        };
        with_high(load, low)
    }

    /// Segments opened a second.
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

    fn heuristic(&self, load: &Load, least: u32) -> u32 {
        let state = &mut *self.state.lock();
        let first = percent(load.segments, FIRST_LOW_PERCENT);
        let low = state
            .low
            .unwrap_or(first)
            .clamp(least, most_low(load, least));
        let mut next = low;
        // Reclaim stops at the low watermark, so that a little less than that is free most of the time.
        if load.free < low / 2 && state.is_armed {
            next = (low * 2).min(most_low(load, least));
            state.is_armed = false;
            state.lowered_at = load.opened;
        } else if load.free >= low {
            state.is_armed = true;
        }
        let step = percent(load.segments, 1);
        let is_light = load.free >= with_high(load, low).high && load.opened > state.lowered_at;
        if is_light || load.opened >= state.lowered_at + u64::from(step) {
            next = next.saturating_sub(step).max(least);
            state.lowered_at = load.opened;
        }
        state.low = Some(next);
        next
    }
}

/// Segments that wait when `arrivals` a second come and each takes `service` (equations 1 and 3).
fn waiting_segments(arrivals: f64, service: Duration) -> f64 {
    let busy = arrivals * service.as_secs_f64();
    let waiting = busy / (1.0 - busy);
    if busy < 1.0 { waiting } else { f64::INFINITY }
}

fn most_low(load: &Load, least: u32) -> u32 {
    percent(load.segments, MOST_LOW_PERCENT).max(least)
}

fn with_high(load: &Load, low: u32) -> Watermarks {
    let high = low + percent(load.segments, APART_PERCENT).max(1);
    Watermarks { low, high }
}

/// A share of the segments, one at least.
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
        }
    }

    #[test]
    fn waiting_is_that_of_an_mm1_queue() {
        let service = Duration::from_millis(10);
        assert_eq!(waiting_segments(0.0, service), 0.0);
        assert!((waiting_segments(50.0, service) - 1.0).abs() < 1e-9);
        assert!((waiting_segments(90.0, service) - 9.0).abs() < 1e-6);
        assert_eq!(waiting_segments(100.0, service), f64::INFINITY);
        assert_eq!(waiting_segments(1e9, service), f64::INFINITY);
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
            assert_eq!(at(500, 10).await.low, 250, "more than can be reclaimed");
            assert_eq!(at(0, 10).await.low, 12, "no traffic");
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
            let steps: Vec<u32> = (8..30).map(|opened| low(900, opened)).collect();
            assert!(steps.windows(2).all(|pair| pair[0] - pair[1] == 10));
            assert_eq!(low(900, 29), low(900, 29), "nothing was opened");
            for opened in 30..100 {
                low(900, opened);
            }
            assert_eq!(low(900, 100), 12, "never below one a channel");
            let regulator = Regulator::new(Reserve::Heuristic, FOR_STOP);
            let low = |free, opened| regulator.watermarks(&load(free, opened)).low;
            assert_eq!((low(50, 9), low(50, 10)), (50, 40), "nothing was short");
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
