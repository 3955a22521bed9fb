//! Tests of the DRAM tier above a flash that is a plain map.

mod large;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::below::{Below, Held};
use super::context::EvictContext;
use super::items::{MOST_EQUAL, NewItem, TierUse};
use super::tier::DramTier;
use super::{Due, Handle, LargeValues, LogPosition, NoSpace, Walked};
use crate::admission::{AdmissionKind, AdmissionRoom, AdmitAll, AdmitRandom, Gate};
use crate::durability::FlushCutoffs;
use crate::flash::Placed;
use crate::format::item::{CLOCK_HIGHEST, ItemRef, state};
use crate::key::{HashSeed, Key, KeyHash};
use crate::store::AppendItem;

const SEED: HashSeed = HashSeed::new(7);
const CHUNK: usize = 4096;

fn key_of(name: &[u8]) -> Key<'_> {
    Key::new(name, SEED).unwrap()
}

/// Keeps the placed items, in order, until it has no space left.
#[derive(Default)]
struct MapFlash {
    items: Mutex<HashMap<u64, Vec<u8>>>,
    order: Mutex<Vec<Vec<u8>>>,
    touched: Mutex<Vec<KeyHash>>,
    /// Keys for which only a read would tell whether flash has them.
    unclear: Mutex<HashSet<u64>>,
    space_left: AtomicUsize,
    larger_first: AtomicBool,
}

impl MapFlash {
    fn with_space(items: usize) -> Self {
        let flash = Self::default();
        flash.space_left.store(items, Ordering::Relaxed);
        flash
    }

    fn placed(&self) -> Vec<Vec<u8>> {
        self.order.lock().clone()
    }

    fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        let hash = key_of(key).hash();
        self.items.lock().get(&hash.0).cloned()
    }

    fn invalidate(&self, hash: KeyHash) {
        self.items.lock().remove(&hash.0);
    }
}

impl Below for MapFlash {
    fn holds(&self, hash: KeyHash) -> Held {
        match self.items.lock().contains_key(&hash.0) {
            _ if self.unclear.lock().contains(&hash.0) => Held::Perhaps,
            true => Held::Yes,
            false => Held::No,
        }
    }

    fn access(&self, hash: KeyHash) -> Held {
        self.touched.lock().push(hash);
        self.holds(hash)
    }

    fn takes_larger_first(&self) -> bool {
        self.larger_first.load(Ordering::Relaxed)
    }

    fn place(&self, items: &[AppendItem<'_>], each: &mut dyn FnMut(usize, Placed)) {
        for (number, append) in items.iter().enumerate() {
            if self.space_left.load(Ordering::Relaxed) == 0 {
                return each(number, Placed::NoSpace);
            }
            self.space_left.fetch_sub(1, Ordering::Relaxed);
            let value = append.item.value.to_vec();
            self.items.lock().insert(append.hash.0, value);
            self.order.lock().push(append.item.key.to_vec());
            each(number, Placed::OnFlash);
        }
    }
}

fn gate(kind: &dyn AdmissionKind) -> Gate {
    Gate::new(kind.open(AdmissionRoom {
        memory_bytes: 1 << 20,
        flash_bytes: 8 << 20,
    }))
}

/// A tier of `limit_bytes` over a map.
struct Bench {
    flash: MapFlash,
    large: Arc<LargeValues>,
    tier: DramTier,
    limit_bytes: usize,
    one_clock: bool,
    rewrites_clean: bool,
    gate: Gate,
    next_version: u64,
    cutoff: u64,
    now: u32,
    cutoffs: FlushCutoffs,
}

impl Bench {
    fn new(limit_bytes: usize, space: usize) -> Self {
        let large = Arc::<LargeValues>::default();
        Self {
            flash: MapFlash::with_space(space),
            tier: DramTier::new(0, CHUNK, Arc::default(), Arc::clone(&large)),
            large,
            limit_bytes,
            one_clock: false,
            rewrites_clean: false,
            gate: gate(&AdmitAll),
            next_version: 1,
            cutoff: 0,
            now: 1000,
            cutoffs: FlushCutoffs::new(0),
        }
    }

