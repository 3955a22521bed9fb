//! Eviction: the CLOCK hand takes the oldest chunk.

use super::NoRoom;
use super::log::Handle;
use super::tier::{DramTier, EvictContext, table_hash};
use crate::format::item::{HEADER_BYTES, MAX_KEY_BYTES, state};
use crate::key::{Key, KeyHash};
use crate::placement::Probe;
use crate::store::AppendItem;
use runtime::work::{self, Work};

/// Chunks the hand may pass for one item's room before it stops giving second chances.
const PATIENCE: usize = 16;

/// The part of a tier's memory that values beside one chunk may take, beyond the first of them.
const BESIDE_SHARE: usize = 4;

/// What the hand does with an entry.
enum Verdict {
    /// Nothing is lost with it.
    Drop,
    /// It was read: append it again.
    Again,
    /// It has to be on flash first.
    Place,
}

impl DramTier {
    /// Makes room for an entry of `bytes` in the log and `value_bytes` beside it.
    ///
    /// Every round gives up the oldest chunk, and after [`PATIENCE`] rounds nothing is appended
    /// again, so that it ends. One chunk with nothing beside it is the least a tier can do with,
    /// whatever the bound.
    pub(super) fn make_room(
        &mut self,
        bytes: usize,
        value_bytes: usize,
        context: &EvictContext<'_>,
    ) -> Result<(), NoRoom> {
        let mut rounds = 0;
        loop {
            // A chunk of stubs goes with all their values: it is closed before these are many.
            let beside = self.log.head_beside_bytes() + value_bytes;
            let fits = self.log.fits(bytes)
                && (value_bytes == 0 || beside <= context.limit_bytes / BESIDE_SHARE);
            let chunk = if fits { 0 } else { self.log.next_head_bytes() };
            let need = value_bytes + chunk + self.table_growth();
            let least = self.log.open_chunks() <= 1 && self.log.beside_bytes() == 0;
            if least || self.memory_bytes() + need <= context.limit_bytes {
                if !fits {
                    self.log.open_head();
                }
                return Ok(());
            }
            if self.log.open_chunks() == 1 {
                // What is appended again has to lie elsewhere.
                self.log.open_head();
            }
            self.evict_tail(context, rounds < PATIENCE)?;
            rounds += 1;
        }
    }

    /// Gives up memory beyond the bound, as far as flash has room for what only memory has.
    pub(crate) fn shrink(&mut self, context: &EvictContext<'_>) {
        let mut rounds = 0;
        while self.memory_bytes() > context.limit_bytes && self.log.open_chunks() > 1 {
            if self.evict_tail(context, rounds < PATIENCE).is_err() {
                return;
            }
            rounds += 1;
        }
    }

    /// Bytes that the table grows by when one more entry is inserted.
    fn table_growth(&self) -> usize {
        if self.table.len() == self.table.capacity() {
            self.table.allocation_size()
        } else {
            0
        }
    }

    /// Takes the oldest chunk: its entries leave, or are appended again.
    ///
    /// When flash has no room for one, the entries before it have left, it and those after it stay.
    fn evict_tail(&mut self, context: &EvictContext<'_>, chances: bool) -> Result<(), NoRoom> {
        let Some(slot) = self.log.tail() else {
            return Ok(());
        };
        let entries: Vec<Handle> = self.log.entries(slot).collect();
        let mut to_place: Vec<(KeyHash, Handle)> = Vec::new();
        for handle in entries {
            if self.log.header(handle).has(state::DEAD) {
                continue;
            }
            work::count(Work::TierEntry, 1);
            let hash = self.hash_of(handle, context.seed);
            match self.judge(handle, hash, context, chances) {
                Verdict::Drop => self.unlink(hash, handle),
                Verdict::Again => self.append_again(handle, hash),
                Verdict::Place => to_place.push((hash, handle)),
            }
        }
        self.place(&to_place, context)?;
        // Within the bound the chunk is kept for the next head.
        let within = self.memory_bytes() <= context.limit_bytes;
        self.log.close_tail(within);
        Ok(())
    }

    fn hash_of(&self, handle: Handle, seed: u64) -> KeyHash {
        Key::new(self.log.key(handle), seed)
            .expect("stored keys are valid")
            .hash()
    }

    fn judge(
        &mut self,
        handle: Handle,
        hash: KeyHash,
        context: &EvictContext<'_>,
        chances: bool,
    ) -> Verdict {
        let header = *self.log.header(handle);
        if header.is_expired(context.now) || header.version.get() < context.cutoff {
            self.stats.reclaimed += 1;
            // A clean item's copy is as dead; reclaim finds out by itself.
            return Verdict::Drop;
        }
        if chances && header.has(state::REFERENCED) {
            self.stats.second_chances += 1;
            return Verdict::Again;
        }
        // The copy of a clean item may have been reclaimed while this one stayed.
        let is_on_flash = || {
            let read = header.has(state::REFERENCED) || header.has(state::FETCHED);
            let probe = if read {
                context.placement.access(hash)
            } else {
                context.placement.probe(hash)
            };
            probe != Probe::Absent
        };
        if !header.has(state::DIRTY) && is_on_flash() {
            self.stats.clean_evictions += 1;
            self.stats.evictions += 1;
            return Verdict::Drop;
        }
        Verdict::Place
    }

