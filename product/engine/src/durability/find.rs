//! The state that an earlier run left, found in the same way by an open and by an inspection.
//!
//! This file writes nothing.

use std::collections::HashSet;
use std::sync::Arc;

use device::{Found, Journal as Log};

use super::clock::{OldClocks, StartClock, shifted, step};
use super::dead::{DeadSet, StartBounds};
use super::error::Distrust;
use super::flush::FlushCutoffs;
use super::journal::{
    ChunkRecords, Damaged, JournalError, Unusable, chunks, head, last_chunk, ring_chunks,
};
use crate::format::FormatError;
use crate::format::journal::{BEGUN_WORD, VOID_WORD, usable_bytes};
use crate::format::superblock::{Superblock, run_number};
use crate::store::{
    CheckpointSource, SavedCheckpoint, Scan, SegmentId, SegmentRecord, SegmentStore,
};

/// The state that an earlier run left.
pub(crate) struct LastRun {
    pub(crate) dead: DeadSet,
    /// Segments with live items, oldest first.
    pub(crate) living: Vec<SegmentRecord>,
    /// Segments with items that are dead as a whole.
    pub(crate) gone: Vec<SegmentRecord>,
    /// Segments that cannot be read. They are not used again, because their items may come and go.
    pub(crate) unreadable: Vec<SegmentId>,
    pub(crate) checkpoint: Option<SavedCheckpoint>,
}

impl LastRun {
    /// Returns the number of items in live segments, dead ones included.
    pub(crate) fn items(&self) -> u64 {
        let items = self.living.iter().map(|record| u64::from(record.items));
        items.sum()
    }

    /// Estimates the number of live items.
    pub(crate) fn items_expected(&self) -> usize {
        self.items().saturating_sub(self.dead.positions()) as usize
    }

    /// Returns the clock of a run that starts `now`. Notes a step of the clock in `superblock`, which is not raised to the
    /// limits of that run yet. Each start raises the limit of sequence numbers by `reserve`.
    pub(crate) fn start_clock(
        &self,
        log: &dyn Log,
        now: u32,
        superblock: &mut Superblock,
        reserve: u64,
    ) -> StartClock {
        let known = match superblock.has_clock_of_checkpoint() {
            true => self.dead.clock.max(head::clock(log)),
            false => head::clock(log),
        };
        // A start that did not end may have noted a step and left the journal with the clock before it: the difference
        // would count twice.
        let begun = run_number(log.load(BEGUN_WORD));
        let unfinished = u64::from(run_number(superblock.run.get()).saturating_sub(begun));
        let since = superblock
            .sequence_limit
            .get()
            .saturating_sub(unfinished * reserve);
        let noted = superblock
            .old_clock_noted_since(since)
            .filter(|_| unfinished > 0 && known > 0);
        let known = noted.map_or(known, |ahead| shifted(known, -ahead));
        match step(now, known) {
            Some(ahead) => {
                superblock.note_old_clock(ahead);
                StartClock {
                    second: now,
                    begins_anew: true,
                }
            }
            None => StartClock {
                second: now.max(known),
                // The journal still has the clock before the step.
                begins_anew: noted.is_some(),
            },
        }
    }

    /// Sets the cutoffs of a run that judges the items of earlier runs by `clocks`. Returns the deadline of a pending flush,
    /// by the clock that it was asked for by.
    pub(crate) fn apply_time(&mut self, clocks: OldClocks, cutoffs: &FlushCutoffs) -> Option<u32> {
        let first_version = clocks.first_version;
        // The clock of an item never goes back: expired items stay expired.
        cutoffs.set_old_clocks(clocks);
        // It may have been asked for by any of the clocks.
        let ahead = clocks.most_ahead();
        let pending = self
            .dead
            .apply_flush(shifted(clocks.second, ahead), first_version);
        if let Some(deadline) = pending {
            cutoffs.flush_at(shifted(deadline, -ahead));
        }
        self.dead.clamp_keys(first_version);
        for (partition, cutoff) in self.dead.cutoffs.iter_mut().enumerate() {
            // The remains of an earlier chunk could name a version that does not exist yet.
            *cutoff = first_version.min(*cutoff);
            cutoffs.set_cutoff(partition, *cutoff);
        }
        pending
    }
}

/// Checks whether the journal holds all deaths since the superblock's checkpoint.
pub(crate) fn look_at_journal(
    log: &dyn Log,
    superblock: &Superblock,
    is_new: bool,
    force: bool,
) -> Result<Result<(), Unusable>, JournalError> {
    let (shape, run) = (superblock.shape(), superblock.run.get());
    let needed = usable_bytes(shape.partitions) as usize / size_of::<u64>();
    if log.words() < needed {
        let words = log.words();
        return Err(JournalError::TooShort { words, needed });
    }
    let unusable = match head::read(log) {
        Ok(None) => match log.origin().found {
            Found::Missing => Unusable::Missing,
            Found::Short { bytes } => Unusable::Short { bytes },
            Found::Whole => Unusable::Blank,
        },
        Ok(Some(head)) if head.image != shape.image_id && !(is_new || force) => {
            return Err(JournalError::OtherImage);
        }
        Ok(Some(_)) if log.load(VOID_WORD) != 0 || superblock.is_journal_void() => Unusable::Void,
        Ok(Some(head)) if head.chunks != ring_chunks(log, shape.partitions) => Unusable::Size,
        Ok(Some(head)) if head.image != shape.image_id => Unusable::Other,
        Ok(Some(_)) if !head::is_sound(log) => Unusable::Damaged,
        Ok(Some(head)) if head.run == run => return Ok(Ok(())),
        // A start that did not end. If it had ended, the journal would belong to a later state of the flash.
        Ok(Some(head))
            if run_number(head.run) == run_number(run) + 1 && log.load(BEGUN_WORD) != head.run =>
        {
            return Ok(Ok(()));
        }
        Ok(Some(_)) => Unusable::Run,
        Err(FormatError::Magic) if force => Unusable::Other,
        Err(FormatError::Magic) if last_chunk(log, shape.image_id, shape.partitions) > 0 => {
            Unusable::Damaged
        }
        Err(FormatError::Magic) => return Err(JournalError::Foreign),
        Err(FormatError::Version { .. }) => Unusable::Format,
        Err(_) => Unusable::Damaged,
    };
    Ok(Err(unusable))
}

