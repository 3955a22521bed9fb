//! Eviction: the CLOCK hand takes the oldest chunk.

use std::cmp::Reverse;

use super::below::{Held, NoSpace};
use super::collect::Collector;
use super::context::EvictContext;
use super::items::Items;
use super::log::Handle;
use crate::format::item::{HEADER_BYTES, ItemHeader, MAX_KEY_BYTES, state};
use crate::key::KeyHash;
use crate::placement::Collecting;
use runtime::work::{self, Work};

/// Chunks that the CLOCK hand may evict to make space for one item before it stops giving second chances.
const PATIENCE: usize = 16;
/// Turns of the CLOCK hand in which items are collected before all collected items are placed.
const COLLECTING_TURNS: usize = 2;

/// Values whose stubs share a chunk may take the tier's memory divided by this, beside the log; a single value may take
/// more.
const BESIDE_SHARE: usize = 4;

/// How much memory is needed: each step frees more of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Need {
    /// Items that have been read are appended again.
    Usual,
    /// No item gets a second chance. Those that go to flash are collected as before.
    NoChances,
    /// All collected items are placed.
    All,
}

impl Need {
    /// Returns the need after some rounds for one request over a log of some chunks.
    pub(super) fn after(rounds: usize, chunks: usize) -> Self {
        if rounds < PATIENCE {
            Self::Usual
        } else if rounds < PATIENCE + COLLECTING_TURNS * chunks {
            Self::NoChances
        } else {
            Self::All
        }
    }
}

/// The CLOCK hand's decision on an entry.
enum Fate {
    /// The entry is dead.
    Dead,
    /// The entry is removed; nothing is lost with it, or admission has refused it.
    Drop,
    /// The entry has been read and is appended again.
    Again,
    /// The item has to be placed on flash first.
    Place,
    /// The item is collected and stays until its group is placed.
    Wait,
}

/// The CLOCK hand over the items of a tier, in one eviction context. It frees whole chunks, the oldest first.
pub(super) struct ClockHand<'a> {
    pub(super) items: &'a mut Items,
    pub(super) context: &'a EvictContext<'a>,
}

