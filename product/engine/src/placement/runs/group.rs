//! [`Group`]: the index of the items of one group.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use index::runs::RibbonKey;

use super::run::{RunItems, Stretch, ribbon_key};
use super::run_set::RunSet;
use crate::format::journal::kept_hash;
use crate::format::location::Place;
use crate::key::{KeyHash, Passthrough};
use crate::reclaim::Resident;

/// Runs of fewer items have entries of their own instead.
const LEAST_RUN_ITEMS: usize = 32;

/// Bytes of memory of a slot in a table of own entries, and of dead keys.
const OWN_BYTES: u64 = (size_of::<(u64, Place)>() + 1) as u64;
const DEAD_BYTES: u64 = (size_of::<(u64, Dead)>() + 1) as u64;

type Table<T> = HashMap<u64, T, BuildHasherDefault<Passthrough>>;

/// Place where an item may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    /// The place that an entry of its own names.
    Own(Place),
    /// A stretch of a run.
    Among(Stretch),
}

impl Candidate {
    /// Returns its place in the order in which items were placed.
    fn age(&self) -> (u64, u32) {
        match self {
            Self::Own(place) => (place.generation, place.position.offset()),
            Self::Among(stretch) => (stretch.generation, stretch.range.start),
        }
    }

    fn covers(&self, place: Place) -> bool {
        let offset = place.position.offset();
        match self {
            Self::Own(own) => *own == place,
            Self::Among(stretch) => {
                stretch.generation == place.generation && stretch.range.contains(&offset)
            }
        }
    }
}

/// A key whose copies with lower versions are outdated.
#[derive(Clone, Copy, Debug)]
struct Dead {
    version: u64,
    /// Sequence number below which all segments with such copies lie.
    before: u64,
    /// Whether flash has no other copies.
    is_gone: bool,
}

/// The index of a group.
#[derive(Debug)]
pub(super) struct Group {
    group_bits: u32,
    flash_bytes: u64,
    /// Sets of runs, the oldest first.
    sets: VecDeque<RunSet>,
    own: Table<Place>,
    dead: Table<Dead>,
    /// Items of the run that is being placed.
    placing: RunItems,
    /// Items in runs.
    run_items: u64,
    /// Highest version of the items that have been added.
    newest_version: u64,
}

impl Group {
    /// Creates an empty group of an index whose hashes choose a group by `group_bits`, for `flash_bytes` of flash.
    pub(super) fn new(group_bits: u32, flash_bytes: u64) -> Self {
        Self {
            group_bits,
            flash_bytes,
            sets: VecDeque::new(),
            own: Table::default(),
            dead: Table::default(),
            placing: RunItems::default(),
            run_items: 0,
            newest_version: 0,
        }
    }

    /// Returns the number of items, outdated ones included.
    pub(super) fn items(&self) -> u64 {
        self.run_items + self.own.len() as u64
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let sets: u64 = self.sets.iter().map(RunSet::memory_bytes).sum();
        let own = self.own.capacity() as u64 * OWN_BYTES;
        sets + own + self.dead.capacity() as u64 * DEAD_BYTES + size_of::<Self>() as u64
    }

    fn key(&self, hash: KeyHash) -> RibbonKey {
        ribbon_key(hash, self.group_bits)
    }

    /// Returns whether flash may have a copy of a key that is not outdated.
    pub(super) fn may_hold(&self, hash: KeyHash) -> bool {
        let is_gone = self
            .dead
            .get(&dead_key(hash))
            .is_some_and(|dead| dead.is_gone);
        !is_gone && self.may_have_copies(hash)
    }

    fn may_have_copies(&self, hash: KeyHash) -> bool {
        let key = self.key(hash);
        let is_in_run = |set: &RunSet| set.candidates(&key).next().is_some();
        self.own.contains_key(&hash.0) || self.sets.iter().any(is_in_run)
    }

