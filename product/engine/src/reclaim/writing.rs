//! [`Writing`]: writes sealed segments, and handles segments that could not be written.

use std::sync::Arc;

use device::DeviceError;

use super::refusals::{Failures, Line, Refusals};
use super::upkeep::{Upkeep, UpkeepPlan};
use super::{Named, Resident, Residents};
use crate::counter::Count as _;
use crate::format::item::ItemRef;
use crate::format::journal::Record;
use crate::format::segment::{Position, SegmentId, SummaryEntry};
use crate::store::{Unflushed, WriteFailure};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU32, Ordering};

/// The writing of segments. No segment is written before the deaths recorded so far are durable.
pub(crate) struct Writing {
    upkeep: Arc<Upkeep>,
    /// Segments written at once.
    pub(crate) writers: usize,
    /// Free buffers below which sealed segments are written; `None` writes them at once.
    spare_buffers: Option<usize>,
    /// Number of callers for whom sealed segments are written whatever the schedule says.
    syncing: AtomicU32,
    refusals: Mutex<Refusals>,
}

impl Writing {
    pub(super) fn new(upkeep: Arc<Upkeep>, plan: &UpkeepPlan) -> Self {
        Self {
            spare_buffers: plan
                .spare_buffers
                .map(|spare| spare + upkeep.store.buffers().buffers_for_writes()),
            upkeep,
            writers: plan.writers,
            syncing: AtomicU32::new(0),
            refusals: Mutex::new(Refusals::default()),
        }
    }

    /// Returns whether a sealed segment is to be written now.
    pub(crate) fn writes_now(&self) -> bool {
        if self.syncing.load(Ordering::SeqCst) > 0 {
            return true;
        }
        // A segment that stays in memory cannot be reclaimed.
        let may_wait = |_: &usize| {
            !self.upkeep.is_stopping.load(Ordering::SeqCst)
                && self.upkeep.store.pool().counts().free > self.upkeep.free_segments.reserved()
                && self.upkeep.store.pool().counts().free
                    >= self.upkeep.free_segments.watermarks().low
        };
        let spare = self.spare_buffers.filter(may_wait);
        // Writes go on in proportion to the missing buffers, since all writers are woken alike.
        let are_missing = |spare: usize| {
            let missing = spare.saturating_sub(self.upkeep.store.buffers().free_buffers());
            self.upkeep.store.pool().counts().writing as usize * spare < missing * self.writers
        };
        self.upkeep.works_in_background() && spare.is_none_or(are_missing)
    }

    /// With true, makes writers write every sealed segment, whatever the schedule says, until a matching call with
    /// false.
    pub(crate) fn writes_all(&self, yes: bool) {
        if yes {
            self.syncing.fetch_add(1, Ordering::SeqCst);
        } else {
            self.syncing.fetch_sub(1, Ordering::SeqCst);
        }
        self.upkeep.store.pool().work().notify_all();
    }

    /// Writes the sealed segment whose turn it is. Returns false if none waits.
    pub(crate) async fn write_one(&self, residents: &dyn Residents) -> bool {
        let ahead = async || self.upkeep.sync_deaths().await;
        let written = self.upkeep.store.writer().write_next(ahead).await;
        self.note_written(residents, written).await
    }

    /// Writes the next sealed segment with copies. Returns false if none waits.
    pub(super) async fn write_sealed_copies(&self, residents: &dyn Residents) -> bool {
        let ahead = async || self.upkeep.sync_deaths().await;
        let written = self.upkeep.store.writer().write_copies(ahead).await;
        self.note_written(residents, written).await
    }

    /// Handles the outcome of writing a sealed segment. Returns false if none waited.
    async fn note_written(
        &self,
        residents: &dyn Residents,
        written: Option<Result<SegmentId, WriteFailure>>,
    ) -> bool {
        match written {
            Some(Ok(_)) => self.tell_success(),
            Some(Err(failure)) => self.give_up(residents, failure).await,
            None => return false,
        }
        self.upkeep.progress.notify_all();
        true
    }

    /// Writes the items of the segments being filled to flash.
    pub(crate) async fn flush_filling(&self, which: Unflushed) -> Result<(), DeviceError> {
        let ahead = async || self.upkeep.sync_deaths().await;
        self.upkeep
            .store
            .flusher()
            .flush_filling(which, ahead)
            .await
    }

