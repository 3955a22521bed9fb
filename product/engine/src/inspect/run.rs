//! Inspecting: looks at the image until it does not change during the look, counts, verifies, and looks again at data
//! that does not verify.

use std::collections::HashSet;
use std::sync::Arc;

use device::{Disk, Journal as Log};

use super::flaws::FlawedPlace;
use super::items::{self, ItemCounts};
use super::look::{self, CheckpointReport, JournalReport, Look, SegmentCounts};
use super::verify::{self, Verified};
use super::{InspectError, Outlook, Progress};
use crate::durability::SuperblockCopy;
use crate::durability::find::LastRun;
use crate::format::superblock::Superblock;
use crate::store::SegmentRecord;

/// Largest number of looks at a changing image; the last one is used as it is.
const LOOKS: usize = 5;

/// Scope and memory of an inspection.
#[derive(Clone, Copy, Debug)]
pub struct InspectOptions {
    /// Whether every live segment is read and every live item in it verified.
    pub verify: bool,
    /// Bytes of memory for finding the latest item of each key.
    pub memory_bytes: u64,
}

impl Default for InspectOptions {
    fn default() -> Self {
        Self {
            verify: false,
            memory_bytes: 256 << 20,
        }
    }
}

/// Result of an inspection.
#[derive(Debug)]
pub struct Inspection {
    /// The superblock in force.
    pub superblock: Box<Superblock>,
    /// Content of both copies of the superblock.
    pub copies: [SuperblockCopy; 2],
    /// Expected outcome of the next start.
    pub outlook: Outlook,
    /// The journal.
    pub journal: JournalReport,
    /// The checkpoint that the superblock names.
    pub checkpoint: Option<CheckpointReport>,
    /// Segments by state.
    pub segments: SegmentCounts,
    /// Items by state; zero if the image could not be trusted.
    pub items: ItemCounts,
    /// Deadline of a `flush_all` whose time has not come, Unix seconds.
    pub flush_deadline: Option<u32>,
    /// Counts of the verification, if it was asked for.
    pub verified: Option<Verified>,
    /// The first certain damages, as [`FlawedPlace`]s.
    pub flaws: Vec<FlawedPlace>,
    /// Number of all certain damages.
    pub flaw_count: u64,
    /// Whether the image has changed during the inspection: a cache is running on it.
    pub is_changing: bool,
    /// Segments that were written again while they were read; their items are not counted.
    pub segments_changed: u64,
}

impl Inspection {
    /// Returns whether the next start finds everything that should be there.
    pub fn is_sound(&self) -> bool {
        let is_warm = matches!(self.outlook, Outlook::Warm { .. });
        is_warm && self.flaw_count == 0 && self.segments.unreadable == 0
    }
}

/// Inspects the image on `disk` with its journal, if there is one. Nothing is written to either.
///
/// # Errors
/// [`InspectError`] when there is no image that could be inspected.
pub async fn inspect(
    disk: &Arc<dyn Disk>,
    log: Option<&dyn Log>,
    options: InspectOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Inspection, InspectError> {
    let (mut look, mut is_changing) = steady_look(disk, log, progress).await?;
    let mut inspection = Inspection {
        superblock: look.superblock.clone(),
        copies: look.copies.copies.clone(),
        outlook: look.outlook,
        journal: look.journal,
        checkpoint: look.checkpoint.take(),
        segments: look.segments,
        items: ItemCounts::default(),
        flush_deadline: look.flush_deadline,
        verified: options.verify.then(Verified::default),
        flaws: Vec::new(),
        flaw_count: 0,
        is_changing: false,
        segments_changed: 0,
    };
    if let Some(found) = &look.found {
        let (items, mut doubtful) =
            items::count(&look, found, options.memory_bytes, progress).await;
        inspection.items = items;
        let unread: HashSet<SegmentRecord> = doubtful.iter().copied().collect();
        if let Some(verified) = &mut inspection.verified {
            let skip = |record: &SegmentRecord| unread.contains(record);
            doubtful.extend(verify::all(&look, found, skip, verified, progress).await);
        } else if let Some(runs) = &look.runs {
            let counted = runs
                .doubtful
                .iter()
                .filter(|record| !unread.contains(record));
            doubtful.extend(counted);
        }
        if !doubtful.is_empty() {
            is_changing |=
                check_again(disk, log, &look, found, &doubtful, &unread, &mut inspection).await?;
        }
    }
    inspection.is_changing = is_changing
        || look::describe_journal(log, &look.superblock) != look.journal
        || look::read_copies(disk).await? != look.copies;
    Ok(inspection)
}

/// Looks at the image until the superblock does not change during a look, so that all parts of it agree. Returns
/// whether it took more than one look.
async fn steady_look(
    disk: &Arc<dyn Disk>,
    log: Option<&dyn Log>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Look, bool), InspectError> {
    let mut looks = 1;
    loop {
        let look = Look::take(disk, log, progress).await?;
        if look::read_copies(disk).await? == look.copies {
            return Ok((look, looks > 1));
        }
        if looks == LOOKS {
            // A warm result is roughly true now; an empty one need not be.
            let found = look.found.is_some();
            return found.then_some((look, true)).ok_or(InspectError::Busy);
        }
        looks += 1;
    }
}

/// Reads segments that did not verify again, then checks whether they should still be there. Returns whether the image
/// has changed.
async fn check_again(
    disk: &Arc<dyn Disk>,
    log: Option<&dyn Log>,
    look: &Look,
    found: &LastRun,
    doubtful: &[SegmentRecord],
    unread: &HashSet<SegmentRecord>,
    inspection: &mut Inspection,
) -> Result<bool, InspectError> {
    let mut again = Vec::new();
    for record in doubtful {
        let checked = if inspection.verified.is_some() {
            verify::check(look, found, record).await
        } else {
            verify::check_summary(look, record).await
        };
        again.push((record, checked));
    }
    let (now, mut has_changed) = steady_look(disk, log, &mut |_| {}).await?;
    for (record, checked) in again {
        let living = now.found.as_ref().filter(|now| now.living.contains(record));
        let Some(still) = living else {
            inspection.segments_changed += 1;
            has_changed = true;
            continue;
        };
        if let Some(verified) = &mut inspection.verified {
            verified.add(&checked);
        }
        let items = still.dead.of_segment(record);
        let certain: Vec<FlawedPlace> = checked
            .flawed
            .into_iter()
            .filter(|(entry, _)| entry.is_none_or(|entry| now.is_live(&items, &entry)))
            .map(|(_, place)| place)
            .collect();
        if certain.is_empty() {
            let was_left_out = unread.contains(record);
            inspection.segments_changed += u64::from(was_left_out);
            has_changed = true;
            continue;
        }
        let corrupt: Option<u64> = certain.iter().map(|place| place.flaw.items()).sum();
        match (corrupt, &mut inspection.verified) {
            (None, _) => inspection.items.unreadable += u64::from(record.items),
            (Some(items), Some(verified)) => verified.items_corrupt += items,
            (Some(_), None) => {}
        }
        inspection.flaw_count += certain.len() as u64;
        let left = verify::FLAWS_KEPT.saturating_sub(inspection.flaws.len());
        inspection.flaws.extend(certain.into_iter().take(left));
    }
    Ok(has_changed)
}
