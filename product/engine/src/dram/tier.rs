//! The tier's table and its operations.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use runtime::pages::PagePool;
use runtime::work::{self, Work};

pub(crate) use super::log::Handle;
use super::log::{Log, LogPosition};
use super::long::LongValue;
use super::{Below, NoSpace};
use crate::admission::Gate;
use crate::counter::summed;
use crate::format::item::{CAS_BYTES, HEADER_BYTES, ItemHeader, ItemRef, state};
use crate::key::{Key, KeyHash};

/// A table entry of an item: 8 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) hash: u32,
    pub(super) handle: Handle,
}

/// An item to put into the tier.
#[derive(Clone, Debug)]
pub(crate) struct NewItem<'a> {
    /// Version of the item.
    pub version: u64,
    /// CAS unique, if it differs from the version.
    pub cas_unique: Option<u64>,
    /// The client's own flags.
    pub client_flags: u32,
    /// Unix second from which on the item is expired; 0 for never.
    pub expiry: u32,
    /// Unix second of the last access.
    pub last_access: u32,
    /// Bits of [`state`], without `HAS_CAS`.
    pub state: u8,
    /// The value.
    pub value: &'a [u8],
    /// The whole value in a form that can be shared, if the caller has one.
    pub shared: Option<LongValue>,
}

impl<'a> NewItem<'a> {
    /// Copies an item read from flash. Of its state the [`ON_FLASH`](state::ON_FLASH) bits are kept, and `bits` are
    /// added.
    pub(crate) fn copy_of(item: &ItemRef<'a>, bits: u8) -> Self {
        let header = item.header;
        Self {
            version: header.version.get(),
            cas_unique: header.has(state::HAS_CAS).then_some(item.cas_unique),
            client_flags: header.client_flags.get(),
            expiry: header.expiry.get(),
            last_access: header.last_access.get(),
            state: header.state & state::ON_FLASH | bits,
            value: item.value,
            shared: None,
        }
    }

    pub(crate) fn header(&self, key: Key<'_>) -> ItemHeader {
        let cas = u8::from(self.cas_unique.is_some()) * state::HAS_CAS;
        ItemHeader {
            version: self.version.into(),
            value_bytes: (self.value.len() as u32).into(),
            client_flags: self.client_flags.into(),
            expiry: self.expiry.into(),
            last_access: self.last_access.into(),
            key_bytes: key.bytes().len() as u8,
            state: self.state & !state::DEAD | cas,
            reads: 0,
            updates: 0,
        }
    }

    pub(crate) fn body_bytes(&self, key: Key<'_>) -> usize {
        let cas_bytes = usize::from(self.cas_unique.is_some()) * CAS_BYTES;
        HEADER_BYTES + cas_bytes + key.bytes().len() + self.value.len()
    }
}

summed! {
    /// Counters of a tier.
    TierStats {
        /// Items that left before they had expired.
        evictions,
        /// Items placed on flash.
        demotions,
        /// Items that left while their copy was on flash.
        clean_evictions,
        /// Items that the CLOCK hand passed over because they had been read.
        second_chances,
        /// Items that had expired or been flushed when the CLOCK hand came.
        reclaimed,
        /// Items that left and were not admitted to flash.
        rejections,
        /// Items among the rejections that nobody had read.
        rejections_unfetched,
        /// Items among the rejections that had an expiry.
        rejections_nonzero,
        /// Items among the rejections that had no space on flash because of a write limit.
        held_back,
        /// Chunks that the CLOCK hand evicted to make space for a request.
        direct_reclaims,
        /// Chunks that the CLOCK hand evicted in step with the hand on flash.
        chunks_passed,
        /// Expired items that left without ever having been read.
        expired_unfetched,
        /// Expired or flushed items that the crawler found.
        crawler_reclaimed,
        /// Items that the crawler looked at.
        crawler_items_checked,
        /// Passes of the crawler over a tier.
        crawls,
        /// Items placed on flash that stayed in memory, clean.
        written_back,
    }
}

/// Items in memory that a flush has made dead and that still take space.
#[derive(Clone, Copy, Debug, Default)]
struct Flushed {
    /// Items with lower versions are flushed.
    cutoff: u64,
    items: u64,
    bytes: u64,
    dirty: u64,
    dirty_bytes: u64,
}

