//! Reading.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::{Engine, LARGEST_SHARE};
use crate::config::Dram;
use crate::dram::NewItem;
use crate::flight::{Flight, Landing};
use crate::format::item::{ItemRef, state};
use crate::key::{Key, KeyHash};
use crate::partition::Partition;
use crate::placement::{Found, Probe, Token};
use crate::store::{FlashItem, ReadError};
use runtime::work::{self, Work};

/// One flash read in so many is kept in memory at the cost of another item's place.
const PROMOTE_ONE_IN: u32 = 4;

/// An item as readers see it.
#[derive(Clone, Copy, Debug)]
pub struct ItemView<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The value's owner, when it is long and can be shared instead of copied.
    pub shared: Option<&'a Arc<[u8]>>,
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
    /// Somebody has been told to recache it.
    pub won: bool,
    /// The key came base64-encoded.
    pub binary_key: bool,
}

impl<'a> ItemView<'a> {
    pub(super) fn new(item: ItemRef<'a>, shared: Option<&'a Arc<[u8]>>) -> Self {
        let header = item.header;
        Self {
            key: item.key,
            value: item.value,
            shared,
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

/// Whether a look counts as an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// It does: the item is fetched, referenced, accessed now.
    No,
    /// It leaves no trace.
    Yes,
}

/// What memory knows of a key.
pub enum Lookup<T> {
    /// The item is in memory; what the viewer made of it.
    Hit(T),
    /// There is no such item.
    Miss,
    /// It may be on flash.
    Flash(FlashRead),
}

/// What [`Engine::lookup_memory`] knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryLookup<T> {
    /// The item is in memory; what the viewer made of it.
    Hit(T),
    /// There is no such item.
    Miss,
    /// It may be on flash: a worker has to read it.
    OnFlash,
}

/// A flash read to be carried out with [`Engine::read_flash`].
///
/// Others may be waiting for it. Unless the very next thing its task waits for is
/// [`read_flash`](Engine::read_flash), it must be [started](FlashRead::start) first: two tasks that
/// each hold back what the other waits for would wait for ever.
pub struct FlashRead {
    flight: Arc<Flight>,
    /// Set until the read is started, when it is this reader's to make.
    lead: Option<Lead>,
}

/// The duty to land a flight, also when its task is dropped half way.
struct Lead {
    engine: Arc<Engine>,
    hash: KeyHash,
    flight: Arc<Flight>,
    token: Token,
}

impl Lead {
    /// Reads, keeps the item in memory unless a write has overtaken the flight, and lands it.
    async fn fly(self, key: Key<'_>) -> Landing {
        let engine = &self.engine;
        let found = engine.placement.get(key, self.token).await;
        let now = runtime::unix_seconds();
        let number = self.hash.partition(engine.partition_bits);
        let mut partition = engine.lock_partition(number, now);
        let current = remove_flight(&mut partition, self.hash, &self.flight);
        let landing = match found {
            Ok(Found::Item(mut item)) => {
                if item.header().version.get() < engine.stale_below {
                    item.mark(state::STALE);
                }
                if engine.horizon.is_item_live(self.hash, item.header(), now) {
                    let item = Arc::new(item);
                    // Beside the leader's two, every reference is a follower's.
                    let shared = Arc::strong_count(&self.flight) > 2;
                    let kept =
                        current && engine.promote(&mut partition, number, key, &item, shared, now);
                    Landing::Item {
                        item,
                        token: self.token,
                        kept,
                    }
                } else {
                    partition.count_dead(item.header().is_expired(now));
                    engine.placement.forget(self.hash, self.token);
                    Landing::Absent(self.token)
                }
            }
            Ok(Found::Absent) => Landing::Absent(self.token),
            Err(ReadError::NoMemory { .. }) => Landing::Busy,
            Err(error) => {
                tracing::debug!(%error, "a flash read failed");
                Landing::Failed
            }
        };
        drop(partition);
        self.flight.land(landing.clone());
        landing
    }
}

impl FlashRead {
    /// Starts the read as a task of the calling thread, if it is this reader's to make and has not
    /// been started; it then ends whatever becomes of those that wait for it.
    pub fn start(&mut self, key: Key<'_>) {
        if let Some(lead) = self.lead.take() {
            let key: Box<[u8]> = key.bytes().into();
            runtime::spawn_detached(async move {
                if let Some(key) = lead.engine.clone().key(&key) {
                    lead.fly(key).await;
                }
            });
        }
    }

