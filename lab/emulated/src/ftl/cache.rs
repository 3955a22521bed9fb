//! [`WriteCache`]: pages that the host has written and that are not in flash yet.
//!
//! ```text
//!   write ──▶ waiting ──── taken by a lane ────▶ being programmed ──▶ in flash
//!                ▲ overwritten in place: programmed once           (write_back.rs)
//! ```
//!
//! The cache knows no time and does no I/O: the drive puts pages in and takes them out in order of arrival. A page written again
//! while it waits keeps its turn and is programmed once, with its latest bytes. A page written while it is being programmed waits
//! anew. A page with only some sectors written is merged with the rest when its turn comes.
//!
//! Invariants: the cache never holds more versions of pages than its capacity; a page that waits while an older version is being
//! programmed counts twice. At most one version of a page waits, and at most one, the older, is being programmed. A page being
//! programmed is not taken again before its program has ended. An arrival is outstanding from its write until it is in flash or
//! discarded.
//!
//! The cache is volatile: a crash loses its contents. Writes covered by a sync are in flash. Any part of the later writes may be
//! in flash, in whole sectors and not in the order of the writes: an overwritten page has the turn of its first version.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use device::{DeviceError, Operation, PAGE_BYTES};

/// Largest number of sectors of a page: one bit each.
pub(super) const MAX_SECTORS: u32 = u64::BITS;

/// Some of the bytes of a page.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) bytes: Arc<[u8]>,
    /// One bit for each sector present.
    pub(super) sectors: u64,
}

impl Content {
    fn new(page_bytes: usize) -> Self {
        Self {
            bytes: vec![0; page_bytes].into(),
            sectors: 0,
        }
    }

    /// Returns whether every sector is present.
    pub(super) fn is_whole(&self) -> bool {
        self.sectors == sectors(0, self.bytes.len())
    }

    fn write(&mut self, within: usize, data: &[u8]) {
        Arc::make_mut(&mut self.bytes)[within..within + data.len()].copy_from_slice(data);
        self.sectors |= sectors(within, within + data.len());
    }

    /// Copies the sectors present from byte `within` on; returns these sectors.
    pub(super) fn read(&self, within: usize, into: &mut [u8]) -> u64 {
        let found = self.sectors & sectors(within, within + into.len());
        for (at, sector) in into.chunks_mut(PAGE_BYTES).enumerate() {
            let from = within + at * PAGE_BYTES;
            if self.sectors & sectors(from, from + sector.len()) != 0 {
                sector.copy_from_slice(&self.bytes[from..from + sector.len()]);
            }
        }
        found
    }
}

/// Returns the bits of the sectors in a range of bytes within a page.
fn sectors(from: usize, to: usize) -> u64 {
    let below = |byte: usize| match byte.div_ceil(PAGE_BYTES) {
        count if count < MAX_SECTORS as usize => (1 << count) - 1,
        _ => u64::MAX,
    };
    below(to) & !below(from)
}

/// A version of a page.
#[derive(Debug)]
struct Version {
    content: Content,
    arrival: u64,
}

/// Versions of a page in the cache.
#[derive(Debug, Default)]
struct Held {
    waiting: Option<Version>,
    programming: Option<Version>,
    /// Whether the version being programmed has been discarded.
    is_discarded: bool,
}

/// A page whose turn has come.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) logical: u32,
    pub(super) content: Content,
}

/// Write cache of a drive; without capacity, the drive has none.
#[derive(Debug)]
pub(super) struct WriteCache {
    page_bytes: usize,
    /// Capacity in pages; 0 for no cache.
    capacity: usize,
    /// Number of versions held.
    versions: usize,
    pages: HashMap<u32, Held>,
    /// Waiting pages of which no older version is being programmed, by arrival.
    queue: BTreeMap<u64, u32>,
    outstanding: BTreeSet<u64>,
    last_arrival: u64,
    /// Taken pages whose programs have begun and have not ended.
    pub(super) in_flight: usize,
    /// Number of lanes that program taken pages.
    pub(super) lanes: usize,
    /// Page writes that were overwritten or discarded before they were programmed.
    pub(super) absorbed: u64,
    /// Why no page can be programmed any more.
    pub(super) failure: Option<Failure>,
}

/// Why a cache cannot be written back. Its pages stay in it, and writes and syncs fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Too few blocks are left.
    Full,
    /// The power failed, or the flash did.
    Flash,
}

impl Failure {
    pub(super) fn of(error: &DeviceError) -> Self {
        if error.is_full() {
            Self::Full
        } else {
            Self::Flash
        }
    }

