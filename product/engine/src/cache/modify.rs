//! Writing: every change is decided on the item's present state and made under the same lock.

use std::borrow::Cow;
use std::sync::Arc;

use runtime::work;

use super::read::{FlashRead, ItemView, Owner, Peek, mark_fetched};
use crate::admission::{Features, Stored};
use crate::dram::{LargeClaim, LongValue, NewItem, Older};
use crate::flash::Placed;
use crate::format::item::{ItemHeader, ItemRef, state};
use crate::in_flight::ReadOutcome;
use crate::key::Key;
use crate::partition::Partition;
use crate::placement::{Look, Probe};
use crate::store::{AppendItem, FlashItem, Priority};
use crate::sync::MutexGuard;
use crate::sync::atomic::Ordering;
use crate::tiers::{Room, Tiers};

/// Reason why a write failed. The old value is gone in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// The item is larger than the settings allow.
    #[error("object too large for cache")]
    TooLarge,
    /// There is no memory for the item, and flash cannot take other items out of memory.
    #[error("out of memory storing object")]
    OutOfMemory,
    /// Flash has not answered the read of the item in time. The item has not changed.
    #[error("flash does not answer")]
    NoAnswer,
}

/// Change of an item.
#[derive(Clone, Debug)]
pub enum Change<'v> {
    /// The item stays as it is.
    Keep,
    /// The item stays, and counts as used now, but not as read.
    Use,
    /// The item is removed.
    Remove,
    /// The item is stored, and replaces any older one.
    Put(Put<'v>),
    /// The item's properties change; its value stays.
    Amend(Amend),
}

/// An item to store.
#[derive(Clone, Debug, Default)]
pub struct Put<'v> {
    /// The value.
    pub value: Cow<'v, [u8]>,
    /// The client's own flags.
    pub client_flags: u32,
    /// Unix second from which on the item is expired; 0 for never.
    pub expiry: u32,
    /// CAS unique chosen by the client; `None` for a new one.
    pub cas_unique: Option<u64>,
    /// Whether the item is marked stale.
    pub stale: bool,
    /// Whether a client has been given the task to recache it.
    pub won: bool,
    /// Whether the item counts as read already.
    pub fetched: bool,
    /// Whether the key came base64-encoded.
    pub binary_key: bool,
}

/// Changes of an item's properties; `None` leaves a property as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amend {
    /// Unix second of expiry; 0 for never.
    pub expiry: Option<u32>,
    /// Whether the item is marked stale.
    pub stale: Option<bool>,
    /// Whether a client has been given the task to recache it.
    pub won: Option<bool>,
    /// Gives the item a new CAS unique: the given one, or one of the cache's own.
    pub cas_unique: Option<Option<u64>>,
    /// Counts the change as a read.
    pub access: bool,
}

/// The outcome of [`Engine::modify`](super::Engine::modify).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modified<R> {
    /// The result that the operation returned.
    pub result: R,
    /// CAS unique of the item after the change; 0 when there is none.
    pub cas_unique: u64,
}

/// Outcome of one attempt of an operation.
pub(super) enum Attempt<R> {
    Done(Result<Modified<R>, CacheError>),
    /// The item may be on flash and has to be read first.
    OnFlash(FlashRead),
    /// Flash has no space for items that have to leave memory, or the journal is full.
    NoSpace,
    /// The value is large, and this number of bytes has to be claimed first.
    Unclaimed(usize),
}

