//! Reading: from memory, or with a flash read that requests for one key share.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use super::Engine;
use crate::admission::flashiness::Features;
use crate::dram::{LongValue, NewItem};
use crate::format::item::{ItemRef, state};
use crate::in_flight::{InFlightRead, ReadOutcome};
use crate::key::{Key, KeyHash};
use crate::partition::Partition;
use crate::placement::{Found, Look, Probe};
use crate::settings::Dram;
use crate::store::{FlashItem, Patience, ReadError};
use runtime::work::{self, Work};

/// Of the flash reads that find no space in memory, one in this many makes some, a chunk at a time, at the cost of other
/// items' places; those that follow use what is left of it.
const PROMOTE_ONE_IN: u32 = 4;

/// An item as readers see it.
#[derive(Clone, Copy, Debug)]
pub struct ItemView<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// What keeps the value, where it need not be copied to be kept.
    pub owner: Owner<'a>,
    /// The version: another item of this key never has the same.
    pub version: u64,
    /// The client's own flags.
    pub client_flags: u32,
    /// The CAS unique.
    pub cas_unique: u64,
    /// Unix second from which on it is gone; 0 for never.
    pub expiry: u32,
    /// Unix second of the last access before this one.
    pub last_access: u32,
    /// Read before.
    pub fetched: bool,
    /// Marked stale.
    pub stale: bool,
    /// A client has been given the task to recache it.
    pub won: bool,
    /// The key came base64-encoded.
    pub binary_key: bool,
}

impl<'a> ItemView<'a> {
    /// An item, and the owner of its value.
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

/// What keeps a value.
#[derive(Clone, Copy, Debug)]
pub enum Owner<'a> {
    /// Something that cannot be shared: a chunk of the log, a buffer.
    None,
    /// The value is long and lies beside the log.
    Memory(&'a LongValue),
    /// The value lies in what a flash read has brought.
    Flash(&'a Arc<FlashItem>),
}

impl Owner<'_> {
    /// The value, to be kept for a while; `None` where it has to be copied.
    pub fn share(self) -> Option<SharedValue> {
        match self {
            Self::None => None,
            Self::Memory(value) => Some(SharedValue::Memory(value.clone())),
            Self::Flash(item) => Some(SharedValue::Flash(Arc::clone(item))),
        }
    }
}

/// A value that stays where it lies, whatever becomes of the item meanwhile. It holds memory that the cache counts no
/// longer once the item has gone.
#[derive(Clone, Debug)]
pub enum SharedValue {
    /// It was in memory.
    Memory(LongValue),
    /// It was read from flash, and has a share of the memory for that.
    Flash(Arc<FlashItem>),
}

impl SharedValue {
    /// The same for the same bytes, and for no others.
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

/// Whether a look counts as an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// The look counts: the item is fetched, referenced, accessed now.
    No,
    /// The look leaves no trace.
    Yes,
}

/// What memory knows of a key.
pub enum Lookup<T> {
    /// The item is in memory; what the viewer made of it.
    Hit(T),
    /// There is no such item.
    Miss,
    /// The item may be on flash.
    Flash(FlashRead),
}

/// A flash read of one request, to be carried out with [`Engine::read_flash`].
///
/// Others may be waiting for it. Unless the very next thing its task waits for is
/// [`read_flash`](Engine::read_flash), it must be [started](FlashRead::start) first: two tasks that
/// each hold back what the other waits for would wait for ever.
///
/// Dropped before it has ended, the read that is this request's to make ends as abandoned.
pub struct FlashRead {
    engine: Arc<Engine>,
    hash: KeyHash,
    /// Writes to the key before the read.
    pub(super) write_generation: u32,
    /// Unix second of the request.
    now: u32,
    peek: Peek,
    /// Whether a hit is counted where the read completes; a change counts its own.
    counts_hit: bool,
    /// What the index said, for the request that was the first to ask; the others wait.
    first: Option<Probe>,
    /// Set while the read is this value's to make.
    leads: bool,
    patience: Patience,
    in_flight: Arc<InFlightRead>,
}

impl FlashRead {
    /// Starts the read as a task of the calling thread, if it is this request's to make and has not
    /// been started; it then ends whatever becomes of those that wait for it. If there is no memory for it at once,
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

    /// How the read ended: makes it, or waits for the request that does.
    ///
    /// An item that nothing has been written over meanwhile is kept in memory where that is worth
    /// it, and the hit of the request that makes the read is counted, all in one hold of the lock.
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
            // An older copy must not come back in its place. What has been written meanwhile stays.
            engine
                .flash
                .forget(self.hash, probe, partition.next_version);
        }
        drop(partition);
        self.leads = false;
        // Nobody joins any more: without another reference there is nobody to tell.
        if Arc::strong_count(&self.in_flight) > 1 {
            self.in_flight.end(outcome.clone());
        }
        outcome
    }

    /// Keeps an item in memory, clean, where that is worth it: one that several requests share, one for which there is
    /// space, and one in [`PROMOTE_ONE_IN`] of the others: what is hot comes again soon. Before a victim cache, each.
    /// Returns whether the item was kept.
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
    /// The item, as readers see it.
    pub fn view(self: &Arc<Self>) -> ItemView<'_> {
        ItemView::new(self.item(), Owner::Flash(self))
    }
}

impl Engine {
    /// Looks a key up, at Unix second `now`. A hit in memory is shown to `view` under the partition's lock. For what
    /// may be on flash a [`FlashRead`] comes back; until that has been carried out, a write to the key may or may not
    /// be seen by it.
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
            // Dead by expiry or flush: its copy on flash, if any, is as dead. Nobody waits for space to say so.
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

    /// The read of a key that is not in memory, if flash may have it: one that is in flight already,
    /// or a new one.
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

    /// Completes when somebody waits for memory to read an item: whoever holds [started](FlashRead::start) reads and
    /// waits for another drops them then, or two such would wait for each other.
    pub async fn read_memory_wanted(&self) {
        self.store().read_memory_wanted().await;
    }

    /// Carries a [`FlashRead`] out. `None` when there is no such item, or it could not be read; both
    /// are counted as misses.
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
                // Counted where the read ended.
                return Some(Arc::clone(item));
            }
            let mut partition = self.lock(key.hash(), now);
            match outcome {
                // An in-flight read is found by the hash; another key with the same one reads for
                // itself. So does a later reader of an item that has expired since the read began.
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
                // Written while this read was on its way: the new item is in memory.
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

/// Remembers in memory that an item kept there was read from flash. The CLOCK hand gives no second chance for it.
fn mark_fetched(partition: &mut Partition, key: Key<'_>, now: u32) {
    if let Some(handle) = partition.tier.find(key) {
        let header = partition.tier.header_mut(handle);
        header.state |= state::FETCHED;
        header.last_access = now.into();
    }
}