    fn parts(&mut self) -> (&mut DramTier, EvictContext<'_>) {
        let context = EvictContext {
            flash: &self.flash,
            gate: &self.gate,
            seed: SEED,
            cutoff: self.cutoff,
            now: self.now,
            limit_bytes: self.limit_bytes,
            one_clock: self.one_clock,
            rewrites_clean: self.rewrites_clean,
            cutoffs: &self.cutoffs,
        };
        (&mut self.tier, context)
    }

    fn put_with(&mut self, key: &[u8], value: &[u8], bits: u8, expiry: u32) -> Result<(), NoSpace> {
        let key = key_of(key);
        let new = NewItem {
            version: self.next_version,
            cas_unique: None,
            client_flags: 0,
            expiry,
            last_access: 0,
            state: bits,
            value,
            shared: None,
        };
        let (tier, context) = self.parts();
        tier.put(key, &new, &context)?;
        self.next_version += 1;
        if bits & state::DIRTY != 0 {
            self.flash.invalidate(key.hash());
        }
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), NoSpace> {
        self.put_with(key, value, state::DIRTY, 0)
    }

    /// Puts items of 100 bytes.
    fn put_all(&mut self, numbers: Range<usize>) {
        for number in numbers {
            self.put(&name(number), &[1; 100]).unwrap();
        }
    }

    fn find(&self, key: &[u8]) -> Option<Handle> {
        self.tier.items.find(key_of(key))
    }

    fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        Some(self.tier.items.item(self.find(key)?).0.value.to_vec())
    }

    fn reference(&mut self, key: &[u8]) {
        let handle = self.find(key).unwrap();
        self.tier.items.header_mut(handle).state |= state::REFERENCED;
    }

    fn clean(&mut self) -> Result<(), NoSpace> {
        self.clean_due(&Due {
            unplaced: false,
            ..Due::ALL
        })
    }

    fn clean_due(&mut self, due: &Due) -> Result<(), NoSpace> {
        let (tier, context) = self.parts();
        let mut walked = Walked::default();
        while walked.clean_chunk(&mut tier.items, due, &context)? {}
        Ok(())
    }

    /// Runs steps of the crawler until it has nothing to do.
    fn crawl(&mut self) {
        while self.crawl_step() {}
    }

    fn crawl_step(&mut self) -> bool {
        let (tier, context) = self.parts();
        tier.crawler.step(&mut tier.items, &context)
    }

    /// Makes all items dead.
    fn flush(&mut self) {
        self.cutoff = self.next_version;
        self.tier.items.flush(self.cutoff);
    }
}

fn name(number: usize) -> Vec<u8> {
    format!("item-{number:04}").into_bytes()
}

#[test]
fn an_item_of_the_same_size_is_overwritten_where_it_lies() {
    let mut bench = Bench::new(1 << 20, 0);
    bench.put(b"key", b"first").unwrap();
    bench.reference(b"key");
    let (handle, bytes) = (bench.find(b"key"), bench.tier.items.live_bytes);
    bench.put(b"key", b"again").unwrap();
    assert_eq!(bench.find(b"key"), handle);
    assert_eq!(bench.value(b"key").unwrap(), b"again");
    assert!(
        bench
            .tier
            .items
            .header(handle.unwrap())
            .has(state::REFERENCED)
    );
    assert_eq!(bench.tier.items.header(handle.unwrap()).version.get(), 2);
    bench.put(b"key", b"longer than before").unwrap();
    assert_ne!(bench.find(b"key"), handle);
    assert_eq!(bench.value(b"key").unwrap(), b"longer than before");
    assert_eq!(bench.tier.items.live_bytes, bytes + 13);
    assert_eq!(bench.tier.items.len(), 1);
    assert!(bench.tier.items.remove(key_of(b"key")));
    assert_eq!(
        (bench.tier.items.len(), bench.tier.items.live_bytes),
        (0, 0)
    );
}

