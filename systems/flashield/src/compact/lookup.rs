//! Look-up through table and filters: figure 5 of the paper.

use format::segment::SegmentId;

use super::entry::CompactEntry;
use super::filters::SegmentFilter;
use super::probes::SlotId;
use super::table::CompactTable;

/// Returns the candidate entries of a key in the order in which to read them: the entries at its slots whose segment's
/// filter has the key. A segment without a filter may hold every key.
///
/// The entries are those at the time of the call, and the table is free at once; filters are asked one by one.
#[inline]
pub fn candidates<'a>(
    table: &CompactTable,
    filter_of: impl Fn(SegmentId) -> Option<&'a SegmentFilter>,
    hash: u64,
) -> impl Iterator<Item = (SlotId, CompactEntry)> {
    table.entries(hash).filter(move |(_, entry)| {
        filter_of(entry.location.segment).is_none_or(|filter| filter.contains(hash))
    })
}
