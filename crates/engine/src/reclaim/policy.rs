//! Reclaim policies: which segment goes next and what becomes of its items, as pure functions of what is seen.
//!
//! | policy | segment | its items |
//! |---|---|---|
//! | drop | as configured | dropped |
//! | copy recent | as configured | those read since they were written are copied, up to a bound |
//! | copy valid | as configured | all valid ones are copied if that gains; writes stall meanwhile |
//! | integrated | fewest valid bytes, if that gains | all valid ones are copied |
//! | return recent | as configured | those read since they were written go back to memory |
//!
//! Below the low watermark policies that do not make writes wait drop whole segments: `DIDACache`, TOS 2018,
//! section 4.1.3. Where victims are taken in order of age, one may be all valid though others have next to
//! nothing in them; so the average of the last victims says whether copying gains.

use crate::config::ReclaimPolicy;
use crate::store::Victim;

/// What a policy sees before a segment has been picked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlashView {
    pub(crate) free: u32,
    /// Free ones and those that are being reclaimed.
    pub(crate) free_or_reclaiming: u32,
    pub(crate) dropping: u32,
    /// The low free-segment watermark: reclaim presses below it.
    pub(crate) low: u32,
    /// Free segments at which reclaim stops.
    pub(crate) target: u32,
    /// Free segments that only copies may open.
    pub(crate) reserved: u32,
    /// The index has next to no space left; of a cache that stops, none.
    pub(crate) is_index_short: bool,
    /// Recovery goes on: what is not known yet cannot be kept.
    pub(crate) is_recovering: bool,
    /// An orderly stop has begun.
    pub(crate) is_stopping: bool,
    /// The last copies have gained more space than they took.
    pub(crate) copies_gain: bool,
    /// So much that reclaim has copied waits to be written that a crash would take more than it should.
    pub(crate) copies_wait: bool,
    /// No segment worth copying from was found a short while ago, and little has been written since.
    pub(crate) copying_rests: bool,
    /// The most bytes of a segment that are kept.
    pub(crate) max_copy_bytes: u64,
}

/// What a policy sees of the segment that was picked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentView {
    /// Bytes of its items that the index names.
    pub(crate) valid_bytes: u64,
    /// Moving average of `valid_bytes` over the last victims, this one included.
    pub(crate) average_valid_bytes: u64,
    /// Whether it is read more often than the average segment.
    pub(crate) is_read_much: bool,
}

/// Which segment to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// The first in this order of those with no more valid bytes than this.
    Victim(Victim, u64),
    /// A segment that wear leveling wants erased.
    LeastWorn,
}

/// What becomes of the items that the index still names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// All items are dropped.
    Nothing,
    /// Items read since they were written are copied, up to this many bytes.
    Recent(u64),
    /// All items are copied.
    Valid,
    /// All items are copied if that gains, else dropped.
    ValidIfGain,
    /// All items are copied if the segment is read much, else dropped: wear leveling.
    ValidIfReadMuch,
    /// All items are copied for the sake of wear leveling.
    ValidForWear,
    /// Items read since they were written go back to memory.
    Return,
}

/// Segments to try for, in this order; the first there is is reclaimed.
pub(crate) type Choices = [Option<(Pick, Keep)>; 2];

const NOTHING: Choices = [None, None];

const fn only(victim: Victim, keep: Keep) -> Choices {
    [Some((Pick::Victim(victim, u64::MAX), keep)), None]
}

fn keep_if(condition: bool, keep: Keep) -> Keep {
    if condition { keep } else { Keep::Nothing }
}

fn level_wear(may_copy: bool) -> Option<(Pick, Keep)> {
    Some((Pick::LeastWorn, keep_if(may_copy, Keep::ValidIfReadMuch)))
}