    /// Returns the places where the item of a key may be, the newest first; none if all copies are outdated.
    pub(super) fn candidates(&self, hash: KeyHash) -> Vec<Candidate> {
        let dead = self.dead.get(&dead_key(hash));
        match dead {
            Some(dead) if dead.is_gone => Vec::new(),
            _ => self.copies(hash),
        }
    }

    fn copies(&self, hash: KeyHash) -> Vec<Candidate> {
        let key = self.key(hash);
        let runs = self.sets.iter().rev().flat_map(|set| set.candidates(&key));
        let stretches = runs.flat_map(|run| run.stretches(key.order));
        let mut found: Vec<Candidate> = stretches.map(Candidate::Among).collect();
        if let Some(&place) = self.own.get(&hash.0) {
            let own = Candidate::Own(place);
            let is_newer = |other: &Candidate| other.age() > own.age();
            let at = found.iter().take_while(|other| is_newer(other)).count();
            found.insert(at, own);
        }
        found
    }

    /// Returns whether a copy with this version is outdated.
    pub(super) fn is_dead(&self, hash: KeyHash, version: u64) -> bool {
        let dead = self.dead.get(&dead_key(hash));
        dead.is_some_and(|dead| version < dead.version)
    }

    /// Returns whether a look-up for the item's key finds this copy first, as far as memory tells.
    pub(super) fn names(&self, item: &Resident) -> bool {
        !self.is_dead(item.hash, item.version)
            && self
                .candidates(item.hash)
                .first()
                .is_some_and(|newest| newest.covers(item.place))
    }

    /// Makes copies of a key with versions below `version` outdated, which lie in segments with sequence numbers below `before`.
    /// Returns whether there may be any.
    pub(super) fn kill(&mut self, hash: KeyHash, version: u64, before: u64) -> bool {
        if !self.may_have_copies(hash) {
            return false;
        }
        // A recovery also invalidates expired items, of which there may be later versions.
        let are_all = version > self.newest_version;
        if are_all {
            self.own.remove(&hash.0);
        }
        self.note(hash, version, before, are_all);
        true
    }

    fn note(&mut self, hash: KeyHash, version: u64, before: u64, is_gone: bool) {
        let new = Dead {
            version,
            before,
            is_gone,
        };
        let dead = self.dead.entry(dead_key(hash)).or_insert(new);
        dead.version = dead.version.max(version);
        dead.before = dead.before.max(before);
        dead.is_gone |= is_gone;
    }

    /// Adds an item to the run that is being placed.
    pub(super) fn add(&mut self, item: Resident) {
        self.newest_version = self.newest_version.max(item.version);
        match is_small(item.place) {
            true => self.placing.items.push((item.hash, item.place)),
            false => self.add_own(item.hash, item.place),
        }
    }

    /// Gives the newest copy of a key an entry of its own.
    fn add_own(&mut self, hash: KeyHash, place: Place) {
        self.dead.remove(&dead_key(hash));
        self.own.insert(hash.0, place);
    }

    /// Ends the run that is being placed: from now on its items are found.
    pub(super) fn end_run(&mut self) {
        let items = std::mem::take(&mut self.placing);
        for &(hash, _) in &items.items {
            // All copies that it made outdated are older than the run.
            self.dead.remove(&dead_key(hash));
            self.own.remove(&hash.0);
        }
        self.add_run(items, &|_| true, false);
    }

    /// Adds a run of an earlier run of the cache, older than all others, in a segment with a sequence number below `before`. Only
    /// some of its items may be alive.
    pub(super) fn add_oldest(&mut self, items: &[(Resident, bool)], before: u64) {
        let versions = items.iter().map(|(item, _)| item.version);
        self.newest_version = versions.fold(self.newest_version, u64::max);
        if let [(item, is_alive)] = items
            && item.place.position.is_large()
        {
            if *is_alive {
                self.keep_own(item.hash, item.place);
            }
            return;
        }
        let run = RunItems {
            items: items
                .iter()
                .map(|(item, _)| (item.hash, item.place))
                .collect(),
        };
        self.add_run(run, &|number| items[number].1, true);
        for (item, _) in items.iter().filter(|(_, is_alive)| !is_alive) {
            // A look-up may come upon it: a ribbon names its run by chance.
            let copies = self.copies(item.hash);
            if copies.iter().any(|copy| copy.covers(item.place)) {
                self.note(item.hash, item.version + 1, before, false);
            }
        }
    }

