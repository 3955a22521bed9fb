//! The state of superblock, journal, checkpoint and footers, at about one moment.

use std::collections::HashSet;
use std::sync::Arc;

use device::{DeviceError, Disk, Journal as Log, Region};

use super::runs::Runs;
use super::{InspectError, Outlook, Phase, Progress};
use crate::config::WRITE_PATIENCE;
use crate::durability::CheckpointContents;
use crate::durability::clock::OldClocks;
use crate::durability::dead::{DeadItems, DeadSet, ItemState, StartBounds};
use crate::durability::error::OpenError;
use crate::durability::find::{LastRun, find, look_at_journal, saved_checkpoint, unsaved_chunks};
use crate::durability::flush::FlushCutoffs;
use crate::durability::journal::{JournalError, Unusable, head};
use crate::durability::medium::Medium;
use crate::durability::superblocks::Copies;
use crate::format::journal::{HEAD_WORDS, Record, chunk_words};
use crate::format::segment::{PAGE_BYTES, SummaryEntry};
use crate::format::superblock::Superblock;
use crate::lifecycle::SEQUENCE_RESERVE;
use crate::settings::META_BYTES;
use crate::store::{
    CheckpointSource, Layout, Scan, SegmentId, SegmentStore, SlabClasses, StoreConfig, StoreFlash,
};

/// Placement whose summaries list all items.
const EXACT: &str = "exact";

/// Placement with items in runs.
const RUNS: &str = "runs";

/// Whether a journal can tell which items are dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalState {
    /// The journal can be used.
    Usable,
    /// The journal cannot be used: a start would be empty.
    Unusable(Unusable),
    /// The journal does not belong to this image: a start would be refused.
    Refused(JournalError),
}

/// Number of records of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// Displaced items.
    pub dead: u64,
    /// Segments dead as a whole.
    pub segment_dead: u64,
    /// Keys whose copies are dead wherever they lie.
    pub key_dead: u64,
    /// Dead keys all of whose copies have since been recorded by place.
    pub key_located: u64,
    /// Entries that an index without keys has lost.
    pub entry_lost: u64,
    /// Retired segments.
    pub retired: u64,
    /// Partitions that have applied a `flush_all`.
    pub cutoff: u64,
    /// Calls of `flush_all`.
    pub flush_at: u64,
}

/// State of the journal. Chunks and records are those that are not in the checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalReport {
    /// Whether the journal can be used.
    pub state: JournalState,
    /// The run that the journal belongs to.
    pub run: Option<u64>,
    /// Latest Unix second that the journal has seen; 0 for none.
    pub clock: u32,
    /// Chunks of the ring.
    pub ring_chunks: u64,
    /// Chunks in use.
    pub chunks: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Whether durable records are missing or damaged.
    pub has_gap: bool,
    /// Number of records of each kind.
    pub records: RecordCounts,
}

/// State of the checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointReport {
    /// Bytes of its stream.
    pub bytes: u64,
    /// The segments of the checkpoint.
    pub segments: Vec<SegmentId>,
    /// Counts of its content, or the reason for which it cannot be read.
    pub contents: Result<CheckpointContents, String>,
}

/// Number of segments in each state; a segment is in one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentCounts {
    /// Segments with items that a recovery would read.
    pub living: u64,
    /// Segments that hold the checkpoint.
    pub checkpoint: u64,
    /// Segments whose items are all dead, and that have not been written again.
    pub dead: u64,
    /// Segments with items that cannot be trusted: a start would be empty.
    pub distrusted: u64,
    /// Retired segments.
    pub retired: u64,
    /// Segments whose last page cannot be read.
    pub unreadable: u64,
    /// Segments never written, or without items.
    pub free: u64,
}

/// An image at about one moment.
pub(super) struct Look {
    pub(super) copies: Copies,
    pub(super) superblock: Box<Superblock>,
    pub(super) store: Arc<SegmentStore>,
    pub(super) journal: JournalReport,
    pub(super) checkpoint: Option<CheckpointReport>,
    pub(super) outlook: Outlook,
    /// The state that a start would find, unless it would be empty.
    pub(super) found: Option<LastRun>,
    /// The runs, where summaries do not list all items.
    pub(super) runs: Option<Runs>,
    pub(super) segments: SegmentCounts,
    pub(super) flush_deadline: Option<u32>,
    cutoffs: FlushCutoffs,
    clock: u32,
}

