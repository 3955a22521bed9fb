//! [`Group`]: the index of the items of one group.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasherDefault;

use index::runs::{RibbonKey, RibbonShape};

use super::run::{Run, Stretch, bytes_of, ribbon_key};
use super::run_set::{RunSet, shape_for};
use crate::format::checkpoint::DeadKey;
use crate::format::journal::kept_hash;
use crate::format::location::Place;
use crate::format::run_header::{RunHeader, RunPiece};
use crate::format::segment::SegmentId;
use crate::key::{KeyHash, Passthrough};
use crate::placement::Superseded;
use crate::reclaim::Resident;

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
    /// Returns the generation of the segment in which it lies.
    pub(super) fn generation(&self) -> (SegmentId, u64) {
        match self {
            Self::Own(place) => (place.segment, place.generation),
            Self::Among(stretch) => (stretch.segment, stretch.generation),
        }
    }

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
    /// Hashes of the items with entries of their own that have been marked as read.
    own_read: HashSet<u64, BuildHasherDefault<Passthrough>>,
    dead: Table<Dead>,
    /// Items that are being placed.
    placing: Vec<Resident>,
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
            own_read: HashSet::default(),
            dead: Table::default(),
            placing: Vec::new(),
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
        let own_read = self.own_read.capacity() as u64 * (size_of::<u64>() as u64 + 1);
        let dead = self.dead.capacity() as u64 * DEAD_BYTES;
        sets + own + own_read + dead + size_of::<Self>() as u64
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

    /// Returns how many places a look-up for the item's key asks before it comes to this copy; `None` if it does not.
    pub(super) fn places_before(&self, item: &Resident) -> Option<usize> {
        if self.is_dead(item.hash, item.version) {
            return None;
        }
        let mut places = self.candidates(item.hash).into_iter();
        places.position(|place| place.covers(item.place))
    }

    /// Marks the item at a place as read.
    pub(super) fn mark(&mut self, hash: KeyHash, place: Place) {
        if self.own.get(&hash.0) == Some(&place) {
            self.own_read.insert(hash.0);
            return;
        }
        // The oldest first: those are marked.
        self.sets.iter_mut().any(|set| set.mark(place));
    }

    /// Returns whether an item has been marked as read.
    pub(super) fn is_marked(&self, item: &Resident) -> bool {
        match self.own.get(&item.hash.0) == Some(&item.place) {
            true => self.own_read.contains(&item.hash.0),
            false => {
                let mut marks = self.sets.iter().filter_map(|set| set.is_marked(item.place));
                marks.next().unwrap_or(false)
            }
        }
    }

    /// Returns whether an item may be the only copy of its key.
    pub(super) fn is_alone(&self, item: &Resident) -> bool {
        matches!(&self.copies(item.hash)[..], [one] if one.covers(item.place))
    }

    /// Makes copies of a key with versions below `version` outdated, which lie in segments with sequence numbers below `before`.
    /// Returns whether there may be any: `recovers` says that recovery may still find some.
    pub(super) fn kill(
        &mut self,
        hash: KeyHash,
        version: u64,
        before: u64,
        recovers: bool,
    ) -> bool {
        if !recovers && !self.may_have_copies(hash) {
            return false;
        }
        let are_all = version > self.newest_version;
        if are_all {
            self.remove_own(hash);
        }
        self.note(hash, version, before, are_all);
        true
    }

    /// Notes a key that an earlier run of the cache has made outdated.
    pub(super) fn note_dead(&mut self, hash: KeyHash, version: u64, before: u64) {
        self.note(hash, version, before, false);
    }

    /// Calls `each` with the outdated keys.
    pub(super) fn each_dead(&self, each: &dyn Fn(DeadKey)) {
        for (&key, dead) in &self.dead {
            each(DeadKey {
                hash: key.rotate_left(4),
                version: dead.version,
                before: dead.before,
            });
        }
    }

    fn remove_own(&mut self, hash: KeyHash) {
        self.own.remove(&hash.0);
        self.own_read.remove(&hash.0);
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

    /// Adds an item that is being placed.
    pub(super) fn add(&mut self, item: Resident) {
        self.newest_version = self.newest_version.max(item.version);
        self.placing.push(item);
    }

    /// Ends the placing. Gives entries of their own to the items that are listed in a summary: from now on they are found. Returns
    /// the others. `recovers` says that recovery may still find copies.
    pub(super) fn end_placing(
        &mut self,
        are_unlisted: bool,
        superseded: &Superseded,
        recovers: bool,
    ) -> Vec<Resident> {
        let mut run = std::mem::take(&mut self.placing);
        let is_own = |item: &mut Resident| !are_unlisted || item.place.position.is_large();
        for item in run.extract_if(.., is_own) {
            // Copies of one that memory never had have not been made dead before.
            let others = recovers || self.may_have_copies(item.hash);
            self.supersede(&item, item.place.generation, superseded, others);
            self.own.insert(item.hash.0, item.place);
        }
        run
    }

    /// Forgets what a new copy makes outdated, all of which is older: dead copies, and `others` that count so far. A start
    /// finds the new copy by the segment with this sequence number.
    fn supersede(&mut self, item: &Resident, sequence: u64, superseded: &Superseded, others: bool) {
        // Noted first: a checkpoint asks for the dead keys before the superseded ones.
        if others || self.dead.contains_key(&dead_key(item.hash)) {
            superseded.add(item.hash, item.version, sequence);
        }
        self.dead.remove(&dead_key(item.hash));
        self.remove_own(item.hash);
    }

    /// Returns the shape of the ribbon of a run.
    pub(super) fn shape_for(&self, items: &[Resident]) -> RibbonShape {
        let expected = (self.flash_bytes / bytes_of(items).max(1)).clamp(1, 1 << 12);
        let newest = self.sets.back().map(RunSet::shape);
        shape_for(newest, items.len() as u32, expected as u32)
    }

    /// Publishes a run whose header is in the segment with this sequence number: from now on its items are found.
    pub(super) fn publish(
        &mut self,
        header: &RunHeader,
        items: &[Resident],
        sequence: u64,
        superseded: &Superseded,
    ) {
        for item in items {
            self.supersede(item, sequence, superseded, false);
        }
        self.add_run(header, |_| true, false);
    }

    /// Makes items that were placed, and all their older copies, no longer found. An item may be placed again with its version.
    pub(super) fn give_up(&mut self, items: &[Resident], before: u64) {
        for item in items {
            self.remove_own(item.hash);
            self.note(item.hash, item.version, before, true);
        }
    }

    /// Adds a run of an earlier run of the cache, older than all others. Returns false if its header is none of this image's.
    pub(super) fn restore(
        &mut self,
        header: &RunHeader,
        is_there: impl Fn(&RunPiece) -> bool,
    ) -> bool {
        self.newest_version = self.newest_version.max(header.version);
        self.add_run(header, is_there, true)
    }

    /// Gives a copy of an earlier run an entry of its own, unless a newer one has it.
    pub(super) fn restore_own(&mut self, item: &Resident) {
        self.newest_version = self.newest_version.max(item.version);
        self.add_own(item.hash.0, item.place);
    }

    /// Gives a copy an entry of its own, unless a newer one has it: the copies of a segment come in no order.
    fn add_own(&mut self, hash: u64, place: Place) {
        let age = |place: &Place| (place.generation, place.position.offset());
        let own = self.own.entry(hash).or_insert(place);
        if age(own) < age(&place) {
            *own = place;
        }
    }

    /// Ends the time in which runs are restored.
    pub(super) fn end_restoring(&mut self) {
        self.sets.iter_mut().for_each(RunSet::fit);
    }

    fn add_run(
        &mut self,
        header: &RunHeader,
        is_there: impl Fn(&RunPiece) -> bool,
        is_oldest: bool,
    ) -> bool {
        let Some((run, shape, solution)) = Run::of(header, is_there) else {
            return false;
        };
        self.run_items += u64::from(run.items);
        let set = self.set_for(shape, is_oldest);
        self.sets[set].add(run, &solution, is_oldest);
        for key in &header.behind {
            let piece = &header.pieces[usize::from(key.piece)];
            let place = Place {
                segment: SegmentId(piece.segment),
                generation: piece.sequence,
                position: key.position,
            };
            self.add_own(key.hash, place);
        }
        true
    }

    /// Returns the set for a run with a ribbon of this shape, at the new or at the old end.
    fn set_for(&mut self, shape: RibbonShape, is_oldest: bool) -> usize {
        let at = match is_oldest {
            true => self.sets.front(),
            false => self.sets.back(),
        };
        if !at.is_some_and(|set| set.takes(shape)) {
            let set = RunSet::new(shape);
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

    /// Drops the items in the segments up to the one with sequence number `up_to`, and the outdated keys without copies in the
    /// `oldest` segment and later ones. Returns the number of items dropped.
    pub(super) fn forget(&mut self, up_to: u64, oldest: u64) -> u64 {
        let mut forgotten = 0;
        while let Some(set) = self.sets.front_mut() {
            while let Some(items) = set.forget_up_to(up_to) {
                forgotten += u64::from(items);
            }
            if set.runs() > 0 || self.sets.len() == 1 {
                break;
            }
            self.sets.pop_front();
        }
        self.run_items -= forgotten;
        let own = self.own.len();
        self.own.retain(|_, place| place.generation > up_to);
        self.own_read.retain(|hash| self.own.contains_key(hash));
        self.dead.retain(|_, dead| dead.before > oldest);
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

/// Frees most of a table that is less than a quarter full.
fn shrink<T>(table: &mut Table<T>) {
    if table.len() * 4 < table.capacity() {
        table.shrink_to(table.len() * 2);
    }
}