#[test]
fn the_oldest_leave_first_and_the_referenced_get_one_more_turn() {
    let mut bench = Bench::new(8 * CHUNK, usize::MAX);
    let mut number = 0;
    while bench.flash.placed().is_empty() {
        bench.put(&name(number), &[1; 100]).unwrap();
        if number == 0 || number == 5 {
            bench.reference(&name(number));
        }
        number += 1;
    }
    let placed = bench.flash.placed();
    let expected = (0..).filter(|n| ![0, 5].contains(n)).map(name);
    assert_eq!(placed, expected.take(placed.len()).collect::<Vec<_>>());
    assert_eq!(bench.tier.items.stats.second_chances, 2);
    for survivor in [0, 5] {
        let handle = bench.find(&name(survivor)).unwrap();
        assert!(!bench.tier.items.header(handle).has(state::REFERENCED));
    }
    // The next time the hand comes, both leave.
    bench.put_all(number..number + 500);
    assert!(bench.find(&name(0)).is_none() && bench.find(&name(5)).is_none());
    assert_eq!(bench.tier.items.stats.second_chances, 2);
}

#[test]
fn a_tier_of_referenced_items_alone_still_makes_space() {
    let mut bench = Bench::new(6 * CHUNK, usize::MAX);
    for number in 0..2000 {
        bench.put(&name(number), &[1; 100]).unwrap();
        bench.reference(&name(number));
        assert!(bench.tier.items.memory_bytes() <= bench.limit_bytes + CHUNK);
    }
}

#[test]
fn clean_items_leave_silently_while_flash_has_them() {
    let mut bench = Bench::new(6 * CHUNK, usize::MAX);
    bench.put_all(0..20);
    bench.clean().unwrap();
    assert_eq!(bench.flash.placed().len(), 20);
    let fetched = bench.find(&name(3)).unwrap();
    bench.tier.items.header_mut(fetched).state |= state::FETCHED;
    // The copy of one item is reclaimed.
    bench.flash.invalidate(key_of(&name(7)).hash());
    let unclear = key_of(&name(9)).hash();
    bench.flash.unclear.lock().insert(unclear.0);
    bench.put_all(100..400);
    let placed = bench.flash.placed();
    let times = |number| placed.iter().filter(|key| **key == name(number)).count();
    assert_eq!([3, 7, 8, 9].map(times), [1, 2, 1, 1]);
    let read = key_of(&name(3)).hash();
    assert_eq!(
        *bench.flash.touched.lock(),
        [read],
        "flash learns that it was read"
    );
}

#[test]
fn before_a_victim_cache_what_leaves_is_placed_though_flash_has_it() {
    let mut bench = Bench::new(6 * CHUNK, usize::MAX);
    bench.rewrites_clean = true;
    bench.put_all(0..20);
    bench.clean().unwrap();
    assert_eq!(bench.flash.placed().len(), 20);
    bench.put_all(100..400);
    let placed = bench.flash.placed();
    let times = |number| placed.iter().filter(|key| **key == name(number)).count();
    assert!((0..20).all(|number| times(number) == 2));
}

#[test]
fn what_is_dead_is_not_placed() {
    let mut bench = Bench::new(6 * CHUNK, usize::MAX);
    for number in 0..10 {
        bench
            .put_with(&name(number), &[1; 100], state::DIRTY, 1500)
            .unwrap();
    }
    bench.put_all(10..20);
    bench.cutoff = bench.next_version;
    bench.now = 1500;
    bench.put_all(20..400);
    let placed = bench.flash.placed();
    for number in 0..20 {
        assert!(!placed.contains(&name(number)), "{number}");
    }
    assert!(placed.contains(&name(20)));
    assert_eq!(bench.tier.items.stats.reclaimed, 20);
}

/// Puts items of 100 bytes; all but one in `one_in` expire at 1500.
fn put_expiring(bench: &mut Bench, count: usize, one_in: usize) {
    for number in 0..count {
        let expiry = if number % one_in == 0 { 0 } else { 1500 };
        bench
            .put_with(&name(number), &[1; 100], state::DIRTY, expiry)
            .unwrap();
    }
}

