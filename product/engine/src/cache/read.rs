//! Reading: from memory, or by a flash read that requests for one key share.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use super::Engine;
use crate::admission::Features;
use crate::dram::{LongValue, NewItem};
use crate::format::item::{ItemRef, state};
use crate::in_flight::{InFlightRead, ReadOutcome};
use crate::key::{Key, KeyHash};
use crate::partition::Partition;
use crate::placement::{Found, Look, Probe};
use crate::settings::Dram;
use crate::store::{FlashItem, Patience, ReadError};
use runtime::work::{self, Work};

/// One flash read in this many is promoted even if memory has no free space: it evicts a chunk of other items. The
/// reads after it use the rest of that chunk.
const PROMOTE_ONE_IN: u32 = 4;

/// An item as readers see it.
#[derive(Clone, Copy, Debug)]
pub struct ItemView<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Owner of the value, if the value can be kept without a copy.
    pub owner: Owner<'a>,
    /// The version. No other item of this key ever has the same.
    pub version: u64,
    /// The client's own flags.
    pub client_flags: u32,
    /// The CAS unique.
    pub cas_unique: u64,
    /// Unix second from which on the item is expired; 0 for never.
    pub expiry: u32,
    /// Unix second of the last access before this one.
    pub last_access: u32,
    /// Whether the item has been read before.
    pub fetched: bool,
    /// Whether the item is marked stale.
    pub stale: bool,
    /// Whether a client has been given the task to recache it.
    pub won: bool,
    /// Whether the key came base64-encoded.
    pub binary_key: bool,
}

impl<'a> ItemView<'a> {
    /// Creates the view of an item, with the owner of its value.
    pub fn new(item: ItemRef<'a>, owner: Owner<'a>) -> Self {
        let header = item.header;
        Self {
            key: item.key,
            value: item.value,
            owner,
            version: header.version.get(),
            client_flags: header.client_flags.get(),
            cas_unique: item.cas_unique,
            expiry: header.expiry.get(),
            last_access: header.last_access.get(),
            fetched: header.has(state::FETCHED),
            stale: header.has(state::STALE),
            won: header.has(state::WON),
            binary_key: header.has(state::BINARY_KEY),
        }
    }
}

/// The memory that a value lies in.
#[derive(Clone, Copy, Debug)]
pub enum Owner<'a> {
    /// Memory that cannot be shared: a chunk of the log, a buffer.
    None,
    /// A long value, beside the log.
    Memory(&'a LongValue),
    /// The buffer of a flash read.
    Flash(&'a Arc<FlashItem>),
}

impl Owner<'_> {
    /// Returns the value in a form that can be kept; `None` if it has to be copied.
    pub fn share(self) -> Option<SharedValue> {
        match self {
            Self::None => None,
            Self::Memory(value) => Some(SharedValue::Memory(value.clone())),
            Self::Flash(item) => Some(SharedValue::Flash(Arc::clone(item))),
        }
    }
}

/// A value that stays in place after its item has gone. From then on the cache no longer counts its memory.
#[derive(Clone, Debug)]
pub enum SharedValue {
    /// A value from memory.
    Memory(LongValue),
    /// A value read from flash; it holds a share of the memory for reads.
    Flash(Arc<FlashItem>),
}

impl SharedValue {
    /// Returns a fingerprint of the value: equal for equal bytes, different for different bytes.
    pub fn fingerprint(&self) -> u128 {
        xxh3_128(self.as_ref())
    }
}

impl AsRef<[u8]> for SharedValue {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Memory(value) => value,
            Self::Flash(item) => item.item().value,
        }
    }
}

/// Whether a lookup counts as an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// The lookup counts: the item becomes fetched, referenced and accessed now.
    No,
    /// The lookup leaves no trace.
    Yes,
}

/// Outcome of a lookup in memory.
pub enum Lookup<T> {
    /// The item is in memory; contains the result of the viewer.
    Hit(T),
    /// There is no such item.
    Miss,
    /// The item may be on flash.
    Flash(FlashRead),
}

