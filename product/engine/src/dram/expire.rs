//! The crawler: finds items that have expired or been flushed, and frees their memory.
//!
//! Memory is freed one chunk at a time. A pass walks the chunks, oldest first, and removes dead items from the table.
//! If enough of a chunk is dead, its live items are appended again at the head, and the chunk goes.
//!
//! ```text
//!   chunk ──> dead items leave ──> is a quarter dead? ──no──> next chunk
//!                                    └─yes──> live items move to the head ──> the chunk goes
//! ```
//!
//! A step looks at [`STEP_ENTRIES`] entries at most, so that the partition's lock is held for microseconds; between two
//! steps the log may change in any way. No pass begins while nothing in the tier can have expired.

use runtime::work::{self, Work};

use super::log::Handle;
use super::tier::{Crawler, DramTier, EvictContext};
use crate::format::item::{ItemHeader, state};

/// Number of entries that a step looks at.
const STEP_ENTRIES: usize = 128;

/// The live items of a chunk are moved if at least one in this many of its bytes is dead.
const DEAD_SHARE: usize = 4;

impl DramTier {
    /// Continues the pass over the tier, or begins one if an item may have expired. Returns whether more work is due
    /// now.
    pub(crate) fn expire_some(&mut self, context: &EvictContext<'_>) -> bool {
        if !self.crawler.is_passing {
            if self.soonest_expiry > context.now {
                return false;
            }
            // Items found alive, and items that come later, lower it again.
            self.soonest_expiry = u32::MAX;
            self.stats.crawls += 1;
            self.crawler = Crawler {
                is_passing: true,
                last: self.log.head_opened(),
                ..Crawler::default()
            };
        }
        let next = self.log.chunk_from(self.crawler.opened);
        let Some((slot, opened)) = next.filter(|&(_, opened)| opened <= self.crawler.last) else {
            self.crawler.is_passing = false;
            return false;
        };
        if opened != self.crawler.opened {
            // The crawler's chunk has gone.
            self.enter(opened, false);
        }
        let entries: Vec<(Handle, usize)> = self
            .log
            .entries_from(slot, self.crawler.at)
            .take(STEP_ENTRIES)
            .collect();
        for &(handle, _) in &entries {
            self.look_at(handle, context);
        }
        match entries.last() {
            Some(&(_, end)) if entries.len() == STEP_ENTRIES => self.crawler.at = end,
            _ => self.leave(slot, context),
        }
        true
    }

    /// Goes to the first entry of a chunk.
    fn enter(&mut self, opened: u64, is_moving: bool) {
        self.crawler = Crawler {
            opened,
            is_moving,
            at: 0,
            dead_bytes: 0,
            has_live: false,
            ..self.crawler
        };
    }

    fn look_at(&mut self, handle: Handle, context: &EvictContext<'_>) {
        let header = *self.log.header(handle);
        if header.has(state::DEAD) {
            return self.count_hole(&header);
        }
        self.stats.crawler_items_checked += 1;
        if header.is_expired(context.now) || header.version.get() < context.cutoff {
            work::count(Work::TierEntry, 1);
            self.stats.crawler_reclaimed += 1;
            self.count_expired(&header, context.now);
            self.count_hole(&header);
            // The flash copy of a clean item is dead as well; reclaim detects that by itself.
            self.unlink(self.hash_of(handle, context.seed), handle);
        } else if self.crawler.is_moving {
            self.append_again(handle, self.hash_of(handle, context.seed), header.clock());
        } else {
            self.crawler.has_live = true;
            self.note_expiry(header.expiry.get());
        }
    }

    fn count_hole(&mut self, header: &ItemHeader) {
        self.crawler.dead_bytes += self.log.entry_bytes(header).0;
    }

    /// Leaves a chunk whose entries have all been looked at.
    fn leave(&mut self, slot: u32, context: &EvictContext<'_>) {
        let Crawler {
            opened,
            dead_bytes,
            has_live,
            ..
        } = self.crawler;
        // The head is still being filled, and takes the moved items.
        let is_head = opened == self.log.head_opened();
        if !is_head && !has_live {
            // Within the bound the chunk is kept for the next head.
            let within = self.memory_bytes() <= context.limit_bytes;
            self.log.close(slot, within);
        } else if !is_head && dead_bytes >= self.log.chunk_bytes() / DEAD_SHARE {
            return self.enter(opened, true);
        }
        self.enter(opened + 1, false);
    }
}