#[test]
fn expired_items_give_their_memory_back_though_nothing_comes() {
    let mut bench = Bench::new(1 << 20, 0);
    put_expiring(&mut bench, 4000, 4);
    let full = bench.tier.items.log.memory_bytes();
    bench.crawl();
    assert_eq!(bench.tier.items.stats.crawls, 0, "nothing has expired");
    bench.now = 1500;
    bench.crawl();
    assert_eq!(bench.tier.items.len(), 1000);
    assert_eq!(bench.tier.items.stats.crawler_reclaimed, 3000);
    assert_eq!(bench.tier.items.stats.expired_unfetched, 3000);
    // A quarter of the items, the head, and a spare.
    let left = bench.tier.items.log.memory_bytes();
    assert!(left <= full / 4 + 3 * CHUNK, "{left} of {full} bytes");
    for number in 0..4000 {
        let is_there = bench.value(&name(number)) == Some(vec![1; 100]);
        assert_eq!(is_there, number % 4 == 0, "{number}");
    }
    let passes = bench.tier.items.stats.crawls;
    bench.now = 3000;
    bench.crawl();
    assert_eq!(
        bench.tier.items.stats.crawls, passes,
        "nothing else expires"
    );
}

#[test]
fn chunks_of_which_little_is_dead_stay_where_they_are() {
    let mut bench = Bench::new(1 << 20, 0);
    for number in 0..4000 {
        let expiry = if number % 8 == 0 { 1500 } else { 0 };
        bench
            .put_with(&name(number), &[1; 100], state::DIRTY, expiry)
            .unwrap();
    }
    let before = bench.find(&name(1));
    bench.now = 1500;
    bench.crawl();
    assert_eq!(bench.tier.items.len(), 3500);
    assert_eq!(bench.find(&name(1)), before);
}

#[test]
fn an_expiry_that_comes_later_is_found_in_a_later_pass() {
    let mut bench = Bench::new(1 << 20, 0);
    for number in 0..3000 {
        let expiry = 1500 + (number % 3) as u32 * 100;
        bench
            .put_with(&name(number), &[1; 100], state::DIRTY, expiry)
            .unwrap();
    }
    for (now, left) in [(1499, 3000), (1500, 2000), (1600, 1000), (1700, 0)] {
        bench.now = now;
        bench.crawl();
        assert_eq!(bench.tier.items.len(), left, "at {now}");
    }
    assert!(bench.tier.items.log.memory_bytes() <= 2 * CHUNK);
}

#[test]
fn what_the_clock_hand_moves_behind_the_crawler_is_found_in_a_later_pass() {
    let mut bench = Bench::new(16 * CHUNK, usize::MAX);
    bench
        .put_with(b"short", &[1; 100], state::DIRTY, 1500)
        .unwrap();
    for number in 0..20 {
        bench
            .put_with(&name(number), &[1; 100], state::DIRTY, 2000)
            .unwrap();
    }
    bench.put_all(1000..1200);
    bench.now = 1500;
    assert!(bench.crawl_step(), "a pass is under way");
    for number in 0..20 {
        bench.reference(&name(number));
    }
    let passed = bench.tier.items.soonest_expiry;
    bench.tier.items.soonest_expiry = u32::MAX;
    bench.put_all(2000..2400);
    assert_eq!(bench.tier.items.stats.second_chances, 20);
    assert_eq!((passed, bench.tier.items.soonest_expiry), (2000, 2000));
    bench.crawl();
    bench.now = 2000;
    bench.crawl();
    assert!((0..20).all(|number| bench.find(&name(number)).is_none()));
}

