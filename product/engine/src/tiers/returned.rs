//! Items that reclaim returns to memory.

use super::{LargeHand, Room, Tiers};
use crate::dram::{Handle, LargeClaim, NewItem};
use crate::format::item::{ItemRef, state};
use crate::reclaim::{Dirty, Entered, Named, Resident, ReturnToMemory};
use crate::sync::atomic::Ordering;

impl ReturnToMemory for Tiers {
    fn take_back(&self, item: &Resident, contents: &ItemRef<'_>) -> bool {
        if self.returning_nothing.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let now = runtime::unix_seconds();
        let number = self.partitions.number_of(item.hash);
        let Some(key) = self.key(contents.key) else {
            return false;
        };
        let mut claim = LargeClaim::new(self.shares.large());
        if let Some(bytes) = self.claim_for(contents) {
            // A large value comes back to free memory only: the flash is short of space for items that would leave.
            let hand = LargeHand::new(self, now);
            match hand.has_free(bytes) {
                true => hand.extend(&mut claim, bytes),
                false => claim.refuse(),
            }
        }
        let mut partition = self.partitions.lock_number(number, now);
        let context = self.evict_context(number, now);
        let mark = self.downtime_mark(contents.header);
        let new = NewItem::copy_of(contents, state::DIRTY | mark);
        let room = self.room_for(&partition.tier, key, &new, &claim, &context);
        if matches!(room, Room::Nowhere | Room::Claimed(_)) {
            return false;
        }
        let placement = self.flash.placement();
        let is_live = self.cutoffs().is_item_live(item.hash, contents.header, now);
        let held = partition.tier.items.find(key);
        // The same item, clean: an index of runs may not tell later that its copy has gone.
        let is_same = |handle: Handle| {
            let held = partition.tier.items.header(handle);
            !held.has(state::DIRTY) && held.version.get() == item.version && self.flash.collects()
        };
        if !is_live || held.is_some_and(|held| !is_same(held)) {
            return false;
        }
        let Entered::Yes(entry) = placement.entry(item) else {
            return false;
        };
        let tier = &mut partition.tier;
        if let Some(held) = held {
            tier.items.set_dirty(held);
            tier.collect(held, item.hash, &context);
        } else {
            let put = match room {
                Room::Large => tier.put_large(key, &new, &mut claim, &context),
                _ => tier.put(key, &new, &context),
            };
            if put.is_err() {
                return false;
            }
            if let Some(handle) = tier.items.find(key) {
                let header = tier.items.header_mut(handle);
                if entry.was_read
                    && let Some(known) = self.gate.known_of_hot()
                {
                    known.note_in(header);
                }
                header.set_clock(entry.clock);
                tier.collect(handle, item.hash, &context);
            }
        }
        // The partition's lock is still held, so that no write has come in between.
        let is_taken = placement.check(item, &mut |_| false) == Named::Removed;
        self.keep_one_clock(&mut partition, item.hash, &context);
        is_taken
    }

    fn holds(&self, item: &Resident, key: &[u8]) -> bool {
        let number = self.partitions.number_of(item.hash);
        let partition = self.partitions.lock_number(number, runtime::unix_seconds());
        let items = &partition.tier.items;
        let held = self.key(key).and_then(|key| items.find(key));
        held.is_some_and(|held| items.header(held).version.get() == item.version)
    }

    fn dirty(&self) -> Dirty {
        let mut dirty = Dirty::default();
        for partition in self.partitions.each() {
            let tier = &partition.tier;
            dirty.items += tier.items.dirty;
            dirty.bytes += tier.items.dirty_bytes;
        }
        dirty
    }
}
