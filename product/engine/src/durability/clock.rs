//! The clocks by which the items of earlier runs expire.
//!
//! A run goes by the wall clock of its start, and writes times by it. If the next start finds a clock that cannot be right,
//! the difference is noted in the superblock: items of the runs before go on by the clock that they were stored by, and items
//! stored from then on by the new one. No item comes back, and none expires because of the step.

use crate::format::superblock::OldClock;

/// Seconds by which a start may be before the last second of the last run: the clock was set right, or the last second noted
/// was that of another host.
const MAX_BACK_SECONDS: u32 = 60;
/// Seconds after the last run from which on the clock of a start cannot be right.
const MAX_AHEAD_SECONDS: u32 = 20 * 366 * 24 * 3600;

/// Returns the seconds by which the clock of earlier runs is ahead of the clock at a start, if the latter cannot be right:
/// `last` is the latest second known to have been, or 0.
pub(crate) fn step(now: u32, last: u32) -> Option<i64> {
    let is_back = now.saturating_add(MAX_BACK_SECONDS) < last;
    let is_far_ahead = last > 0 && now > last.saturating_add(MAX_AHEAD_SECONDS);
    (is_back || is_far_ahead).then(|| i64::from(last) - i64::from(now))
}

/// The clock of a start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StartClock {
    /// Unix second of the start, or the latest one known to have been if that is later by a little.
    pub(crate) second: u32,
    /// Whether the clock at the start cannot be right: the journal's clock begins anew with it.
    pub(crate) begins_anew: bool,
}

/// The clocks by which a run judges the items of earlier runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldClocks {
    /// First version of this run, above all versions of earlier runs.
    pub(crate) first_version: u64,
    /// Earliest second for items of earlier runs.
    pub(crate) second: u32,
    /// Differences between the clocks of earlier runs and this one, by falling age.
    pub(crate) ahead: [OldClock; 2],
}

impl OldClocks {
    /// Returns the seconds by which the clock of an item of an earlier run is ahead of the present one.
    pub(crate) fn ahead(&self, version: u64) -> i64 {
        let is_of = |clock: &&OldClock| version < clock.below.get();
        let clock = self.ahead.iter().find(is_of);
        clock.map_or(0, |clock| clock.ahead.get())
    }

    /// Returns the second by which an item of an earlier run is judged at Unix second `now`.
    pub(crate) fn second(&self, version: u64, now: u32) -> u32 {
        shifted(now.max(self.second), self.ahead(version))
    }

    /// Returns the most seconds by which a flush of an earlier run may come early, so that it never comes late.
    pub(crate) fn most_ahead(&self) -> i64 {
        let ahead = self.ahead.iter().map(|clock| clock.ahead.get());
        ahead.fold(0, i64::max)
    }
}

/// Adds a difference to a Unix second.
pub(crate) fn shifted(second: u32, by: i64) -> u32 {
    i64::from(second)
        .saturating_add(by)
        .clamp(0, u32::MAX.into()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u32 = 1_800_000_000;

    #[test]
    fn a_start_before_the_last_run_or_decades_after_it_has_an_impossible_clock() {
        assert_eq!(step(NOW, 0), None, "nothing is known");
        assert_eq!(step(0, 0), None);
        assert_eq!(step(NOW - 60, NOW), None);
        assert_eq!(step(NOW - 61, NOW), Some(61));
        assert_eq!(step(NOW + 10 * 365 * 86400, NOW), None);
        let far = NOW + MAX_AHEAD_SECONDS + 1;
        assert_eq!(step(far, NOW), Some(-i64::from(MAX_AHEAD_SECONDS) - 1));
    }

    #[test]
    fn items_go_by_the_clock_that_they_were_stored_by() {
        let clock = |below: u64, ahead: i64| OldClock {
            below: below.into(),
            ahead: ahead.into(),
        };
        let clocks = OldClocks {
            first_version: 300,
            second: NOW,
            ahead: [clock(100, 7200), clock(200, -50)],
        };
        assert_eq!(clocks.second(99, NOW), NOW + 7200);
        assert_eq!(clocks.second(100, NOW + 5), NOW - 45);
        assert_eq!(clocks.second(200, NOW - 5), NOW);
        assert_eq!(clocks.most_ahead(), 7200);
        assert_eq!(shifted(5, -9), 0);
        assert_eq!(shifted(u32::MAX - 5, 9), u32::MAX);
    }
}