    /// Appends an entry again at the head, its reference bit cleared.
    fn append_again(&mut self, handle: Handle, hash: KeyHash) {
        let mut header = *self.log.header(handle);
        header.state &= !state::REFERENCED;
        let (item, shared) = self.log.item(handle);
        let (cas_unique, shared) = (item.cas_unique, shared.cloned());
        // Copied out: the chunk it lies in and the one it goes to are borrowed alike.
        let mut key = [0; MAX_KEY_BYTES];
        let key = &mut key[..item.key.len()];
        key.copy_from_slice(item.key);
        let value = if shared.is_some() {
            Vec::new()
        } else {
            item.value.to_vec()
        };
        let (bytes, _) = self.log.entry_bytes(&header);
        work::count(Work::ItemCopied, 1);
        work::count(Work::ByteCopied, header.body_bytes() as u64);
        self.log.kill(handle);
        if !self.log.fits(bytes) {
            self.log.open_head();
        }
        let new = self.log.append(&header, cas_unique, key, &value, shared);
        let low = hash.low();
        if let Some(slot) = self
            .table
            .find_mut(table_hash(low), |slot| slot.handle == handle)
        {
            slot.handle = new;
        }
    }

    fn place(
        &mut self,
        entries: &[(KeyHash, Handle)],
        context: &EvictContext<'_>,
    ) -> Result<(), NoRoom> {
        if entries.is_empty() {
            return Ok(());
        }
        let batch: Vec<AppendItem<'_>> = entries
            .iter()
            .map(|&(hash, handle)| AppendItem {
                hash,
                item: self.log.item(handle).0,
            })
            .collect();
        let placed = context.placement.place(&batch);
        for &(hash, handle) in &entries[..placed] {
            self.unlink(hash, handle);
        }
        self.stats.demotions += placed as u64;
        self.stats.evictions += placed as u64;
        if placed < entries.len() {
            Err(NoRoom)
        } else {
            Ok(())
        }
    }

    /// Marks the items whose copy has left the flash as dirty, for an orderly stop to place them.
    pub(crate) fn mark_unplaced(&mut self, context: &EvictContext<'_>) {
        let handles: Vec<Handle> = self
            .log
            .slots_in_order()
            .flat_map(|slot| self.log.entries(slot))
            .collect();
        for handle in handles {
            if self.log.header(handle).has(state::DEAD | state::DIRTY) {
                continue;
            }
            if context.placement.probe(self.hash_of(handle, context.seed)) == Probe::Absent {
                self.log.header_mut(handle).state |= state::DIRTY;
                self.dirty += 1;
            }
        }
    }

    /// Places every dirty item, oldest first, for an orderly stop. Items stay in memory, clean.
    ///
    /// Each is placed once: on a flash smaller than memory, what was placed first may be reclaimed
    /// before the last is placed.
    ///
    /// # Errors
    /// [`NoRoom`] when flash has none at present; what was placed is clean, so that calling again
    /// goes on.
    pub(crate) fn place_all(&mut self, context: &EvictContext<'_>) -> Result<(), NoRoom> {
        /// Items placed at a time.
        const BATCH: usize = 256;
        let handles: Vec<Handle> = self
            .log
            .slots_in_order()
            .flat_map(|slot| self.log.entries(slot))
            .collect();
        let dirty: Vec<(KeyHash, Handle)> = handles
            .into_iter()
            .filter(|&handle| {
                let header = self.log.header(handle);
                !header.has(state::DEAD)
                    && header.has(state::DIRTY)
                    && !header.is_expired(context.now)
                    && header.version.get() >= context.cutoff
            })
            .map(|handle| (self.hash_of(handle, context.seed), handle))
            .collect();
        for entries in dirty.chunks(BATCH) {
            let batch: Vec<AppendItem<'_>> = entries
                .iter()
                .map(|&(hash, handle)| AppendItem {
                    hash,
                    item: self.log.item(handle).0,
                })
                .collect();
            let placed = context.placement.place(&batch);
            for &(hash, handle) in &entries[..placed] {
                let header = self.log.header_mut(handle);
                self.dirty -= u64::from(header.has(state::DIRTY));
                header.state &= !state::DIRTY;
                if header.has(state::REFERENCED) {
                    context.placement.access(hash);
                }
            }
            self.stats.demotions += placed as u64;
            if placed < entries.len() {
                return Err(NoRoom);
            }
        }
        Ok(())
    }
}

const _: () = assert!(
    HEADER_BYTES + MAX_KEY_BYTES < 1024,
    "a stub fits the smallest chunk"
);
