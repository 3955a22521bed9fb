//! Writing: every change is decided on the item's present state and made under the same lock.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{CacheError, Engine, FlashRead, ItemView, LARGEST_SHARE, Peek};
use crate::config::Dram;
use crate::dram::NewItem;
use crate::flash::Placed;
use crate::format::item::{ItemRef, state};
use crate::in_flight::ReadOutcome;
use crate::key::Key;
use crate::partition::Partition;
use crate::placement::Probe;
use crate::store::{AppendItem, FlashItem};

/// Flash reads of one operation before it gives up. Each but the first means that somebody else has
/// changed the item meanwhile, so that this is out of reach of any number of clients.
const MAX_READS: usize = 100_000;

/// What becomes of an item.
#[derive(Clone, Debug)]
pub enum Change<'v> {
    /// It stays as it is.
    Keep,
    /// It stays, and counts as read.
    Access,
    /// It goes.
    Remove,
    /// It is replaced, or comes to be.
    Put(Put<'v>),
    /// Its value stays.
    Amend(Amend),
}

/// An item to store.
#[derive(Clone, Debug, Default)]
pub struct Put<'v> {
    /// The value.
    pub value: Cow<'v, [u8]>,
    /// The client's own flags.
    pub client_flags: u32,
    /// Unix second from which on it is gone; 0 for never.
    pub expiry: u32,
    /// A CAS unique of the client's choice; otherwise a new one.
    pub cas_unique: Option<u64>,
    /// Marked stale.
    pub stale: bool,
    /// Somebody has been told to recache it.
    pub won: bool,
    /// The key came base64-encoded.
    pub binary_key: bool,
}

/// Changes that leave the value alone; `None` leaves a property as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amend {
    /// Expiry.
    pub expiry: Option<u32>,
    /// Marked stale.
    pub stale: Option<bool>,
    /// Somebody has been told to recache it.
    pub won: Option<bool>,
    /// Give it a new CAS unique: the one given, or one of the cache's own.
    pub cas_unique: Option<Option<u64>>,
    /// Count it as read.
    pub access: bool,
}

/// The outcome of [`Engine::modify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modified<R> {
    /// What the operation returned.
    pub result: R,
    /// CAS unique of the item after the change; 0 when there is none.
    pub cas_unique: u64,
}

/// How one start of an operation ended.
enum Attempt<R> {
    Done(Result<Modified<R>, CacheError>),
    /// The item may be on flash and has to be in memory first.
    OnFlash(FlashRead),
    /// There is no space on flash for what has to leave memory.
    NoSpace,
}