impl<R> Attempt<R> {
    /// Changes the item of `key` as `decide` says, unless it has to be read from flash first. `fetched` is the item that
    /// an earlier attempt had read; `claim` is for a large value.
    pub(super) fn make<'v>(
        tiers: &Arc<Tiers>,
        key: Key<'_>,
        now: u32,
        fetched: Option<&Fetched>,
        claim: &mut LargeClaim<'_>,
        decide: &mut impl FnMut(Option<&ItemView<'_>>) -> (Change<'v>, R),
    ) -> Self {
        if !tiers.flash.may_displace() {
            return Self::NoSpace;
        }
        let mut held = Held::lock(tiers, key, now);
        let mut present = held.partition.tier.items.find(key).map(Present::InMemory);
        if let Some(Present::InMemory(handle)) = present
            && !held.is_live(held.partition.tier.items.header(handle))
        {
            held.erase();
            present = None;
        }
        if present.is_none() {
            // A fetched item counts only as long as nobody has written to the key since.
            let generation = held.partition.write_generation(key.hash());
            match fetched.filter(|fetched| fetched.write_generation == generation) {
                Some(fetched) if tiers.flash.probe(key.hash(), Look::Peek) != Probe::Absent => {
                    let item = fetched.item.as_ref().filter(|item| {
                        held.is_live(item.header()) && item.item().key == key.bytes()
                    });
                    present = item.map(|item| Present::Fetched(Arc::clone(item)));
                }
                Some(_) => {}
                None => {
                    let partition = &mut held.partition;
                    if let Some(read) =
                        FlashRead::join(tiers, partition, key, now, Peek::Yes, false)
                    {
                        return Self::OnFlash(read);
                    }
                }
            }
        }
        let (change, result) = match &present {
            Some(present) => decide(Some(&present.view(tiers, &held.partition))),
            None => decide(None),
        };
        match held.carry_out(present, change, claim) {
            Ok(cas_unique) => Self::Done(Ok(Modified { result, cas_unique })),
            Err(Refused::Never(error)) => Self::Done(Err(error)),
            Err(Refused::NoSpace) => Self::NoSpace,
            Err(Refused::Unclaimed(bytes)) => Self::Unclaimed(bytes),
        }
    }
}

/// A write to a key, in one hold of its partition's lock.
pub(super) struct Held<'a> {
    tiers: &'a Tiers,
    partition: MutexGuard<'a, Partition>,
    /// The number of the locked partition.
    number: usize,
    key: Key<'a>,
    /// Unix second of the request.
    now: u32,
}

impl<'a> Held<'a> {
    /// Locks the partition of a key for a write at Unix second `now`.
    pub(super) fn lock(tiers: &'a Tiers, key: Key<'a>, now: u32) -> Self {
        let number = tiers.partitions.number_of(key.hash());
        Self {
            tiers,
            partition: tiers.partitions.lock_number(number, now),
            number,
            key,
            now,
        }
    }
}

