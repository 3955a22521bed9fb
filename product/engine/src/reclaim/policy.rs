//! Reclaim policies: which segment goes next and which of its items stay, as pure functions of a view of the flash.
//!
//! | policy | segment | its items |
//! |---|---|---|
//! | drop | as configured | dropped |
//! | copy recent | as configured | items read since they were written are copied, up to a bound |
//! | copy promoted | the oldest of the lowest priority | items promoted since they were written are copied, all of them |
//! | copy valid, by age or by reads | as configured | all valid items are copied if that gains space; writes stall meanwhile |
//! | copy valid, fewest valid bytes | one of which copying gains space | all valid items are copied; writes stall meanwhile |
//! | integrated | fewest valid bytes, if that gains enough | all valid items are copied |
//! | return recent | as configured | items read since they were written go back to memory |
//! | take back | the oldest | items read while they were old go back to memory, up to a bound |
//!
//! Below the low watermark, policies that do not make writes wait drop whole segments: `DIDACache`, TOS 2018, section
//! 4.1.3. Between the watermarks, the gain that a copy needs depends on how short space is. If victims are taken in
//! order of age, one may be all valid though others are nearly empty; so the average of all segments says whether
//! copying gains.

use crate::settings::ReclaimPolicy;
use crate::store::{SegmentReads, SegmentRecord, Victim, Wear};

/// Wear leveling moves at most the segments divided by this in one round, least worn first.
const LEVELED_SHARE: usize = 4;
/// Exponent in the bound on copied bytes, which rises with the shortage of free segments. If the bound were
/// proportional to it, a quarter of the segments between the watermarks would be held free of items when the emptiest
/// segments are three quarters valid.
const GRADE: i32 = 4;
/// With fewer reads of the average segment, segments that are seldom read cannot be told apart.
const ENOUGH_READS: u64 = 64;
/// A segment is seldom read if it has had less than the reads of the average segment divided by this.
const SELDOM_SHARE: u64 = 16;

/// View of the flash that a policy has before a segment is picked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlashView {
    pub(crate) free: u32,
    /// Number of free segments and segments being reclaimed.
    pub(crate) free_or_reclaiming: u32,
    pub(crate) dropping: u32,
    /// The low free-segment watermark: reclaim is urgent below it.
    pub(crate) low: u32,
    /// Number of free segments at which reclaim stops.
    pub(crate) target: u32,
    /// Number of free segments that only copies may open.
    pub(crate) reserved: u32,
    /// Number of segments reclaimed at once.
    pub(crate) reclaimers: u32,
    /// Whether the index has next to no space left; in a cache that stops, none.
    pub(crate) is_index_short: bool,
    /// Whether recovery is in progress: items that it has not found yet cannot be kept.
    pub(crate) is_recovering: bool,
    /// Whether an orderly stop has begun.
    pub(crate) is_stopping: bool,
    /// Whether the last copies have gained more space than they took.
    pub(crate) copies_gain: bool,
    /// Whether a search found no segment worth copying from a short while ago, and little has been written since.
    pub(crate) copying_rests: bool,
    /// Maximum bytes of a segment that are kept.
    pub(crate) max_copy_bytes: u64,
}

/// View of the picked segment that a policy has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentView {
    /// Bytes of the segment's items that the index names.
    pub(crate) valid_bytes: u64,
    /// Average valid bytes of all written segments, if victims that are copied are taken by age.
    pub(crate) average_valid_bytes: Option<u64>,
    /// How the segment is read; `None` if reads are not counted.
    pub(crate) reads: Option<SegmentReads>,
}

/// The segment to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// The first victim in this order among segments with at most this many valid bytes.
    Victim(Victim, u64),
    /// A segment that wear leveling has marked to be erased.
    LeastWorn,
}

/// Which items that the index still names are kept, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// All items are dropped.
    Nothing,
    /// Items read since they were written are copied, up to this many bytes.
    Recent(u64),
    /// All items are copied.
    Valid,
    /// All items are copied if that gains space, else dropped.
    ValidIfGain,
    /// All items are copied for wear leveling, unless the segment is known to be seldom read.
    ValidUnlessSeldomRead,
    /// All items are copied for wear leveling.
    ValidForWear,
    /// Items read since they were written go back to memory.
    Return,
    /// Items read while they were old go back to memory, up to this many sixteenths of the segment.
    Old(u32),
}