impl Look {
    pub(super) async fn take(
        disk: &Arc<dyn Disk>,
        log: Option<&dyn Log>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, InspectError> {
        let copies = read_copies(disk).await?;
        let superblock = chosen(&copies, disk.len_bytes())?;
        let shape = superblock.shape();
        let store = open_store(disk, &superblock)?;
        let journal = describe_journal(log, &superblock);
        let saved = saved_checkpoint(&superblock);
        let mut checkpoint = None;
        if let Some(saved) = &saved {
            let mut dead = DeadSet::new(shape.partitions, &store, &[], u64::MAX);
            let mut source = CheckpointSource::new(Arc::clone(&store), saved);
            let contents = dead.read_checkpoint(&mut source).await;
            checkpoint = Some(CheckpointReport {
                bytes: saved.bytes,
                segments: saved.segments.clone(),
                contents: contents.map_err(|error| error.to_string()),
            });
        }
        let total = u64::from(store.table().segments());
        let mut done = 0;
        let phase = Phase::Footers;
        let mut on_segment = |_| {
            done += 1;
            progress(Progress { phase, done, total });
        };
        let found = match (journal.state, log) {
            (JournalState::Usable, Some(log)) => {
                find(&store, log, &superblock, StartBounds::NONE, &mut on_segment)
                    .await
                    .map(|found| (found, log))
                    .map_err(Outlook::Empty)
            }
            (JournalState::Refused(why), _) => Err(Outlook::Refused(why)),
            (JournalState::Unusable(why), _) => Err(Outlook::Empty(why.into())),
            (JournalState::Usable, None) => Err(Outlook::Empty(Unusable::Missing.into())),
        };
        let mut look = Self {
            copies,
            journal,
            checkpoint,
            outlook: Outlook::Warm {
                orderly: superblock.is_clean(),
            },
            superblock,
            found: None,
            runs: None,
            segments: SegmentCounts::default(),
            flush_deadline: None,
            cutoffs: FlushCutoffs::new(shape.partitions.trailing_zeros()),
            clock: runtime::unix_seconds(),
            store,
        };
        match found {
            Ok((mut found, log)) => {
                let first_version = look.superblock.version_limit.get();
                // A copy: an inspection writes nothing.
                let mut superblock = *look.superblock;
                let clock = found.start_clock(log, look.clock, &mut superblock, SEQUENCE_RESERVE);
                look.clock = clock.second;
                let clocks = OldClocks {
                    first_version,
                    second: clock.second,
                    ahead: superblock.old_clocks(),
                };
                found.apply_time(clocks, &look.cutoffs);
                look.flush_deadline = look.cutoffs.pending(look.clock);
                look.segments = count_found(&found, look.store.table().segments());
                if look.superblock.placement() == RUNS {
                    let runs = Runs::read(&look.store, shape.hash_seed, &found.living, progress);
                    look.runs = Some(runs.await);
                }
                look.found = Some(found);
            }
            Err(outlook) => {
                look.outlook = outlook;
                let floor = look.superblock.floor_sequence.get();
                let scan = Scan::of(
                    look.store.table(),
                    look.store.blocks(),
                    floor,
                    &mut on_segment,
                )
                .await;
                let named: HashSet<SegmentId> =
                    saved.into_iter().flat_map(|saved| saved.segments).collect();
                let outside = |segment: &SegmentId| !named.contains(segment);
                let mut counts = SegmentCounts {
                    checkpoint: named.len() as u64,
                    unreadable: scan.unreadable.iter().filter(|id| outside(id)).count() as u64,
                    ..SegmentCounts::default()
                };
                let holding = scan.found.iter().map(|record| record.segment);
                counts.distrusted = holding.filter(outside).count() as u64;
                look.segments = counts.with_free(look.store.table().segments());
            }
        }
        Ok(look)
    }

    /// Returns whether a recovery would take the item of a summary entry for live.
    pub(super) fn is_live(&self, items: &DeadItems<'_>, entry: &SummaryEntry) -> bool {
        self.classify(items, entry) == ItemState::Live
    }

    /// Returns the state in which a recovery would find the item of a summary entry.
    pub(super) fn classify(&self, items: &DeadItems<'_>, entry: &SummaryEntry) -> ItemState {
        items.classify(entry, &self.cutoffs, self.clock)
    }
}

impl SegmentCounts {
    /// Returns the name and the count of each state.
    pub fn by_state(&self) -> [(&'static str, u64); 7] {
        [
            ("living", self.living),
            ("checkpoint", self.checkpoint),
            ("dead", self.dead),
            ("distrusted", self.distrusted),
            ("retired", self.retired),
            ("unreadable", self.unreadable),
            ("free", self.free),
        ]
    }

    /// Counts the segments that are in no other state as free.
    fn with_free(self, segments: u32) -> Self {
        let taken: u64 = self.by_state().iter().map(|(_, count)| count).sum();
        let free = u64::from(segments).saturating_sub(taken);
        Self { free, ..self }
    }
}

pub(super) async fn read_copies(disk: &Arc<dyn Disk>) -> Result<Copies, InspectError> {
    if disk.len_bytes() < META_BYTES {
        return Err(InspectError::Foreign);
    }
    let meta = Region::new(Arc::clone(disk), 0, META_BYTES)?;
    Ok(Copies::read(&meta).await?)
}

/// Returns the superblock in force, if the image can be inspected.
fn chosen(copies: &Copies, device: u64) -> Result<Box<Superblock>, InspectError> {
    let superblock = match copies.newest() {
        Ok(Some(found)) => Box::new(found),
        Ok(None) => return Err(InspectError::Nothing),
        Err(OpenError::Version { found, expected }) => {
            return Err(InspectError::Version { found, expected });
        }
        Err(OpenError::Damaged) => return Err(InspectError::Damaged),
        Err(OpenError::IsIndexDevice { image }) => {
            return Err(InspectError::IsIndexDevice { image });
        }
        Err(_) => return Err(InspectError::Foreign),
    };
    if ![EXACT, RUNS].contains(&superblock.placement()) {
        let found = superblock.placement().to_owned();
        return Err(InspectError::Placement { found });
    }
    let image = superblock.shape().image_bytes;
    if image > device && device == META_BYTES {
        return Err(InspectError::SuperblockOnly);
    }
    if image > device {
        return Err(InspectError::Truncated { image, device });
    }
    Ok(superblock)
}

/// Returns a store that reads the segments and never writes.
fn open_store(
    disk: &Arc<dyn Disk>,
    superblock: &Superblock,
) -> Result<Arc<SegmentStore>, DeviceError> {
    let shape = superblock.shape();
    let flash = Medium::Disk(Arc::clone(disk)).flash(&shape, false)?;
    // No segment is ever filled, so the layout does not matter.
    let streams = Arc::new(SlabClasses::new(Layout::Packed, shape.segment_bytes));
    let config = StoreConfig {
        buffers: 2,
        image: shape.image_id,
        first_sequence: superblock.sequence_limit.get(),
        large_read_bytes: 0,
        small_read_bytes: 0,
        read_patience: WRITE_PATIENCE,
        write_bytes: PAGE_BYTES,
        counts_reads: false,
    };
    Ok(Arc::new(SegmentStore::new(
        StoreFlash::of(flash),
        streams,
        &config,
    )))
}

pub(super) fn describe_journal(log: Option<&dyn Log>, superblock: &Superblock) -> JournalReport {
    let partitions = superblock.shape().partitions;
    let state = match log.map(|log| look_at_journal(log, superblock, false, false)) {
        None => JournalState::Unusable(Unusable::Missing),
        Some(Ok(Ok(()))) => JournalState::Usable,
        Some(Ok(Err(unusable))) => JournalState::Unusable(unusable),
        Some(Err(refused)) => JournalState::Refused(refused),
    };
    let mut report = JournalReport {
        state,
        run: None,
        clock: 0,
        ring_chunks: 0,
        chunks: 0,
        chunk_bytes: 8 * chunk_words(partitions) as u64,
        has_gap: false,
        records: RecordCounts::default(),
    };
    let Some(log) = log.filter(|log| log.words() > HEAD_WORDS) else {
        return report;
    };
    let Ok(Some(head)) = head::read(log) else {
        return report;
    };
    report.clock = head::clock(log);
    report.run = Some(head.run);
    report.ring_chunks = head.chunks;
    if matches!(state, JournalState::Refused(_)) {
        return report;
    }
    let chunks = unsaved_chunks(log, superblock);
    report.has_gap = chunks.is_err();
    let chunks = chunks.unwrap_or_default();
    report.chunks = chunks.len() as u64;
    for chunk in &chunks {
        let read = chunk.each(log, |record| report.records.add(&record));
        report.has_gap |= read.is_err();
    }
    report
}

impl RecordCounts {
    fn add(&mut self, record: &Record) {
        let count = match record {
            Record::Dead { .. } => &mut self.dead,
            Record::SegmentDead { .. } => &mut self.segment_dead,
            Record::KeyDead { .. } => &mut self.key_dead,
            Record::KeyLocated { .. } => &mut self.key_located,
            Record::EntryLost { .. } => &mut self.entry_lost,
            Record::Retired { .. } => &mut self.retired,
            Record::Cutoff { .. } => &mut self.cutoff,
            Record::FlushAt { .. } => &mut self.flush_at,
        };
        *count += 1;
    }
}

fn count_found(found: &LastRun, segments: u32) -> SegmentCounts {
    let mut taken: HashSet<SegmentId> = HashSet::new();
    let mut count = |ids: &mut dyn Iterator<Item = SegmentId>| {
        let new = ids.filter(|&id| id.0 < segments && taken.insert(id));
        new.count() as u64
    };
    let named = found.checkpoint.iter().flat_map(|saved| &saved.segments);
    let counts = SegmentCounts {
        checkpoint: count(&mut named.copied()),
        retired: count(&mut found.dead.retired()),
        unreadable: count(&mut found.unreadable.iter().copied()),
        living: count(&mut found.living.iter().map(|record| record.segment)),
        dead: count(&mut found.gone.iter().map(|record| record.segment)),
        ..SegmentCounts::default()
    };
    counts.with_free(segments)
}
