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

use super::context::EvictContext;
use super::items::Items;
use super::log::Handle;
use crate::format::item::{ItemHeader, state};

/// Number of entries that a step looks at.
const STEP_ENTRIES: usize = 128;

/// The live items of a chunk are moved if at least one in this many of its bytes is dead.
const DEAD_SHARE: usize = 4;

/// Progress of the crawler in its pass over the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Crawler {
    /// Whether a pass is in progress.
    is_passing: bool,
    /// Number of the crawler's chunk, in the order in which chunks were opened.
    opened: u64,
    /// Number of the last chunk of this pass.
    last: u64,
    /// Byte of the chunk at which the next entry starts.
    at: usize,
    /// Bytes of dead entries in the chunk so far.
    dead_bytes: usize,
    /// Whether the chunk so far has a live entry that stays in place.
    has_live: bool,
    /// Whether the chunk's live entries are being moved to the head, so that the chunk can go.
    is_moving: bool,
}

impl Crawler {
    /// Continues the pass over the tier, or begins one if an item may have expired. Returns whether more work is due
    /// now.
    pub(crate) fn step(&mut self, items: &mut Items, context: &EvictContext<'_>) -> bool {
        if !self.is_passing {
            if items.soonest_expiry > context.now {
                return false;
            }
            // Items found alive, and items that come later, lower it again.
            items.soonest_expiry = u32::MAX;
            items.stats.crawls += 1;
            *self = Self {
                is_passing: true,
                last: items.log.head_opened(),
                ..Self::default()
            };
        }
        let next = items.log.chunk_from(self.opened);
        let Some((slot, opened)) = next.filter(|&(_, opened)| opened <= self.last) else {
            self.is_passing = false;
            return false;
        };
        if opened != self.opened {
            // The crawler's chunk has gone.
            self.enter(opened, false);
        }
        let entries: Vec<(Handle, usize)> = items
            .log
            .entries_from(slot, self.at)
            .take(STEP_ENTRIES)
            .collect();
        for &(handle, _) in &entries {
            self.look_at(items, handle, context);
        }
        match entries.last() {
            Some(&(_, end)) if entries.len() == STEP_ENTRIES => self.at = end,
            _ => self.leave(items, slot, context),
        }
        true
    }

    /// Goes to the first entry of a chunk.
    fn enter(&mut self, opened: u64, is_moving: bool) {
        *self = Self {
            opened,
            is_moving,
            at: 0,
            dead_bytes: 0,
            has_live: false,
            ..*self
        };
    }

    fn look_at(&mut self, items: &mut Items, handle: Handle, context: &EvictContext<'_>) {
        let header = *items.log.header(handle);
        if header.has(state::DEAD) {
            return self.count_hole(items, &header);
        }
        items.stats.crawler_items_checked += 1;
        let second = context.second_of(&header);
        if header.is_expired(second) || header.version.get() < context.cutoff {
            work::count(Work::TierEntry, 1);
            items.stats.crawler_reclaimed += 1;
            items.stats.count_expired(&header, second);
            self.count_hole(items, &header);
            // The flash copy of a clean item is dead as well; reclaim detects that by itself.
            items.unlink(items.hash_of(handle, context.seed), handle);
        } else if self.is_moving {
            items.append_again(handle, items.hash_of(handle, context.seed), header.clock());
        } else {
            self.has_live = true;
            items.note_expiry(header.expiry.get());
        }
    }

    fn count_hole(&mut self, items: &Items, header: &ItemHeader) {
        self.dead_bytes += items.log.entry_bytes(header).0;
    }

    /// Leaves a chunk whose entries have all been looked at.
    fn leave(&mut self, items: &mut Items, slot: u32, context: &EvictContext<'_>) {
        let Self {
            opened,
            dead_bytes,
            has_live,
            ..
        } = *self;
        // The head is still being filled, and takes the moved items.
        let is_head = opened == items.log.head_opened();
        if !is_head && !has_live {
            // Within the bound the chunk is kept for the next head.
            let within = items.memory_bytes() <= context.limit_bytes;
            items.log.close(slot, within);
        } else if !is_head && dead_bytes >= items.log.chunk_bytes() / DEAD_SHARE {
            return self.enter(opened, true);
        }
        self.enter(opened + 1, false);
    }
}
