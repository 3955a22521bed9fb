//! Tests of the promises about memory, load, fingerprints, refusals and checkpoints. Random operations are in
//! `model_tests`.

use std::sync::Arc;

use crate::*;

pub(crate) const VALUE_BITS: u32 = 28;

pub(crate) fn config(max_entries_hint: u64, min_buckets: u32) -> DirectConfig {
    DirectConfig {
        value_bits: VALUE_BITS,
        rank_bits: 1,
        max_entries_hint,
        skip_bits: 0,
        min_buckets,
    }
}

pub(crate) fn table(config: DirectConfig) -> DirectTable {
    DirectTable::new(config, Arc::default()).unwrap()
}

/// The entry that an insertion of `value` leaves.
pub(crate) fn fresh(value: u64) -> Entry {
    Entry { value, rank: 0 }
}

/// A bijective mixer: the same hashes in every run.
pub(crate) fn hash(n: u64) -> u64 {
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Panics unless structure, counts and memory of a table agree.
pub(crate) fn check(table: &DirectTable) {
    for sub_table in &table.sub_tables {
        sub_table.check(&table.layout);
    }
    let len: usize = table.sub_tables.iter().map(SubTable::len).sum();
    assert_eq!(table.len, len);
    let buckets: usize = table.sub_tables.iter().map(SubTable::counted_buckets).sum();
    assert_eq!(table.buckets, buckets);
    let heap: usize = table.sub_tables.iter().map(SubTable::counted_bytes).sum();
    let directory = size_of_val(&*table.sub_tables);
    assert_eq!(table.memory_bytes(), (heap + directory) as u64);
}

/// Returns the displacement of every entry, and whether it wrapped around.
fn displacements(table: &DirectTable) -> impl Iterator<Item = (u32, bool)> {
    let sub_tables = table.sub_tables.iter();
    sub_tables.flat_map(|sub_table| sub_table.displacements(&table.layout))
}

#[test]
fn growth_and_shrinking_lose_nothing_and_keep_recency() {
    let mut table = table(config(40_000, 8));
    let count = 40_000;
    for n in 0..count {
        table.insert(hash(n), n).unwrap();
        if n % 3 == 0 {
            assert!(table.access(hash(n)).is_some());
        }
    }
    check(&table);
    let full_bytes = table.memory_bytes();
    let entry = |n| Entry {
        value: n,
        rank: u8::from(n % 3 == 0),
    };
    for n in 0..count {
        assert_eq!(table.lookup(hash(n)), Some(entry(n)), "entry {n}");
        assert_eq!(table.lookup(hash(n + count)), None);
    }
    for n in 0..count {
        if n % 16 != 0 {
            assert_eq!(table.remove(hash(n)), Some(n));
        }
    }
    check(&table);
    assert!(
        table.memory_bytes() < full_bytes / 12,
        "memory does not come back"
    );
    for n in 0..count {
        let expected = (n % 16 == 0).then_some(entry(n));
        assert_eq!(table.lookup(hash(n)), expected, "entry {n}");
    }
}

#[test]
fn a_rank_stays_through_rebuilds_and_goes_with_its_value() {
    let mut table = table(DirectConfig {
        rank_bits: 3,
        ..config(40_000, 8)
    });
    let rank = |n: u64| (n % 9) as u8;
    for n in 0..40_000 {
        table.insert(hash(n), n).unwrap();
        let before = table.promote(hash(n), |entry| {
            assert_eq!(*entry, fresh(n));
            rank(n)
        });
        assert_eq!(before, Some(fresh(n)));
    }
    for n in (0..40_000).filter(|n| n % 16 != 0) {
        table.remove(hash(n));
    }
    check(&table);
    for n in (0..40_000).step_by(16) {
        let rank = rank(n).min(7);
        assert_eq!(table.lookup(hash(n)), Some(Entry { value: n, rank }));
    }
    assert_eq!(table.access(hash(16)).map(|entry| entry.rank), Some(7));
    assert!(table.replace_if(hash(16), 16, 17), "moved");
    assert_eq!(table.lookup(hash(16)), Some(fresh(17)));
    table.access(hash(16));
    assert_eq!(table.lookup(hash(16)).map(|entry| entry.rank), Some(7));
    assert_eq!(table.insert(hash(16), 18), Ok(Some(17)), "overwritten");
    assert_eq!(table.lookup(hash(16)), Some(fresh(18)));
    assert_eq!(table.promote(hash(17), |_| 1), None, "not there");
}

#[test]
fn a_rank_of_one_bit_takes_nothing_from_the_tag_and_more_bits_do() {
    let bits = |rank_bits| {
        let config = DirectConfig {
            rank_bits,
            ..config(3_000_000, 64)
        };
        config.fingerprint_bits()
    };
    assert_eq!([1, 2, 3].map(bits), [46, 45, 44].map(Ok));
}

#[test]
fn reserved_room_is_not_grown_into_again() {
    let mut table = table(config(100_000, 64));
    (0..1000).for_each(|n| assert_eq!(table.insert(hash(n), n), Ok(None)));
    table.reserve(100_000);
    check(&table);
    let reserved = table.memory_bytes();
    table.reserve(90_000);
    assert_eq!(table.memory_bytes(), reserved, "never shrinks");
    table.sweep(Hand::default(), table.buckets(), |_, _, _| Sweep::Keep);
    assert_eq!(table.memory_bytes(), reserved, "nothing was taken");
    table.warm((0..200_000).map(hash));
    (1000..95_000).for_each(|n| assert_eq!(table.insert(hash(n), n), Ok(None)));
    // A sub-table above its share may grow once more.
    assert!(table.memory_bytes() < reserved + reserved / 8);
    assert!((0..95_000).all(|n| table.lookup(hash(n)).map(|found| found.value) == Some(n)));
    let mut bounded = self::table(config(100_000, 64));
    bounded.set_max_bytes(bounded.memory_bytes());
    bounded.reserve(100_000);
    assert!(bounded.memory_bytes() < reserved / 2, "stays in its bound");
}

/// At every number of entries past 100,000, up and down: 8.9 to 11 bytes per entry.
#[test]
fn bytes_per_entry_stay_within_bounds() {
    let count = 600_000;
    let mut table = table(config(count, 64));
    assert!(table.memory_bytes() <= 1 << 20);
    let per_entry = |table: &DirectTable| table.memory_bytes() as f64 / table.len() as f64;
    let mut highest: f64 = 0.0;
    for n in 0..count {
        table.insert(hash(n), n).unwrap();
        if table.len() > 100_000 {
            highest = highest.max(per_entry(&table));
        }
    }
    assert!(highest < 10.2, "{highest} bytes per entry while growing");
    assert!(
        (0.80..0.90).contains(&table.load()),
        "load {}",
        table.load()
    );
    let mut highest_down: f64 = 0.0;
    for n in 0..count - 100_000 {
        table.remove(hash(n));
        highest_down = highest_down.max(per_entry(&table));
    }
    assert!(
        highest_down < 11.0,
        "{highest_down} bytes per entry while shrinking"
    );
}

/// Hundreds of sub-tables fill at the same pace; their phases keep the table's load steady.
#[test]
fn load_is_steady_and_displacements_short() {
    let mut table = table(config(1_000_000, 8));
    let (mut lowest, mut highest) = (1.0f64, 0.0f64);
    for n in 0..700_000u64 {
        table.insert(hash(n), 0).unwrap();
        if n > 200_000 {
            lowest = lowest.min(table.load());
            highest = highest.max(table.load());
        }
    }
    assert!(
        lowest > 0.82 && highest < 0.88,
        "load from {lowest} to {highest}"
    );
    let within = |limit| {
        let near = displacements(&table).filter(|(d, _)| *d <= limit);
        near.count() as f64 / table.len() as f64
    };
    let (at_home, near) = (within(0), within(1));
    assert!(at_home > 0.75, "only {at_home} of the entries lie at home");
    assert!(
        near > 0.95,
        "only {near} of the entries lie at home or next to it"
    );
}

#[test]
fn entries_that_wrap_around_survive_removal_and_growth() {
    let mut table = table(config(0, 8));
    // All in the last bucket's range: 8 fit there, the others go around.
    let at_end = |n: u64| u64::MAX << 61 | n << 30;
    for n in 0..40 {
        table.insert(at_end(n), n).unwrap();
    }
    assert!(
        displacements(&table).any(|(_, wrapped)| wrapped),
        "nothing wrapped"
    );
    check(&table);
    for n in (0..40).step_by(3) {
        assert_eq!(table.remove(at_end(n)), Some(n));
        check(&table);
    }
    // Growth by entries elsewhere moves the wrapped ones.
    let before = table.memory_bytes();
    for n in 0..100 {
        table.insert(n << 56 | 1 << 55, 1000 + n).unwrap();
        check(&table);
    }
    assert!(table.memory_bytes() > before);
    for n in 0..40 {
        let expected = (n % 3 != 0).then_some(n);
        assert_eq!(table.lookup(at_end(n)).map(|entry| entry.value), expected);
    }
}

#[test]
fn a_sweep_visits_what_wraps_around_with_its_home() {
    let mut table = table(config(0, 8));
    let at_end = |n: u64| u64::MAX << 61 | n << 30;
    for n in 0..40 {
        table.insert(at_end(n), n).unwrap();
    }
    table.insert(0, 40).unwrap();
    let mut visited = Vec::new();
    let last = table.sweep(Hand::default(), 7, |_, _, entry| {
        visited.push(entry.value);
        Sweep::Keep
    });
    assert_eq!(visited, [40], "the first bucket's own");
    visited.clear();
    let first = table.sweep(last, 1, |_, prefix, entry| {
        assert_eq!(prefix, at_end(entry.value));
        visited.push(entry.value);
        if entry.value % 3 == 0 {
            Sweep::Take
        } else {
            Sweep::Keep
        }
    });
    assert_eq!(first, Hand::default());
    visited.sort_unstable();
    assert!(visited.into_iter().eq(0..40));
    check(&table);
    for n in 0..40 {
        let expected = (n % 3 != 0).then_some(fresh(n));
        assert_eq!(table.lookup(at_end(n)), expected);
    }
    assert_eq!(table.lookup(0), Some(fresh(40)));
}

/// CLOCK: an entry read since the hand last passed stays for another round.
#[test]
fn a_second_round_takes_what_is_not_read_again() {
    let mut table = table(config(0, 8));
    (0..1000).for_each(|n| assert_eq!(table.insert(hash(n), n), Ok(None)));
    let round = |table: &mut DirectTable, read: u64| {
        (0..read).for_each(|n| assert!(table.access(hash(n)).is_some()));
        let mut taken = Vec::new();
        table.sweep(Hand::default(), table.buckets(), |_, _, entry| {
            if entry.is_recent() {
                return Sweep::Clear;
            }
            taken.push(entry.value);
            Sweep::Take
        });
        check(table);
        taken.sort_unstable();
        taken
    };
    assert!(round(&mut table, 600).into_iter().eq(600..1000));
    assert!(round(&mut table, 200).into_iter().eq(200..600));
    assert_eq!(table.len(), 200);
    assert!((0..200).all(|n| table.lookup(hash(n)) == Some(fresh(n))));
}

#[test]
fn a_sweep_that_takes_gives_memory_back() {
    let count = 40_000;
    let (mut swept, mut removed) = (table(config(count, 8)), table(config(count, 8)));
    for n in 0..count {
        swept.insert(hash(n), n).unwrap();
        removed.insert(hash(n), n).unwrap();
    }
    let full_bytes = swept.memory_bytes();
    let mut hand = Hand::default();
    let mut taken = 0;
    // Parts end in the middle of sub-tables, which then shrink.
    for _ in 0..swept.buckets().div_ceil(100) {
        hand = swept.sweep(hand, 100, |_, _, entry| {
            if entry.value % 16 == 0 {
                return Sweep::Keep;
            }
            taken += 1;
            assert_eq!(removed.remove(hash(entry.value)), Some(entry.value));
            Sweep::Take
        });
        check(&swept);
    }
    assert_eq!(taken, count - count / 16);
    assert!(swept.memory_bytes() < full_bytes / 12);
    assert!(
        swept.memory_bytes() <= removed.memory_bytes(),
        "as removal does"
    );
    for n in 0..count {
        assert_eq!(swept.lookup(hash(n)), removed.lookup(hash(n)), "entry {n}");
    }
}

#[test]
fn a_hand_stays_where_it_is_when_the_table_grows_and_shrinks() {
    let mut table = table(config(40_000, 8));
    (0..2000).for_each(|n| assert_eq!(table.insert(hash(n), n), Ok(None)));
    let mut visited = std::collections::HashSet::new();
    let half = table.buckets() / 2;
    let mut visit = |table: &mut DirectTable, hand, buckets| {
        table.sweep(hand, buckets, |_, _, entry| {
            visited.insert(entry.value);
            Sweep::Keep
        })
    };
    let middle = visit(&mut table, Hand::default(), half);
    assert_eq!(visit(&mut table, middle, 0), middle, "no buckets, no way");
    (2000..20_000).for_each(|n| assert_eq!(table.insert(hash(n), n), Ok(None)));
    let mut hand = middle;
    for step in 0..8 {
        let part = table.buckets() / 32;
        hand = visit(&mut table, hand, part);
        assert!(hand.next > middle.next, "step {step}");
        for n in 0..1000 {
            table.remove(hash(20_000 - step * 1000 - n));
        }
    }
    let comes_around = (0..table.buckets()).any(|_| {
        hand = visit(&mut table, hand, 1);
        hand == Hand::default()
    });
    assert!(comes_around);
    check(&table);
    assert!((0..2000).all(|n| visited.contains(&n)));
}

#[test]
fn hostile_hashes_do_not_take_memory() {
    let mut table = table(config(0, 64));
    let empty = table.memory_bytes();
    // The bound is not the reason for the refusals; it keeps a broken table from taking all memory.
    table.set_max_bytes(16 * empty);
    for n in 0..10_000u64 {
        let expected = if n < 64 { Ok(None) } else { Err(Full::Crowded) };
        assert_eq!(table.insert(n << 26, n), expected, "hash {n}");
    }
    assert_eq!(table.memory_bytes(), empty);
    check(&table);
    // The accepted entries are found, and other hashes still find room.
    assert_eq!(table.lookup(0).unwrap().value, 0);
    table.insert(hash(1), 1).unwrap();
    assert_eq!(table.lookup(hash(1)).unwrap().value, 1);
}

#[test]
fn full_changes_nothing_and_a_raised_bound_helps() {
    let mut table = table(config(40_000, 8));
    let bound = table.memory_bytes() + 20_000;
    table.set_max_bytes(bound);
    let mut inserted = Vec::new();
    let mut refused = None;
    for n in 0..10_000 {
        let bytes = table.memory_bytes();
        match table.insert(hash(n), n) {
            Ok(_) => inserted.push(n),
            Err(full) => {
                let Full::Memory { needed, max_bytes } = full else {
                    panic!("{full}")
                };
                assert!(needed > max_bytes && max_bytes == bound);
                assert_eq!((table.len(), table.memory_bytes()), (inserted.len(), bytes));
                assert_eq!(table.lookup(hash(n)), None);
                refused.get_or_insert(n);
            }
        }
        assert!(table.memory_bytes() <= bound);
    }
    check(&table);
    let refused = refused.expect("the bound is never reached");
    for &n in &inserted {
        let replaced = table.insert(hash(n), n + 1);
        assert_eq!(replaced, Ok(Some(n)), "replacing needs no room");
    }
    table.set_max_bytes(u64::MAX);
    assert_eq!(table.insert(hash(refused), refused), Ok(None));
}

#[test]
fn checkpoint_restores_every_entry() {
    let config = DirectConfig {
        skip_bits: 4,
        ..config(50_000, 16)
    };
    let mut original = table(config);
    for n in 0..30_000 {
        original.insert(hash(n), n).unwrap();
        if n % 5 == 0 {
            original.access(hash(n));
        }
    }
    let mut checkpoint = Vec::new();
    original.for_each(|prefix, entry| checkpoint.push((prefix, entry)));
    assert!(
        checkpoint.iter().all(|(prefix, _)| prefix >> 60 == 0),
        "partition bits set"
    );
    let mut restored = table(config);
    for &(prefix, entry) in &checkpoint {
        assert_eq!(restored.insert(prefix, entry.value), Ok(None));
        if entry.is_recent() {
            restored.access(prefix);
        }
    }
    check(&restored);
    for n in 0..40_000 {
        assert_eq!(restored.lookup(hash(n)), original.lookup(hash(n)));
    }
}

#[test]
fn fingerprints_decide_what_is_the_same_key() {
    let config = config(3_000_000, 64);
    assert_eq!(config.fingerprint_bits(), Ok(8 + 6 + 32));
    let mut table = table(config);
    let last_bit = 1u64 << (64 - 46);
    table.insert(0, 1).unwrap();
    let within = table.insert(last_bit, 2);
    assert_eq!(within, Ok(None), "differs within the fingerprint");
    let below = table.insert(last_bit - 1, 3);
    assert_eq!(below, Ok(Some(1)), "differs below it");
    assert_eq!(table.len(), 2);
}

#[test]
fn extreme_values_and_the_zero_hash_are_entries() {
    for value_bits in [1, 2, 28, 39, VALUE_BITS_HIGHEST] {
        let config = DirectConfig {
            value_bits,
            ..config(0, 8)
        };
        let mut table = table(config);
        for value in [0, (1 << value_bits) - 2] {
            table.insert(0, value).unwrap();
            table.insert(u64::MAX, value).unwrap();
            let found = [0, u64::MAX].map(|hash| table.lookup(hash));
            assert_eq!(found, [Some(fresh(value)); 2]);
        }
        assert_eq!(table.len(), 2);
    }
}

#[test]
#[should_panic(expected = "wider than configured")]
fn a_value_too_wide_is_a_programmers_error() {
    let _ = table(config(0, 8)).insert(1, (1 << VALUE_BITS) - 1);
}

#[test]
fn wrong_configurations_are_refused() {
    let valid = config(1000, 8);
    let error = |change: &dyn Fn(&mut DirectConfig)| {
        let mut config = valid;
        change(&mut config);
        DirectTable::new(config, Arc::default()).err()
    };
    for value_bits in [0, VALUE_BITS_HIGHEST + 1, u32::MAX] {
        let expected = ConfigError::ValueBits { value_bits };
        assert_eq!(error(&|to| to.value_bits = value_bits), Some(expected));
    }
    for rank_bits in [0, RANK_BITS_HIGHEST + 1, u32::MAX] {
        let expected = ConfigError::RankBits { rank_bits };
        assert_eq!(error(&|to| to.rank_bits = rank_bits), Some(expected));
    }
    for min_buckets in [0, 4, 12, 2 * MIN_BUCKETS_HIGHEST] {
        let expected = ConfigError::MinBuckets { min_buckets };
        assert_eq!(error(&|to| to.min_buckets = min_buckets), Some(expected));
    }
    for (skip_bits, hint) in [(50, 0), (u32::MAX, 0), (0, u64::MAX)] {
        let refused = error(&|to| (to.skip_bits, to.max_entries_hint) = (skip_bits, hint));
        assert!(
            matches!(refused, Some(ConfigError::HashBits { .. })),
            "{skip_bits} {hint}"
        );
    }
    assert_eq!(error(&|_| ()), None);
}

#[test]
fn tables_cross_threads() {
    fn assert_send_sync<T: Send + Sync>() {}
    assert_send_sync::<DirectTable>();
}