/// A flash read of one request, to be carried out with [`Engine::read_flash`].
///
/// Other requests may be waiting for it. A task that waits for anything else before it calls
/// [`read_flash`](Engine::read_flash) must [start](FlashRead::start) the read first: otherwise two tasks, each with a
/// read that the other waits for, wait for ever.
///
/// If it is dropped before the read has ended and the read was this request's to make, the read ends as abandoned.
pub struct FlashRead {
    engine: Arc<Engine>,
    hash: KeyHash,
    /// Write counter of the key before the read.
    pub(super) write_generation: u32,
    /// Unix second of the request.
    now: u32,
    peek: Peek,
    /// Whether a hit is counted when the read completes; a change counts its own hits.
    counts_hit: bool,
    /// The index's answer, in the first request for the key; `None` in requests that wait for it.
    first: Option<Probe>,
    /// Whether the read is still this request's to make.
    leads: bool,
    patience: Patience,
    in_flight: Arc<InFlightRead>,
}

impl FlashRead {
    /// Starts the read as a task of the calling thread, if it is this request's to make and has not been started. The
    /// read then ends even if all waiting requests go away. If no memory is free for it,
    /// [`read_flash`](Engine::read_flash) waits for some.
    pub fn start(&mut self, key: Key<'_>) {
        if !std::mem::take(&mut self.leads) {
            return;
        }
        let mut read = Self {
            engine: Arc::clone(&self.engine),
            in_flight: Arc::clone(&self.in_flight),
            leads: true,
            patience: Patience::ReadsAhead,
            ..*self
        };
        let key: Box<[u8]> = key.bytes().into();
        runtime::spawn_detached(async move {
            if let Some(key) = read.engine.clone().key(&key) {
                read.outcome(key).await;
            }
        });
    }

    /// Makes the read, or waits for the request that does, and returns its outcome.
    ///
    /// The request that makes the read counts its hit, and keeps the item in memory if that is worth it and no write
    /// has come in between, all in one hold of the lock.
    pub(super) async fn outcome(&mut self, key: Key<'_>) -> ReadOutcome {
        let Some(probe) = self.first.filter(|_| self.leads) else {
            return self.in_flight.outcome().await;
        };
        let engine = &self.engine;
        let found = engine
            .flash
            .placement()
            .get(key, probe, self.patience, &|| self.in_flight.counts())
            .await;
        let now = runtime::unix_seconds().max(self.now);
        let mut partition = engine.lock(self.hash, now);
        let is_current = partition.end_read(self.hash, &self.in_flight);
        let mut is_dead = false;
        let outcome = match found {
            Ok(Found::Item(mut item)) => {
                item.mark(engine.downtime_mark(item.header()));
                if engine.cutoffs.is_item_live(self.hash, item.header(), now) {
                    partition.stats.flash_hits += u64::from(self.counts_hit);
                    let kept = is_current && self.promote(&mut partition, key, &item, now);
                    let item = Arc::new(item);
                    ReadOutcome::Item { item, kept }
                } else {
                    partition.count_dead(item.header().is_expired(now));
                    is_dead = true;
                    ReadOutcome::Absent
                }
            }
            Ok(Found::Absent) => ReadOutcome::Absent,
            Err(ReadError::Unwritten { .. }) => {
                is_dead = true;
                ReadOutcome::Absent
            }
            Err(ReadError::NoMemory { .. }) => match self.patience {
                Patience::Waits => ReadOutcome::Busy,
                Patience::ReadsAhead => ReadOutcome::Crowded,
            },
            Err(error) => {
                tracing::debug!(%error, "a flash read failed");
                is_dead = matches!(error, ReadError::Corrupt { .. });
                ReadOutcome::Failed
            }
        };
        if is_dead && is_current && engine.flash.may_displace() {
            // Removes the index entry, so that no older copy comes back in its place. A newer item stays.
            engine
                .flash
                .forget(self.hash, probe, partition.next_version);
        }
        drop(partition);
        self.leads = false;
        // No request can join any more, and without another reference none is waiting.
        if Arc::strong_count(&self.in_flight) > 1 {
            self.in_flight.end(outcome.clone());
        }
        outcome
    }

