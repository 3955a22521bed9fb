//! Collecting: items that go to flash wait in memory until their group is the fullest, and are placed together, in the order of
//! their hashes. They can be read meanwhile, and stay in memory afterwards, clean, until the CLOCK hand comes.
//!
//! ```text
//!   CLOCK hand ──> to be placed ──> collected, appended again ──> the fullest group is placed ──> clean ──> forgotten
//! ```

use super::below::NoSpace;
use super::context::EvictContext;
use super::items::Items;
use super::log::Handle;
use crate::format::item::{CHECKSUM_BYTES, ItemHeader, state};
use crate::format::segment::PAGE_BYTES;
use crate::key::{KeyHash, group_of};
use crate::placement::Collecting;

/// Collects and places items of a tier, in one eviction context.
pub(super) struct Collector<'a> {
    pub(super) items: &'a mut Items,
    pub(super) context: &'a EvictContext<'a>,
    pub(super) collecting: Collecting,
}

impl Collector<'_> {
    /// Collects an item: appends it again, to be placed with its group.
    pub(super) fn collect(&mut self, handle: Handle, hash: KeyHash) {
        self.note(handle, hash);
        self.items.append_again(handle, hash, 0);
    }

    /// Notes that an item is placed with its group, from where it is.
    pub(super) fn note(&mut self, handle: Handle, hash: KeyHash) {
        let header = self.items.log.header_mut(handle);
        header.set_collected(true);
        let bytes = header.body_bytes() as u64;
        let collected = &mut self.items.collected;
        collected.bytes += bytes;
        collected.groups.resize(1 << self.collecting.group_bits, 0);
        collected.groups[hash.group(self.collecting.group_bits)] += bytes;
    }

    /// Returns the bytes of memory that collected items may take.
    pub(super) fn most_bytes(&self) -> u64 {
        self.context.limit_bytes as u64 * u64::from(self.collecting.sixteenths) / 16
    }

    /// Places the fullest groups while the collected items take more than `most` bytes.
    ///
    /// # Errors
    /// [`NoSpace`] if flash has no space at present.
    pub(super) fn place_fullest(&mut self, most: u64) -> Result<(), NoSpace> {
        while self.items.collected.bytes > most
            && let Some(group) = self.items.collected.fullest()
        {
            self.place_group(group, &|header, _| header.is_collected())?;
        }
        Ok(())
    }

    /// Places the items of a group that are due, in the order of their hashes. They stay in memory, clean.
    ///
    /// # Errors
    /// [`NoSpace`] if flash has no space at present; items placed before that are clean.
    pub(super) fn place_group(
        &mut self,
        group: usize,
        is_due: &dyn Fn(&ItemHeader, KeyHash) -> bool,
    ) -> Result<(), NoSpace> {
        let mut entries: Vec<(KeyHash, Handle)> = Vec::new();
        let mut left_bytes = 0;
        for slot in &self.items.table {
            if group_of(slot.hash, self.collecting.group_bits) != group {
                continue;
            }
            let header = self.items.log.header(slot.handle);
            let hash = self.items.hash_of(slot.handle, self.context.seed);
            let is_live = !header.is_expired(self.context.second_of(header))
                && header.version.get() >= self.context.cutoff;
            if is_live && is_due(header, hash) {
                entries.push((hash, slot.handle));
            } else if is_live && header.is_collected() {
                left_bytes += header.body_bytes() as u64;
            }
        }
        // Items that cross pages lie behind the others.
        let is_long = |handle| {
            let bytes = CHECKSUM_BYTES + self.items.log.header(handle).body_bytes();
            bytes > PAGE_BYTES as usize
        };
        entries.sort_unstable_by_key(|&(hash, handle)| (is_long(handle), hash.order()));
        let taken = self.context.hand_over(self.items, &entries);
        for (&(hash, handle), &is_on_flash) in entries.iter().zip(&taken) {
            let was_collected = self.items.log.header(handle).is_collected();
            self.items.stats.demotions += u64::from(is_on_flash);
            // Before a victim cache each item that leaves is written: a clean one would be collected anew.
            if was_collected && (!is_on_flash || self.context.rewrites_clean) {
                self.items.stats.evictions += 1;
                self.items.unlink(hash, handle);
                continue;
            }
            if !is_on_flash {
                continue;
            }
            self.end_collecting(handle);
            let header = *self.items.log.header(handle);
            if header.has(state::DIRTY) {
                self.items.set_clean(&header);
                self.items.log.header_mut(handle).state &= !state::DIRTY;
            }
        }
        if taken.len() < entries.len() {
            return Err(NoSpace);
        }
        if let Some(bytes) = self.items.collected.groups.get_mut(group) {
            *bytes = left_bytes;
        }
        Ok(())
    }

    /// Drops collected items until they take no more than `most` bytes: those of a chunk together, the oldest first. Older
    /// copies on flash have been outdated since the items were set.
    pub(super) fn drop_collected(&mut self, most: u64) {
        let mut next = 0;
        while self.items.collected.bytes > most
            && let Some((slot, chunk)) = self.items.log.chunk_from(next)
        {
            let is_waiting = |handle: &Handle| {
                let header = self.items.log.header(*handle);
                !header.has(state::DEAD) && header.is_collected()
            };
            let waiting: Vec<Handle> = self.items.log.entries(slot).filter(is_waiting).collect();
            for handle in waiting {
                let hash = self.items.hash_of(handle, self.context.seed);
                let header = *self.items.log.header(handle);
                self.context.gate.remember(hash, &header);
                self.items.stats.count_held_back(&header);
                self.items.stats.evictions += 1;
                self.items.unlink(hash, handle);
            }
            next = chunk + 1;
        }
    }

    /// Makes an item no longer collected, if it was.
    pub(super) fn end_collecting(&mut self, handle: Handle) {
        let header = self.items.log.header_mut(handle);
        if header.is_collected() {
            header.set_collected(false);
            self.items.collected.bytes -= header.body_bytes() as u64;
        }
    }
}