#[test]
fn what_is_flushed_counts_no_more_and_gives_its_memory_back() {
    let mut bench = Bench::new(1 << 20, usize::MAX);
    bench.put_all(0..2000);
    let used = bench.tier.items.in_use();
    assert_eq!((used.items, used.dirty), (2000, 2000));
    bench.flush();
    assert_eq!(bench.tier.items.in_use(), Default::default());
    // Overwritten, placed and removed: neither is counted twice.
    bench.put_all(0..10);
    bench.tier.items.remove(key_of(&name(500)));
    assert_eq!(bench.tier.items.in_use().items, 10);
    bench.crawl();
    let used = bench.tier.items.in_use();
    assert_eq!((used.items, used.dirty), (10, 10));
    assert_eq!(
        (bench.tier.items.len(), bench.tier.items.live_bytes),
        (10, used.bytes)
    );
    assert!(bench.tier.items.log.memory_bytes() <= 3 * CHUNK);
}

#[test]
fn without_space_nothing_is_lost_and_the_put_changes_nothing() {
    let mut bench = Bench::new(6 * CHUNK, 7);
    let mut stored = 0;
    while bench.put(&name(stored), &[3; 100]).is_ok() {
        stored += 1;
    }
    let version = bench.next_version;
    for _ in 0..20 {
        assert_eq!(bench.put(&name(stored), &[3; 100]), Err(NoSpace));
    }
    assert_eq!(bench.next_version, version);
    assert_eq!(bench.find(&name(stored)), None);
    assert_eq!(bench.flash.placed().len(), 7);
    for number in 0..stored {
        let in_memory = bench.value(&name(number)).is_some();
        assert_ne!(
            in_memory,
            bench.flash.value(&name(number)).is_some(),
            "{number}"
        );
    }
    assert!(bench.tier.items.memory_bytes() <= bench.limit_bytes + CHUNK);
    bench.flash.space_left.store(1000, Ordering::Relaxed);
    bench.put(&name(stored), &[3; 100]).unwrap();
}

#[test]
fn placing_all_goes_on_where_it_stopped() {
    let mut bench = Bench::new(64 * CHUNK, 0);
    bench.put_all(0..1000);
    bench.reference(&name(999));
    let mut calls = 0;
    while bench.clean().is_err() {
        bench.flash.space_left.store(130, Ordering::Relaxed);
        calls += 1;
        assert!(calls < 20, "it ends");
    }
    let placed = bench.flash.placed();
    assert_eq!(
        placed,
        (0..1000).map(name).collect::<Vec<_>>(),
        "each once, oldest first"
    );
    assert_eq!(bench.tier.items.len(), 1000, "they stay in memory");
    assert_eq!(bench.flash.touched.lock().len(), 1);
    assert_eq!(bench.clean(), Ok(()));
    assert_eq!(bench.flash.placed().len(), 1000);
    // An item whose copy was lost is placed again, if the walk looks for lost copies.
    bench.flash.invalidate(key_of(&name(50)).hash());
    bench.flash.space_left.store(9, Ordering::Relaxed);
    bench.clean().unwrap();
    assert_eq!(bench.flash.placed().len(), 1000);
    let unclear = key_of(&name(60)).hash();
    bench.flash.unclear.lock().insert(unclear.0);
    bench.clean_due(&Due::ALL).unwrap();
    assert_eq!(bench.flash.placed()[1000..], [name(50), name(60)]);
}

#[test]
fn what_is_younger_than_what_is_due_stays_dirty_wherever_it_lies() {
    let mut bench = Bench::new(64 * CHUNK, usize::MAX);
    bench.put_all(0..200);
    let due = |below| Due {
        below,
        unplaced: false,
        admitted: true,
    };
    // Some items are overwritten in place, others by longer values.
    let below = bench.next_version;
    for number in (0..200).step_by(10) {
        bench.put(&name(number), &[2; 100]).unwrap();
        bench.put(&name(number + 5), &[2; 110]).unwrap();
    }
    bench.clean_due(&due(below)).unwrap();
    let old = |number: &usize| !number.is_multiple_of(5);
    assert_eq!(
        bench.flash.placed(),
        (0..200).filter(old).map(name).collect::<Vec<_>>()
    );
    assert_eq!(bench.tier.items.dirty, 40);
    bench.clean_due(&due(below)).unwrap();
    assert_eq!(bench.flash.placed().len(), 160, "nothing is placed twice");
    bench.clean_due(&due(bench.next_version)).unwrap();
    assert_eq!(bench.flash.placed().len(), 200);
    assert_eq!(
        (bench.tier.items.dirty, bench.tier.items.dirty_bytes),
        (0, 0)
    );
    assert_eq!(bench.flash.value(&name(10)).unwrap(), [2; 100]);
    // Items that are not admitted wait for their eviction.
    bench.put(b"refused", &[3; 100]).unwrap();
    bench.gate = gate(&AdmitRandom { per_mille: 0 });
    bench.clean_due(&due(bench.next_version)).unwrap();
    assert_eq!(bench.tier.items.dirty, 1);
    bench.clean_due(&Due::ALL).unwrap();
    assert_eq!(bench.tier.items.dirty, 0);
}

