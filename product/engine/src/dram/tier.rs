//! [`DramTier`]: the items of a partition within the bound on their memory.

use std::sync::Arc;

use runtime::pages::PagePool;
use runtime::work::{self, Work};

use super::below::NoSpace;
use super::context::EvictContext;
use super::evict::{ClockHand, PATIENCE};
use super::expire::Crawler;
use super::items::{FoundToPut, Items, NewItem, Older};
use crate::format::item::state;
use crate::key::Key;

/// The DRAM tier of one partition. An item enters only when its memory is within the bound.
pub(crate) struct DramTier {
    pub(crate) items: Items,
    pub(crate) crawler: Crawler,
    /// Items that the hand of the CLOCK shared with flash has passed, less the items of the chunks evicted for it.
    passed: u64,
}

impl DramTier {
    pub(crate) fn new(chunk_bytes: usize, pool: Arc<PagePool>) -> Self {
        Self {
            items: Items::new(chunk_bytes, pool),
            crawler: Crawler::default(),
            passed: 0,
        }
    }

    /// Puts an item in place of the tier's item of `key`, making space first. Returns where copies of the old item may
    /// be.
    pub(crate) fn put(
        &mut self,
        key: Key<'_>,
        new: &NewItem<'_>,
        context: &EvictContext<'_>,
    ) -> Result<Older, NoSpace> {
        work::count(Work::TierEntry, 1);
        let mut header = new.header(key);
        let old = match self.items.find_to_put(key) {
            FoundToPut::Item(handle) => Some(handle),
            FoundToPut::None => None,
            FoundToPut::FullChain(oldest) => {
                self.items.drop_from_chain(key.hash(), oldest);
                None
            }
        };
        if let Some(handle) = old {
            header.count_update_of(self.items.log.header(handle));
            let older = self.items.older(handle);
            if self.items.overwrite(handle, &header, new) {
                return Ok(older);
            }
        }
        let (bytes, value_bytes) = self.items.log.entry_bytes(&header);
        self.hand(context).make_space(bytes, value_bytes)?;
        let mut older = Older::PerhapsOnFlash;
        // Looked up again, since making space may have evicted the old item.
        if let Some(handle) = old.and_then(|_| self.items.find(key)) {
            older = self.items.older(handle);
            self.items.unlink(key.hash(), handle);
        }
        if old.is_none()
            && header.has(state::DIRTY)
            && let Some(known) = context.gate.known_before(key.hash())
        {
            known.note_in(&mut header);
        }
        self.items.insert(key, &header, new);
        Ok(older)
    }

    /// Frees memory above the bound. Stops and returns false if flash has no space for an item that only memory has.
    pub(crate) fn shrink(&mut self, context: &EvictContext<'_>) -> bool {
        let mut rounds = 0;
        while self.items.memory_bytes() > context.limit_bytes && self.items.log.open_chunks() > 1 {
            if self.hand(context).evict_tail(rounds < PATIENCE).is_err() {
                return false;
            }
            rounds += 1;
        }
        true
    }

    /// Moves the CLOCK hand past `items` items, in step with the hand on flash: the oldest chunks are evicted, even if
    /// there is free space.
    pub(crate) fn pass(&mut self, items: u64, context: &EvictContext<'_>) {
        self.passed += items;
        while self.items.log.open_chunks() > 1 {
            let items_a_chunk = (self.items.len() / self.items.log.open_chunks()) as u64;
            if self.passed < items_a_chunk.max(1) {
                return;
            }
            self.passed -= items_a_chunk.max(1);
            if self.hand(context).evict_tail(true).is_err() {
                break;
            }
            self.items.stats.chunks_passed += 1;
        }
        self.passed = 0;
    }

    fn hand<'a>(&'a mut self, context: &'a EvictContext<'a>) -> ClockHand<'a> {
        ClockHand {
            items: &mut self.items,
            context,
        }
    }
}
