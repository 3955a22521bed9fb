//! Eviction: the CLOCK hand takes the oldest chunk.

use std::cmp::Reverse;

use super::log::Handle;
use super::tier::{DramTier, EvictContext, Slot, table_hash};
use super::{Held, NoSpace};
use crate::admission::Verdict;
use crate::flash::Placed;
use crate::format::item::{HEADER_BYTES, ItemHeader, MAX_KEY_BYTES, state};
use crate::key::{Key, KeyHash};
use crate::store::{AppendItem, Priority};
use runtime::work::{self, Work};

/// Chunks that the CLOCK hand may evict to make space for one item before it stops giving second chances.
const PATIENCE: usize = 16;

/// Values whose stubs share a chunk may take the tier's memory divided by this, beside the log; a single value may take
/// more.
const BESIDE_SHARE: usize = 4;

/// The CLOCK hand's decision on an entry.
enum Fate {
    /// The entry is removed; nothing is lost with it, or admission has refused it.
    Drop,
    /// The entry has been read and is appended again.
    Again,
    /// The item has to be placed on flash first.
    Place,
}

impl DramTier {
    /// Makes space for an entry of `bytes` in the log and `value_bytes` beside it.
    ///
    /// Every round evicts the oldest chunk. After [`PATIENCE`] rounds no entry is appended again, so that the loop
    /// ends. A tier always has one chunk with nothing beside it, whatever the bound.
    pub(super) fn make_space(
        &mut self,
        bytes: usize,
        value_bytes: usize,
        context: &EvictContext<'_>,
    ) -> Result<(), NoSpace> {
        let mut rounds = 0;
        loop {
            // A chunk of stubs is evicted with all their values: it is closed before its values take too much.
            let beside = self.log.head_beside_bytes + value_bytes;
            let fits = self.log.fits(bytes)
                && (value_bytes == 0 || beside <= context.limit_bytes / BESIDE_SHARE);
            let chunk = if fits { 0 } else { self.log.next_head_bytes() };
            let need = value_bytes + chunk + self.table_growth();
            let least = self.log.open_chunks() <= 1 && self.log.beside_bytes == 0;
            if least || self.memory_bytes() + need <= context.limit_bytes {
                if !fits {
                    self.log.open_head();
                }
                return Ok(());
            }
            if self.log.open_chunks() == 1 {
                // Entries that are appended again need another chunk.
                self.log.open_head();
            }
            self.evict_tail(context, rounds < PATIENCE)?;
            self.stats.direct_reclaims += 1;
            rounds += 1;
        }
    }