/// Admission uses the count, so neither an overwrite nor the CLOCK hand may reset it.
#[test]
fn reads_and_updates_are_counted_from_the_first_store_on() {
    let mut bench = Bench::new(8 * CHUNK, usize::MAX);
    let known = |bench: &Bench| {
        let header = bench.tier.items.header(bench.find(b"known").unwrap());
        (header.reads(), header.updates())
    };
    bench.put(b"known", &[1; 100]).unwrap();
    for (length, expected) in [(100, (1, 1)), (90, (2, 2)), (20_000, (3, 3)), (10, (4, 4))] {
        let handle = bench.find(b"known").unwrap();
        bench.tier.items.header_mut(handle).count_read();
        bench.put(b"known", &vec![2; length]).unwrap();
        assert_eq!(known(&bench), expected, "{length} bytes");
        assert_eq!(bench.value(b"known").unwrap().len(), length);
    }
    for round in 0..200 {
        bench.reference(b"known");
        bench.put_all(round * 10..round * 10 + 10);
        assert_eq!(known(&bench), (4, 4));
    }
    assert!(bench.tier.items.stats.second_chances > 0);
    bench.tier.items.remove(key_of(b"known"));
    bench.put(b"known", b"again").unwrap();
    assert_eq!(known(&bench), (0, 0));
}

/// If memory and flash share one CLOCK, an item survives as many turns of the hand as its CLOCK value.
#[test]
fn two_bits_of_clock_are_counted_down_and_kept_by_overwrites() {
    let mut bench = Bench::new(8 * CHUNK, usize::MAX);
    bench.one_clock = true;
    bench.put(b"read", &[1; 100]).unwrap();
    let handle = bench.find(b"read").unwrap();
    bench.tier.items.header_mut(handle).set_clock(CLOCK_HIGHEST);
    bench.put(b"read", &[2; 100]).unwrap();
    let mut seen = Vec::new();
    for number in 0.. {
        let Some(handle) = bench.find(b"read") else {
            break;
        };
        let header = bench.tier.items.header(handle);
        assert_eq!((header.reads(), header.updates()), (0, 1));
        if seen.last() != Some(&header.clock()) {
            seen.push(header.clock());
        }
        bench.put(&name(number), &[1; 100]).unwrap();
    }
    assert_eq!(seen, [3, 2, 1, 0]);
    assert_eq!(bench.tier.items.stats.second_chances, 3);
}

#[test]
fn the_hand_takes_chunks_as_it_passes_though_there_is_space() {
    let mut bench = Bench::new(64 * CHUNK, usize::MAX);
    bench.one_clock = true;
    bench.put_all(0..500);
    let (items, chunks) = (bench.tier.items.len(), bench.tier.items.log.open_chunks());
    let kept = bench.find(&name(0)).unwrap();
    bench.tier.items.header_mut(kept).set_clock(1);
    let (tier, context) = bench.parts();
    // Half a round in small steps: no more chunks go than the hand has passed.
    for _ in 0..items / 2 {
        tier.pass(1, &context);
    }
    assert_eq!(tier.items.stats.chunks_passed, chunks as u64 / 2);
    let placed = bench.flash.placed().len();
    assert!(
        placed.abs_diff(items / 2) <= items / chunks,
        "{placed} of {items}"
    );
    assert_eq!(
        bench
            .tier
            .items
            .header(bench.find(&name(0)).unwrap())
            .clock(),
        0
    );
}