    /// Keeps an item in memory, clean, if that is worth it: if several requests share the read, if there is free space,
    /// or once in [`PROMOTE_ONE_IN`] calls, since a hot item comes again soon. Before a victim cache every item is
    /// worth it. Returns whether the item was kept.
    fn promote(&self, partition: &mut Partition, key: Key<'_>, item: &FlashItem, now: u32) -> bool {
        let engine = &self.engine;
        let item = item.item();
        let header = item.header;
        let mut new = NewItem::copy_of(&item, 0);
        if self.counts_hit && self.peek == Peek::No {
            // The CLOCK hand gives no second chance for this read.
            new.state |= state::FETCHED;
            new.last_access = now;
        }
        let context = engine.evict_context(self.hash.partition(engine.partition_bits), now);
        let worth = context.rewrites_clean
            || self.in_flight.is_shared()
            || partition
                .tier
                .has_space(&new.header(key), context.limit_bytes)
            || partition.take_turn(PROMOTE_ONE_IN);
        let kept = engine.config.dram != Dram::Filter
            && engine.may_keep(header.body_bytes(), &context)
            && worth
            && partition.tier.put(key, &new, &context).is_ok();
        partition.stats.promotions += u64::from(kept);
        kept
    }
}

impl Drop for FlashRead {
    fn drop(&mut self) {
        if self.leads {
            let mut partition = self.engine.lock(self.hash, runtime::unix_seconds());
            partition.end_read(self.hash, &self.in_flight);
            drop(partition);
            self.in_flight.end(ReadOutcome::Abandoned);
        }
    }
}

impl FlashItem {
    /// Returns the item as readers see it.
    pub fn view(self: &Arc<Self>) -> ItemView<'_> {
        ItemView::new(self.item(), Owner::Flash(self))
    }
}