impl Keep {
    /// Returns whether any items may be copied to another segment.
    pub(crate) fn may_copy(self) -> bool {
        match self {
            Self::Nothing | Self::Return | Self::Old(_) | Self::Recent(0) => false,
            Self::Recent(_)
            | Self::Valid
            | Self::ValidIfGain
            | Self::ValidUnlessSeldomRead
            | Self::ValidForWear => true,
        }
    }
}

/// Segments to try, in this order; the first one available is reclaimed.
pub(crate) type Choices = [Option<(Pick, Keep)>; 2];

const NOTHING: Choices = [None, None];

const fn only(victim: Victim, keep: Keep) -> Choices {
    [Some((Pick::Victim(victim, u64::MAX), keep)), None]
}

fn keep_if(condition: bool, keep: Keep) -> Keep {
    if condition { keep } else { Keep::Nothing }
}

/// Returns the choice of wear leveling. It waits while free segments are short, and while the cache stops, which is to
/// keep its items for the next start. It drops nothing while there is enough space.
fn level_wear(view: &FlashView) -> Option<(Pick, Keep)> {
    let keep = if view.free_or_reclaiming < least_above(view) {
        Keep::ValidUnlessSeldomRead
    } else {
        Keep::ValidForWear
    };
    let may = view.free >= view.low && !view.is_stopping;
    may.then_some((Pick::LeastWorn, keep))
}

/// Combines the reclaim that gains space with wear leveling. Leveling goes first while copies are still limited by the
/// shortage of space. Afterwards it must not use up free segments: it goes last, and only if no other reclaim is
/// running.
fn beside_leveling(view: &FlashView, gains: Option<(Pick, Keep)>) -> Choices {
    let level = level_wear(view);
    if view.free_or_reclaiming >= least_above(view) {
        return [level, gains];
    }
    let is_alone = view.free_or_reclaiming == view.free;
    [gains, level.filter(|_| is_alone)]
}

/// Returns the written segments that a round of wear leveling moves, least worn first, at most a share of all
/// `segments`. A segment qualifies if its blocks have had less than half as many erases of use as the average block, or
/// more than `round` erases fewer than the most worn block. `round` is the number of erases of the average block
/// between two rounds.
pub(crate) fn least_worn(
    wear: &Wear,
    round: u32,
    mut written: Vec<(SegmentRecord, u64)>,
    segments: u32,
) -> Vec<SegmentRecord> {
    written.retain(|&(_, erases)| {
        let (erases, mean, round) = (erases as f64, wear.mean, f64::from(round));
        2.0 * erases < mean || erases + round < wear.most as f64
    });
    written.sort_by_key(|&(record, erases)| (erases, record.sequence));
    let most = (segments as usize / LEVELED_SHARE).max(1);
    let moved = written.into_iter().take(most);
    moved.map(|(record, _)| record).collect()
}

/// Returns whether a segment is known to be read far less than others.
fn is_seldom_read(reads: &SegmentReads) -> bool {
    reads.is_settled && reads.average >= ENOUGH_READS && reads.reads < reads.average / SELDOM_SHARE
}

/// Returns the number of free segments at which copies are no longer limited: as far above the low watermark as there
/// are reclaimers, but at most half way up to the target.
fn least_above(view: &FlashView) -> u32 {
    (view.low + view.reclaimers).min(view.low.midpoint(view.target))
}

/// Returns the most bytes of a segment to copy, by the shortage of free segments: none at the high watermark, next to
/// nothing just below it, and the maximum once only as many segments are left above the low watermark as reclaimers can
/// work on, so that it is not reached while they work. Items that are copied late have had time to die.
fn graded(view: &FlashView) -> u64 {
    let least = least_above(view);
    let missing = view.target.saturating_sub(view.free_or_reclaiming);
    let apart = view.target.saturating_sub(least).max(1);
    let share = f64::from(missing.min(apart)) / f64::from(apart);
    (view.max_copy_bytes as f64 * share.powi(GRADE)) as u64
}