/// Items and bytes of a tier, without items that a flush has made dead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TierUse {
    /// Items in memory, dirty and clean.
    pub(crate) items: u64,
    /// Bytes of their bodies.
    pub(crate) bytes: u64,
    /// Items without a copy on flash.
    pub(crate) dirty: u64,
    /// Bytes of the bodies of items without a copy on flash.
    pub(crate) dirty_bytes: u64,
}

/// Progress of the crawler in its pass over the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Crawler {
    /// Whether a pass is in progress.
    pub(super) is_passing: bool,
    /// Number of the crawler's chunk, in the order in which chunks were opened.
    pub(super) opened: u64,
    /// Number of the last chunk of this pass.
    pub(super) last: u64,
    /// Byte of the chunk at which the next entry starts.
    pub(super) at: usize,
    /// Bytes of dead entries in the chunk so far.
    pub(super) dead_bytes: usize,
    /// Whether the chunk so far has a live entry that stays in place.
    pub(super) has_live: bool,
    /// Whether the chunk's live entries are being moved to the head, so that the chunk can go.
    pub(super) is_moving: bool,
}

/// The items of one partition in memory.
pub(crate) struct DramTier {
    pub(super) log: Log,
    pub(super) table: HashTable<Slot>,
    /// Bytes of live bodies.
    pub(crate) live_bytes: u64,
    /// Items without a copy on flash, and the bytes of their bodies.
    pub(crate) dirty: u64,
    pub(crate) dirty_bytes: u64,
    flushed: Flushed,
    /// Unix second before which no item expires; 0 after a flush: at once.
    pub(super) soonest_expiry: u32,
    pub(super) crawler: Crawler,
    /// Items that the hand of the CLOCK shared with flash has passed, less the items of the chunks evicted for it.
    pub(super) passed: u64,
    pub(crate) stats: TierStats,
}

/// Context of an eviction: the flash below, admission, the time and the limits.
pub(crate) struct EvictContext<'a> {
    pub(crate) flash: &'a dyn Below,
    pub(crate) gate: &'a Gate,
    /// Hash seed of the image.
    pub(crate) seed: u64,
    /// Items with lower versions are dead.
    pub(crate) cutoff: u64,
    /// Unix second of the eviction.
    pub(crate) now: u32,
    /// Bytes of memory this tier may use.
    pub(crate) limit_bytes: usize,
    /// Whether a clean item is placed on flash even if flash has a copy.
    pub(crate) rewrites_clean: bool,
    /// Whether memory and flash share one CLOCK, of two bits.
    pub(crate) one_clock: bool,
}

impl EvictContext<'_> {
    /// Returns the CLOCK value of an item after the hand has passed it.
    pub(super) fn passed(&self, clock: u8) -> u8 {
        match self.one_clock {
            true => clock.saturating_sub(1),
            false => 0,
        }
    }
}

/// Where copies of a key may have been when the key was put again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Older {
    /// In memory alone: copies on flash were outdated when the old item was put.
    InMemory,
    PerhapsOnFlash,
}

