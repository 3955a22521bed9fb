//! [`Parts`]: what the appender, the reader and the writers of a store share.

use std::sync::Arc;

use super::blocks::Blocks;
use super::buffers::Buffers;
use super::counters::StoreCounters;
use super::pool::SegmentPool;
use super::table::SegmentTable;

/// The parts of a store that its appender, its reader and its writers share. Each of them keeps the parts that it uses.
pub(super) struct Parts {
    pub(super) table: Arc<SegmentTable>,
    pub(super) blocks: Arc<Blocks>,
    pub(super) buffers: Arc<Buffers>,
    pub(super) pool: Arc<SegmentPool>,
    pub(super) counters: Arc<StoreCounters>,
}