    /// Makes the read, or waits for the one who does.
    pub(super) async fn landing(self, key: Key<'_>) -> Landing {
        match self.lead {
            Some(lead) => lead.fly(key).await,
            None => self.flight.landing().await,
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        if self.flight.has_landed() {
            return;
        }
        let mut partition = self.engine.lock(self.hash, runtime::unix_seconds());
        remove_flight(&mut partition, self.hash, &self.flight);
        drop(partition);
        self.flight.land(Landing::Abandoned);
    }
}

/// An item that was read from flash.
#[derive(Clone, Debug)]
pub struct FlashHit {
    item: Arc<FlashItem>,
}

impl FlashHit {
    /// The item.
    #[must_use]
    pub fn view(&self) -> ItemView<'_> {
        ItemView::new(self.item.item(), None)
    }
}

impl Engine {
    /// Looks a key up in memory, at Unix second `now`. A hit is shown to `view` under the
    /// partition's lock. For what is not in memory and may be on flash, a read is started, as a task
    /// of the calling thread, and comes back as a [`FlashRead`]; until that has been carried out, a
    /// write to the key may or may not be seen by it.
    #[inline]
    pub fn lookup<T>(
        self: &Arc<Self>,
        key: Key<'_>,
        now: u32,
        peek: Peek,
        view: impl FnOnce(&ItemView<'_>) -> T,
    ) -> Lookup<T> {
        let mut partition = self.lock(key.hash(), now);
        if let Some(shown) = self.look(&mut partition, key, now, peek, view) {
            return Lookup::Hit(shown);
        }
        match self.embark(&mut partition, key, peek) {
            Some(read) => Lookup::Flash(read),
            None => Lookup::Miss,
        }
    }

    /// [`lookup`](Engine::lookup) for a thread that no runtime drives: it starts no read. What is
    /// not in memory and may be on flash is counted by whoever reads it.
    #[inline]
    pub fn lookup_memory<T>(
        &self,
        key: Key<'_>,
        now: u32,
        peek: Peek,
        view: impl FnOnce(&ItemView<'_>) -> T,
    ) -> MemoryLookup<T> {
        let mut partition = self.lock(key.hash(), now);
        if let Some(shown) = self.look(&mut partition, key, now, peek, view) {
            return MemoryLookup::Hit(shown);
        }
        if self.placement.probe(key.hash()) == Probe::Absent {
            partition.stats.misses += 1;
            MemoryLookup::Miss
        } else {
            MemoryLookup::OnFlash
        }
    }

    /// Shows an item that is in memory to `view`.
    #[inline]
    fn look<T>(
        &self,
        partition: &mut Partition,
        key: Key<'_>,
        now: u32,
        peek: Peek,
        view: impl FnOnce(&ItemView<'_>) -> T,
    ) -> Option<T> {
        let handle = partition.tier.find(key)?;
        work::count(Work::TierEntry, 1);
        let (item, shared) = partition.tier.item(handle);
        if !self.horizon.is_item_live(key.hash(), item.header, now) {
            // Dead by expiry or flush: its copy on flash, if any, is as dead.
            let expired = item.header.is_expired(now);
            partition.tier.remove(key);
            partition.count_dead(expired);
            self.placement.invalidate(key.hash());
            return None;
        }
        let shown = view(&ItemView::new(item, shared));
        if peek == Peek::No {
            let header = partition.tier.header_mut(handle);
            let bits = state::FETCHED | state::REFERENCED;
            if header.state & bits != bits {
                header.state |= bits;
            }
            if header.last_access.get() != now {
                header.last_access = now.into();
            }
            partition.stats.dram_hits += 1;
        }
        Some(shown)
    }

    /// Boards the flight of a key that is not in memory, if flash may have it; counts a miss if not.
    #[inline]
    fn embark(
        self: &Arc<Self>,
        partition: &mut Partition,
        key: Key<'_>,
        peek: Peek,
    ) -> Option<FlashRead> {
        let probe = match peek {
            Peek::No => self.placement.access(key.hash()),
            Peek::Yes => self.placement.probe(key.hash()),
        };
        match probe {
            Probe::Present(token) => Some(self.board(partition, key, token)),
            Probe::Absent => {
                partition.stats.misses += 1;
                None
            }
        }
    }

    /// Joins the flight of a key, or starts one.
    pub(super) fn board(
        self: &Arc<Self>,
        partition: &mut Partition,
        key: Key<'_>,
        token: Token,
    ) -> FlashRead {
        let hash = key.hash();
        if let Some(flight) = partition.flights.get(&hash) {
            partition.stats.shared_flights += 1;
            return FlashRead {
                lead: None,
                flight: Arc::clone(flight),
            };
        }
        let flight = Arc::new(Flight::default());
        partition.flights.insert(hash, Arc::clone(&flight));
        let lead = Lead {
            engine: Arc::clone(self),
            hash,
            flight: Arc::clone(&flight),
            token,
        };
        FlashRead {
            flight,
            lead: Some(lead),
        }
    }

    /// Carries a [`FlashRead`] out. `None` when there is no such item, or it could not be read; both
    /// are counted as misses. A hit counts as an access unless `peek` says otherwise.
    pub async fn read_flash(
        self: &Arc<Self>,
        key: Key<'_>,
        mut read: FlashRead,
        now: u32,
        peek: Peek,
    ) -> Option<FlashHit> {
        loop {
            let landing = read.landing(key).await;
            let mut partition = self.lock(key.hash(), now);
            match landing {
                // A flight is found by hash; another key with the same one reads for itself. So does a
                // later reader of an item that has expired since the flight began.
                Landing::Item { item, kept, .. }
                    if item.item().key == key.bytes()
                        && self
                            .horizon
                            .is_item_live(key.hash(), item.item().header, now) =>
                {
                    partition.stats.flash_hits += 1;
                    if kept && peek == Peek::No {
                        mark_fetched(&mut partition, key, now);
                    }
                    return Some(FlashHit { item });
                }
                Landing::Failed | Landing::Busy => {
                    partition.stats.misses += 1;
                    partition.stats.failed_reads += 1;
                    return None;
                }
                // Written while this read was on its way: the new item is in memory.
                _ if let Some(item) = self.copy_from_memory(&partition, key, now) => {
                    partition.stats.dram_hits += 1;
                    return Some(FlashHit {
                        item: Arc::new(item),
                    });
                }
                Landing::Absent(_) => {
                    partition.stats.misses += 1;
                    return None;
                }
                Landing::Item { .. } | Landing::Abandoned => {
                    read = self.embark(&mut partition, key, peek)?;
                }
            }
        }
    }

    fn copy_from_memory(&self, partition: &Partition, key: Key<'_>, now: u32) -> Option<FlashItem> {
        let (item, _) = partition.tier.item(partition.tier.find(key)?);
        let live = self.horizon.is_item_live(key.hash(), item.header, now);
        live.then(|| FlashItem::copy_of(&item))
    }

    /// Keeps an item read from flash in memory, clean, where that is worth it: what is hot comes
    /// again soon, so that one read in [`PROMOTE_ONE_IN`] is enough to find it, and the others push
    /// nothing out. A read that several waited for is worth it, and so is one that costs nobody's
    /// place. Returns whether it was kept.
    fn promote(
        &self,
        partition: &mut Partition,
        number: usize,
        key: Key<'_>,
        item: &FlashItem,
        shared: bool,
        now: u32,
    ) -> bool {
        let item = item.item();
        let header = item.header;
        let new = NewItem {
            version: header.version.get(),
            cas_unique: header.has(state::HAS_CAS).then_some(item.cas_unique),
            client_flags: header.client_flags.get(),
            expiry: header.expiry.get(),
            last_access: header.last_access.get(),
            state: header.state & state::ON_FLASH,
            value: item.value,
            shared: None,
        };
        let context = self.evict_context(number, now);
        let fits = self.config.dram == Dram::ItemCache
            && header.body_bytes() <= context.limit_bytes / LARGEST_SHARE;
        let worth = shared
            || partition
                .tier
                .has_room(&new.header(key), context.limit_bytes)
            || partition.take_turn(PROMOTE_ONE_IN);
        let kept = fits && worth && partition.tier.put(key, &new, &context).is_ok();
        if kept {
            partition.stats.promotions += 1;
        }
        kept
    }
}

/// Remembers in memory that an item kept there was read from flash. It is not yet a second chance.
fn mark_fetched(partition: &mut Partition, key: Key<'_>, now: u32) {
    if let Some(handle) = partition.tier.find(key) {
        let header = partition.tier.header_mut(handle);
        header.state |= state::FETCHED;
        header.last_access = now.into();
    }
}

/// Takes a flight out of the table; false when a write has done so before.
fn remove_flight(partition: &mut Partition, hash: KeyHash, flight: &Arc<Flight>) -> bool {
    match partition.flights.entry(hash) {
        Entry::Occupied(found) if Arc::ptr_eq(found.get(), flight) => {
            found.remove();
            true
        }
        _ => false,
    }
}