/// What has to be reclaimed now.
pub(crate) fn choose(policy: ReclaimPolicy, view: &FlashView) -> Choices {
    if !view.is_recovering {
        return choose_recovered(policy, view);
    }
    if view.free > view.reserved {
        // Only writes that stall are worth what has not been found yet.
        return NOTHING;
    }
    // In order of age: how much of a segment is valid is not known yet.
    choose_recovered(policy, view).map(|choice| match choice {
        Some((Pick::Victim(..), keep)) => Some((Pick::Victim(Victim::Oldest, u64::MAX), keep)),
        Some((Pick::LeastWorn, _)) | None => None,
    })
}

/// What has to be reclaimed where the index names all that lives.
fn choose_recovered(policy: ReclaimPolicy, view: &FlashView) -> Choices {
    if view.free_or_reclaiming >= view.target && !view.is_index_short {
        // What is there when the cache stops is to be there when it starts.
        let leveling = !view.is_stopping;
        let choice = leveling.then(|| level_wear(view.free >= view.low));
        return [choice.flatten(), None];
    }
    if view.is_index_short || view.is_stopping {
        return only(policy.victim(), Keep::Nothing);
    }
    if let Some(victim) = policy.under_pressure()
        && view.free + view.dropping < view.low
    {
        return only(victim, Keep::Nothing);
    }
    match policy {
        ReclaimPolicy::Drop { victim } => only(victim, Keep::Nothing),
        ReclaimPolicy::ReturnRecent { victim } => only(victim, Keep::Return),
        // Its segment is dead as soon as it is taken: what is copied of it is nowhere until it is written.
        ReclaimPolicy::CopyRecent { .. } if view.copies_wait => NOTHING,
        ReclaimPolicy::CopyRecent { victim, .. } => {
            let recent = Keep::Recent(view.max_copy_bytes);
            only(victim, keep_if(view.copies_gain, recent))
        }
        ReclaimPolicy::CopyValid { victim, .. } => {
            let keep = keep_if(view.copies_gain, Keep::ValidIfGain);
            [level_wear(true), only(victim, keep)[0]]
        }
        ReclaimPolicy::Integrated { .. } => {
            let max_valid = u64::from(view.copies_gain) * view.max_copy_bytes;
            let gains = (Pick::Victim(Victim::FewestValid, max_valid), Keep::Valid);
            [level_wear(true), (!view.copying_rests).then_some(gains)]
        }
    }
}

