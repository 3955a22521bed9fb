//! [`Flash`]: the pages of the region with their numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::encoding::mapping::Entry;
use futures_util::future::join_all;

use super::block;
use super::counters::{Counters, add};
use super::doubt::{Doubt, InFlight};
use super::layout::{BlockLayout, PageError, PageRef};
use super::pages::PageStore;
use super::request::CheckpointRequest;
use super::segments::Segments;

/// Pause after a device error, and while no page is free.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// Number of retries before a page counts as lost.
const READS: usize = 4;
/// Number of pages read at once.
const READ_PAGES: usize = 16;

/// The region's pages, the numbers under which they are written, and the request for the checkpoint that frees them.
///
/// Invariant: a run takes each number once. A write of a tier's pages is noted in `doubt` until it ends,
/// so that a sync that fails meanwhile puts the pages in doubt.
pub struct Flash {
    /// The region.
    pub store: PageStore,
    /// The request for a checkpoint.
    pub request: CheckpointRequest,
    pub(super) doubt: Doubt,
    next_number: AtomicU64,
    counters: Arc<Counters>,
}

impl Flash {
    pub(super) fn new(
        store: PageStore,
        request: CheckpointRequest,
        partitions: usize,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            store,
            request,
            doubt: Doubt::new(partitions),
            next_number: AtomicU64::new(1),
            counters: Arc::clone(counters),
        }
    }

    /// Returns the lowest number that is not taken.
    pub(super) fn next_number(&self) -> u64 {
        self.next_number.load(Ordering::Relaxed)
    }

    /// Sets the lowest number that is not taken, as a start does.
    pub(super) fn number_from(&self, number: u64) {
        self.next_number.store(number, Ordering::Relaxed);
    }

    /// Takes `count` adjacent numbers and returns the first.
    pub(super) fn take_numbers(&self, count: u64) -> u64 {
        self.next_number.fetch_add(count, Ordering::Relaxed)
    }

    /// Begins a write of `pages` pages of a tier. Returns a guard that ends the write when dropped, and the number of the
    /// first page.
    pub(super) fn begin_write(&self, pages: usize) -> (InFlight<'_>, u64) {
        self.doubt.writing(|| self.take_numbers(pages as u64))
    }

    /// Makes all written pages durable. Returns false if a sync has failed since the last successful one began.
    pub(super) async fn sync(&self, segments: &dyn Segments) -> bool {
        let begun = self.doubt.sync_begins(|| self.next_number());
        let is_good = segments.sync(self.store.region()).await.is_ok();
        let failures = segments.failed_syncs();
        self.doubt
            .sync_ended(is_good, failures, begun, self.next_number())
    }

    /// Returns all entries of the pages, or the error of the first page that is lost.
    pub(super) async fn read_pages(
        &self,
        layout: &BlockLayout,
        pages: &[PageRef],
    ) -> Result<Vec<Entry>, PageError> {
        let mut entries = Vec::with_capacity(pages.len() * layout.page_entries);
        for some in pages.chunks(READ_PAGES) {
            for of_page in join_all(some.iter().map(|&page| self.read_page(layout, page))).await {
                entries.extend(of_page?);
            }
        }
        Ok(entries)
    }

    async fn read_page(
        &self,
        layout: &BlockLayout,
        page: PageRef,
    ) -> Result<Vec<Entry>, PageError> {
        let mut tries = 0;
        loop {
            let mut entries = Vec::new();
            match block::read(&self.store, layout, page, &mut entries).await {
                Ok(()) => return Ok(entries),
                Err(error) if error.is_passing() && tries < READS => tries += 1,
                Err(error) => {
                    add(&self.counters.damaged_pages, 1);
                    return Err(error);
                }
            }
            runtime::sleep(PAUSE).await;
        }
    }
}