impl Engine {
    /// Looks a key up at Unix second `now`. Shows a hit in memory to `view` under the partition's lock. Returns a
    /// [`FlashRead`] if the item may be on flash; until that has been carried out, it may or may not see a write to the
    /// key.
    #[inline]
    pub fn lookup<T>(
        self: &Arc<Self>,
        key: Key<'_>,
        now: u32,
        peek: Peek,
        view: impl FnOnce(&ItemView<'_>) -> T,
    ) -> Lookup<T> {
        let mut partition = self.lock(key.hash(), now);
        if let Some(handle) = partition.tier.find(key) {
            work::count(Work::TierEntry, 1);
            let (item, shared) = partition.tier.item(handle);
            if self.cutoffs.is_item_live(key.hash(), item.header, now) {
                let owner = shared.map_or(Owner::None, Owner::Memory);
                let shown = view(&ItemView::new(item, owner));
                if peek == Peek::No {
                    let header = partition.tier.header_mut(handle);
                    if !header.has(state::FETCHED) {
                        header.state |= state::FETCHED;
                    }
                    if header.clock() < self.clock_read {
                        header.set_clock(self.clock_read);
                    }
                    if header.last_access.get() != now {
                        header.last_access = now.into();
                    }
                    if self.counts_reads {
                        header.count_read();
                    }
                    if self.gate.watches(key.hash()) {
                        self.gate.read(key, Some(Features::of(header)));
                    }
                    partition.stats.dram_hits += 1;
                }
                return Lookup::Hit(shown);
            }
            // Dead by expiry or flush, and so is a copy on flash. A read does not wait for journal space to record
            // that.
            let expired = item.header.is_expired(now);
            partition.count_dead(expired);
            if !self.flash.may_displace() {
                partition.stats.misses += 1;
                return Lookup::Miss;
            }
            partition.tier.remove(key);
            self.flash.invalidate(key.hash(), partition.next_version);
        }
        if peek == Peek::No {
            self.gate.missed(key);
        }
        match self.ask_flash(&mut partition, key, now, peek, true) {
            Some(read) => Lookup::Flash(read),
            None => {
                partition.stats.misses += 1;
                Lookup::Miss
            }
        }
    }

    /// Returns the flash read of a key that is not in memory, if flash may have the key: one already in flight, or a
    /// new one.
    #[inline]
    pub(super) fn ask_flash(
        self: &Arc<Self>,
        partition: &mut Partition,
        key: Key<'_>,
        now: u32,
        peek: Peek,
        counts_hit: bool,
    ) -> Option<FlashRead> {
        let hash = key.hash();
        let look = match peek {
            Peek::No => Look::Read,
            Peek::Yes => Look::Peek,
        };
        let probe = self.flash.probe(hash, look);
        if probe == Probe::Absent {
            return None;
        }
        let (in_flight, is_first) = partition.join_read(hash);
        if peek == Peek::No {
            in_flight.note_counting();
        }
        Some(FlashRead {
            engine: Arc::clone(self),
            hash,
            write_generation: partition.write_generation(hash),
            now,
            peek,
            counts_hit,
            first: is_first.then_some(probe),
            leads: is_first,
            patience: Patience::Waits,
            in_flight,
        })
    }

    /// Completes when a request waits for memory to read an item. A caller that holds [started](FlashRead::start) reads
    /// and waits for something else must drop them then, or two such callers would wait for each other.
    pub async fn read_memory_wanted(&self) {
        self.store().reader().read_memory_wanted().await;
    }

    /// Carries out a [`FlashRead`]. Returns `None` if there is no such item or it could not be read; both count as
    /// misses.
    pub async fn read_flash(
        self: &Arc<Self>,
        key: Key<'_>,
        mut read: FlashRead,
    ) -> Option<Arc<FlashItem>> {
        loop {
            let outcome = read.outcome(key).await;
            let (now, peek) = (read.now, read.peek);
            if let ReadOutcome::Item { item, .. } = &outcome
                && read.first.is_some()
            {
                // The hit was counted when the read ended.
                return Some(Arc::clone(item));
            }
            let mut partition = self.lock(key.hash(), now);
            match outcome {
                // In-flight reads are found by hash: a request for another key with the same hash reads for itself. So
                // does a request that finds the item expired since the read began.
                ReadOutcome::Item { item, kept }
                    if item.item().key == key.bytes()
                        && self.cutoffs.is_item_live(key.hash(), item.header(), now) =>
                {
                    partition.stats.flash_hits += 1;
                    if kept && peek == Peek::No {
                        mark_fetched(&mut partition, key, now);
                    }
                    return Some(item);
                }
                ReadOutcome::Failed | ReadOutcome::Busy => {
                    partition.stats.misses += 1;
                    partition.stats.flash_misses += 1;
                    partition.stats.failed_reads += 1;
                    return None;
                }
                // Written during the read: the new item is in memory.
                _ if let Some(item) = self.copy_from_memory(&partition, key, now) => {
                    partition.stats.dram_hits += 1;
                    return Some(Arc::new(item));
                }
                ReadOutcome::Item { .. } | ReadOutcome::Abandoned | ReadOutcome::Crowded
                    if let Some(again) = self.ask_flash(&mut partition, key, now, peek, true) =>
                {
                    read = again;
                }
                _ => {
                    partition.stats.misses += 1;
                    partition.stats.flash_misses += 1;
                    return None;
                }
            }
        }
    }

    fn copy_from_memory(&self, partition: &Partition, key: Key<'_>, now: u32) -> Option<FlashItem> {
        let (item, _) = partition.tier.item(partition.tier.find(key)?);
        let live = self.cutoffs.is_item_live(key.hash(), item.header, now);
        live.then(|| FlashItem::copy_of(&item))
    }
}

/// Notes that an item kept in memory was read from flash. The CLOCK hand gives no second chance for this read.
fn mark_fetched(partition: &mut Partition, key: Key<'_>, now: u32) {
    if let Some(handle) = partition.tier.find(key) {
        let header = partition.tier.header_mut(handle);
        header.state |= state::FETCHED;
        header.last_access = now.into();
    }
}
