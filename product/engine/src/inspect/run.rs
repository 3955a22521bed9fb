//! Inspecting: looks until nothing changes meanwhile, counts, verifies, and looks again at what does not verify.

use std::collections::HashSet;
use std::sync::Arc;

use device::{Disk, Journal as Log};

use super::items::{self, ItemCounts};
use super::look::{self, CheckpointReport, JournalReport, Look, SegmentCounts};
use super::verify::{self, FlawedPlace, Verified};
use super::{InspectError, Outlook, Progress};
use crate::durability::SuperblockCopy;
use crate::durability::find::LastRun;
use crate::format::superblock::Superblock;
use crate::store::SegmentRecord;

/// How often an image that changes is looked at before what is known of it has to do.
const LOOKS: usize = 5;

/// What to look at.
#[derive(Clone, Copy, Debug)]
pub struct InspectOptions {
    /// Read every live segment and verify every live item in it.
    pub verify: bool,
    /// Bytes of memory to tell by which items are the latest of their keys.
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

/// What an image holds.
#[derive(Debug)]
pub struct Inspection {
    /// The superblock that counts.
    pub superblock: Box<Superblock>,
    /// What lies in both places of one.
    pub copies: [SuperblockCopy; 2],
    /// What the next start would do.
    pub outlook: Outlook,
    /// The journal.
    pub journal: JournalReport,
    /// The checkpoint that the superblock names.
    pub checkpoint: Option<CheckpointReport>,
    /// Segments by state.
    pub segments: SegmentCounts,
    /// Items by state; none where nothing could be trusted.
    pub items: ItemCounts,
    /// Deadline of a `flush_all` whose time has not come, Unix seconds.
    pub flush_deadline: Option<u32>,
    /// What has been verified, where it was asked for.
    pub verified: Option<Verified>,
    /// Damage, beyond doubt; the first [`FlawedPlace`]s.
    pub flaws: Vec<FlawedPlace>,
    /// How many flaws there are.
    pub flaw_count: u64,
    /// The image has changed meanwhile: a cache is running on it.
    pub is_changing: bool,
    /// Segments that were written again while they were looked at; what they held is left out.
    pub segments_changed: u64,
}

impl Inspection {
    /// Whether the next start finds everything that should be there.
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

/// Looks until nothing changes meanwhile that would make the parts of it disagree. Tells whether
/// anything has.
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
            // What is found is true of about now; that nothing is, need not be.
            let found = look.found.is_some();
            return found.then_some((look, true)).ok_or(InspectError::Busy);
        }
        looks += 1;
    }
}

/// Reads what did not verify again, then looks whether it should be there. Returns whether something
/// has changed meanwhile.
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
        if certain.iter().any(|place| !place.flaw.is_of_an_item()) {
            inspection.items.unreadable += u64::from(record.items);
        } else if let Some(verified) = &mut inspection.verified {
            verified.items_corrupt += certain.len() as u64;
        }
        inspection.flaw_count += certain.len() as u64;
        let left = verify::FLAWS_KEPT.saturating_sub(inspection.flaws.len());
        inspection.flaws.extend(certain.into_iter().take(left));
    }
    Ok(has_changed)
}