impl Engine {
    /// Changes the item of `key` as `decide` says, at Unix second `now`.
    ///
    /// `decide` sees the live item, or `None`, and returns the change with a result of its own. It
    /// may be called again when the change has to wait for space: what counts is the last call. An
    /// item on flash is read into memory first.
    ///
    /// # Errors
    /// [`CacheError`]; an item that was to be replaced is then gone.
    pub async fn modify<'v, R>(
        self: &Arc<Self>,
        key: Key<'_>,
        now: u32,
        mut decide: impl FnMut(Option<&ItemView<'_>>) -> (Change<'v>, R),
    ) -> Result<Modified<R>, CacheError> {
        let mut fetched = None;
        let mut reads = 0;
        // Registered before an attempt only after one has found no space.
        let mut space = None;
        loop {
            match self.try_modify(key, now, fetched.as_ref(), &mut decide) {
                Attempt::Done(done) => return done,
                Attempt::NoSpace => match space.take() {
                    None => space = Some(self.flash.space().listener()),
                    Some(told) => {
                        self.write_stalls.fetch_add(1, Ordering::Relaxed);
                        self.flash.ask_for_space();
                        told.await;
                    }
                },
                Attempt::OnFlash(_) if reads == MAX_READS => {
                    self.remove(key, now);
                    return Err(CacheError::OutOfMemory);
                }
                Attempt::OnFlash(read) => {
                    reads += 1;
                    fetched = self.fetch(key, read, now).await?;
                }
            }
        }
    }

    /// Stores an item whatever was there before.
    ///
    /// # Errors
    /// [`CacheError`]; what was there before is then gone.
    pub async fn set(
        self: &Arc<Self>,
        key: Key<'_>,
        now: u32,
        put: &Put<'_>,
    ) -> Result<u64, CacheError> {
        loop {
            // Registered only when needed: the common case takes no listener.
            if let Some(done) = self.try_set(key, now, put) {
                return done;
            }
            let space = self.flash.space().listener();
            if let Some(done) = self.try_set(key, now, put) {
                return done;
            }
            self.write_stalls.fetch_add(1, Ordering::Relaxed);
            self.flash.ask_for_space();
            space.await;
        }
    }

    /// Stores an item whatever was there before, without waiting: `None` when there is no space at
    /// present, and then nothing has changed.
    pub fn try_set(
        &self,
        key: Key<'_>,
        now: u32,
        put: &Put<'_>,
    ) -> Option<Result<u64, CacheError>> {
        if !self.flash.may_displace() {
            return None;
        }
        let number = key.hash().partition(self.partition_bits);
        let mut partition = self.lock_partition(number, now);
        match self.put(&mut partition, number, key, now, put) {
            Ok(cas_unique) => Some(Ok(cas_unique)),
            Err(Refused::Never(error)) => Some(Err(error)),
            Err(Refused::NoSpace) => None,
        }
    }

    /// Removes whatever a key has, in memory and on flash.
    pub fn remove(&self, key: Key<'_>, now: u32) {
        let mut partition = self.lock(key.hash(), now);
        self.erase(&mut partition, key);
    }

    fn try_modify<'v, R>(
        self: &Arc<Self>,
        key: Key<'_>,
        now: u32,
        fetched: Option<&Fetched>,
        decide: &mut impl FnMut(Option<&ItemView<'_>>) -> (Change<'v>, R),
    ) -> Attempt<R> {
        if !self.flash.may_displace() {
            return Attempt::NoSpace;
        }
        let number = key.hash().partition(self.partition_bits);
        let mut guard = self.lock_partition(number, now);
        let partition = &mut *guard;
        let mut present = partition.tier.find(key).map(Present::InMemory);
        if let Some(Present::InMemory(handle)) = present
            && !self
                .cutoffs
                .is_item_live(key.hash(), partition.tier.header(handle), now)
        {
            self.erase(partition, key);
            present = None;
        }
        if present.is_none() {
            // What was read counts only as long as nobody has written to the key since.
            let generation = partition.write_generation(key.hash());
            match fetched.filter(|fetched| fetched.write_generation == generation) {
                Some(fetched) if self.flash.probe(key.hash()) != Probe::Absent => {
                    present = self.still_live(fetched, key, now);
                }
                Some(_) => {}
                None => {
                    if let Some(read) = self.ask_flash(partition, key, now, Peek::Yes, false) {
                        return Attempt::OnFlash(read);
                    }
                }
            }
        }
        let (change, result) = match &present {
            Some(present) => {
                let (item, shared) = present.item(partition);
                decide(Some(&ItemView::new(item, shared)))
            }
            None => decide(None),
        };
        match self.carry_out(partition, number, key, now, present, change) {
            Ok(cas_unique) => Attempt::Done(Ok(Modified { result, cas_unique })),
            Err(Refused::Never(error)) => Attempt::Done(Err(error)),
            Err(Refused::NoSpace) => Attempt::NoSpace,
        }
    }

    fn still_live(&self, fetched: &Fetched, key: Key<'_>, now: u32) -> Option<Present> {
        let item = fetched.item.as_ref()?;
        let live = self.cutoffs.is_item_live(key.hash(), item.header(), now);
        (live && item.item().key == key.bytes()).then(|| Present::Fetched(Arc::clone(item)))
    }

    fn carry_out(
        &self,
        partition: &mut Partition,
        number: usize,
        key: Key<'_>,
        now: u32,
        present: Option<Present>,
        change: Change<'_>,
    ) -> Result<u64, Refused> {
        match (change, present) {
            (Change::Remove, _) => {
                self.erase(partition, key);
                Ok(0)
            }
            (Change::Put(put), _) => self.put(partition, number, key, now, &put),
            (_, None) => Ok(0),
            (Change::Keep, Some(present)) => Ok(present.item(partition).0.cas_unique),
            (Change::Access, Some(present)) => {
                self.access(partition, key, &present, now);
                Ok(present.item(partition).0.cas_unique)
            }
            (Change::Amend(amend), Some(present)) => {
                if amend.access {
                    self.access(partition, key, &present, now);
                }
                self.amend(partition, number, key, &present, now, &amend)
            }
        }
    }

    fn access(&self, partition: &mut Partition, key: Key<'_>, present: &Present, now: u32) {
        match present {
            Present::InMemory(handle) => {
                let header = partition.tier.header_mut(*handle);
                header.state |= state::FETCHED | state::REFERENCED;
                header.last_access = now.into();
                partition.stats.dram_hits += 1;
            }
            Present::Fetched(_) => {
                self.flash.access(key.hash());
                partition.stats.flash_hits += 1;
            }
        }
    }

    fn erase(&self, partition: &mut Partition, key: Key<'_>) {
        partition.tier.remove(key);
        self.flash.invalidate(key.hash(), partition.next_version);
        partition.count_write(key.hash());
    }

    fn put(
        &self,
        partition: &mut Partition,
        number: usize,
        key: Key<'_>,
        now: u32,
        put: &Put<'_>,
    ) -> Result<u64, Refused> {
        let mut bits = state::DIRTY;
        for (set, bit) in [
            (put.stale, state::STALE),
            (put.won, state::WON),
            (put.binary_key, state::BINARY_KEY),
        ] {
            if set {
                bits |= bit;
            }
        }
        let new = NewItem {
            version: partition.next_version,
            cas_unique: put.cas_unique,
            client_flags: put.client_flags,
            expiry: put.expiry,
            last_access: now,
            state: bits,
            value: &put.value,
            shared: None,
        };
        let cas_unique = self.store_new(partition, number, key, now, &new)?;
        partition.stats.items_set += 1;
        partition.stats.item_bytes_set += (key.bytes().len() + put.value.len()) as u64;
        Ok(cas_unique)
    }

    /// Stores an item under a new version; the copy on flash is outdated from then on.
    fn store_new(
        &self,
        partition: &mut Partition,
        number: usize,
        key: Key<'_>,
        now: u32,
        new: &NewItem<'_>,
    ) -> Result<u64, Refused> {
        let context = self.evict_context(number, now);
        let body = new.body_bytes(key);
        let refused = if body > self.largest_body {
            Some(CacheError::TooLarge)
        } else if partition.next_version >= self.version_limit.load(Ordering::Relaxed) {
            Some(CacheError::OutOfMemory)
        } else {
            None
        };
        if let Some(error) = refused {
            self.erase(partition, key);
            return Err(Refused::Never(error));
        }
        let goes_to_flash = self.config.dram != Dram::ItemCache;
        if goes_to_flash || body > context.limit_bytes / LARGEST_SHARE {
            self.place_at_once(partition, key, new)?;
        } else {
            let put = partition.tier.put(key, new, &context);
            put.map_err(|_| Refused::NoSpace)?;
            self.flash.invalidate(key.hash(), new.version);
        }
        let version = partition.take_version();
        partition.count_write(key.hash());
        Ok(new.cas_unique.unwrap_or(version))
    }

    /// Stores an item that memory does not keep in the segment being filled. Its index entry takes the
    /// place of an older one.
    fn place_at_once(
        &self,
        partition: &mut Partition,
        key: Key<'_>,
        new: &NewItem<'_>,
    ) -> Result<(), Refused> {
        let header = new.header(key);
        let item = ItemRef {
            header: &header,
            cas_unique: new.cas_unique.unwrap_or(new.version),
            key: key.bytes(),
            value: new.value,
        };
        let hash = key.hash();
        let mut outcome = Placed::NoSpace;
        self.flash
            .place(&[AppendItem { hash, item }], true, |_, placed| {
                outcome = placed;
            });
        let refused = match outcome {
            Placed::NoSpace => return Err(Refused::NoSpace),
            Placed::OnFlash => None,
            Placed::NeverFits => Some(CacheError::TooLarge),
            Placed::Dropped => Some(CacheError::OutOfMemory),
        };
        partition.tier.remove(key);
        refused.map_or(Ok(()), |error| {
            partition.count_write(hash);
            Err(Refused::Never(error))
        })
    }

    fn amend(
        &self,
        partition: &mut Partition,
        number: usize,
        key: Key<'_>,
        present: &Present,
        now: u32,
        amend: &Amend,
    ) -> Result<u64, Refused> {
        let (item, shared) = present.item(partition);
        let header = *item.header;
        let mut bits = header.state;
        for (set, bit) in [(amend.stale, state::STALE), (amend.won, state::WON)] {
            match set {
                Some(true) => bits |= bit,
                Some(false) => bits &= !bit,
                None => {}
            }
        }
        let expiry = amend.expiry.unwrap_or(header.expiry.get());
        let cas_unique = item.cas_unique;
        let same = bits == header.state && expiry == header.expiry.get();
        if same && amend.cas_unique.is_none() {
            return Ok(cas_unique);
        }
        if let Present::InMemory(handle) = present
            && header.has(state::DIRTY)
            && amend.cas_unique.is_none()
        {
            // No copy of this version is on flash, so that it may still change.
            let header = partition.tier.header_mut(*handle);
            header.state = bits;
            header.expiry = expiry.into();
            partition.count_write(key.hash());
            return Ok(cas_unique);
        }
        // The value is copied out: its place in the log may go while space is made for the new one.
        let shared = shared.cloned();
        let value = match &shared {
            Some(_) => Vec::new(),
            None => item.value.to_vec(),
        };
        let new = NewItem {
            version: partition.next_version,
            cas_unique: amend.cas_unique.unwrap_or(Some(cas_unique)),
            client_flags: header.client_flags.get(),
            expiry,
            last_access: header.last_access.get(),
            state: bits & state::ON_FLASH & !state::HAS_CAS | state::DIRTY,
            value: shared.as_deref().unwrap_or(&value),
            shared: shared.clone(),
        };
        self.store_new(partition, number, key, now, &new)
    }

    /// Reads an item that is on flash. `None` when the read has to be tried again.
    async fn fetch(
        self: &Arc<Self>,
        key: Key<'_>,
        mut read: FlashRead,
        now: u32,
    ) -> Result<Option<Fetched>, CacheError> {
        let mut write_generation = read.write_generation;
        let item = match read.outcome(key).await {
            ReadOutcome::Item { item, .. } => Some(item),
            ReadOutcome::Absent => None,
            ReadOutcome::Abandoned => return Ok(None),
            ReadOutcome::Busy => return Err(CacheError::OutOfMemory),
            ReadOutcome::Failed => {
                // What cannot be read is a miss; after a change it must not come back either.
                let mut partition = self.lock(key.hash(), now);
                partition.stats.failed_reads += 1;
                self.erase(&mut partition, key);
                write_generation = partition.write_generation(key.hash());
                None
            }
        };
        Ok(Some(Fetched {
            write_generation,
            item,
        }))
    }
}

/// What a read of flash found for a change.
struct Fetched {
    /// Writes to the key before the read.
    write_generation: u32,
    item: Option<Arc<FlashItem>>,
}

/// A live item that is to be changed.
enum Present {
    InMemory(crate::dram::Handle),
    /// On flash and not in memory: too large for it, or gone again.
    Fetched(Arc<FlashItem>),
}

impl Present {
    fn item<'a>(&'a self, partition: &'a Partition) -> (ItemRef<'a>, Option<&'a Arc<[u8]>>) {
        match self {
            Self::InMemory(handle) => partition.tier.item(*handle),
            Self::Fetched(item) => (item.item(), None),
        }
    }
}

/// Why an item was not stored.
enum Refused {
    Never(CacheError),
    NoSpace,
}
