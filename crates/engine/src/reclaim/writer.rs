//! Writing sealed segments, and what becomes of one that could not be written.

use super::upkeep::Upkeep;
use super::{Named, Resident, Residents};
use crate::counter::Count as _;
use crate::format::journal::Record;
use crate::format::segment::SummaryEntry;
use crate::store::WriteFailure;

impl Upkeep {
    /// Writes the sealed segment whose turn it is; false when none waits.
    pub(crate) async fn write_one(&self, residents: &dyn Residents) -> bool {
        match self.store.write_next().await {
            Some(Ok(_)) => {}
            Some(Err(failure)) => self.give_up(residents, failure).await,
            None => return false,
        }
        self.progress.notify_all();
        true
    }

    /// Moves what a segment that could not be written holds to another, or forgets it.
    async fn give_up(&self, residents: &dyn Residents, failure: WriteFailure) {
        let record = failure.record;
        // Parts of the segment may be on flash all the same: no start may find them.
        self.declare_segment_dead(&record);
        let of = |entry: &SummaryEntry| Resident::of(&record, entry);
        let is_moved = self.store.move_elsewhere(
            &failure,
            |entry| residents.check(&of(entry), &mut |_| true) == Named::Kept,
            |entry, place| {
                if !residents.moved(&of(entry), place) {
                    self.displace(place);
                }
            },
        );
        let mut lost = 0;
        for entry in &failure.entries {
            let removed = residents.check(&of(entry), &mut |_| false) == Named::Removed;
            lost += u64::from(removed);
        }
        self.counters.items_lost.add(lost);
        tracing::warn!(
            segment = record.segment.0,
            items = record.items,
            lost,
            error = %failure.error,
            "a segment could not be written"
        );
        if self.store.abandon(failure, is_moved).await {
            let segment = record.segment.0;
            self.journal.append(Record::Retired { segment });
        }
    }
}
