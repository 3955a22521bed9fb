//! [`DramTier`]: the items of a partition within the bound on their memory.

use std::sync::Arc;

use runtime::pages::PagePool;
use runtime::work::{self, Work};

use super::below::NoSpace;
use super::collect::Collector;
use super::context::EvictContext;
use super::evict::{ClockHand, Need};
use super::expire::Crawler;
use super::items::{FoundToPut, Items, NewItem, Older};
use super::large::{LargeClaim, LargeValues, Ticket};
use super::log::{Handle, LARGEST_INLINE};
use crate::format::item::state;
use crate::key::{Key, KeyHash};

/// The DRAM tier of one partition. An item enters only when its memory is within the bound.
pub(crate) struct DramTier {
    pub(crate) items: Items,
    pub(crate) crawler: Crawler,
    /// Items that the hand of the CLOCK shared with flash has passed, less the items of the chunks evicted for it.
    passed: u64,
}

/// Outcome of the eviction of a large value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LargeFate {
    /// The value had left before.
    Gone,
    /// The value was accessed too late to leave.
    TooYoung,
    /// The value went to the back of the queue.
    Queued,
    /// The value has left memory and given back this number of bytes.
    Evicted(usize),
}

/// Returns the bytes of the largest item whose value lies in a log with chunks of `chunk_bytes`, not beside it.
pub(crate) fn inline_bytes(chunk_bytes: usize) -> usize {
    chunk_bytes / LARGEST_INLINE
}

impl DramTier {
    /// Creates the tier of the partition with this number. It takes chunks of `chunk_bytes` from `pool`, and counts its
    /// large values among `large`.
    pub(crate) fn new(
        partition: usize,
        chunk_bytes: usize,
        pool: Arc<PagePool>,
        large: Arc<LargeValues>,
    ) -> Self {
        Self {
            items: Items::new(partition, chunk_bytes, pool, large),
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
        self.enter(key, new, None, context)
    }

    /// Notes that an item in memory is to be placed with its group, if items collect and its value is not large.
    pub(crate) fn collect(&mut self, handle: Handle, hash: KeyHash, context: &EvictContext<'_>) {
        let is_large = self.items.log.large_of(handle).is_some();
        if let Some(collecting) = context.flash.collecting().filter(|_| !is_large) {
            let mut collector = Collector {
                items: &mut self.items,
                context,
                collecting,
            };
            collector.note(handle, hash);
        }
    }

    /// Puts an item with a large value, as [`put`](DramTier::put) does. The claim and the old value of `key`, if it is
    /// large, cover the value's bytes.
    pub(crate) fn put_large(
        &mut self,
        key: Key<'_>,
        new: &NewItem<'_>,
        claim: &mut LargeClaim<'_>,
        context: &EvictContext<'_>,
    ) -> Result<Older, NoSpace> {
        claim.inherit(self.items.large_bytes_of(key));
        self.enter(key, new, Some(claim), context)
    }

    fn enter(
        &mut self,
        key: Key<'_>,
        new: &NewItem<'_>,
        claim: Option<&mut LargeClaim<'_>>,
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
        let (bytes, beside) = self.items.log.entry_bytes(&header);
        let value_bytes = if claim.is_some() { 0 } else { beside };
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
        self.items.insert(key, &header, new, claim);
        Ok(older)
    }

    /// Evicts a large value, or puts it at the back of the queue if it has been read. A value whose last access is in
    /// Unix second `before` or later stays, unless it has been read since the hand passed it.
    ///
    /// # Errors
    /// [`NoSpace`] if flash has no space for the value.
    pub(crate) fn evict_large(
        &mut self,
        hash: KeyHash,
        ticket: Ticket,
        before: u32,
        context: &EvictContext<'_>,
    ) -> Result<LargeFate, NoSpace> {
        let Some(handle) = self.items.find_large(hash, ticket) else {
            return Ok(LargeFate::Gone);
        };
        let header = self.items.log.header(handle);
        if header.clock() == 0 && header.last_access.get() >= before {
            return Ok(LargeFate::TooYoung);
        }
        let bytes = self.items.large_bytes();
        let has_left = self.hand(context).evict_large(hash, handle)?;
        Ok(if has_left {
            LargeFate::Evicted(bytes - self.items.large_bytes())
        } else {
            LargeFate::Queued
        })
    }

    /// Frees memory above the bound. Stops and returns false if flash has no space for an item that only memory has.
    pub(crate) fn shrink(&mut self, context: &EvictContext<'_>) -> bool {
        let chunks = self.items.log.open_chunks();
        let mut rounds = 0;
        while self.items.memory_bytes() > context.limit_bytes && self.items.log.open_chunks() > 1 {
            let need = Need::after(rounds, chunks);
            if self.hand(context).evict_tail(need).is_err() {
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
            if self.hand(context).evict_tail(Need::Usual).is_err() {
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