    pub(super) fn error(self, operation: Operation, offset: u64, len: usize) -> DeviceError {
        let source = match self {
            Self::Full => std::io::ErrorKind::StorageFull.into(),
            Self::Flash => std::io::Error::other("the write cache could not be written back"),
        };
        DeviceError::io(operation, offset, len, source)
    }
}

impl WriteCache {
    pub(super) fn new(bytes: u64, page_bytes: usize) -> Self {
        Self {
            page_bytes,
            capacity: (bytes / page_bytes as u64) as usize,
            versions: 0,
            pages: HashMap::new(),
            queue: BTreeMap::new(),
            outstanding: BTreeSet::new(),
            last_arrival: 0,
            in_flight: 0,
            lanes: 0,
            absorbed: 0,
            failure: None,
        }
    }

    /// Returns whether the drive has a cache.
    pub(super) fn is_there(&self) -> bool {
        self.capacity > 0
    }

    /// Writes a part of a page; returns false when the cache is full.
    pub(super) fn write(&mut self, logical: u32, within: usize, data: &[u8]) -> bool {
        let held = self.pages.entry(logical).or_default();
        if let Some(waiting) = &mut held.waiting {
            waiting.content.write(within, data);
            self.absorbed += 1;
            return true;
        }
        if self.versions >= self.capacity {
            if held.programming.is_none() {
                self.pages.remove(&logical);
            }
            return false;
        }
        let whole = held
            .programming
            .as_ref()
            .filter(|version| version.content.is_whole() && !held.is_discarded);
        let mut content = match whole {
            Some(older) => older.content.clone(),
            None => Content::new(self.page_bytes),
        };
        content.write(within, data);
        self.last_arrival += 1;
        let arrival = self.last_arrival;
        held.waiting = Some(Version { content, arrival });
        self.versions += 1;
        self.outstanding.insert(arrival);
        if held.programming.is_none() {
            self.queue.insert(arrival, logical);
        }
        true
    }

    /// Copies the cached bytes of a page from `within` on; returns whether the cache holds all bytes of the range.
    pub(super) fn read(&self, logical: u32, within: usize, into: &mut [u8]) -> bool {
        let Some(held) = self.pages.get(&logical) else {
            return false;
        };
        let older = held.programming.as_ref().filter(|_| !held.is_discarded);
        let versions = older.into_iter().chain(&held.waiting);
        let found = versions.map(|version| version.content.read(within, into));
        let found = found.fold(0, |all, some| all | some);
        found == sectors(within, within + into.len())
    }

    /// Discards a page.
    pub(super) fn discard(&mut self, logical: u32) {
        let Some(held) = self.pages.get_mut(&logical) else {
            return;
        };
        if let Some(waiting) = held.waiting.take() {
            self.queue.remove(&waiting.arrival);
            self.outstanding.remove(&waiting.arrival);
            self.versions -= 1;
            self.absorbed += 1;
        }
        held.is_discarded = held.programming.is_some();
        if !held.is_discarded {
            self.pages.remove(&logical);
        }
    }