#[test]
fn what_leaves_at_once_is_placed_in_the_order_that_flash_wants() {
    for larger_first in [false, true] {
        let mut bench = Bench::new(8 * CHUNK, usize::MAX);
        bench.flash.larger_first = larger_first.into();
        let lengths = [30, 200, 10, 100, 200, 50];
        let mut number = 0;
        while bench.flash.placed().is_empty() {
            let length = lengths[number % lengths.len()];
            bench.put(&name(number), &vec![1; length]).unwrap();
            number += 1;
        }
        let placed = bench.flash.placed();
        assert!(placed.len() > lengths.len());
        let length = |name: &Vec<u8>| bench.flash.value(name).unwrap().len();
        let is_sorted = placed.iter().map(length).rev().is_sorted();
        assert_eq!(is_sorted, larger_first);
        let mut in_turn = placed.clone();
        in_turn.sort_unstable();
        assert_eq!(in_turn, (0..placed.len()).map(name).collect::<Vec<_>>());
    }
}

#[test]
fn values_beside_the_log_are_counted_and_given_back() {
    let mut bench = Bench::new(64 * CHUNK, usize::MAX);
    bench.put(b"small", b"value").unwrap();
    let before = bench.tier.items.memory_bytes();
    bench.put(b"large", &[5; 10_000]).unwrap();
    assert_eq!(
        bench.tier.items.memory_bytes(),
        before + 3 * 4096,
        "whole pages"
    );
    let (_, shared) = bench.tier.items.item(bench.find(b"large").unwrap());
    assert_eq!(shared.unwrap().len(), 10_000, "it can be shared");
    bench.put(b"large", &[6; 20_000]).unwrap();
    assert_eq!(bench.tier.items.memory_bytes(), before + 5 * 4096);
    assert_eq!(bench.value(b"large").unwrap(), [6; 20_000]);
    bench.put(b"large", &[6; 10]).unwrap();
    assert_eq!(bench.tier.items.memory_bytes(), before);
    for number in 0..500 {
        bench.put(&name(number), &[7; 20_000]).unwrap();
        assert!(bench.tier.items.memory_bytes() <= bench.limit_bytes);
        assert_eq!(bench.value(&name(number)).unwrap(), [7; 20_000]);
    }
    assert!(
        bench.tier.items.memory_bytes() > bench.limit_bytes / 2,
        "memory is used"
    );
    for number in 0..500 {
        bench.tier.items.remove(key_of(&name(number)));
    }
    assert!(bench.tier.items.memory_bytes() <= before + 64 * CHUNK);
    assert_eq!(bench.tier.items.log.beside_bytes, 0);
}

#[derive(Clone, Debug)]
enum Op {
    Put(u16, usize, u32),
    Remove(u16),
    Reference(u16),
    PlaceAll,
    Flush,
    Wait(u32),
    Crawl(usize),
}

