//! Reading: from memory, or by a flash read that requests for one key share.

use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

use crate::dram::{LargeClaim, LongValue, NewItem};
use crate::durability::clock::shifted;
use crate::format::item::{ItemRef, state};
use crate::in_flight::{InFlightRead, ReadOutcome};
use crate::key::{Key, KeyHash};
use crate::partition::Partition;
use crate::placement::{Found, Look, Probe};
use crate::settings::Dram;
use crate::store::{FlashItem, Patience, ReadError};
use crate::tiers::{LargeHand, Room, Tiers};

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

    /// Creates the view of an item read from flash.
    pub fn of_flash(item: &'a Arc<FlashItem>) -> Self {
        Self::new(item.item(), Owner::Flash(item)).by_clock(item.clock_ahead())
    }

    /// Returns the view with the expiry by this run's clock: that of the item is `ahead` of it.
    #[must_use]
    pub(crate) fn by_clock(mut self, ahead: i64) -> Self {
        self.expiry = expiry_by_clock(self.expiry, ahead);
        self
    }
}

/// Returns the expiry by this run's clock of an item whose clock is `ahead` of it; 0 for never.
pub(super) fn expiry_by_clock(expiry: u32, ahead: i64) -> u32 {
    match (expiry, ahead) {
        (0, _) | (_, 0) => expiry,
        _ => shifted(expiry, -ahead).max(1),
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

/// A flash read of one request, to be carried out with [`Engine::read_flash`](super::Engine::read_flash).
///
/// Other requests may be waiting for it. A task that waits for anything else before it calls
/// [`read_flash`](super::Engine::read_flash) must [start](FlashRead::start) the read first: otherwise two tasks, each with a
/// read that the other waits for, wait for ever.
///
/// If it is dropped before the read has ended and the read was this request's to make, the read ends as abandoned.
pub struct FlashRead {
    tiers: Arc<Tiers>,
    hash: KeyHash,
    /// Write counter of the key before the read.
    pub(super) write_generation: u32,
    /// Unix second of the request.
    pub(super) now: u32,
    pub(super) peek: Peek,
    /// Whether a hit is counted when the read completes; a change counts its own hits.
    counts_hit: bool,
    /// The index's answer, in the first request for the key; `None` in requests that wait for it.
    pub(super) first: Option<Probe>,
    /// Whether the read is still this request's to make.
    leads: bool,
    patience: Patience,
    in_flight: Arc<InFlightRead>,
}

impl FlashRead {
    /// Returns the flash read of a key that is not in memory, if flash may have the key: one already in flight, or a
    /// new one.
    #[inline]
    pub(super) fn join(
        tiers: &Arc<Tiers>,
        partition: &mut Partition,
        key: Key<'_>,
        now: u32,
        peek: Peek,
        counts_hit: bool,
    ) -> Option<Self> {
        let hash = key.hash();
        let look = match peek {
            Peek::No => Look::Read,
            Peek::Yes => Look::Peek,
        };
        let probe = tiers.flash.probe(hash, look);
        if probe == Probe::Absent {
            return None;
        }
        let (in_flight, is_first) = partition.join_read(hash);
        if peek == Peek::No {
            in_flight.note_counting();
        }
        Some(Self {
            tiers: Arc::clone(tiers),
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

    /// Starts the read as a task of the calling thread, if it is this request's to make and has not been started. The
    /// read then ends even if all waiting requests go away. If no memory is free for it,
    /// [`read_flash`](super::Engine::read_flash) waits for some.
    pub fn start(&mut self, key: Key<'_>) {
        if !std::mem::take(&mut self.leads) {
            return;
        }
        let mut read = Self {
            tiers: Arc::clone(&self.tiers),
            in_flight: Arc::clone(&self.in_flight),
            leads: true,
            patience: Patience::ReadsAhead,
            ..*self
        };
        let key: Box<[u8]> = key.bytes().into();
        runtime::spawn_detached(async move {
            if let Some(key) = read.tiers.clone().key(&key) {
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
        let tiers = &self.tiers;
        let found = tiers
            .flash
            .placement()
            .get(key, probe, self.patience, &|| self.in_flight.counts())
            .await;
        let now = runtime::unix_seconds().max(self.now);
        let mut claim = LargeClaim::new(tiers.shares.large());
        if let Ok(Found::Item(item)) = &found {
            self.claim(item, &mut claim, now);
        }
        let mut partition = tiers.partitions.lock(self.hash, now);
        let is_current = partition.end_read(self.hash, &self.in_flight);
        let mut is_dead = false;
        let outcome = match found {
            Ok(Found::Item(mut item)) => {
                item.mark(tiers.downtime_mark(item.header()));
                item.set_clock_ahead(tiers.cutoffs().clock_ahead(item.header().version.get()));
                if tiers.cutoffs().is_item_live(self.hash, item.header(), now) {
                    partition.stats.flash_hits += u64::from(self.counts_hit);
                    let kept =
                        is_current && self.promote(&mut partition, key, &item, &mut claim, now);
                    let item = Arc::new(item);
                    ReadOutcome::Item { item, kept }
                } else {
                    let version = item.header().version.get();
                    let second = tiers.cutoffs().second_of(version, now);
                    partition.count_dead(item.header().is_expired(second));
                    is_dead = true;
                    ReadOutcome::Absent
                }
            }
            Ok(Found::Absent) => ReadOutcome::Absent,
            Err(ReadError::Unwritten { .. }) => {
                is_dead = true;
                ReadOutcome::Absent
            }
            Err(ReadError::NoAnswer) => ReadOutcome::GivenUp,
            Err(ReadError::NoMemory { .. }) => match self.patience {
                Patience::Waits | Patience::Endless => ReadOutcome::Busy,
                Patience::ReadsAhead => ReadOutcome::Crowded,
            },
            Err(error) => {
                tracing::debug!(%error, "a flash read failed");
                is_dead = matches!(error, ReadError::Corrupt { .. });
                ReadOutcome::Failed
            }
        };
        if is_dead && is_current && tiers.flash.may_displace() {
            // Removes the index entry, so that no older copy comes back in its place. A newer item stays.
            tiers.flash.forget(self.hash, probe, partition.next_version);
        }
        drop(partition);
        self.leads = false;
        // No request can join any more, and without another reference none is waiting.
        if Arc::strong_count(&self.in_flight) > 1 {
            self.in_flight.end(outcome.clone());
        }
        outcome
    }

    /// Claims memory for a large value that is worth keeping, by the same rule as [`promote`](Self::promote).
    fn claim(&self, item: &FlashItem, claim: &mut LargeClaim<'_>, now: u32) {
        let tiers = &self.tiers;
        let Some(bytes) = tiers.claim_for(&item.item()) else {
            return;
        };
        let hand = LargeHand::new(tiers, now);
        let worth = tiers.dram == Dram::BeforeVictims
            || self.in_flight.is_shared()
            || hand.has_free(bytes)
            || tiers
                .partitions
                .lock(self.hash, now)
                .take_turn(PROMOTE_ONE_IN);
        if tiers.dram != Dram::Filter && worth {
            hand.extend(claim, bytes);
        }
    }

    /// Keeps an item in memory, clean, if that is worth it: if several requests share the read, if there is free space,
    /// or once in [`PROMOTE_ONE_IN`] calls, since a hot item comes again soon. Before a victim cache every item is
    /// worth it. Returns whether the item was kept.
    fn promote(
        &self,
        partition: &mut Partition,
        key: Key<'_>,
        item: &FlashItem,
        claim: &mut LargeClaim<'_>,
        now: u32,
    ) -> bool {
        let tiers = &self.tiers;
        if partition.tier.items.find(key).is_some() {
            // Reclaim has given it back to memory meanwhile.
            return true;
        }
        let item = item.item();
        let mut new = NewItem::copy_of(&item, 0);
        if self.counts_hit && self.peek == Peek::No {
            // The CLOCK hand gives no second chance for this read.
            new.state |= state::FETCHED;
            new.last_access = now;
        }
        let context = tiers.evict_context(tiers.partitions.number_of(self.hash), now);
        if tiers.dram == Dram::Filter {
            return false;
        }
        let kept = match tiers.room_for(&partition.tier, key, &new, claim, &context) {
            Room::Partition => {
                let worth = context.rewrites_clean
                    || self.in_flight.is_shared()
                    || partition
                        .tier
                        .items
                        .has_space(&new.header(key), context.limit_bytes)
                    || partition.take_turn(PROMOTE_ONE_IN);
                worth && partition.tier.put(key, &new, &context).is_ok()
            }
            Room::Large => partition.tier.put_large(key, &new, claim, &context).is_ok(),
            Room::Claimed(_) | Room::Nowhere => false,
        };
        partition.stats.promotions += u64::from(kept);
        kept
    }
}

impl Drop for FlashRead {
    fn drop(&mut self) {
        if self.leads {
            let mut partition = self
                .tiers
                .partitions
                .lock(self.hash, runtime::unix_seconds());
            partition.end_read(self.hash, &self.in_flight);
            drop(partition);
            self.in_flight.end(ReadOutcome::Abandoned);
        }
    }
}

/// Notes that an item kept in memory was read from flash. The CLOCK hand gives no second chance for this read.
pub(super) fn mark_fetched(partition: &mut Partition, key: Key<'_>, now: u32) {
    if let Some(handle) = partition.tier.items.find(key) {
        let header = partition.tier.items.header_mut(handle);
        header.state |= state::FETCHED;
        header.last_access = now.into();
    }
}

/// Returns a copy of the live item of a key in memory.
pub(super) fn copy_from_memory(
    tiers: &Tiers,
    partition: &Partition,
    key: Key<'_>,
    now: u32,
) -> Option<FlashItem> {
    let (item, _) = partition.tier.items.item(partition.tier.items.find(key)?);
    let live = tiers.cutoffs().is_item_live(key.hash(), item.header, now);
    live.then(|| {
        let mut copy = FlashItem::copy_of(&item);
        copy.set_clock_ahead(tiers.cutoffs().clock_ahead(item.header.version.get()));
        copy
    })
}
