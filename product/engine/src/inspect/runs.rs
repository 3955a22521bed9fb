//! The items of the placement `runs`: most are in no summary, but in a stretch that a run header names.
//!
//! The items of a segment are found as reclaim finds them, by going through its pages. An item counts if a summary lists it, or a
//! run header of which a copy is left names it. Of the copies of a key the one with the highest version is found, or none.

use std::collections::{HashMap, HashSet};

use futures_util::stream::{self, StreamExt};

use super::flaws::{Flaw, FlawedPlace};
use super::{Phase, Progress};
use crate::format::item::ItemRef;
use crate::format::run_header::{RunHeader, RunPiece, is_header};
use crate::format::segment::{Position, SummaryEntry, UNIT_BYTES};
use crate::key::HashSeed;
use crate::store::{ReadError, SegmentRecord, SegmentStore, Walk, offset_of};

/// Segments whose headers are read at once.
const SEGMENTS_AT_ONCE: usize = 16;

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An item that a start finds, if it is alive.
    Found,
    /// An item of a run whose header is not there.
    Unnamed,
    /// A run header.
    Header,
}

/// The stretches of segments that run headers name, by number and sequence of the segment.
pub(super) struct Runs {
    seed: HashSeed,
    pieces: HashMap<(u32, u64), Vec<RunPiece>>,
    /// Items of all runs.
    pub(super) items: u64,
    /// Segments with a run header that cannot be read.
    pub(super) doubtful: Vec<SegmentRecord>,
}

impl Runs {
    /// Reads the run headers of all living segments.
    pub(super) async fn read(
        store: &SegmentStore,
        seed: HashSeed,
        living: &[SegmentRecord],
        progress: &mut dyn FnMut(Progress),
    ) -> Self {
        let mut runs = Self {
            seed,
            pieces: HashMap::new(),
            items: 0,
            doubtful: Vec::new(),
        };
        let total = living.len() as u64;
        let records = living;
        let living: HashSet<(u32, u64)> = records
            .iter()
            .map(|record| (record.segment.0, record.sequence))
            .collect();
        let mut of_segments = stream::iter(records)
            .map(|record| async move { (record, headers(store, record).await) })
            .buffered(SEGMENTS_AT_ONCE);
        let mut done = 0;
        while let Some((record, (headers, flawed))) = of_segments.next().await {
            done += 1;
            let phase = Phase::Headers;
            progress(Progress { phase, done, total });
            let pieces = headers.iter().flat_map(|header| &header.pieces);
            for piece in pieces.filter(|piece| living.contains(&(piece.segment, piece.sequence))) {
                runs.add(piece, store.table().segment_bytes());
            }
            if !flawed.is_empty() {
                runs.doubtful.push(*record);
            }
        }
        runs
    }

    /// Adds a stretch, unless the other copy of its header has been added, or it cannot be one.
    fn add(&mut self, piece: &RunPiece, segment_bytes: u32) {
        let is_one = piece.first <= piece.last && piece.last < segment_bytes;
        if !is_one || piece.items > segment_bytes / UNIT_BYTES {
            return;
        }
        let pieces = self
            .pieces
            .entry((piece.segment, piece.sequence))
            .or_default();
        if !pieces.contains(piece) {
            pieces.push(*piece);
            self.items += u64::from(piece.items);
        }
    }

    /// Returns the stretches in a segment.
    pub(super) fn pieces(&self, record: &SegmentRecord) -> &[RunPiece] {
        let pieces = self.pieces.get(&(record.segment.0, record.sequence));
        pieces.map_or(&[], Vec::as_slice)
    }

    /// Returns entries for the items and run headers of a segment, in the order in which they lie. `bytes` are those of the segment.
    pub(super) fn entries(
        &self,
        record: &SegmentRecord,
        listed: Vec<SummaryEntry>,
        bytes: &[u8],
    ) -> Vec<(SummaryEntry, Kind)> {
        let mut walk = Walk::new(record.sequence, self.seed, &listed);
        walk.go_through(bytes, 0);
        let unlisted = std::mem::take(&mut walk.found);
        let pieces = self.pieces(record);
        let is_named = |entry: &SummaryEntry| {
            let offset = offset_of(entry);
            let mut pieces = pieces.iter();
            pieces.any(|piece| (piece.first..=piece.last).contains(&offset))
        };
        let unlisted = unlisted.into_iter().map(|entry| match is_named(&entry) {
            true => (entry, Kind::Found),
            false => (entry, Kind::Unnamed),
        });
        let listed = listed.into_iter().map(|entry| match is_header(&entry) {
            true => (entry, Kind::Header),
            false => (entry, Kind::Found),
        });
        let mut entries: Vec<_> = listed.chain(unlisted).collect();
        entries.sort_unstable_by_key(|(entry, _)| offset_of(entry));
        entries
    }

    /// Returns the damage to the runs of a segment that the entries found in it show.
    pub(super) fn flaws(
        &self,
        record: &SegmentRecord,
        entries: &[(SummaryEntry, Kind)],
        bytes: &[u8],
    ) -> Vec<FlawedPlace> {
        let place = |offset, flaw| FlawedPlace {
            segment: record.segment.0,
            offset,
            flaw,
        };
        let headers = entries.iter().filter(|(_, kind)| *kind == Kind::Header);
        let headers = headers.filter_map(|(entry, _)| {
            let offset = offset_of(entry);
            let item = ItemRef::decode(&bytes[offset as usize..], record.sequence, offset);
            let header = item.and_then(|item| RunHeader::decode(item.value));
            Some(place(offset, Flaw::RunHeader(header.err()?)))
        });
        let missing = self.pieces(record).iter().filter_map(|piece| {
            let from = entries.partition_point(|(entry, _)| offset_of(entry) < piece.first);
            let to = entries.partition_point(|(entry, _)| offset_of(entry) <= piece.last);
            let items = entries[from..to.max(from)].iter();
            let items = items.filter(|(entry, _)| !is_header(entry)).count() as u32;
            let missing = piece.items.saturating_sub(items);
            (missing > 0).then(|| place(piece.first, Flaw::OfRun(missing)))
        });
        headers.chain(missing).collect()
    }
}

/// Returns the run headers of a segment whose summary can be read, and the places of those that cannot be.
pub(super) async fn headers(
    store: &SegmentStore,
    record: &SegmentRecord,
) -> (Vec<RunHeader>, Vec<FlawedPlace>) {
    let reader = store.reader();
    let (mut headers, mut flawed) = (Vec::new(), Vec::new());
    let entries = reader.read_summary(record).await.unwrap_or_default();
    for entry in entries.iter().filter(|entry| is_header(entry)) {
        let position = Position::from_bits(entry.position.get());
        let flaw = match reader.read_run_header(record, position).await {
            Ok(header) => {
                headers.push(header);
                continue;
            }
            Err(ReadError::Corrupt { source, .. }) => Flaw::RunHeader(source),
            Err(_) => Flaw::Device,
        };
        let (segment, offset) = (record.segment.0, position.offset());
        flawed.push(FlawedPlace {
            segment,
            offset,
            flaw,
        });
    }
    (headers, flawed)
}