/// Returns the segments to reclaim now.
pub(crate) fn choose(policy: ReclaimPolicy, view: &FlashView) -> Choices {
    if !view.is_recovering {
        return choose_recovered(policy, view);
    }
    if view.free > view.reserved {
        // Only stalled writes are worth items that recovery has not found yet.
        return NOTHING;
    }
    // In order of age: the valid bytes of segments are not known yet.
    choose_recovered(policy, view).map(|choice| match choice {
        Some((Pick::Victim(..), keep)) => Some((Pick::Victim(Victim::Oldest, u64::MAX), keep)),
        Some((Pick::LeastWorn, _)) | None => None,
    })
}

/// Returns the segments to reclaim when the index names every live item.
fn choose_recovered(policy: ReclaimPolicy, view: &FlashView) -> Choices {
    if view.free_or_reclaiming >= view.target && !view.is_index_short {
        return [level_wear(view), None];
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
        ReclaimPolicy::TakeBack { most_sixteenths } => {
            only(policy.victim(), Keep::Old(most_sixteenths))
        }
        ReclaimPolicy::CopyRecent { victim, .. } => {
            let recent = Keep::Recent(view.max_copy_bytes);
            only(victim, keep_if(view.copies_gain, recent))
        }
        // Bounded by reads: a copy is not promoted again before it is read.
        ReclaimPolicy::CopyPromoted => only(Victim::LowestPriority, Keep::Recent(u64::MAX)),
        ReclaimPolicy::CopyValid {
            victim: Victim::FewestValid,
            ..
        } => {
            let gains = |max_valid| {
                (
                    Pick::Victim(Victim::FewestValid, max_valid),
                    Keep::ValidIfGain,
                )
            };
            if view.free_or_reclaiming > view.reserved {
                let gains = (view.copies_gain && !view.copying_rests).then(|| gains(graded(view)));
                return beside_leveling(view, gains);
            }
            // Writes stall, and the segments being reclaimed will not let them go on. Nothing is overwritten any more,
            // so if no segment gains now, none ever will.
            let gains = view.copies_gain.then(|| gains(view.max_copy_bytes));
            [gains, only(Victim::FewestValid, Keep::Nothing)[0]]
        }
        ReclaimPolicy::CopyValid { victim, .. } => {
            let keep = keep_if(view.copies_gain, Keep::ValidIfGain);
            [level_wear(view), only(victim, keep)[0]]
        }
        ReclaimPolicy::Integrated { .. } => {
            let max_valid = u64::from(view.copies_gain) * graded(view);
            let gains = (Pick::Victim(Victim::FewestValid, max_valid), Keep::Valid);
            beside_leveling(view, (!view.copying_rests).then_some(gains))
        }
    }
}