    /// Gives a copy of an earlier run an entry of its own, unless a newer one has it.
    fn keep_own(&mut self, hash: KeyHash, place: Place) {
        self.own.entry(hash.0).or_insert(place);
    }

    /// Adds a run of which the items with these numbers are alive.
    fn add_run(&mut self, items: RunItems, is_alive: &dyn Fn(usize) -> bool, is_oldest: bool) {
        let alive: Vec<(KeyHash, Place)> = (0..items.items.len())
            .filter(|&number| is_alive(number))
            .map(|number| items.items[number])
            .collect();
        if alive.len() < LEAST_RUN_ITEMS {
            for (hash, place) in alive {
                self.keep_own(hash, place);
            }
            return;
        }
        let keys: Vec<RibbonKey> = alive.iter().map(|(hash, _)| self.key(*hash)).collect();
        let set = self.set_for(keys.len() as u32, items.bytes(), is_oldest);
        let run = items.run(self.group_bits, alive.len() as u32);
        let behind = self.sets[set].add(run, &keys, is_oldest);
        self.run_items += alive.len() as u64;
        for number in behind {
            let (hash, place) = alive[number];
            self.keep_own(hash, place);
        }
    }

    /// Returns the set for a run, at the new or at the old end.
    fn set_for(&mut self, count: u32, bytes: u64, is_oldest: bool) -> usize {
        let at = match is_oldest {
            true => self.sets.front(),
            false => self.sets.back(),
        };
        if !at.is_some_and(|set| set.takes(count)) {
            let expected = (self.flash_bytes / bytes.max(1)).clamp(1, 1 << 12) as u32;
            let set = RunSet::new(count, expected);
            match is_oldest {
                true => self.sets.push_front(set),
                false => self.sets.push_back(set),
            }
        }
        match is_oldest {
            true => 0,
            false => self.sets.len() - 1,
        }
    }

    /// Drops everything in the segments up to the one with this sequence number. Returns the number of items dropped.
    pub(super) fn forget_up_to(&mut self, sequence: u64) -> u64 {
        let mut forgotten = 0;
        while let Some(set) = self.sets.front_mut() {
            while let Some(items) = set.forget_up_to(sequence) {
                forgotten += u64::from(items);
            }
            if set.runs() > 0 || self.sets.len() == 1 {
                break;
            }
            self.sets.pop_front();
        }
        self.run_items -= forgotten;
        let own = self.own.len();
        self.own.retain(|_, place| place.generation > sequence);
        self.dead.retain(|_, dead| dead.before > sequence + 1);
        shrink(&mut self.own);
        shrink(&mut self.dead);
        forgotten + (own - self.own.len()) as u64
    }

    pub(super) fn runs(&self) -> u64 {
        self.sets.iter().map(|set| u64::from(set.runs())).sum()
    }

    pub(super) fn columns(&self) -> u64 {
        self.sets.iter().map(|set| u64::from(set.columns())).sum()
    }

    pub(super) fn own_entries(&self) -> u64 {
        self.own.len() as u64
    }

    pub(super) fn dead_keys(&self) -> u64 {
        self.dead.len() as u64
    }
}

/// Returns the key of a hash in the table of dead keys: the bits that the journal keeps.
fn dead_key(hash: KeyHash) -> u64 {
    kept_hash(hash.0).rotate_right(4)
}

/// Returns whether an item lies among others of a run: it crosses no page.
fn is_small(place: Place) -> bool {
    !place.position.is_large()
}

/// Frees most of a table that is less than a quarter full.
fn shrink<T>(table: &mut Table<T>) {
    if table.len() * 4 < table.capacity() {
        table.shrink_to(table.len() * 2);
    }
}