    /// Returns whether a page waits for its turn.
    pub(super) fn has_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes the next pages in turn, at most `most`.
    pub(super) fn take(&mut self, most: usize) -> Vec<Taken> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some((_, logical)) = self.queue.pop_first()
        {
            let held = self
                .pages
                .get_mut(&logical)
                .expect("what is queued is held");
            let version = held.waiting.take().expect("what is queued waits");
            let content = version.content.clone();
            held.programming = Some(version);
            taken.push(Taken { logical, content });
        }
        taken
    }

    /// Ends the program of a taken page; returns false if the page has been discarded in between.
    pub(super) fn programmed(&mut self, logical: u32) -> bool {
        let held = self.pages.get_mut(&logical).expect("what is taken is held");
        let version = held
            .programming
            .take()
            .expect("what is taken is being programmed");
        let is_wanted = !std::mem::take(&mut held.is_discarded);
        self.outstanding.remove(&version.arrival);
        self.versions -= 1;
        self.wait_or_go(logical);
        is_wanted
    }

    /// Gives up the program of a taken page. The page waits again, merged with a newer version if one waits.
    pub(super) fn untake(&mut self, logical: u32) {
        let held = self.pages.get_mut(&logical).expect("what is taken is held");
        let Some(mut older) = held.programming.take() else {
            return;
        };
        let is_discarded = std::mem::take(&mut held.is_discarded);
        match &mut held.waiting {
            None if !is_discarded => held.waiting = Some(older),
            newer => {
                if let Some(newer) = newer
                    && !is_discarded
                {
                    // Keep the sectors that only the older version has.
                    let mut bytes = older.content.bytes.to_vec();
                    newer.content.read(0, &mut bytes);
                    older.content.bytes = bytes.into();
                    older.content.sectors |= newer.content.sectors;
                    newer.content = older.content;
                }
                self.outstanding.remove(&older.arrival);
                self.versions -= 1;
            }
        }
        self.wait_or_go(logical);
    }

    /// Queues the waiting version of a page of which no version is being programmed, or forgets the page.
    fn wait_or_go(&mut self, logical: u32) {
        match self
            .pages
            .get(&logical)
            .and_then(|held| held.waiting.as_ref())
        {
            Some(waiting) => {
                self.queue.insert(waiting.arrival, logical);
            }
            None => {
                self.pages.remove(&logical);
            }
        }
    }

    /// Returns the latest arrival: a sync waits for it and every earlier arrival.
    pub(super) fn last_arrival(&self) -> u64 {
        self.last_arrival
    }

    /// Returns whether every write up to `arrival` is in flash or discarded.
    pub(super) fn is_in_flash(&self, arrival: u64) -> bool {
        self.outstanding
            .first()
            .is_none_or(|&first| first > arrival)
    }

    /// Checks the invariants of the module.
    #[cfg(test)]
    pub(super) fn verify(&self) {
        assert!(self.versions <= self.capacity);
        let mut outstanding = BTreeSet::new();
        for (logical, held) in &self.pages {
            let versions = [&held.programming, &held.waiting]
                .map(|version| version.as_ref().map(|v| v.arrival));
            assert!(
                versions.iter().any(Option::is_some),
                "page {logical} holds something"
            );
            if let [Some(older), Some(newer)] = versions {
                assert!(older < newer);
            }
            let is_queued =
                versions[1].is_some_and(|arrival| self.queue.get(&arrival) == Some(logical));
            assert_eq!(is_queued, versions[0].is_none(), "page {logical}: {held:?}");
            outstanding.extend(versions.into_iter().flatten());
        }
        assert_eq!(self.versions, outstanding.len());
        assert_eq!(self.outstanding, outstanding);
        assert!(self.queue.len() <= self.pages.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 2 * PAGE_BYTES;

    fn sector(byte: u8) -> Vec<u8> {
        vec![byte; PAGE_BYTES]
    }

    /// Returns the first bytes of both sectors of page 1, if they are present.
    fn held(cache: &WriteCache) -> [Option<u8>; 2] {
        cache.verify();
        [0, PAGE_BYTES].map(|within| {
            let mut bytes = sector(0);
            cache.read(1, within, &mut bytes).then(|| bytes[0])
        })
    }

    #[test]
    fn a_version_waits_behind_the_one_being_programmed_and_each_takes_room() {
        let mut cache = WriteCache::new(2 * PAGE as u64, PAGE);
        assert!(cache.write(1, 0, &sector(1)));
        let taken = cache.take(8);
        assert!(!taken[0].content.is_whole() && cache.take(8).is_empty());
        assert!(cache.write(1, PAGE_BYTES, &sector(2)));
        assert_eq!(held(&cache), [Some(1), Some(2)]);
        assert!(!cache.write(2, 0, &sector(3)), "it is full");
        assert!(cache.take(8).is_empty(), "one at a time");
        let last = cache.last_arrival();
        assert!(cache.programmed(1) && !cache.is_in_flash(last) && cache.is_in_flash(last - 1));
        assert_eq!(held(&cache), [None, Some(2)]);
        assert!(cache.write(2, 0, &sector(3)));
        assert_eq!(cache.take(1)[0].logical, 1);
        assert!(cache.programmed(1) && cache.is_in_flash(last));
        assert_eq!(held(&cache), [None, None]);
    }

    #[test]
    fn what_could_not_be_programmed_waits_again_under_what_came_meanwhile() {
        let mut cache = WriteCache::new(4 * PAGE as u64, PAGE);
        cache.write(1, 0, &[sector(1), sector(1)].concat());
        cache.write(2, 0, &sector(7));
        cache.take(1);
        cache.untake(1);
        assert_eq!(held(&cache), [Some(1), Some(1)]);
        let order = cache.take(8);
        assert_eq!(
            [order[0].logical, order[1].logical],
            [1, 2],
            "in its old turn"
        );
        cache.write(1, 0, &sector(2));
        cache.untake(1);
        assert_eq!(held(&cache), [Some(2), Some(1)]);
        // A part over another part.
        cache.discard(1);
        cache.write(1, 0, &sector(3));
        cache.take(8);
        cache.write(1, PAGE_BYTES, &sector(4));
        cache.untake(1);
        assert_eq!(held(&cache), [Some(3), Some(4)]);
        assert!(cache.take(8)[0].content.is_whole());
        // A page discarded in between does not come back.
        cache.discard(1);
        cache.write(1, 0, &sector(5));
        cache.untake(1);
        assert_eq!(held(&cache), [Some(5), None]);
    }
}
