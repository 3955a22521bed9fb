//! Verifying: every item lies where its summary says, as it was written.

use futures_util::stream::{self, StreamExt};

use super::flaws::{Flaw, FlawedPlace};
use super::items::SEGMENT_DEPTH;
use super::look::Look;
use super::runs::{Kind, headers};
use super::{Phase, Progress};
use crate::durability::find::LastRun;
use crate::format::item::ItemRef;
use crate::format::segment::{Position, SummaryEntry, decode_tail};
use crate::key::{HashSeed, Key};
use crate::store::{ReadError, SegmentRecord};

/// Largest number of damaged places that are kept.
pub(super) const FLAWS_KEPT: usize = 100;

/// Counts of a verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Segments read.
    pub segments: u64,
    /// Live items that verify.
    pub items_sound: u64,
    /// Live items that do not verify.
    pub items_corrupt: u64,
    /// Dead items in these segments that verify.
    pub dead_sound: u64,
    /// Dead items that do not verify. No data is lost, but the device has changed them.
    pub dead_corrupt: u64,
}

impl Verified {
    pub(super) fn add(&mut self, checked: &Checked) {
        self.segments += 1;
        self.items_sound += checked.sound;
        self.dead_sound += checked.dead_sound;
        self.dead_corrupt += checked.dead_corrupt;
    }
}

/// Result of checking one segment.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) sound: u64,
    dead_sound: u64,
    dead_corrupt: u64,
    /// Damage to live items or to the summary, with the item's entry if it is an item.
    pub(super) flawed: Vec<(Option<SummaryEntry>, FlawedPlace)>,
}

impl Checked {
    fn failed(record: &SegmentRecord, offset: u32, flaw: Flaw) -> Self {
        let place = FlawedPlace {
            segment: record.segment.0,
            offset,
            flaw,
        };
        Self {
            flawed: vec![(None, place)],
            ..Self::default()
        }
    }
}

/// Verifies every live segment that `skip` does not exclude. Returns the segments with damage; they are not counted.
pub(super) async fn all(
    look: &Look,
    found: &LastRun,
    skip: impl Fn(&SegmentRecord) -> bool,
    verified: &mut Verified,
    progress: &mut dyn FnMut(Progress),
) -> Vec<SegmentRecord> {
    let segments: Vec<&SegmentRecord> =
        found.living.iter().filter(|record| !skip(record)).collect();
    let total = segments.len() as u64;
    let mut doubtful = Vec::new();
    let mut checks = stream::iter(segments)
        .map(|record| async move { (record, check(look, found, record).await) })
        .buffered(SEGMENT_DEPTH);
    let mut done = 0;
    while let Some((record, checked)) = checks.next().await {
        done += 1;
        let phase = Phase::Items;
        progress(Progress { phase, done, total });
        if checked.flawed.is_empty() {
            verified.add(&checked);
        } else {
            doubtful.push(*record);
        }
    }
    doubtful
}

/// Reads a segment and verifies its items.
pub(super) async fn check(look: &Look, found: &LastRun, record: &SegmentRecord) -> Checked {
    let len = look.store.table().segment_bytes();
    let read = look
        .store
        .blocks()
        .read_range(record.segment, 0, len as usize);
    let Ok(bytes) = read.await else {
        return Checked::failed(record, 0, Flaw::Device);
    };
    let (segment, sequence) = (record.segment.0, record.sequence);
    let listed = match decode_tail(&bytes, segment, sequence, len) {
        Ok((_, listed)) => listed,
        Err(error) => return Checked::failed(record, 0, Flaw::Summary(error)),
    };
    let items = found.dead.of_segment(record);
    let seed = look.superblock.shape().hash_seed;
    let mut checked = Checked::default();
    let entries = match &look.runs {
        Some(runs) => runs.entries(record, listed, &bytes),
        None => listed
            .into_iter()
            .map(|entry| (entry, Kind::Found))
            .collect(),
    };
    let of_runs = look
        .runs
        .as_ref()
        .map(|runs| runs.flaws(record, &entries, &bytes));
    let of_runs = of_runs.into_iter().flatten().map(|place| (None, place));
    checked.flawed.extend(of_runs);
    for (entry, kind) in entries {
        if kind == Kind::Header {
            continue;
        }
        let offset = Position::from_bits(entry.position.get()).offset();
        let sound = check_item(&bytes[offset as usize..], sequence, offset, &entry, seed);
        match sound {
            _ if kind == Kind::Unnamed || !look.is_live(&items, &entry) => {
                checked.dead_sound += u64::from(sound.is_ok());
                checked.dead_corrupt += u64::from(sound.is_err());
            }
            Ok(()) => checked.sound += 1,
            Err(flaw) => {
                let place = FlawedPlace {
                    segment,
                    offset,
                    flaw,
                };
                checked.flawed.push((Some(entry), place));
            }
        }
    }
    checked
}

/// Reads and checks the summary of a segment, and its run headers, alone.
pub(super) async fn check_summary(look: &Look, record: &SegmentRecord) -> Checked {
    let reader = look.store.reader();
    let read = match look.runs {
        Some(_) => reader.read_whole(record).await.map(drop),
        None => reader.read_tail(record).await.map(drop),
    };
    match read {
        Ok(()) if look.runs.is_some() => {
            let (_, flawed) = headers(&look.store, record).await;
            Checked {
                flawed: flawed.into_iter().map(|place| (None, place)).collect(),
                ..Checked::default()
            }
        }
        Ok(()) => Checked::default(),
        Err(ReadError::Corrupt { offset, source, .. }) => {
            Checked::failed(record, offset, Flaw::Summary(source))
        }
        Err(_) => Checked::failed(record, 0, Flaw::Device),
    }
}

fn check_item(
    bytes: &[u8],
    sequence: u64,
    offset: u32,
    entry: &SummaryEntry,
    seed: HashSeed,
) -> Result<(), Flaw> {
    let item = ItemRef::decode(bytes, sequence, offset).map_err(Flaw::Item)?;
    if Key::new(item.key, seed).is_none_or(|key| key.hash().0 != entry.hash.get()) {
        return Err(Flaw::Key);
    }
    if item.header.version != entry.version {
        return Err(Flaw::Version);
    }
    Ok(())
}