fn any_op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![0usize..40, 0usize..900, 1000usize..6000];
    let ttl = prop_oneof![Just(0), 1u32..100];
    prop_oneof![
        60 => (0u16..200, len, ttl).prop_map(|(key, len, ttl)| Op::Put(key, len, ttl)),
        20 => (0u16..200).prop_map(Op::Remove),
        20 => (0u16..200).prop_map(Op::Reference),
        10 => Just(Op::PlaceAll),
        1 => Just(Op::Flush),
        10 => (0u32..20).prop_map(Op::Wait),
        20 => (0usize..8).prop_map(Op::Crawl),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Chunks wrap around many times; every live item is in memory or on flash, as it was last put.
    #[test]
    fn nothing_is_lost_between_memory_and_flash(ops in proptest::collection::vec(any_op(), 1..1500)) {
        let mut bench = Bench::new(10 * CHUNK, usize::MAX);
        let mut model: HashMap<u16, (Vec<u8>, u32)> = HashMap::new();
        for (number, op) in ops.into_iter().enumerate() {
            match op {
                Op::Put(key, len, ttl) => {
                    let value = vec![number as u8; len];
                    let expiry = if ttl == 0 { 0 } else { bench.now + ttl };
                    bench.put_with(&name(key.into()), &value, state::DIRTY, expiry).unwrap();
                    model.insert(key, (value, expiry));
                }
                Op::Remove(key) => {
                    let name = name(key.into());
                    bench.tier.items.remove(key_of(&name));
                    bench.flash.invalidate(key_of(&name).hash());
                    model.remove(&key);
                }
                Op::Reference(key) => {
                    if bench.find(&name(key.into())).is_some() {
                        bench.reference(&name(key.into()));
                    }
                }
                Op::PlaceAll => bench.clean().unwrap(),
                Op::Flush => {
                    bench.flush();
                    model.clear();
                }
                Op::Wait(seconds) => bench.now += seconds,
                Op::Crawl(steps) => {
                    for _ in 0..steps {
                        bench.crawl_step();
                    }
                }
            }
            prop_assert!(bench.tier.items.memory_bytes() <= bench.limit_bytes + CHUNK);
        }
        // Items behind a pass in progress may have expired since.
        bench.crawl();
        bench.crawl();
        model.retain(|_, (_, expiry)| *expiry == 0 || *expiry > bench.now);
        for key in 0..200 {
            let name = name(key.into());
            let in_memory = bench.value(&name);
            let Some((value, _)) = model.get(&key) else {
                prop_assert_eq!(in_memory, None, "key {} is dead", key);
                continue;
            };
            let found = in_memory.or_else(|| bench.flash.value(&name));
            prop_assert_eq!(found.as_ref(), Some(value), "key {}", key);
        }
        let items = || bench.tier.items.items_from(LogPosition::default()).map(|(_, item)| item);
        let bodies: usize = items().map(|item| item.header.body_bytes()).sum();
        prop_assert_eq!(bodies as u64, bench.tier.items.live_bytes);
        let is_dirty = |item: &ItemRef<'_>| item.header.has(state::DIRTY);
        let dirty: Vec<ItemRef<'_>> = items().filter(is_dirty).collect();
        let dirty_bytes: usize = dirty.iter().map(|item| item.header.body_bytes()).sum();
        let expected = TierUse {
            items: bench.tier.items.len() as u64,
            bytes: bodies as u64,
            dirty: dirty.len() as u64,
            dirty_bytes: dirty_bytes as u64,
        };
        prop_assert_eq!(bench.tier.items.in_use(), expected);
    }
}

/// Keys of one hash, made on purpose, cost a look-up no more than a full chain.
#[test]
fn item_12_a_chain_of_equal_hashes_is_bounded() {
    let mut bench = Bench::new(64 * CHUNK, usize::MAX);
    let names: Vec<Vec<u8>> = (0..1000).map(name).collect();
    // Other bits may differ: the table keeps the lowest 32.
    let keys = (0u64..).zip(&names);
    let keys: Vec<Key<'_>> = keys
        .map(|(number, name)| Key::with_hash(name, number << 32 | 5))
        .collect();
    for (version, &key) in (1..).zip(&keys) {
        let new = NewItem {
            version,
            cas_unique: None,
            client_flags: 0,
            expiry: 0,
            last_access: 0,
            state: state::DIRTY,
            value: b"value",
            shared: None,
        };
        let (tier, context) = bench.parts();
        tier.put(key, &new, &context).unwrap();
        // One that is there is replaced, and no other makes way for it.
        tier.put(key, &new, &context).unwrap();
    }
    let items = &bench.tier.items;
    assert_eq!(items.len(), MOST_EQUAL);
    let found = |key: &&Key<'_>| items.find(**key).is_some();
    assert_eq!(keys.iter().filter(found).count(), MOST_EQUAL);
    assert!(
        keys[1000 - MOST_EQUAL..].iter().all(|key| found(&key)),
        "the oldest go"
    );
    assert_eq!(items.dirty, MOST_EQUAL as u64);
    assert_eq!(items.stats.rejections, (1000 - MOST_EQUAL) as u64);
}
