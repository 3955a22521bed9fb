//! Drops outdated pages at once if memory is short. Otherwise the next compaction drops them.

use super::core::Cascade;

impl Cascade {
    /// Releases the oldest pages of each inactive bucket, with their filters, as long as they name only segments that are
    /// gone. Memory operations only.
    pub fn trim(&self) {
        let horizon = self.segments.horizon();
        let filter = &self.layouts.active.page_filter;
        for (number, partition) in self.partitions.iter().enumerate() {
            let partition = &mut *partition.lock();
            let buckets = partition.lists.iter_mut();
            let mut has_changed = false;
            for bucket in buckets.flat_map(|list| &mut list.buckets) {
                let oldest = bucket.pages.iter();
                let gone = oldest.take_while(|page| page.newest < horizon).count();
                if gone > 0 {
                    self.store.release(bucket.drop_oldest(filter, gone));
                    bucket.shrink();
                    has_changed = true;
                }
            }
            if has_changed {
                // A search may have read a mapping on a page that is released now.
                partition.epoch += 1;
                self.account(number, partition);
            }
        }
    }
}