    /// Moves the items of a segment that could not be written to another segment, or forgets them.
    async fn give_up(&self, residents: &dyn Residents, failure: WriteFailure) {
        let record = failure.record;
        // Parts of the segment may be on flash all the same; no start may find them.
        self.upkeep.declare_segment_dead(&record);
        let of = |entry: &SummaryEntry| Resident::of(&record, entry);
        let bytes = self.upkeep.store.buffers().bytes_of(&failure);
        let is_moved = self.upkeep.store.appender().move_elsewhere(
            &failure,
            |entry| residents.check(&of(entry), &mut |_| true) == Named::Kept,
            |entry, place| {
                if !residents.moved(&of(entry), place) {
                    self.upkeep.displace(place);
                }
            },
        );
        let memory = self.upkeep.free_segments.memory.get();
        let is_in_memory = |entry: &SummaryEntry| {
            let offset = Position::from_bits(entry.position.get()).offset();
            let item = bytes.as_ref()?.get(offset as usize..)?;
            let item = ItemRef::decode(item, record.sequence, offset).ok()?;
            Some(memory.as_ref()?.holds(&of(entry), item.key))
        };
        // An index of runs forgets nothing: reads find that the segment is gone.
        let (mut lost, mut unplaced) = (
            u64::from(self.upkeep.store.table().unlisted.of(record.segment)),
            0,
        );
        for entry in &failure.entries {
            if residents.check(&of(entry), &mut |_| false) == Named::Removed {
                match is_in_memory(entry) {
                    Some(true) => unplaced += 1,
                    _ => lost += 1,
                }
            }
        }
        drop(bytes);
        self.upkeep.counters.items_lost.add(lost);
        self.upkeep.counters.items_unplaced.add(unplaced);
        self.tell_failure(&failure, lost);
        if self.upkeep.store.writer().abandon(failure, is_moved).await {
            let segment = record.segment.0;
            self.upkeep.journal.append(Record::Retired { segment });
        }
    }

    /// Logs that a segment could not be written, if a line is due.
    fn tell_failure(&self, failure: &WriteFailure, lost: u64) {
        let due = self.refusals.lock().note_failure(lost, runtime::now());
        let (segment, error) = (failure.record.segment.0, &failure.error);
        match due {
            Some(Line::Begins) => tracing::error!(
                segment,
                items = failure.record.items,
                lost,
                %error,
                "a segment could not be written; further ones are counted, and told every ten seconds"
            ),
            Some(Line::GoesOn(Failures {
                segments,
                items_lost,
            })) => tracing::error!(
                segments,
                lost = items_lost,
                %error,
                "segments could not be written"
            ),
            Some(Line::IsOver(_)) | None => {}
        }
    }

    /// Logs that segments are written again, if a line is due.
    fn tell_success(&self) {
        let due = self.refusals.lock().note_success(runtime::now);
        if let Some(Line::IsOver(Failures {
            segments,
            items_lost,
        })) = due
        {
            tracing::warn!(
                failed = segments,
                lost = items_lost,
                "segments are written again"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use device::{Latency, MemoryDisk, MemoryJournal};
    use runtime::sim::Sim;

    use super::*;
    use crate::settings::{Dram, WriteSettings};
    use crate::store::tests::append;
    use crate::{Engine, EngineConfig, Opening};

    const WRITERS: usize = 6;
    const BUFFERS: usize = 16;
    /// Configured spare buffers. An eighth of all buffers is left to writes beside them.
    const SPARE_BUFFERS: usize = 7;
    const ALL_SPARE: usize = SPARE_BUFFERS + BUFFERS / 8;

    /// Opens an engine without background tasks, whose writes take a second.
    async fn open() -> Arc<Engine> {
        let latency = Latency {
            write: Duration::from_secs(1),
            ..Latency::default()
        };
        let config = EngineConfig {
            memory_bytes: 16 << 20,
            segment_bytes: Some(256 << 10),
            partition_bits: 1,
            max_value_bytes: 100_000,
            dram: Dram::WriteBuffers {
                spare_buffers: Some(SPARE_BUFFERS),
            },
            write_back: None,
            writing: WriteSettings {
                writers: WRITERS,
                buffers: BUFFERS,
                ..EngineConfig::default().writing
            },
            ..EngineConfig::default()
        };
        let journal = Arc::new(MemoryJournal::from_words(vec![0; 512 + 16 * 8192]));
        let disk = MemoryDisk::with_latency(64 << 20, latency);
        let opening = Opening::new(Arc::new(disk) as Arc<dyn device::Disk>, config);
        opening.open(move || Ok(journal)).await.unwrap()
    }

    #[test]
    fn segments_are_written_in_proportion_to_the_spare_buffers_that_are_missing() {
        Sim::new(1).block_on(async {
            let engine = open().await;
            let upkeep = &engine.tiers.flash.upkeep;
            let mut begun = Vec::new();
            for missing in 0..=ALL_SPARE {
                while upkeep.store.buffers().free_buffers() > ALL_SPARE - missing {
                    append(&upkeep.store, 1).expect("a buffer is free");
                }
                while engine.tiers.flash.writing.writes_now() && begun.len() < WRITERS {
                    let writing = upkeep.store.pool().counts().writing;
                    let engine = Arc::clone(&engine);
                    begun.push(runtime::spawn(async move {
                        let flash = &engine.tiers.flash;
                        flash.writing.write_one(flash.placement()).await
                    }));
                    while upkeep.store.pool().counts().writing == writing {
                        runtime::yield_now().await;
                    }
                }
                let expected = (missing * WRITERS).div_ceil(ALL_SPARE);
                assert_eq!(begun.len(), expected, "{missing} buffers are missing");
            }
        });
    }
}