    /// Frees memory above the bound. Stops and returns false if flash has no space for an item that only memory has.
    pub(crate) fn shrink(&mut self, context: &EvictContext<'_>) -> bool {
        let mut rounds = 0;
        while self.memory_bytes() > context.limit_bytes && self.log.open_chunks() > 1 {
            if self.evict_tail(context, rounds < PATIENCE).is_err() {
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
        while self.log.open_chunks() > 1 {
            let items_a_chunk = (self.len() / self.log.open_chunks()) as u64;
            if self.passed < items_a_chunk.max(1) {
                return;
            }
            self.passed -= items_a_chunk.max(1);
            if self.evict_tail(context, true).is_err() {
                break;
            }
            self.stats.chunks_passed += 1;
        }
        self.passed = 0;
    }

    /// Returns the bytes by which the table grows when one more entry is inserted.
    fn table_growth(&self) -> usize {
        let is_full = self.table.len() == self.table.capacity();
        usize::from(is_full) * self.table.allocation_size()
    }

    /// Evicts the oldest chunk: its entries leave, or are appended again.
    ///
    /// If flash has no space for an entry, the entries placed before it have left; it and the following entries stay.
    fn evict_tail(&mut self, context: &EvictContext<'_>, chances: bool) -> Result<(), NoSpace> {
        let Some(slot) = self.log.tail() else {
            return Ok(());
        };
        let live = |handle: &Handle| !self.log.header(*handle).has(state::DEAD);
        let with_hash = |handle: Handle| (self.hash_of(handle, context.seed), handle);
        let entries: Vec<(KeyHash, Handle)> =
            self.log.entries(slot).filter(live).map(with_hash).collect();
        context.flash.warm(&entries);
        let mut to_place: Vec<(KeyHash, Handle)> = Vec::new();
        for (hash, handle) in entries {
            work::count(Work::TierEntry, 1);
            match self.decide(handle, hash, context, chances) {
                Fate::Drop => self.unlink(hash, handle),
                Fate::Again => {
                    let clock = context.passed(self.log.header(handle).clock());
                    self.append_again(handle, hash, clock);
                }
                Fate::Place => to_place.push((hash, handle)),
            }
        }
        self.place(&mut to_place, context)?;
        self.shrink_table();
        // Within the bound the chunk is kept for the next head.
        let within = self.memory_bytes() <= context.limit_bytes;
        self.log.close_tail(within);
        Ok(())
    }

    /// Frees most of a table that is less than a quarter full.
    fn shrink_table(&mut self) {
        let len = self.table.len();
        if len * 4 < self.table.capacity() {
            self.table.shrink_to(len * 2, |slot| table_hash(slot.hash));
        }
    }

    pub(super) fn hash_of(&self, handle: Handle, seed: u64) -> KeyHash {
        Key::new(self.log.key(handle), seed)
            .expect("stored keys are valid")
            .hash()
    }

    fn decide(
        &mut self,
        handle: Handle,
        hash: KeyHash,
        context: &EvictContext<'_>,
        chances: bool,
    ) -> Fate {
        let header = *self.log.header(handle);
        if header.is_expired(context.now) || header.version.get() < context.cutoff {
            self.stats.reclaimed += 1;
            self.count_expired(&header, context.now);
            // The flash copy of a clean item is dead as well; reclaim detects that by itself.
            return Fate::Drop;
        }
        let may_stay = chances && header.clock() > 0;
        if !header.has(state::DIRTY) && may_stay {
            self.stats.second_chances += 1;
            return Fate::Again;
        }
        // The flash copy of a clean item may have been reclaimed while the item stayed in memory. If only a read of the
        // index would tell, the item is dropped: nearly all of its kind still have a copy, and writing a second one is
        // a waste.
        let may_be_on_flash = || {
            let held = if header.has(state::REFERENCED) || header.has(state::FETCHED) {
                context.flash.access(hash)
            } else {
                context.flash.holds(hash)
            };
            held != Held::No
        };
        if !header.has(state::DIRTY) && !context.rewrites_clean && may_be_on_flash() {
            self.stats.clean_evictions += 1;
            self.stats.evictions += 1;
            return Fate::Drop;
        }
        let verdict = self.judge(handle, hash, context);
        if may_stay && verdict.stays_if_read {
            self.stats.second_chances += 1;
            return Fate::Again;
        }
        if verdict.is_admitted {
            return Fate::Place;
        }
        context.gate.refused(hash, &header);
        self.count_rejected(&header);
        self.stats.evictions += 1;
        Fate::Drop
    }

    /// Returns admission's verdict on an item that flash does not have.
    pub(super) fn judge(
        &self,
        handle: Handle,
        hash: KeyHash,
        context: &EvictContext<'_>,
    ) -> Verdict {
        let header = self.log.header(handle);
        context.gate.judge(hash, self.log.key(handle), header)
    }

    /// Counts an item that does not go to flash because of a write limit.
    pub(crate) fn count_held_back(&mut self, header: &ItemHeader) {
        self.count_rejected(header);
        self.stats.held_back += 1;
    }

    /// Counts an item that leaves memory and does not go to flash.
    pub(super) fn count_rejected(&mut self, header: &ItemHeader) {
        self.stats.rejections += 1;
        self.stats.rejections_unfetched += u64::from(!header.has(state::FETCHED));
        self.stats.rejections_nonzero += u64::from(header.expiry.get() != 0);
    }

    /// Counts an item that leaves the tier expired and unread.
    pub(super) fn count_expired(&mut self, header: &ItemHeader, now: u32) {
        let unfetched = header.is_expired(now) && !header.has(state::FETCHED);
        self.stats.expired_unfetched += u64::from(unfetched);
    }

    /// Appends an entry again at the head, with this CLOCK value.
    pub(super) fn append_again(&mut self, handle: Handle, hash: KeyHash, clock: u8) {
        let mut header = *self.log.header(handle);
        header.set_clock(clock);
        // The crawler may have passed the head already, so the expiry is noted for its next pass.
        self.note_expiry(header.expiry.get());
        let (item, shared) = self.log.item(handle);
        let (cas_unique, shared) = (item.cas_unique, shared.cloned());
        // Copied out: the log cannot be borrowed both for the old entry and for the new one.
        let mut key = [0; MAX_KEY_BYTES];
        let key = &mut key[..item.key.len()];
        key.copy_from_slice(item.key);
        let inline = if shared.is_some() { &[] } else { item.value };
        let value = inline.to_vec();
        let (bytes, _) = self.log.entry_bytes(&header);
        work::count(Work::ItemCopied, 1);
        work::count(Work::ByteCopied, header.body_bytes() as u64);
        self.log.kill(handle);
        if !self.log.fits(bytes) {
            self.log.open_head();
        }
        let new = self.log.append(&header, cas_unique, key, &value, shared);
        let is_old = |slot: &Slot| slot.handle == handle;
        if let Some(slot) = self.table.find_mut(table_hash(hash.low()), is_old) {
            slot.handle = new;
        }
    }

    fn place(
        &mut self,
        entries: &mut [(KeyHash, Handle)],
        context: &EvictContext<'_>,
    ) -> Result<(), NoSpace> {
        if entries.is_empty() {
            return Ok(());
        }
        if context.flash.takes_larger_first() {
            entries.sort_by_key(|(_, handle)| Reverse(self.log.header(*handle).body_bytes()));
        }
        // An item for which there was space leaves memory, even if flash has dropped it.
        let taken = self.hand_over(entries, context).len();
        for &(hash, handle) in &entries[..taken] {
            context.gate.admitted(self.log.header(handle));
            self.unlink(hash, handle);
        }
        self.stats.demotions += taken as u64;
        self.stats.evictions += taken as u64;
        let left = &entries[taken..];
        if left.is_empty() {
            return Ok(());
        }
        if !context.flash.is_held_back() {
            return Err(NoSpace);
        }
        context.gate.held_back();
        // Older copies on flash have been outdated since the items were set.
        for &(hash, handle) in left {
            let header = *self.log.header(handle);
            context.gate.remember(hash, &header);
            self.count_held_back(&header);
            self.stats.evictions += 1;
            self.unlink(hash, handle);
        }
        Ok(())
    }

    /// Hands items to flash. Returns whether flash has the item, for each item for which there was space.
    pub(super) fn hand_over(
        &self,
        entries: &[(KeyHash, Handle)],
        context: &EvictContext<'_>,
    ) -> Vec<bool> {
        let batch: Vec<AppendItem<'_>> = entries
            .iter()
            .map(|&(hash, handle)| AppendItem {
                hash,
                item: self.log.item(handle).0,
                priority: Priority::LOWEST,
            })
            .collect();
        let mut taken = Vec::with_capacity(batch.len());
        context.flash.place(&batch, &mut |_, placed| match placed {
            Placed::NoSpace => {}
            Placed::OnFlash => taken.push(true),
            Placed::NeverFits | Placed::Dropped => taken.push(false),
        });
        taken
    }
}

const _: () = assert!(
    HEADER_BYTES + MAX_KEY_BYTES < 1024,
    "a stub fits the smallest chunk"
);