impl Held<'_> {
    fn is_live(&self, header: &ItemHeader) -> bool {
        let cutoffs = self.tiers.cutoffs();
        cutoffs.is_item_live(self.key.hash(), header, self.now)
    }

    fn carry_out(
        &mut self,
        present: Option<Present>,
        change: Change<'_>,
        claim: &mut LargeClaim<'_>,
    ) -> Result<u64, Refused> {
        match (change, present) {
            (Change::Remove, _) => {
                self.erase();
                Ok(0)
            }
            (Change::Put(put), _) => self.put(&put, claim),
            (_, None) => Ok(0),
            (Change::Keep, Some(present)) => Ok(present.item(&self.partition).0.cas_unique),
            (Change::Use, Some(present)) => {
                self.note_use(&present);
                Ok(present.item(&self.partition).0.cas_unique)
            }
            (Change::Amend(amend), Some(present)) => {
                let cas_unique = self.amend(&present, &amend, claim)?;
                if amend.access {
                    // Not before: an attempt that has to be repeated leaves no trace.
                    self.access(&present);
                }
                Ok(cas_unique)
            }
        }
    }

    /// Notes that an item is in use, so that it is kept.
    fn note_use(&mut self, present: &Present) {
        match present {
            Present::InMemory(handle) => {
                let header = self.partition.tier.items.header_mut(*handle);
                header.set_clock(self.tiers.clock_read);
                header.last_access = self.now.into();
            }
            Present::Fetched(_) => {
                let placement = self.tiers.flash.placement();
                placement.probe(self.key.hash(), Look::Found);
            }
        }
    }

    /// Counts a read of an item that has been amended meanwhile.
    fn access(&mut self, present: &Present) {
        let amended = self.partition.tier.items.find(self.key);
        match (present, amended) {
            (Present::InMemory(_), Some(handle)) => {
                self.note_use(&Present::InMemory(handle));
                let header = self.partition.tier.items.header_mut(handle);
                header.state |= state::FETCHED;
                header.count_read();
            }
            (Present::Fetched(_), None) => self.note_use(present),
            _ => mark_fetched(&mut self.partition, self.key, self.now),
        }
        let stats = &mut self.partition.stats;
        match present {
            Present::InMemory(_) => stats.dram_hits += 1,
            Present::Fetched(_) => stats.flash_hits += 1,
        }
        let gate = &self.tiers.gate;
        if gate.watches(self.key.hash()) {
            gate.read(self.key, self.known());
        }
    }

    /// Returns the features of the item that admission uses, if the item is in memory.
    fn known(&self) -> Option<Features> {
        let tier = &self.partition.tier;
        let handle = tier.items.find(self.key)?;
        Some(Features::of(tier.items.header(handle)))
    }

    /// Returns whether the cache has the key, or may have it.
    fn may_be_there(&self) -> bool {
        self.known().is_some()
            || self.tiers.flash.probe(self.key.hash(), Look::Peek) != Probe::Absent
    }

    /// Removes the item of the key, in memory and on flash.
    pub(super) fn erase(&mut self) {
        let hash = self.key.hash();
        if self.tiers.gate.watches(hash) && self.may_be_there() {
            self.tiers.gate.removed(self.key);
        }
        self.partition.tier.items.remove(self.key);
        let below = self.partition.next_version;
        self.tiers.flash.invalidate(hash, below);
        self.partition.count_write(hash);
    }

    /// Stores an item, whether or not the key has one.
    pub(super) fn put(
        &mut self,
        put: &Put<'_>,
        claim: &mut LargeClaim<'_>,
    ) -> Result<u64, Refused> {
        let new = NewItem {
            version: self.partition.next_version,
            cas_unique: put.cas_unique,
            client_flags: put.client_flags,
            expiry: put.expiry,
            last_access: self.now,
            state: state::DIRTY
                | (u8::from(put.stale) * state::STALE)
                | (u8::from(put.won) * state::WON)
                | (u8::from(put.fetched) * state::FETCHED)
                | (u8::from(put.binary_key) * state::BINARY_KEY),
            value: &put.value,
            shared: None,
        };
        let cas_unique = self.store_new(&new, claim)?;
        let stats = &mut self.partition.stats;
        stats.items_set += 1;
        stats.item_bytes_set += (self.key.bytes().len() + put.value.len()) as u64;
        Ok(cas_unique)
    }

    /// Stores an item under a new version. Copies on flash are outdated from then on.
    fn store_new(&mut self, new: &NewItem<'_>, claim: &mut LargeClaim<'_>) -> Result<u64, Refused> {
        let tiers = self.tiers;
        let is_watched = tiers.gate.watches(self.key.hash());
        let is_update = is_watched && self.may_be_there();
        let context = tiers.evict_context(self.number, self.now);
        let body = new.body_bytes(self.key);
        if body > tiers.largest_body {
            self.erase();
            return Err(Refused::Never(CacheError::TooLarge));
        }
        if new.version >= tiers.version_limit.load(Ordering::Relaxed) {
            self.erase();
            return Err(Refused::Never(CacheError::OutOfMemory));
        }
        let tier = &mut self.partition.tier;
        let put = match tiers.room_for(tier, self.key, new, claim, &context) {
            Room::Partition => Some(tier.put(self.key, new, &context)),
            Room::Large => Some(tier.put_large(self.key, new, claim, &context)),
            Room::Claimed(bytes) => return Err(Refused::Unclaimed(bytes)),
            Room::Nowhere => None,
        };
        if let Some(put) = put {
            let older = put.map_err(|_| Refused::NoSpace)?;
            if older == Older::PerhapsOnFlash || tiers.flash.upkeep.recovery.is_running() {
                let had_copy = tiers.flash.invalidate(self.key.hash(), new.version);
                if had_copy && tiers.gate.notes_outdated() {
                    self.partition.tier.items.note_outdated(self.key);
                }
            }
        } else {
            self.place_at_once(new)?;
        }
        tiers.keep_one_clock(&mut self.partition, self.key.hash(), &context);
        let version = self.partition.take_version();
        self.partition.count_write(self.key.hash());
        if is_watched {
            let stored = Stored {
                bytes: body,
                is_update,
                known: self.known(),
            };
            tiers.gate.stored(self.key, stored);
        }
        Ok(new.cas_unique.unwrap_or(version))
    }

    /// Stores an item that memory does not keep, in the segment being filled. Its index entry replaces an older one.
    fn place_at_once(&mut self, new: &NewItem<'_>) -> Result<(), Refused> {
        let (key, hash) = (self.key, self.key.hash());
        let header = new.header(key);
        let item = ItemRef {
            header: &header,
            cas_unique: new.cas_unique.unwrap_or(new.version),
            key: key.bytes(),
            value: new.value,
        };
        let mut outcome = Placed::NoSpace;
        let items = [AppendItem {
            hash,
            item,
            priority: Priority::LOWEST,
            is_listed: true,
        }];
        let flash = &self.tiers.flash;
        flash.place(&items, true, |_, placed| outcome = placed);
        let refused = match outcome {
            Placed::NoSpace if self.tiers.flash.is_held_back() => {
                // Held back by a write limit: counts as stored, and as evicted at once.
                self.partition.tier.items.remove(key);
                self.tiers.flash.invalidate(hash, new.version);
                self.partition.tier.items.stats.count_held_back(&header);
                return Ok(());
            }
            Placed::NoSpace => return Err(Refused::NoSpace),
            Placed::OnFlash => {
                self.tiers.gate.placed(&header);
                None
            }
            Placed::NeverFits => Some(CacheError::TooLarge),
            Placed::Dropped => Some(CacheError::OutOfMemory),
        };
        self.partition.tier.items.remove(key);
        refused.map_or(Ok(()), |error| {
            // Skips the version: records about the refused item must not apply to the next one.
            self.partition.take_version();
            self.partition.count_write(hash);
            Err(Refused::Never(error))
        })
    }

    fn amend(
        &mut self,
        present: &Present,
        amend: &Amend,
        claim: &mut LargeClaim<'_>,
    ) -> Result<u64, Refused> {
        let (item, shared) = present.item(&self.partition);
        let header = *item.header;
        let mut bits = header.state;
        for (set, bit) in [(amend.stale, state::STALE), (amend.won, state::WON)] {
            match set {
                Some(true) => bits |= bit,
                Some(false) => bits &= !bit,
                None => {}
            }
        }
        let ahead = self.tiers.cutoffs().clock_ahead(header.version.get());
        // The new item goes by this run's clock.
        let view = ItemView::new(item, Owner::None).by_clock(ahead);
        let expiry = amend.expiry.unwrap_or(view.expiry);
        let cas_unique = item.cas_unique;
        let same = bits == header.state && expiry == view.expiry;
        if same && amend.cas_unique.is_none() {
            return Ok(cas_unique);
        }
        let mut last_access = header.last_access.get();
        if amend.access {
            bits |= state::FETCHED;
            last_access = self.now;
        }
        if let Present::InMemory(handle) = present
            && header.has(state::DIRTY)
            && amend.cas_unique.is_none()
            && ahead == 0
        {
            // No copy of this version is on flash, so that it may still change.
            let header = self.partition.tier.items.header_mut(*handle);
            header.state = bits;
            header.expiry = expiry.into();
            self.partition.tier.items.note_expiry(expiry);
            self.partition.count_write(self.key.hash());
            return Ok(cas_unique);
        }
        // A value in the log is copied out: its chunk may go while space is made for the new item.
        let shared = shared.cloned();
        let value = match present {
            Present::InMemory(_) if shared.is_none() => Cow::Owned(item.value.to_vec()),
            Present::InMemory(_) => Cow::Borrowed(&[][..]),
            Present::Fetched(item) => Cow::Borrowed(item.item().value),
        };
        let new = NewItem {
            version: self.partition.next_version,
            cas_unique: amend.cas_unique.unwrap_or(Some(cas_unique)),
            client_flags: header.client_flags.get(),
            expiry,
            last_access,
            state: bits & state::ON_FLASH & !state::HAS_CAS | state::DIRTY,
            value: shared.as_deref().unwrap_or(&value),
            shared: shared.clone(),
        };
        self.store_new(&new, claim)
    }
}

