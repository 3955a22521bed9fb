//! [`WriteCache`]: pages that the host has written and that are not in flash yet.
//!
//! ```text
//!   write ──▶ waiting ──── taken by a lane ────▶ being programmed ──▶ in flash
//!                ▲ overwritten in place: programmed once           (write_back.rs)
//! ```
//!
//! It knows no time and does no I/O: the drive puts pages in, and takes them out in the order in
//! which they arrived. A page that is written again while it waits keeps its turn and is programmed
//! once, with what it holds then; one that is written while it is being programmed waits anew.
//! A page of which only some sectors were written is put together with the rest when its turn comes.
//!
//! Invariants: no more pages than it has room for, a page that waits while an older version of it is
//! being programmed counting twice; of a page one version waits at most and one is being programmed,
//! the older one; pages that are being programmed are never taken again before that has ended; an
//! arrival is outstanding from its write until it is in flash or discarded.
//!
//! A crash leaves nothing of it: it is volatile. What a sync has waited for is in flash. Of what came
//! later any part may be, in whole sectors and not in the order in which it was written: a page that
//! was overwritten has the turn of its first version.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::PAGE_BYTES;

/// Sectors of a page at most: one bit each.
pub(super) const MAX_SECTORS: u32 = u64::BITS;

/// Some of the bytes of a page.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) bytes: Arc<[u8]>,
    /// One bit for each sector that is told.
    pub(super) sectors: u64,
}

impl Content {
    fn new(page_bytes: usize) -> Self {
        Self {
            bytes: vec![0; page_bytes].into(),
            sectors: 0,
        }
    }

    /// Whether all of the page is told.
    pub(super) fn is_whole(&self) -> bool {
        self.sectors == sectors(0, self.bytes.len())
    }

    fn write(&mut self, within: usize, data: &[u8]) {
        Arc::make_mut(&mut self.bytes)[within..within + data.len()].copy_from_slice(data);
        self.sectors |= sectors(within, within + data.len());
    }

    /// Copies what is told of the bytes from `within` on; gives the sectors told.
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

/// The bits of the sectors of a range of bytes within a page.
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

/// What the cache holds of a page.
#[derive(Debug, Default)]
struct Held {
    waiting: Option<Version>,
    programming: Option<Version>,
    /// The version being programmed has been discarded.
    is_discarded: bool,
}

/// A page whose turn has come.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) logical: u32,
    pub(super) content: Content,
}

/// The write cache of a drive, or none.
#[derive(Debug)]
pub(super) struct WriteCache {
    page_bytes: usize,
    /// Pages that it has room for; 0 for no cache.
    capacity: usize,
    /// Versions that it holds.
    versions: usize,
    pages: HashMap<u32, Held>,
    /// What waits and is not being programmed as well, by arrival.
    queue: BTreeMap<u64, u32>,
    outstanding: BTreeSet<u64>,
    last_arrival: u64,
    /// Pages taken whose programs have begun and have not ended.
    pub(super) in_flight: usize,
    /// Lanes that program what is taken.
    pub(super) lanes: usize,
    /// Writes of pages that were never programmed: overwritten or discarded before.
    pub(super) absorbed: u64,
    /// Why nothing can be programmed any more.
    pub(super) failure: Option<Failure>,
}

/// Why a cache cannot be written back: what is in it stays there, and writes and syncs fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Too few blocks are left.
    Full,
    /// The power failed, or the flash did.
    Flash,
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

    /// Whether there is one.
    pub(super) fn is_there(&self) -> bool {
        self.capacity > 0
    }

    /// Writes a part of a page; false when there is no room for it.
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

    /// Copies what it holds of the bytes of a page from `within` on; whether it holds them all.
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

    /// The host wants a page no more.
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

    /// Whether something waits for its turn.
    pub(super) fn has_waiting(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes the pages whose turn it is, `most` at most.
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

    /// The program of a page that was taken has ended; false when it has been discarded meanwhile.
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

    /// A page that was taken will not be programmed: it waits again, unless a newer version does.
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
                    // What only the older one tells.
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

    /// Nothing of a page is being programmed any more: what waits of it gets in line.
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

    /// The last write so far: what a sync waits for, with all before it.
    pub(super) fn last_arrival(&self) -> u64 {
        self.last_arrival
    }

    /// Whether all writes up to `arrival` are in flash or discarded.
    pub(super) fn is_in_flash(&self, arrival: u64) -> bool {
        self.outstanding
            .first()
            .is_none_or(|&first| first > arrival)
    }

    /// Checks the invariants named above.
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

    /// The first bytes of both sectors of page 1, where they are told.
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
        // What was discarded meanwhile does not come back.
        cache.discard(1);
        cache.write(1, 0, &sector(5));
        cache.untake(1);
        assert_eq!(held(&cache), [Some(5), None]);
    }
}
