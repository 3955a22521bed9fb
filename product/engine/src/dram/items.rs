//! [`Items`]: the log and the table of a tier.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use runtime::pages::PagePool;
use runtime::work::{self, Work};

use super::collected::Collected;
use super::evicted::Evicted;
use super::large::{LargeClaim, LargeValues, Ticket};
use super::log::{Handle, Log, LogPosition};
use super::long::LongValue;
use crate::counter::counters;
use crate::format::item::{CAS_BYTES, HEADER_BYTES, ItemHeader, ItemRef, MAX_KEY_BYTES, state};
use crate::key::{HashSeed, Key, KeyHash};

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

counters! {
    /// Counters of a tier.
    pub struct TierStats {
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

impl TierStats {
    /// Counts an item that does not go to flash because of a write limit.
    pub(crate) fn count_held_back(&mut self, header: &ItemHeader) {
        self.count_rejected(header);
        self.held_back += 1;
    }

    /// Counts an item that leaves memory and does not go to flash.
    pub(super) fn count_rejected(&mut self, header: &ItemHeader) {
        self.rejections += 1;
        self.rejections_unfetched += u64::from(!header.has(state::FETCHED));
        self.rejections_nonzero += u64::from(header.expiry.get() != 0);
    }

    /// Counts an item that leaves the tier expired and unread.
    pub(super) fn count_expired(&mut self, header: &ItemHeader, now: u32) {
        let unfetched = header.is_expired(now) && !header.has(state::FETCHED);
        self.expired_unfetched += u64::from(unfetched);
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

/// The items of one partition in memory. The table names exactly the entries of the log that are not dead, and the
/// counters are sums over them.
pub(crate) struct Items {
    pub(super) log: Log,
    pub(super) table: HashTable<Slot>,
    /// Bytes of live bodies.
    pub(crate) live_bytes: u64,
    /// Items without a copy on flash, and the bytes of their bodies.
    pub(crate) dirty: u64,
    pub(crate) dirty_bytes: u64,
    pub(super) collected: Collected,
    flushed: Flushed,
    /// Unix second before which no item expires; 0 after a flush: at once.
    pub(super) soonest_expiry: u32,
    pub(crate) stats: TierStats,
    /// Items that have left to make space, since the last [balance](crate::tiers::LargeHand::balance).
    pub(crate) evicted: Evicted,
    /// Number of the partition.
    partition: usize,
    /// The large values of all partitions.
    large: Arc<LargeValues>,
}

/// Where copies of a key may have been when the key was put again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Older {
    /// In memory alone: copies on flash were outdated when the old item was put.
    InMemory,
    PerhapsOnFlash,
}

impl Items {
    pub(super) fn new(
        partition: usize,
        chunk_bytes: usize,
        pool: Arc<PagePool>,
        large: Arc<LargeValues>,
    ) -> Self {
        Self {
            log: Log::new(chunk_bytes, pool, Arc::clone(&large)),
            table: HashTable::new(),
            live_bytes: 0,
            dirty: 0,
            dirty_bytes: 0,
            collected: Collected::default(),
            flushed: Flushed::default(),
            soonest_expiry: u32::MAX,
            stats: TierStats::default(),
            evicted: Evicted::default(),
            partition,
            large,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns the bytes of memory in use: log, values beside it, table. Large values are not counted.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.log.memory_bytes() + self.table.allocation_size()
    }

    /// Returns the bytes of large values.
    pub(crate) fn large_bytes(&self) -> usize {
        self.log.large_bytes
    }

    /// Returns the bytes that a large value of `key` gives back when it leaves; 0 if the tier has none.
    pub(crate) fn large_bytes_of(&self, key: Key<'_>) -> usize {
        self.find(key)
            .and_then(|handle| self.log.large_of(handle))
            .map_or(0, |(_, bytes)| bytes)
    }

    /// Returns the entry of the large value with this place in the queue.
    pub(super) fn find_large(&self, hash: KeyHash, ticket: Ticket) -> Option<Handle> {
        let low = hash.low();
        let is_it = |slot: &Slot| {
            let large = self.log.large_of(slot.handle);
            slot.hash == low && large.is_some_and(|(queued, _)| queued == ticket)
        };
        self.table
            .find(table_hash(low), is_it)
            .map(|slot| slot.handle)
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

    /// Makes the crawler look for items that a flush of older items has made dead. They count until it finds them.
    pub(crate) fn flush_some(&mut self) {
        self.soonest_expiry = 0;
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
        if header.is_collected() {
            self.collected.bytes -= bytes;
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

    /// Accounts for a clean item that memory alone has from now on.
    pub(crate) fn set_dirty(&mut self, handle: Handle) {
        self.log.header_mut(handle).state |= state::DIRTY;
        let header = *self.log.header(handle);
        self.log.note_dirty(handle, &header);
        let bytes = header.body_bytes() as u64;
        self.dirty += 1;
        self.dirty_bytes += bytes;
        if header.version.get() < self.flushed.cutoff {
            self.flushed.dirty += 1;
            self.flushed.dirty_bytes += bytes;
        }
    }

    /// Returns the entry of `key`, even if it is expired or flushed.
    #[inline]
    pub(crate) fn find(&self, key: Key<'_>) -> Option<Handle> {
        let low = key.hash().low();
        self.table
            .find(table_hash(low), |slot| {
                slot.hash == low && self.log.key(slot.handle) == key.bytes()
            })
            .map(|slot| slot.handle)
    }

    /// Returns the entry of `key`. Without one, returns the oldest of the entries with the same hash if they are as many as a
    /// chain may have.
    pub(super) fn find_to_put(&self, key: Key<'_>) -> FoundToPut {
        let low = key.hash().low();
        let mut equal = 0;
        let mut oldest: Option<(u64, Handle)> = None;
        let found = self.table.find(table_hash(low), |slot| {
            if slot.hash != low {
                return false;
            }
            if self.log.key(slot.handle) == key.bytes() {
                return true;
            }
            equal += 1;
            let version = self.log.header(slot.handle).version.get();
            if oldest.is_none_or(|(least, _)| version < least) {
                oldest = Some((version, slot.handle));
            }
            false
        });
        match (found, oldest) {
            (Some(slot), _) => FoundToPut::Item(slot.handle),
            (None, Some((_, handle))) if equal >= MOST_EQUAL => FoundToPut::FullChain(handle),
            (None, _) => FoundToPut::None,
        }
    }

    /// Drops an entry of a full chain. The hash is that of the chain.
    pub(super) fn drop_from_chain(&mut self, hash: KeyHash, handle: Handle) {
        let header = *self.log.header(handle);
        if header.has(state::DIRTY) {
            self.stats.count_rejected(&header);
        }
        self.unlink(hash, handle);
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

    /// Notes that the item of `key` has outdated a copy on flash.
    pub(crate) fn note_outdated(&mut self, key: Key<'_>) {
        if let Some(handle) = self.find(key) {
            self.log.header_mut(handle).note_outdated();
        }
    }

    /// Puts an item for which there is space, and for whose key the tier has no other. A large value comes with a
    /// `claim` on its bytes.
    pub(super) fn insert(
        &mut self,
        key: Key<'_>,
        header: &ItemHeader,
        new: &NewItem<'_>,
        claim: Option<&mut LargeClaim<'_>>,
    ) {
        let ticket = claim.map(|claim| {
            claim.pass_on(LongValue::bytes_for(new.value.len()));
            self.large.enter(self.partition, key.hash())
        });
        let cas_unique = new.cas_unique.unwrap_or(new.version);
        work::count(Work::ItemCopied, 1);
        work::count(Work::ByteCopied, header.body_bytes() as u64);
        let handle = self.log.append(
            header,
            cas_unique,
            key.bytes(),
            new.value,
            new.shared.clone(),
            ticket,
        );
        self.count_in(header);
        let low = key.hash().low();
        let slot = Slot { hash: low, handle };
        self.table
            .insert_unique(table_hash(low), slot, |slot| table_hash(slot.hash));
    }

    /// Returns where copies of an entry's key may be.
    pub(super) fn older(&self, handle: Handle) -> Older {
        if self.log.header(handle).has(state::DIRTY) {
            Older::InMemory
        } else {
            Older::PerhapsOnFlash
        }
    }

    /// Overwrites an entry of the same size in place. Returns false if the sizes differ.
    pub(super) fn overwrite(
        &mut self,
        handle: Handle,
        header: &ItemHeader,
        new: &NewItem<'_>,
    ) -> bool {
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

    /// Returns the hash of an entry's key.
    pub(super) fn hash_of(&self, handle: Handle, seed: HashSeed) -> KeyHash {
        Key::new(self.log.key(handle), seed)
            .expect("stored keys are valid")
            .hash()
    }

    /// Returns the bytes by which the table grows when one more entry is inserted.
    pub(super) fn table_growth(&self) -> usize {
        let is_full = self.table.len() == self.table.capacity();
        usize::from(is_full) * self.table.allocation_size()
    }

    /// Frees most of a table that is less than a quarter full.
    pub(super) fn shrink_table(&mut self) {
        let len = self.table.len();
        if len * 4 < self.table.capacity() {
            self.table.shrink_to(len * 2, |slot| table_hash(slot.hash));
        }
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
        let ticket = self.log.take_ticket(handle);
        self.log.kill(handle);
        if !self.log.fits(bytes) {
            self.log.open_head();
        }
        let new = self
            .log
            .append(&header, cas_unique, key, &value, shared, ticket);
        let is_old = |slot: &Slot| slot.handle == handle;
        if let Some(slot) = self.table.find_mut(table_hash(hash.low()), is_old) {
            slot.handle = new;
        }
    }
}

/// Most entries of the table whose hashes are equal. A look-up compares all their keys. By chance no table has three; more
/// keys of one hash are made on purpose.
pub(super) const MOST_EQUAL: usize = 16;

/// Outcome of the search for the entry of a key that is to be put.
#[derive(Clone, Copy, Debug)]
pub(super) enum FoundToPut {
    /// The entry of the key.
    Item(Handle),
    /// No entry of the key.
    None,
    /// No entry of the key, and as many others of its hash as may be. This one is the oldest.
    FullChain(Handle),
}

/// Spreads 32 bits over the 64 bits that the table probes with.
pub(super) fn table_hash(low: u32) -> u64 {
    u64::from(low).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}