/// Outcome of a flash read for a change.
pub(super) struct Fetched {
    /// Write counter of the key before the read.
    write_generation: u32,
    item: Option<Arc<FlashItem>>,
}

impl Fetched {
    /// Returns whether a change of the item is long work.
    pub(super) fn is_long(&self) -> bool {
        let item = self.item.as_ref();
        item.is_some_and(|item| work::is_long(item.item().value.len() as u64))
    }

    /// Reads an item from flash. Returns `None` if the read has to be repeated. `removes` tells whether the change is a removal,
    /// whether or not the key has an item.
    pub(super) async fn read(
        tiers: &Tiers,
        key: Key<'_>,
        mut read: FlashRead,
        now: u32,
        mut removes: impl FnMut() -> bool,
    ) -> Result<Option<Self>, CacheError> {
        let mut write_generation = read.write_generation;
        let item = match read.outcome(key).await {
            ReadOutcome::Item { item, .. } => Some(item),
            ReadOutcome::Absent => None,
            ReadOutcome::Abandoned | ReadOutcome::Crowded => return Ok(None),
            ReadOutcome::Busy => return Err(CacheError::OutOfMemory),
            outcome @ (ReadOutcome::Failed | ReadOutcome::GivenUp) => {
                // An unreadable item is a miss. It must not come back after a change either.
                let mut held = Held::lock(tiers, key, now);
                held.partition.stats.failed_reads += 1;
                let is_changed = held.partition.write_generation(key.hash()) != write_generation;
                if is_changed || !tiers.flash.may_displace() {
                    // Another request has changed the item in between, or the journal has no space for its death.
                    return Ok(None);
                }
                if matches!(outcome, ReadOutcome::GivenUp) && !removes() {
                    return Err(CacheError::NoAnswer);
                }
                held.erase();
                write_generation = held.partition.write_generation(key.hash());
                None
            }
        };
        Ok(Some(Self {
            write_generation,
            item,
        }))
    }
}

/// A live item that is to be changed.
enum Present {
    InMemory(crate::dram::Handle),
    /// On flash and not in memory: too large for memory, or evicted again.
    Fetched(Arc<FlashItem>),
}

impl Present {
    fn item<'a>(&'a self, partition: &'a Partition) -> (ItemRef<'a>, Option<&'a LongValue>) {
        match self {
            Self::InMemory(handle) => partition.tier.items.item(*handle),
            Self::Fetched(item) => (item.item(), None),
        }
    }

    fn view<'a>(&'a self, tiers: &Tiers, partition: &'a Partition) -> ItemView<'a> {
        match self {
            Self::InMemory(handle) => {
                let (item, shared) = partition.tier.items.item(*handle);
                let ahead = tiers.cutoffs().clock_ahead(item.header.version.get());
                ItemView::new(item, shared.map_or(Owner::None, Owner::Memory)).by_clock(ahead)
            }
            Self::Fetched(item) => ItemView::of_flash(item),
        }
    }
}

/// Reason why an item was not stored.
pub(super) enum Refused {
    Never(CacheError),
    NoSpace,
    /// The value is large, and this number of bytes has to be claimed first.
    Unclaimed(usize),
}