impl ClockHand<'_> {
    /// Makes space for an entry of `bytes` in the log and `value_bytes` beside it. A large value takes 0 bytes here.
    ///
    /// Every round evicts the oldest chunk. With the rounds the [`Need`] rises, until no entry is appended again, so that
    /// the loop ends. A tier always has one chunk with nothing beside it, whatever the bound.
    pub(super) fn make_space(&mut self, bytes: usize, value_bytes: usize) -> Result<(), NoSpace> {
        let chunks = self.items.log.open_chunks();
        let mut rounds = 0;
        loop {
            // A chunk of stubs is evicted with all their values: it is closed before its values take too much.
            let beside = self.items.log.head_beside_bytes + value_bytes;
            let fits = self.items.log.fits(bytes)
                && (value_bytes == 0 || beside <= self.context.limit_bytes / BESIDE_SHARE);
            let chunk = if fits {
                0
            } else {
                self.items.log.next_head_bytes()
            };
            let need = value_bytes + chunk + self.items.table_growth();
            let least = self.items.log.open_chunks() <= 1 && self.items.log.beside_bytes == 0;
            if least || self.items.memory_bytes() + need <= self.context.limit_bytes {
                if !fits {
                    self.items.log.open_head();
                }
                return Ok(());
            }
            if self.items.log.open_chunks() == 1 {
                // Entries that are appended again need another chunk.
                self.items.log.open_head();
            }
            self.evict_tail(Need::after(rounds, chunks))?;
            self.items.stats.direct_reclaims += 1;
            rounds += 1;
        }
    }

    /// Evicts the oldest chunk: its entries leave, or are appended again. Large values have a queue of their own, and are
    /// appended again if items get second chances.
    ///
    /// If flash has no space for an entry, the entries placed before it have left; it and the following entries stay.
    pub(super) fn evict_tail(&mut self, need: Need) -> Result<(), NoSpace> {
        let chances = need == Need::Usual;
        let collecting = self.context.flash.collecting();
        if let Some(collecting) = collecting {
            self.place_collected(collecting, need)?;
        }
        let Some(slot) = self.items.log.tail() else {
            return Ok(());
        };
        let live = |handle: &Handle| !self.items.log.header(*handle).has(state::DEAD);
        let with_hash = |handle: Handle| (self.items.hash_of(handle, self.context.seed), handle);
        let entries: Vec<(KeyHash, Handle)> = self
            .items
            .log
            .entries(slot)
            .filter(live)
            .map(with_hash)
            .collect();
        self.context.flash.warm(&entries);
        let mut to_place: Vec<(KeyHash, Handle)> = Vec::new();
        for (hash, handle) in entries {
            work::count(Work::TierEntry, 1);
            let header = *self.items.log.header(handle);
            let is_large = self.items.log.large_of(handle).is_some();
            if is_large && chances && !self.is_dead(&header) {
                self.items.append_again(handle, hash, header.clock());
                continue;
            }
            let fate = self.decide(handle, hash, chances);
            let leaves = match fate {
                Fate::Drop => true,
                Fate::Place => collecting.is_none(),
                Fate::Dead | Fate::Again | Fate::Wait => false,
            };
            if leaves && !is_large {
                self.items.evicted.note(&header);
            }
            match fate {
                Fate::Dead | Fate::Drop => self.items.unlink(hash, handle),
                Fate::Again => {
                    let clock = self.context.passed(self.items.log.header(handle).clock());
                    self.items.append_again(handle, hash, clock);
                }
                Fate::Wait => {
                    let clock = self.items.log.header(handle).clock();
                    self.items.append_again(handle, hash, clock);
                }
                Fate::Place => match collecting {
                    Some(collecting) => {
                        self.context.gate.admitted(hash, &header);
                        self.collector(collecting).collect(handle, hash);
                    }
                    None => to_place.push((hash, handle)),
                },
            }
        }
        self.place(&mut to_place)?;
        self.items.shrink_table();
        // Within the bound the chunk is kept for the next head.
        let within = self.items.memory_bytes() <= self.context.limit_bytes;
        self.items.log.close_tail(within);
        Ok(())
    }

    /// Evicts a large value, unless it has been read: it then goes to the back of the queue. Returns whether the value
    /// has left.
    pub(super) fn evict_large(&mut self, hash: KeyHash, handle: Handle) -> Result<bool, NoSpace> {
        match self.decide(handle, hash, true) {
            Fate::Dead | Fate::Drop => self.items.unlink(hash, handle),
            Fate::Place => self.place(&mut [(hash, handle)])?,
            Fate::Wait | Fate::Again => {
                let header = self.items.log.header_mut(handle);
                header.set_clock(self.context.passed(header.clock()));
                self.items.log.requeue(handle);
                return Ok(false);
            }
        }
        self.items.shrink_table();
        Ok(true)
    }

    fn is_dead(&self, header: &ItemHeader) -> bool {
        header.is_expired(self.context.second_of(header))
            || header.version.get() < self.context.cutoff
    }

    fn decide(&mut self, handle: Handle, hash: KeyHash, chances: bool) -> Fate {
        let header = *self.items.log.header(handle);
        let second = self.context.second_of(&header);
        if self.is_dead(&header) {
            self.items.stats.reclaimed += 1;
            self.items.stats.count_expired(&header, second);
            // The flash copy of a clean item is dead as well; reclaim detects that by itself.
            return Fate::Dead;
        }
        if header.is_collected() {
            return Fate::Wait;
        }
        let may_stay = chances && header.clock() > 0;
        if !header.has(state::DIRTY) && may_stay {
            self.items.stats.second_chances += 1;
            return Fate::Again;
        }
        // The flash copy of a clean item may have been reclaimed while the item stayed in memory. If only a read of the
        // index would tell, the item is dropped: nearly all of its kind still have a copy, and writing a second one is
        // a waste.
        let may_be_on_flash = || {
            let held = if header.has(state::REFERENCED) || header.has(state::FETCHED) {
                self.context.flash.access(hash)
            } else {
                self.context.flash.holds(hash)
            };
            held != Held::No
        };
        if !header.has(state::DIRTY) && !self.context.rewrites_clean && may_be_on_flash() {
            self.items.stats.clean_evictions += 1;
            self.items.stats.evictions += 1;
            return Fate::Drop;
        }
        let verdict = self.context.judge(self.items, handle, hash);
        if may_stay && verdict.stays_if_read {
            self.items.stats.second_chances += 1;
            return Fate::Again;
        }
        if verdict.is_admitted {
            return Fate::Place;
        }
        self.context.gate.refused(hash, &header);
        self.items.stats.count_rejected(&header);
        self.items.stats.evictions += 1;
        Fate::Drop
    }

    /// Places collected items that take more than their share, or all of them. Where a write limit holds flash back, the
    /// oldest leave instead.
    fn place_collected(&mut self, collecting: Collecting, need: Need) -> Result<(), NoSpace> {
        let mut collector = self.collector(collecting);
        let most = match need {
            Need::Usual | Need::NoChances => collector.most_bytes(),
            Need::All => 0,
        };
        let placed = collector.place_fullest(most);
        if placed.is_ok() || !self.context.flash.is_held_back() {
            return placed;
        }
        self.context.gate.held_back();
        self.collector(collecting).drop_collected(most);
        Ok(())
    }

    fn collector(&mut self, collecting: Collecting) -> Collector<'_> {
        Collector {
            items: self.items,
            context: self.context,
            collecting,
        }
    }

    fn place(&mut self, entries: &mut [(KeyHash, Handle)]) -> Result<(), NoSpace> {
        if entries.is_empty() {
            return Ok(());
        }
        if self.context.flash.takes_larger_first() {
            entries.sort_by_key(|(_, handle)| Reverse(self.items.log.header(*handle).body_bytes()));
        }
        // An item for which there was space leaves memory, even if flash has dropped it.
        let taken = self.context.hand_over(self.items, entries).len();
        for &(hash, handle) in &entries[..taken] {
            let header = self.items.log.header(handle);
            self.context.gate.admitted(hash, header);
            self.items.unlink(hash, handle);
        }
        self.items.stats.demotions += taken as u64;
        self.items.stats.evictions += taken as u64;
        let left = &entries[taken..];
        if left.is_empty() {
            return Ok(());
        }
        if !self.context.flash.is_held_back() {
            return Err(NoSpace);
        }
        self.context.gate.held_back();
        // Older copies on flash have been outdated since the items were set.
        for &(hash, handle) in left {
            let header = *self.items.log.header(handle);
            self.context.gate.remember(hash, &header);
            self.items.stats.count_held_back(&header);
            self.items.stats.evictions += 1;
            self.items.unlink(hash, handle);
        }
        Ok(())
    }
}

const _: () = assert!(
    HEADER_BYTES + MAX_KEY_BYTES < 1024,
    "a stub fits the smallest chunk"
);
