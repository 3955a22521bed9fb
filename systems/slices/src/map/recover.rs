//! The recovery of records that may not be in the table: the records behind the end that the log says.
//!
//! A record follows another one, or begins on the next page after a sync, or in the next segment. It is taken from the drive or,
//! if it is not there, from the slot of its segment in the log. Then the records are written, and their addresses go to the
//! table, in the order of the records. So the table has the newest change of each key, whatever it had before.
//!
//! A record that cannot be read, or has decayed, says nothing about the records behind it: a start tries every place where a
//! record may begin. It ends after two segments that have been read and have no record, so that no record is overwritten.
//!
//! An entry of the table that names the same record, or a later one, stays. Inserting it again would displace the oldest entries,
//! whose records still exist. And if a newer record has decayed, the key is damaged; its older value must not return.
//!
//! Records of this start get a new epoch. Records behind the end have an older epoch, and are never taken for later records.

use std::sync::Arc;
use std::time::Duration;

use crate::encoding::map::{RECORD_ALIGN_BYTES, RECORD_HEAD_BYTES, Record, RecordAddress};
use device::{AlignedBuf, PAGE_BYTES};
use futures_util::future::join_all;

use super::log::SLOTS;
use super::records::{ENTRIES_AT_ONCE, Records, TableChange};
use super::state::{State, Unstored};
use crate::error::SliceError;

/// Number of failed page reads that a start repeats until the rest counts as lost, and the pause before each.
const READS_AGAIN: u32 = 100;
const READ_PAUSE: Duration = Duration::from_millis(10);

/// Returns the records of a map with all records that a crash has left, in a new epoch.
pub(super) async fn recovered(mut records: Records) -> Result<Records, SliceError> {
    let synced = records.state.lock().synced;
    let end = recover(&records, synced).await?;
    *records.state.lock() = State::new(&records.ring, end, synced);
    // A power cut may have torn the first write of the segment that follows.
    records.torn = records.ring.tail(records.ring.segment_of(end).0 + 1);
    // Before the new epoch begins, all records of the old epoch are durable, and then their end: behind an older end no start
    // would find them. The new epoch is durable before it has a record.
    records.sync_table().await?;
    records.sync_table().await?;
    records.epoch = records.epoch.wrapping_add(1);
    records.sync_table().await?;
    Ok(records)
}

/// Brings the records from `end` on to the drives and the table. Returns the end of the records.
async fn recover(records: &Records, mut end: u64) -> Result<u64, SliceError> {
    let (first, mut from) = records.ring.segment_of(end);
    let mut reads_again = READS_AGAIN;
    let mut is_behind_none = false;
    let last = first + records.most_unsynced() + SLOTS as u64;
    let behind_all = records.ring.start_of(last + 1);
    for segment in first..=last {
        let (on_drive, is_whole) = read_left(records, segment, &mut reads_again).await;
        match records_left(records, segment, from, &on_drive)? {
            Some(found) => {
                records.write_pages(&found).await?;
                change_table_again(records, &found, behind_all).await?;
                end = records.ring.start_of(segment) + found.range.end as u64;
                is_behind_none = false;
            }
            // Records may go on behind a segment that had no space left, or that cannot be read.
            None if from > 0 || !is_whole => {}
            // The segment may have had one record, which has decayed.
            None if !is_behind_none => is_behind_none = true,
            None => break,
        }
        from = 0;
    }
    Ok(end)
}

/// Brings the addresses of records to the table, except for keys whose entry names the same record or a later one. All
/// records lie in front of `behind_all`.
async fn change_table_again(
    records: &Records,
    found: &Unstored,
    behind_all: u64,
) -> Result<(), SliceError> {
    let is_missing = async |change: TableChange| {
        let has = match records.table.get(change.hash).await {
            Ok(word) => word.and_then(|word| RecordAddress::decode(word, behind_all)),
            // A flush will displace the damaged entry, whatever it is.
            Err(_) => return Some(change),
        };
        let is_missing = match has {
            Some(has) => has.position < change.address.position,
            None => !change.is_delete,
        };
        is_missing.then_some(change)
    };
    let mut changes = records.changes_of(found).into_iter();
    loop {
        let some = changes.by_ref().take(ENTRIES_AT_ONCE).map(is_missing);
        let some = join_all(some).await;
        if some.is_empty() {
            return Ok(());
        }
        let missing: Vec<_> = some.into_iter().flatten().collect();
        records.change_table(&missing).await?;
    }
}

/// Reads a segment from its drive, with zeros for pages that cannot be read. Returns the bytes, and whether all pages were
/// read.
async fn read_left(records: &Records, segment: u64, reads_again: &mut u32) -> (AlignedBuf, bool) {
    let (drives, segment_bytes) = (records.table.drives(), records.ring.segment_bytes());
    let whole = records.ring.read(drives, segment, 0, segment_bytes).await;
    if let Ok(bytes) = whole {
        return (bytes, true);
    }
    let mut bytes = AlignedBuf::new(segment_bytes);
    let mut is_whole = true;
    for at in (0..segment_bytes).step_by(PAGE_BYTES) {
        let mut page = records.ring.read(drives, segment, at, PAGE_BYTES).await;
        while page.is_err() && *reads_again > 0 {
            *reads_again -= 1;
            runtime::sleep(READ_PAUSE).await;
            page = records.ring.read(drives, segment, at, PAGE_BYTES).await;
        }
        match page {
            Ok(page) => bytes[at..at + PAGE_BYTES].copy_from_slice(&page),
            Err(_) => is_whole = false,
        }
    }
    (bytes, is_whole)
}

/// Returns the records of the last epoch in a segment, from the start of a page on. Each is taken from the drive or from the
/// log.
fn records_left(
    records: &Records,
    segment: u64,
    from: usize,
    on_drive: &AlignedBuf,
) -> Result<Option<Unstored>, SliceError> {
    let in_log = records.log.read_slot(segment)?;
    let mut starts = Vec::new();
    let (mut at, mut end) = (from, from);
    let mut bytes = AlignedBuf::new(records.ring.segment_bytes());
    while at + RECORD_HEAD_BYTES <= bytes.len() {
        let position = records.ring.start_of(segment) + at as u64;
        let record_of = |bytes: &[u8]| {
            let record = Record::decode(records.instance.id, position, &bytes[at..]).ok()?;
            (record.epoch == records.epoch).then(|| record.len())
        };
        let found = record_of(on_drive).map(|len| (on_drive, len));
        let found = found.or_else(|| record_of(&in_log).map(|len| (&in_log, len)));
        if let Some((of, len)) = found {
            bytes[at..at + len].copy_from_slice(&of[at..at + len]);
            starts.push(at);
            at += len;
            end = at;
        } else {
            at += RECORD_ALIGN_BYTES;
        }
    }
    if starts.is_empty() {
        return Ok(None);
    }
    let range = from..end.next_multiple_of(PAGE_BYTES).min(bytes.len());
    let mut pages = AlignedBuf::new(range.len());
    pages.copy_from_slice(&bytes[range.clone()]);
    Ok(Some(Unstored {
        segment,
        pages: Some(Arc::new(pages)),
        starts: starts.into_iter().map(|at| at - from).collect(),
        is_full: false,
        range,
    }))
}