/// Decides which items of the picked segment are kept, and how.
pub(crate) fn keep(keep: Keep, max_copy_bytes: u64, segment: &SegmentView) -> Keep {
    match keep {
        Keep::ValidUnlessSeldomRead => {
            let is_seldom_read = segment.reads.as_ref().is_some_and(is_seldom_read);
            keep_if(!is_seldom_read, Keep::ValidForWear)
        }
        Keep::ValidIfGain => {
            // By the average: one segment may be all valid though the next ones are nearly empty.
            let bytes = segment.average_valid_bytes.unwrap_or(segment.valid_bytes);
            keep_if(bytes <= max_copy_bytes, Keep::Valid)
        }
        decided => decided,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::segment::SegmentId;
    use proptest::prelude::*;

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
    /// A view between the watermarks.
    const VIEW: FlashView = FlashView {
        free: 20,
        free_or_reclaiming: 21,
        dropping: 0,
        low: 10,
        target: 40,
        reserved: 2,
        reclaimers: 0,
        is_index_short: false,
        is_recovering: false,
        is_stopping: false,
        copies_gain: true,
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
            let leveling = [Some((Pick::LeastWorn, Keep::ValidForWear)), None];
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
    fn leveling_waits_while_free_segments_are_short() {
        for policy in [COPY_VALID, INTEGRATED] {
            let leveling = Some((Pick::LeastWorn, Keep::ValidForWear));
            let half_way = FlashView {
                free: 25,
                free_or_reclaiming: 25,
                ..VIEW
            };
            assert_eq!(choose(policy, &half_way)[0], leveling);
            let short = FlashView {
                free: 9,
                dropping: 1,
                ..VIEW
            };
            let picks = choose(policy, &short).into_iter().flatten();
            assert!(picks.into_iter().all(|(pick, _)| pick != Pick::LeastWorn));
        }
    }

    #[test]
    fn where_all_that_may_be_is_copied_leveling_comes_last_and_alone() {
        let short = FlashView {
            reclaimers: 5,
            free: 12,
            free_or_reclaiming: 14,
            ..VIEW
        };
        let alone = FlashView { free: 14, ..short };
        let [gains, last] = choose(INTEGRATED, &alone);
        assert!(matches!(gains, Some((Pick::Victim(..), Keep::Valid))));
        assert_eq!(last, Some((Pick::LeastWorn, Keep::ValidUnlessSeldomRead)));
        let others_reclaim = choose(INTEGRATED, &short);
        assert_eq!(others_reclaim, [gains, None]);
    }

    #[test]
    fn leveling_drops_only_what_is_known_to_be_seldom_read() {
        let much = SegmentReads {
            reads: 3,
            average: 64,
            is_settled: true,
        };
        let of = |reads| {
            let segment = SegmentView {
                valid_bytes: 900,
                average_valid_bytes: None,
                reads,
            };
            keep(Keep::ValidUnlessSeldomRead, 1000, &segment)
        };
        assert_eq!(of(Some(much)), Keep::Nothing);
        let young = SegmentReads {
            is_settled: false,
            ..much
        };
        let as_others = SegmentReads { reads: 4, ..much };
        let few = SegmentReads {
            reads: 0,
            average: 63,
            ..much
        };
        let none = SegmentReads { average: 0, ..few };
        let unsure = [young, as_others, few, none].map(Some);
        for reads in unsure.into_iter().chain([None]) {
            assert_eq!(of(reads), Keep::ValidForWear, "{reads:?}");
        }
    }

    #[test]
    fn a_round_of_leveling_moves_a_share_of_the_segments_the_least_worn_first() {
        let record = |number: u32| SegmentRecord {
            segment: SegmentId(number),
            sequence: u64::from(100 - number),
            items: 1,
            slot_bytes: 0,
            data_bytes: 0,
        };
        let written = |erases: &[u64]| (0..).map(record).zip(erases.iter().copied()).collect();
        let moved = |mean, most, erases: &[u64], segments| -> Vec<u32> {
            let wear = Wear {
                least: 0,
                most,
                mean,
            };
            let moved = least_worn(&wear, 2, written(erases), segments);
            moved.iter().map(|record| record.segment.0).collect()
        };
        let erases = [1, 2, 0, 4, 1];
        assert_eq!(moved(4.0, 4, &erases, 100), [2, 4, 0], "half of it");
        assert_eq!(moved(4.0, 4, &erases, 8), [2, 4], "a quarter");
        assert_eq!(moved(4.0, 4, &[1, 0], 3), [1], "one at least");
        let behind = moved(6.0, 13, &[8, 9, 11, 13], 100);
        assert_eq!(behind, [0, 1], "a round behind the most worn");
        assert!(moved(0.0, 0, &[0; 8], 8).is_empty(), "filled once");
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

    proptest! {
        /// Section 4.3 of `SlickCache`: below the low watermark the oldest segment is dropped, between the two its hot
        /// items are copied, and above the high one nothing is done.
        #[test]
        fn the_two_phases_are_told_by_what_is_free(
            free in 0u32..80,
            being_dropped in 0u32..4,
            being_copied in 0u32..4,
            low in 1u32..30,
            apart in 1u32..40,
            sixteenths in 1u32..16,
        ) {
            let policy = COPY_RECENT.with_max_copy(sixteenths);
            let view = FlashView {
                free,
                free_or_reclaiming: free + being_dropped + being_copied,
                dropping: being_dropped,
                low,
                target: low + apart,
                reserved: 0,
                reclaimers: 8,
                ..VIEW
            };
            let hot = Keep::Recent(view.max_copy_bytes);
            let expected = if view.free_or_reclaiming >= view.target {
                [level_wear(&view), None]
            } else if free + being_dropped < low {
                DROP_OLDEST
            } else {
                only(Victim::Oldest, hot)
            };
            prop_assert_eq!(choose(policy, &view), expected);
        }
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
        // The oldest segment, whatever else the policy picks.
        assert_eq!(choose(COPY_RECENT, &stalled), DROP_OLDEST);
        assert_eq!(choose(INTEGRATED, &stalled), DROP_OLDEST);
    }

    #[test]
    fn what_a_copy_has_to_gain_depends_on_how_short_space_is() {
        let most = |free_or_reclaiming, free, dropping| {
            let view = FlashView {
                free,
                free_or_reclaiming,
                dropping,
                ..VIEW
            };
            let mut choices = choose(INTEGRATED, &view).into_iter().flatten();
            let gains = choices.find(|(pick, _)| *pick != Pick::LeastWorn);
            assert!(matches!(gains, Some((_, Keep::Valid))), "{gains:?}");
            gains.map(|(pick, _)| pick)
        };
        let bytes = |bytes| Some(Pick::Victim(Victim::FewestValid, bytes));
        assert_eq!(most(39, 39, 0), bytes(0), "nearly enough");
        assert_eq!(most(25, 20, 0), bytes(62), "half way");
        assert_eq!(most(10, 10, 0), bytes(1000), "the low watermark");
        assert_eq!(most(5, 5, 5), bytes(1000), "below it, others being dropped");
        let many = FlashView {
            reclaimers: 11,
            ..VIEW
        };
        assert_eq!(graded(&many), 1000, "as many in work are left above it");
        let more = FlashView {
            reclaimers: 30,
            free_or_reclaiming: 26,
            ..many
        };
        assert_eq!(graded(&more), 758, "no more than half way up");
        let crossed = FlashView { low: 50, ..VIEW };
        let dropped = choose(INTEGRATED, &crossed);
        assert_eq!(dropped, only(Victim::LeastRecentlyRead, Keep::Nothing));
    }

    #[test]
    fn what_copies_only_takes_what_gains_and_drops_when_writes_stall_for_ever() {
        let greedy = ReclaimPolicy::CopyValid {
            victim: Victim::FewestValid,
            max_copy_sixteenths: 15,
        };
        let gains = |bytes| Some((Pick::Victim(Victim::FewestValid, bytes), Keep::ValidIfGain));
        assert_eq!(choose(greedy, &VIEW)[1], gains(160));
        let below = FlashView {
            free: 5,
            free_or_reclaiming: 5,
            ..VIEW
        };
        assert_eq!(choose(greedy, &below)[0], gains(1000), "writes go on");
        let resting = FlashView {
            copying_rests: true,
            ..below
        };
        assert_eq!(choose(greedy, &resting), NOTHING);
        let stalled = FlashView {
            free: 2,
            free_or_reclaiming: 2,
            ..resting
        };
        let drop_one = only(Victim::FewestValid, Keep::Nothing)[0];
        assert_eq!(choose(greedy, &stalled), [gains(1000), drop_one]);
        let others_copy = FlashView {
            free: 0,
            free_or_reclaiming: 3,
            ..below
        };
        assert_eq!(choose(greedy, &others_copy), [gains(1000), None]);
        let costly = FlashView {
            copies_gain: false,
            ..stalled
        };
        assert_eq!(choose(greedy, &costly), [None, drop_one]);
    }

    #[test]
    fn what_is_promoted_is_copied_whatever_that_takes_and_dropped_under_pressure() {
        let costly = FlashView {
            copies_gain: false,
            ..VIEW
        };
        let copies = only(Victim::LowestPriority, Keep::Recent(u64::MAX));
        assert_eq!(choose(ReclaimPolicy::CopyPromoted, &costly), copies);
        let pressed = FlashView { free: 9, ..costly };
        let drops = only(Victim::LowestPriority, Keep::Nothing);
        assert_eq!(choose(ReclaimPolicy::CopyPromoted, &pressed), drops);
    }

    #[test]
    fn copying_has_to_gain() {
        let full = SegmentView {
            valid_bytes: 1001,
            average_valid_bytes: Some(900),
            reads: None,
        };
        let of = |segment| keep(Keep::ValidIfGain, VIEW.max_copy_bytes, &segment);
        assert_eq!(of(full), Keep::Valid, "by the average");
        let alone = SegmentView {
            average_valid_bytes: None,
            ..full
        };
        assert_eq!(of(alone), Keep::Nothing, "by its own");
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
