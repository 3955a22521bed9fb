//! The tier above a flash that is a plain map.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use proptest::prelude::*;

use super::tier::{DramTier, EvictContext, NewItem};
use super::{Below, Handle, LogPosition, NoSpace};
use crate::admission::Admission;
use crate::flash::Placed;
use crate::format::item::state;
use crate::key::{Key, KeyHash};
use crate::store::AppendItem;

const SEED: u64 = 7;
const CHUNK: usize = 4096;

fn key_of(name: &[u8]) -> Key<'_> {
    Key::new(name, SEED).unwrap()
}

/// Keeps what is placed, in order, until it has no space left.
#[derive(Default)]
struct MapFlash {
    items: Mutex<HashMap<u64, Vec<u8>>>,
    order: Mutex<Vec<Vec<u8>>>,
    touched: Mutex<Vec<KeyHash>>,
    space_left: AtomicUsize,
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
    fn holds(&self, hash: KeyHash) -> bool {
        self.items.lock().contains_key(&hash.0)
    }

    fn access(&self, hash: KeyHash) -> bool {
        self.touched.lock().push(hash);
        self.holds(hash)
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

/// A tier of `limit_bytes` over a map.
struct Bench {
    flash: MapFlash,
    tier: DramTier,
    limit_bytes: usize,
    admission: Admission,
    next_version: u64,
    cutoff: u64,
    now: u32,
}

impl Bench {
    fn new(limit_bytes: usize, space: usize) -> Self {
        Self {
            flash: MapFlash::with_space(space),
            tier: DramTier::new(CHUNK),
            limit_bytes,
            admission: Admission::All,
            next_version: 1,
            cutoff: 0,
            now: 1000,
        }
    }

    fn parts(&mut self) -> (&mut DramTier, EvictContext<'_>) {
        let context = EvictContext {
            flash: &self.flash,
            admission: self.admission,
            seed: SEED,
            cutoff: self.cutoff,
            now: self.now,
            limit_bytes: self.limit_bytes,
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
        self.tier.find(key_of(key))
    }

    fn value(&self, key: &[u8]) -> Option<Vec<u8>> {
        Some(self.tier.item(self.find(key)?).0.value.to_vec())
    }

    fn reference(&mut self, key: &[u8]) {
        let handle = self.find(key).unwrap();
        self.tier.header_mut(handle).state |= state::REFERENCED;
    }

    fn clean(&mut self) -> Result<(), NoSpace> {
        let (tier, context) = self.parts();
        tier.clean(&context)
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
    let (handle, bytes) = (bench.find(b"key"), bench.tier.live_bytes);
    bench.put(b"key", b"again").unwrap();
    assert_eq!(bench.find(b"key"), handle);
    assert_eq!(bench.value(b"key").unwrap(), b"again");
    assert!(bench.tier.header(handle.unwrap()).has(state::REFERENCED));
    assert_eq!(bench.tier.header(handle.unwrap()).version.get(), 2);
    bench.put(b"key", b"longer than before").unwrap();
    assert_ne!(bench.find(b"key"), handle);
    assert_eq!(bench.value(b"key").unwrap(), b"longer than before");
    assert_eq!(bench.tier.live_bytes, bytes + 13);
    assert_eq!(bench.tier.len(), 1);
    assert!(bench.tier.remove(key_of(b"key")));
    assert_eq!((bench.tier.len(), bench.tier.live_bytes), (0, 0));
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
    assert_eq!(bench.tier.stats.second_chances, 2);
    for survivor in [0, 5] {
        let handle = bench.find(&name(survivor)).unwrap();
        assert!(!bench.tier.header(handle).has(state::REFERENCED));
    }
    // The next time the hand comes they go.
    bench.put_all(number..number + 500);
    assert!(bench.find(&name(0)).is_none() && bench.find(&name(5)).is_none());
    assert_eq!(bench.tier.stats.second_chances, 2);
}

#[test]
fn a_tier_of_referenced_items_alone_still_makes_space() {
    let mut bench = Bench::new(6 * CHUNK, usize::MAX);
    for number in 0..2000 {
        bench.put(&name(number), &[1; 100]).unwrap();
        bench.reference(&name(number));
        assert!(bench.tier.memory_bytes() <= bench.limit_bytes + CHUNK);
    }
}

#[test]
fn clean_items_leave_silently_while_flash_has_them() {
    let mut bench = Bench::new(6 * CHUNK, usize::MAX);
    bench.put_all(0..20);
    bench.clean().unwrap();
    assert_eq!(bench.flash.placed().len(), 20);
    let fetched = bench.find(&name(3)).unwrap();
    bench.tier.header_mut(fetched).state |= state::FETCHED;
    // The copy of one of them is reclaimed.
    bench.flash.invalidate(key_of(&name(7)).hash());
    bench.put_all(100..400);
    let placed = bench.flash.placed();
    let twice = |number| placed.iter().filter(|key| **key == name(number)).count();
    assert_eq!((twice(3), twice(7), twice(8)), (1, 2, 1));
    let read = key_of(&name(3)).hash();
    assert_eq!(
        *bench.flash.touched.lock(),
        [read],
        "flash learns that it was read"
    );
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
    assert_eq!(bench.tier.stats.reclaimed, 20);
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
    assert!(bench.tier.memory_bytes() <= bench.limit_bytes + CHUNK);
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
    assert_eq!(bench.tier.len(), 1000, "they stay in memory");
    assert_eq!(bench.flash.touched.lock().len(), 1);
    assert_eq!(bench.clean(), Ok(()));
    assert_eq!(bench.flash.placed().len(), 1000);
    // One whose copy was lost is placed again, once it has been marked.
    bench.flash.invalidate(key_of(&name(50)).hash());
    bench.flash.space_left.store(9, Ordering::Relaxed);
    let (tier, context) = bench.parts();
    tier.mark_unplaced(&context);
    bench.clean().unwrap();
    assert_eq!(bench.flash.placed()[1000..], [name(50)]);
}

#[test]
fn values_beside_the_log_are_counted_and_given_back() {
    let mut bench = Bench::new(64 * CHUNK, usize::MAX);
    bench.put(b"small", b"value").unwrap();
    let before = bench.tier.memory_bytes();
    bench.put(b"large", &[5; 10_000]).unwrap();
    assert_eq!(bench.tier.memory_bytes(), before + 10_000);
    let (_, shared) = bench.tier.item(bench.find(b"large").unwrap());
    assert_eq!(shared.unwrap().len(), 10_000, "it can be shared");
    bench.put(b"large", &[6; 20_000]).unwrap();
    assert_eq!(bench.tier.memory_bytes(), before + 20_000);
    assert_eq!(bench.value(b"large").unwrap(), [6; 20_000]);
    bench.put(b"large", &[6; 10]).unwrap();
    assert_eq!(bench.tier.memory_bytes(), before);
    for number in 0..500 {
        bench.put(&name(number), &[7; 20_000]).unwrap();
        assert!(bench.tier.memory_bytes() <= bench.limit_bytes);
        assert_eq!(bench.value(&name(number)).unwrap(), [7; 20_000]);
    }
    assert!(
        bench.tier.memory_bytes() > bench.limit_bytes / 2,
        "memory is used"
    );
    for number in 0..500 {
        bench.tier.remove(key_of(&name(number)));
    }
    assert!(bench.tier.memory_bytes() <= before + 64 * CHUNK);
    assert_eq!(bench.tier.log.beside_bytes, 0);
}

#[derive(Clone, Debug)]
enum Op {
    Put(u16, usize),
    Remove(u16),
    Reference(u16),
    PlaceAll,
}

fn any_op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![0usize..40, 0usize..900, 1000usize..6000];
    prop_oneof![
        6 => (0u16..200, len).prop_map(|(key, len)| Op::Put(key, len)),
        2 => (0u16..200).prop_map(Op::Remove),
        2 => (0u16..200).prop_map(Op::Reference),
        1 => Just(Op::PlaceAll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Chunks wrap around many times; every item is in memory or on flash, as it was last put.
    #[test]
    fn nothing_is_lost_between_memory_and_flash(ops in proptest::collection::vec(any_op(), 1..1500)) {
        let mut bench = Bench::new(10 * CHUNK, usize::MAX);
        let mut model: HashMap<u16, Vec<u8>> = HashMap::new();
        for (number, op) in ops.into_iter().enumerate() {
            match op {
                Op::Put(key, len) => {
                    let value = vec![number as u8; len];
                    bench.put(&name(key.into()), &value).unwrap();
                    model.insert(key, value);
                }
                Op::Remove(key) => {
                    let name = name(key.into());
                    bench.tier.remove(key_of(&name));
                    bench.flash.invalidate(key_of(&name).hash());
                    model.remove(&key);
                }
                Op::Reference(key) => {
                    if bench.find(&name(key.into())).is_some() {
                        bench.reference(&name(key.into()));
                    }
                }
                Op::PlaceAll => bench.clean().unwrap(),
            }
            prop_assert!(bench.tier.memory_bytes() <= bench.limit_bytes + CHUNK);
        }
        for key in 0..200 {
            let name = name(key.into());
            let found = bench.value(&name).or_else(|| bench.flash.value(&name));
            prop_assert_eq!(found.as_ref(), model.get(&key), "key {}", key);
        }
        let items = || bench.tier.items_from(LogPosition::default()).map(|(_, item)| item);
        let bodies: usize = items().map(|item| item.header.body_bytes()).sum();
        prop_assert_eq!(bodies as u64, bench.tier.live_bytes);
        let dirty = items().filter(|item| item.header.has(state::DIRTY)).count();
        prop_assert_eq!(dirty as u64, bench.tier.dirty);
    }
}
