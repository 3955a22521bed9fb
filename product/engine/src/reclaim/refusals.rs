//! [`Refusals`]: the log lines about a device that refuses to write segments.
//!
//! The first failed write is one line, later failures are one line each [`INTERVAL`] with their number, and the first
//! write that succeeds after a quiet [`INTERVAL`] is the last line.

use std::time::Duration;

use runtime::Instant;

/// Least time between two lines. A device works again once no write has failed for so long.
const INTERVAL: Duration = Duration::from_secs(10);

/// Failed writes of segments since the last line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Failures {
    pub(super) segments: u64,
    pub(super) items_lost: u64,
}

impl Failures {
    fn add(&mut self, other: Self) {
        self.segments += other.segments;
        self.items_lost += other.items_lost;
    }
}

/// A line that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// The device begins to refuse writes.
    Begins,
    /// The device still refuses writes, with the failures since the last line.
    GoesOn(Failures),
    /// The device writes again, with the failures since it began to refuse.
    IsOver(Failures),
}

/// State of a device's refusals.
#[derive(Default)]
pub(super) struct Refusals(Option<Refusal>);

struct Refusal {
    last_line: Instant,
    last_failure: Instant,
    untold: Failures,
    all: Failures,
}

impl Refusals {
    /// Counts a failed write at `now`. Returns the line that is due.
    pub(super) fn note_failure(&mut self, items_lost: u64, now: Instant) -> Option<Line> {
        let failed = Failures {
            segments: 1,
            items_lost,
        };
        let Some(refusal) = &mut self.0 else {
            self.0 = Some(Refusal {
                last_line: now,
                last_failure: now,
                untold: Failures::default(),
                all: failed,
            });
            return Some(Line::Begins);
        };
        refusal.last_failure = now;
        refusal.untold.add(failed);
        refusal.all.add(failed);
        if now.since(refusal.last_line) < INTERVAL {
            return None;
        }
        refusal.last_line = now;
        Some(Line::GoesOn(std::mem::take(&mut refusal.untold)))
    }

    /// Notes a successful write at `now`. Returns the line that is due.
    pub(super) fn note_success(&mut self, now: impl FnOnce() -> Instant) -> Option<Line> {
        let refusal = self.0.as_ref()?;
        if now().since(refusal.last_failure) < INTERVAL {
            return None;
        }
        let all = refusal.all;
        self.0 = None;
        Some(Line::IsOver(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_refuses_is_one_line_each_interval_and_one_at_the_end() {
        let mut refusals = Refusals::default();
        let begin = Instant::from_nanos(7);
        assert_eq!(refusals.note_success(|| begin), None);
        let mut lines = Vec::new();
        for tenth in 0..=250 {
            let now = begin + Duration::from_millis(100 * tenth);
            lines.extend(refusals.note_failure(2, now));
            // Now and then a write succeeds.
            lines.extend(refusals.note_success(|| now));
        }
        let hundred = Failures {
            segments: 100,
            items_lost: 200,
        };
        let expected = [Line::Begins, Line::GoesOn(hundred), Line::GoesOn(hundred)];
        assert_eq!(lines, expected);
        let all = Failures {
            segments: 251,
            items_lost: 502,
        };
        let later = begin + Duration::from_secs(35);
        assert_eq!(refusals.note_success(|| later), Some(Line::IsOver(all)));
        assert_eq!(refusals.note_success(|| later), None);
        assert_eq!(refusals.note_failure(0, later), Some(Line::Begins));
    }
}