/// Checks whether a start trusts a journal: the error with which it is refused, or the reason for which it is empty.
pub(crate) fn check_journal(
    log: &dyn Log,
    superblock: &Superblock,
) -> Result<Result<(), Distrust>, JournalError> {
    let looked = look_at_journal(log, superblock, false, false)?;
    Ok(looked.map_err(Distrust::from).and_then(|()| {
        let chunks = unsaved_chunks(log, superblock);
        chunks.map(drop).map_err(|Damaged| Distrust::JournalGap)
    }))
}

/// Reads the state that an earlier run left, within `bounds` of memory. If it exceeds them, the oldest segments are
/// left out; the caller has to raise the superblock's floor to that of [`dead`](LastRun::dead) before anything else.
/// Calls `progress` for every segment looked at.
pub(crate) async fn find(
    store: &Arc<SegmentStore>,
    log: &dyn Log,
    superblock: &Superblock,
    bounds: StartBounds,
    progress: &mut dyn FnMut(SegmentId),
) -> Result<LastRun, Distrust> {
    let scan = Scan::of(
        store.table(),
        store.blocks(),
        superblock.floor_sequence.get(),
        progress,
    )
    .await;
    if scan.unreadable.len() > 1 + store.table().segments() as usize / 16 {
        return Err(Distrust::Unreadable);
    }
    let partitions = superblock.shape().partitions;
    let mut dead = DeadSet::new(partitions, store, &scan.found, bounds.dead_bytes);
    let checkpoint = saved_checkpoint(superblock);
    if let Some(saved) = &checkpoint
        && let Err(error) = dead
            .read_checkpoint(&mut CheckpointSource::new(Arc::clone(store), saved))
            .await
    {
        tracing::warn!(%error, "the checkpoint cannot be read");
        return Err(Distrust::Checkpoint);
    }
    let chunks = unsaved_chunks(log, superblock).map_err(|Damaged| Distrust::JournalGap)?;
    for chunk in &chunks {
        let read = dead.read_chunk(log, chunk);
        read.map_err(|Damaged| Distrust::JournalGap)?;
    }
    dead.finish();
    if dead.has_too_many_keys() {
        return Err(Distrust::Memory);
    }
    let named = checkpoint.iter().flat_map(|saved| &saved.segments).copied();
    let taken: HashSet<SegmentId> = named.chain(dead.retired()).collect();
    let is_living = |dead: &DeadSet, record: &SegmentRecord| {
        dead.is_living(record) && !taken.contains(&record.segment)
    };
    let mut living = scan.found.clone();
    living.retain(|record| is_living(&dead, record));
    let mut found = living.len();
    let mut is_too_large = dead.floor() > 0;
    if dead.give_up_before_missing(superblock.floor_sequence.get()) {
        living.retain(|record| is_living(&dead, record));
        tracing::warn!(
            segments = found - living.len(),
            "something else has overwritten or cut a part of the flash: older items are left out, because newer copies of \
             them may have been there"
        );
        found = living.len();
    }
    is_too_large |= dead.give_up_beyond(&living, bounds.items);
    living.retain(|record| is_living(&dead, record));
    if is_too_large {
        tracing::warn!(
            segments = found - living.len(),
            "the memory is too small for what the image holds: its oldest segments are left out; give it the memory \
             that it was used with to have them all"
        );
    }
    let gone = scan.found.into_iter();
    let gone = gone.filter(|record| !is_living(&dead, record)).collect();
    Ok(LastRun {
        dead,
        living,
        gone,
        unreadable: scan.unreadable,
        checkpoint,
    })
}

/// Returns the checkpoint that a superblock names.
pub(crate) fn saved_checkpoint(superblock: &Superblock) -> Option<SavedCheckpoint> {
    let segments: Vec<SegmentId> = superblock.checkpoint_segments().map(SegmentId).collect();
    (!segments.is_empty()).then(|| SavedCheckpoint {
        bytes: superblock.checkpoint_bytes.get(),
        sequence: superblock.checkpoint_sequence.get(),
        segments,
    })
}

/// Returns the chunks of the journal that are not in the checkpoint.
pub(crate) fn unsaved_chunks(
    log: &dyn Log,
    superblock: &Superblock,
) -> Result<Vec<ChunkRecords>, Damaged> {
    let shape = superblock.shape();
    let first = superblock.journal_first.get();
    let chunks = chunks(log, shape.image_id, shape.partitions, first)?;
    // If the first and the last chunk are a ring or more apart, one of them is not of this ring.
    let ring = ring_chunks(log, shape.partitions);
    let last = chunks.last().map_or(first, |chunk| chunk.header.sequence);
    if last - first < ring {
        Ok(chunks)
    } else {
        Err(Damaged)
    }
}