impl DramTier {
    pub(crate) fn new(chunk_bytes: usize, pool: Arc<PagePool>) -> Self {
        Self {
            log: Log::new(chunk_bytes, pool),
            table: HashTable::new(),
            live_bytes: 0,
            dirty: 0,
            dirty_bytes: 0,
            flushed: Flushed::default(),
            soonest_expiry: u32::MAX,
            crawler: Crawler::default(),
            passed: 0,
            stats: TierStats::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the bytes of memory in use: log, values beside it, table.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.log.memory_bytes() + self.table.allocation_size()
    }

    /// Returns the items and bytes that no flush has made dead. Expired items count until the hand or the crawler finds
    /// them.
    pub(crate) fn in_use(&self) -> TierUse {
        let flushed = &self.flushed;
        TierUse {
            items: (self.len() as u64).saturating_sub(flushed.items),
            bytes: self.live_bytes.saturating_sub(flushed.bytes),
            dirty: self.dirty.saturating_sub(flushed.dirty),
            dirty_bytes: self.dirty_bytes.saturating_sub(flushed.dirty_bytes),
        }
    }

    /// Returns the bytes of the table.
    pub(crate) fn table_bytes(&self) -> usize {
        self.table.allocation_size()
    }

    /// Returns the Unix second of the last access to the first item of the chunk that the CLOCK hand takes next.
    pub(crate) fn oldest_access(&self) -> Option<u32> {
        let headers = self.log.entries(self.log.tail()?);
        let mut headers = headers.map(|handle| self.log.header(handle));
        let first = headers.find(|header| !header.has(state::DEAD))?;
        Some(first.last_access.get())
    }

    /// Makes every item with a version below `cutoff` dead: all items now in the tier.
    pub(crate) fn flush(&mut self, cutoff: u64) {
        self.flushed = Flushed {
            cutoff,
            items: self.len() as u64,
            bytes: self.live_bytes,
            dirty: self.dirty,
            dirty_bytes: self.dirty_bytes,
        };
        if self.len() > 0 {
            self.soonest_expiry = 0;
        }
    }

    /// Notes the expiry of an item of the tier.
    pub(crate) fn note_expiry(&mut self, expiry: u32) {
        if expiry != 0 {
            self.soonest_expiry = self.soonest_expiry.min(expiry);
        }
    }

    /// Accounts for an item that enters the tier.
    fn count_in(&mut self, header: &ItemHeader) {
        let bytes = header.body_bytes() as u64;
        self.live_bytes += bytes;
        if header.has(state::DIRTY) {
            self.dirty += 1;
            self.dirty_bytes += bytes;
        }
        self.note_expiry(header.expiry.get());
    }

    /// Accounts for an item that leaves the tier.
    fn count_out(&mut self, header: &ItemHeader) {
        let bytes = header.body_bytes() as u64;
        self.live_bytes -= bytes;
        let is_flushed = header.version.get() < self.flushed.cutoff;
        if is_flushed {
            self.flushed.items -= 1;
            self.flushed.bytes -= bytes;
        }
        if header.has(state::DIRTY) {
            self.set_clean(header);
        }
    }

    /// Accounts for a dirty item that now has a copy on flash.
    pub(super) fn set_clean(&mut self, header: &ItemHeader) {
        let bytes = header.body_bytes() as u64;
        self.dirty -= 1;
        self.dirty_bytes -= bytes;
        if header.version.get() < self.flushed.cutoff {
            self.flushed.dirty -= 1;
            self.flushed.dirty_bytes -= bytes;
        }
    }

    /// Returns the entry of `key`, even if it is expired or flushed.
    pub(crate) fn find(&self, key: Key<'_>) -> Option<Handle> {
        let low = key.hash().low();
        self.table
            .find(table_hash(low), |slot| {
                slot.hash == low && self.log.key(slot.handle) == key.bytes()
            })
            .map(|slot| slot.handle)
    }

    pub(crate) fn item(&self, handle: Handle) -> (ItemRef<'_>, Option<&LongValue>) {
        self.log.item(handle)
    }

    /// Returns the header of an entry.
    pub(crate) fn header(&self, handle: Handle) -> &ItemHeader {
        self.log.header(handle)
    }

    /// Returns the header of an entry, to change any field except its lengths and `HAS_CAS`.
    pub(crate) fn header_mut(&mut self, handle: Handle) -> &mut ItemHeader {
        self.log.header_mut(handle)
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
        let old = self.find(key);
        if let Some(handle) = old {
            header.count_update_of(self.log.header(handle));
            let older = self.older(handle);
            if self.overwrite(handle, &header, new) {
                return Ok(older);
            }
        }
        let (bytes, value_bytes) = self.log.entry_bytes(&header);
        self.make_space(bytes, value_bytes, context)?;
        let mut older = Older::PerhapsOnFlash;
        // Looked up again, since making space may have evicted the old item.
        if let Some(handle) = old.and_then(|_| self.find(key)) {
            older = self.older(handle);
            self.unlink(key.hash(), handle);
        }
        if old.is_none()
            && header.has(state::DIRTY)
            && let Some(known) = context.gate.known_before(key.hash())
        {
            known.note_in(&mut header);
        }
        let cas_unique = new.cas_unique.unwrap_or(new.version);
        work::count(Work::ItemCopied, 1);
        work::count(Work::ByteCopied, header.body_bytes() as u64);
        let handle = self.log.append(
            &header,
            cas_unique,
            key.bytes(),
            new.value,
            new.shared.clone(),
        );
        self.count_in(&header);
        let low = key.hash().low();
        let slot = Slot { hash: low, handle };
        self.table
            .insert_unique(table_hash(low), slot, |slot| table_hash(slot.hash));
        Ok(older)
    }

    /// Returns where copies of an entry's key may be.
    fn older(&self, handle: Handle) -> Older {
        if self.log.header(handle).has(state::DIRTY) {
            Older::InMemory
        } else {
            Older::PerhapsOnFlash
        }
    }

    /// Overwrites an entry of the same size in place. Returns false if the sizes differ.
    fn overwrite(&mut self, handle: Handle, header: &ItemHeader, new: &NewItem<'_>) -> bool {
        let old = self.log.header(handle);
        let same = old.value_bytes == header.value_bytes
            && !old.has(state::HAS_CAS)
            && !header.has(state::HAS_CAS);
        if !same {
            return false;
        }
        let Some(value) = self.log.value_mut(handle) else {
            return false;
        };
        work::count(Work::ItemCopied, 1);
        work::count(Work::ByteCopied, new.value.len() as u64);
        value.copy_from_slice(new.value);
        self.count_out(&{ *self.log.header(handle) });
        self.count_in(header);
        // A rewritten item keeps its place in the CLOCK order, and its CLOCK value.
        let clock = self.log.header(handle).clock();
        *self.log.header_mut(handle) = *header;
        self.log.header_mut(handle).set_clock(clock);
        self.log.note_dirty(handle, header);
        true
    }

    /// Returns whether an item with this header can be put without an eviction.
    pub(crate) fn has_space(&self, header: &ItemHeader, limit_bytes: usize) -> bool {
        let (bytes, value_bytes) = self.log.entry_bytes(header);
        let fits = self.log.fits(bytes);
        let chunk = if fits { 0 } else { self.log.next_head_bytes() };
        self.memory_bytes() + value_bytes + chunk <= limit_bytes
    }

    /// Removes the tier's item of `key`. Returns whether it had one.
    pub(crate) fn remove(&mut self, key: Key<'_>) -> bool {
        let low = key.hash().low();
        let log = &self.log;
        let entry = self.table.entry(
            table_hash(low),
            |slot| slot.hash == low && log.key(slot.handle) == key.bytes(),
            |slot| table_hash(slot.hash),
        );
        match entry {
            Entry::Occupied(occupied) => {
                let (slot, _) = occupied.remove();
                self.count_out(&{ *self.log.header(slot.handle) });
                self.log.kill(slot.handle);
                true
            }
            Entry::Vacant(_) => false,
        }
    }

    /// Removes an entry from the table and marks it dead.
    pub(super) fn unlink(&mut self, hash: KeyHash, handle: Handle) {
        let low = hash.low();
        if let Ok(occupied) = self
            .table
            .find_entry(table_hash(low), |slot| slot.handle == handle)
        {
            occupied.remove();
            self.count_out(&{ *self.log.header(handle) });
            self.log.kill(handle);
        }
    }

    /// Returns the items from a position of the log on, oldest first, each with the position behind it.
    pub(crate) fn items_from(
        &self,
        from: LogPosition,
    ) -> impl Iterator<Item = (LogPosition, ItemRef<'_>)> {
        let entries = self.log.entries_behind(from);
        let live = entries.filter(|(_, handle)| !self.log.header(*handle).has(state::DEAD));
        live.map(|(behind, handle)| (behind, self.log.item(handle).0))
    }

    /// Returns the position behind the last item.
    pub(crate) fn end(&self) -> LogPosition {
        self.log.end()
    }
}

/// Spreads 32 bits over the 64 bits that the table probes with.
pub(super) fn table_hash(low: u32) -> u64 {
    u64::from(low).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