/// What becomes of the items of the segment that was picked.
pub(crate) fn keep(
    policy: ReclaimPolicy,
    keep: Keep,
    max_copy_bytes: u64,
    segment: &SegmentView,
) -> Keep {
    match keep {
        Keep::ValidIfReadMuch => keep_if(segment.is_read_much, Keep::ValidForWear),
        Keep::ValidIfGain => {
            let bytes = match policy.victim() {
                Victim::Oldest | Victim::LeastRecentlyRead => segment.average_valid_bytes,
                Victim::FewestValid => segment.valid_bytes,
            };
            keep_if(bytes <= max_copy_bytes, Keep::Valid)
        }
        decided => decided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY_RECENT: ReclaimPolicy = ReclaimPolicy::CopyRecent {
        victim: Victim::Oldest,
        max_copy_sixteenths: 8,
    };
    const COPY_VALID: ReclaimPolicy = ReclaimPolicy::CopyValid {
        victim: Victim::Oldest,
        max_copy_sixteenths: 15,
    };
    const INTEGRATED: ReclaimPolicy = ReclaimPolicy::Integrated {
        max_copy_sixteenths: 12,
        under_pressure: Victim::LeastRecentlyRead,
    };
    const DROP_OLDEST: Choices = only(Victim::Oldest, Keep::Nothing);
    /// Between the watermarks.
    const VIEW: FlashView = FlashView {
        free: 20,
        free_or_reclaiming: 21,
        dropping: 0,
        low: 10,
        target: 40,
        reserved: 2,
        is_index_short: false,
        is_recovering: false,
        is_stopping: false,
        copies_gain: true,
        copies_wait: false,
        copying_rests: false,
        max_copy_bytes: 1000,
    };

    #[test]
    fn with_enough_free_only_wear_is_leveled() {
        let enough = FlashView {
            free: 40,
            free_or_reclaiming: 40,
            ..VIEW
        };
        for policy in [COPY_RECENT, COPY_VALID, INTEGRATED] {
            let leveling = [Some((Pick::LeastWorn, Keep::ValidIfReadMuch)), None];
            assert_eq!(choose(policy, &enough), leveling);
            let stopping = FlashView {
                is_stopping: true,
                ..enough
            };
            assert_eq!(choose(policy, &stopping), NOTHING);
            let short = |view| FlashView {
                is_index_short: true,
                ..view
            };
            for view in [short(enough), short(stopping)] {
                assert_eq!(choose(policy, &view), only(policy.victim(), Keep::Nothing));
            }
        }
    }

    #[test]
    fn below_the_low_watermark_segments_are_dropped_unless_writes_stall() {
        let pressed = FlashView { free: 9, ..VIEW };
        assert_eq!(choose(COPY_RECENT, &pressed), DROP_OLDEST);
        let quick_clean = only(Victim::LeastRecentlyRead, Keep::Nothing);
        assert_eq!(choose(INTEGRATED, &pressed), quick_clean);
        let one_is_being_dropped = FlashView {
            dropping: 1,
            ..pressed
        };
        assert_ne!(choose(INTEGRATED, &one_is_being_dropped), quick_clean);
        let [_, copies] = choose(COPY_VALID, &pressed);
        assert_eq!(copies, only(Victim::Oldest, Keep::ValidIfGain)[0]);
    }

    #[test]
    fn while_copies_wait_to_be_written_no_more_are_made_unless_space_is_short() {
        let waiting = FlashView {
            copies_wait: true,
            ..VIEW
        };
        assert_eq!(choose(COPY_RECENT, &waiting), NOTHING);
        let pressed = FlashView { free: 9, ..waiting };
        assert_eq!(choose(COPY_RECENT, &pressed), DROP_OLDEST);
    }

    #[test]
    fn what_recovery_has_not_found_yet_goes_only_for_writes_that_stall() {
        let recovering = FlashView {
            is_recovering: true,
            ..VIEW
        };
        assert_eq!(choose(COPY_RECENT, &recovering), NOTHING);
        let stalled = FlashView {
            free: 2,
            ..recovering
        };
        // The oldest, whatever the policy picks otherwise.
        assert_eq!(choose(COPY_RECENT, &stalled), DROP_OLDEST);
        assert_eq!(choose(INTEGRATED, &stalled), DROP_OLDEST);
    }

    #[test]
    fn copying_has_to_gain() {
        let full = SegmentView {
            valid_bytes: 1001,
            average_valid_bytes: 900,
            is_read_much: true,
        };
        let of = |policy, kept| keep(policy, kept, VIEW.max_copy_bytes, &full);
        let by_average = of(COPY_VALID, Keep::ValidIfGain);
        assert_eq!(by_average, Keep::Valid);
        let greedy = ReclaimPolicy::CopyValid {
            victim: Victim::FewestValid,
            max_copy_sixteenths: 15,
        };
        assert_eq!(of(greedy, Keep::ValidIfGain), Keep::Nothing, "by its own");
        assert_eq!(of(INTEGRATED, Keep::ValidIfReadMuch), Keep::ValidForWear);
        let costly = FlashView {
            copies_gain: false,
            ..VIEW
        };
        assert_eq!(choose(COPY_RECENT, &costly), DROP_OLDEST);
        let [_, empty_ones] = choose(INTEGRATED, &costly);
        let none_valid = Pick::Victim(Victim::FewestValid, 0);
        assert_eq!(empty_ones, Some((none_valid, Keep::Valid)));
        let resting = FlashView {
            copying_rests: true,
            ..VIEW
        };
        assert_eq!(choose(INTEGRATED, &resting)[1], None);
    }
}
