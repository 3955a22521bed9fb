//! The table against a plain map, under random operations.
//!
//! The model knows nothing of buckets: it keys a `HashMap` by the top bits of the hash. Tables
//! are tiny, so that entries wrap around, windows fill up, and sub-tables grow and shrink.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use crate::tests::{VALUE_BITS, check, config, fresh, hash, table};
use crate::*;

/// The expected content of the table.
struct Model {
    entries: HashMap<u64, Entry>,
    hand: Hand,
    highest_rank: u8,
    skip_bits: u32,
    fingerprint_bits: u32,
}

impl Model {
    fn new(config: DirectConfig) -> Self {
        Model {
            entries: HashMap::new(),
            hand: Hand::default(),
            highest_rank: (1 << config.rank_bits) - 1,
            skip_bits: config.skip_bits,
            fingerprint_bits: config.fingerprint_bits().unwrap() - config.skip_bits,
        }
    }

    fn fingerprint(&self, hash: u64) -> u64 {
        (hash << self.skip_bits) >> (64 - self.fingerprint_bits)
    }

    fn prefix(&self, hash: u64) -> u64 {
        (self.fingerprint(hash) << (64 - self.fingerprint_bits)) >> self.skip_bits
    }

    fn entry(&self, hash: u64) -> Option<Entry> {
        self.entries.get(&self.fingerprint(hash)).copied()
    }

    fn holds(&self, hash: u64, value: u64) -> bool {
        self.entry(hash).is_some_and(|entry| entry.value == value)
    }
}

#[derive(Clone, Debug)]
enum Operation {
    Insert(u64, u64),
    Remove(u64),
    RemoveIf(u64, u64),
    ReplaceIf(u64, u64, u64),
    Access(u64),
    Promote(u64, u8),
    RemoveMany(u64),
    Sweep(Option<usize>, Verdicts),
}

/// Verdicts of a sweep: in eighths, the share of entries to take and the share to clear.
#[derive(Clone, Debug)]
struct Verdicts {
    taken: u64,
    cleared: u64,
    seed: u64,
}

impl Verdicts {
    const KEEP: Self = Verdicts {
        taken: 0,
        cleared: 0,
        seed: 0,
    };

    fn of(&self, prefix: u64) -> Sweep {
        match hash(prefix ^ self.seed) >> 61 {
            eighth if eighth < self.taken => Sweep::Take,
            eighth if eighth < self.taken + self.cleared => Sweep::Clear,
            _ => Sweep::Keep,
        }
    }
}

fn any_verdicts() -> impl Strategy<Value = Verdicts> {
    // Mostly few, so that tables grow.
    let taken = prop_oneof![6 => Just(0u64), 3 => 1..4u64, 1 => 7..9u64];
    (taken, 0..5u64, any::<u64>()).prop_map(|(taken, cleared, seed)| Verdicts {
        taken,
        cleared,
        seed,
    })
}

/// Hashes from a small universe. Some crowd the end of a sub-table (so that entries wrap) or one place (so that windows
/// fill), some differ only below the fingerprint.
fn any_hash() -> impl Strategy<Value = u64> {
    prop_oneof![
        8 => (0..1200u64).prop_map(hash),
        2 => (0..60u64).prop_map(|n| u64::MAX << 58 | hash(n) >> 6),
        2 => (0..60u64).prop_map(|n| 0x5555 << 48 | hash(n) >> 16),
        1 => (0..40u64, 0..3u64).prop_map(|(n, low)| hash(n) & !3 | low),
        1 => Just(0),
    ]
}

fn any_operation() -> impl Strategy<Value = Operation> {
    // Few values, so that the conditions of the `_if` operations hold often.
    let value = || prop_oneof![0..3u64, Just((1 << VALUE_BITS) - 2)];
    prop_oneof![
        60 => (any_hash(), value()).prop_map(|(h, v)| Operation::Insert(h, v)),
        20 => any_hash().prop_map(Operation::Remove),
        6 => (any_hash(), value()).prop_map(|(h, v)| Operation::RemoveIf(h, v)),
        6 => (any_hash(), value(), value()).prop_map(|(h, v, w)| Operation::ReplaceIf(h, v, w)),
        10 => any_hash().prop_map(Operation::Access),
        10 => (any_hash(), 0..9u8).prop_map(|(h, rank)| Operation::Promote(h, rank)),
        1 => (1..5u64).prop_map(Operation::RemoveMany),
        2 => (0..20usize, any_verdicts())
            .prop_map(|(buckets, verdicts)| Operation::Sweep(Some(buckets), verdicts)),
        1 => any_verdicts().prop_map(|verdicts| Operation::Sweep(None, verdicts)),
    ]
}

fn apply(table: &mut DirectTable, model: &mut Model, operation: Operation) {
    let len = table.len();
    match operation {
        Operation::Insert(hash, value) => {
            let before = model.entry(hash);
            match table.insert(hash, value) {
                Ok(replaced) => {
                    assert_eq!(replaced, before.map(|entry| entry.value));
                    model.entries.insert(model.fingerprint(hash), fresh(value));
                }
                Err(refused) => {
                    assert_eq!(refused, Full::Crowded, "there is no memory bound");
                    assert_eq!((before, table.len()), (None, len));
                }
            }
        }
        Operation::Remove(hash) => {
            let before = model.entries.remove(&model.fingerprint(hash));
            assert_eq!(table.remove(hash), before.map(|entry| entry.value));
        }
        Operation::RemoveIf(hash, value) => {
            let holds = model.holds(hash, value);
            assert_eq!(table.remove_if(hash, value), holds);
            if holds {
                model.entries.remove(&model.fingerprint(hash));
            }
        }
        Operation::ReplaceIf(hash, old, new) => {
            let holds = model.holds(hash, old);
            assert_eq!(table.replace_if(hash, old, new), holds);
            if holds {
                model.entries.insert(model.fingerprint(hash), fresh(new));
            }
        }
        Operation::Access(hash) => {
            let entry = model.entries.get_mut(&model.fingerprint(hash));
            assert_eq!(table.access(hash), entry.as_deref().copied());
            let highest = model.highest_rank;
            entry.into_iter().for_each(|entry| entry.rank = highest);
        }
        Operation::Promote(hash, rank) => {
            let entry = model.entries.get_mut(&model.fingerprint(hash));
            let promoted = table.promote(hash, |found| {
                assert_eq!(Some(found), entry.as_deref());
                rank
            });
            assert_eq!(promoted, entry.as_deref().copied());
            let rank = rank.min(model.highest_rank);
            entry.into_iter().for_each(|entry| entry.rank = rank);
        }
        Operation::RemoveMany(keep_one_in) => {
            let mut prefixes = Vec::new();
            table.for_each(|prefix, _| prefixes.push(prefix));
            prefixes.retain(|prefix| !hash(*prefix).is_multiple_of(keep_one_in + 1));
            for prefix in prefixes {
                assert!(table.remove(prefix).is_some());
                model.entries.remove(&model.fingerprint(prefix));
            }
        }
        Operation::Sweep(buckets, verdicts) => {
            let visited = sweep(table, model, buckets, &verdicts);
            let mut stay = model.entries.keys();
            assert!(buckets.is_some() || stay.all(|fingerprint| visited.contains(fingerprint)));
            assert_eq!(table.len(), model.entries.len());
        }
    }
}

/// Sweeps a number of buckets, or a full round. Returns the fingerprints visited.
fn sweep(
    table: &mut DirectTable,
    model: &mut Model,
    buckets: Option<usize>,
    verdicts: &Verdicts,
) -> HashSet<u64> {
    let mut visited = HashSet::new();
    let buckets = buckets.unwrap_or(table.buckets());
    let hand = table.sweep(model.hand, buckets, |_, prefix, entry| {
        assert_eq!(model.prefix(prefix), prefix, "bits beyond the fingerprint");
        let fingerprint = model.fingerprint(prefix);
        assert_eq!(model.entries.get(&fingerprint), Some(&entry));
        visited.insert(fingerprint);
        let verdict = verdicts.of(prefix);
        match verdict {
            Sweep::Keep => {}
            Sweep::Clear => drop(model.entries.insert(fingerprint, fresh(entry.value))),
            Sweep::Take => drop(model.entries.remove(&fingerprint)),
        }
        verdict
    });
    model.hand = hand;
    visited
}

fn assert_same(table: &DirectTable, model: &Model) {
    check(table);
    assert_eq!(table.len(), model.entries.len());
    let mut visited = HashMap::new();
    table.for_each(|prefix, entry| {
        assert_eq!(model.prefix(prefix), prefix, "bits beyond the fingerprint");
        assert_eq!(table.lookup(prefix), Some(entry));
        assert_eq!(visited.insert(model.fingerprint(prefix), entry), None);
    });
    assert_eq!(visited, model.entries);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_a_map_keyed_by_fingerprint(
        min_buckets in prop_oneof![Just(8u32), Just(16u32)],
        hint in prop_oneof![Just(0u64), Just(60_000u64)],
        skip_bits in 0..3u32,
        rank_bits in 1..=RANK_BITS_HIGHEST,
        operations in prop::collection::vec(any_operation(), 1..3000),
    ) {
        let config = DirectConfig { skip_bits, rank_bits, ..config(hint, min_buckets) };
        let mut table = table(config);
        let mut model = Model::new(config);
        for (step, operation) in operations.into_iter().enumerate() {
            let probed = match &operation {
                Operation::Insert(hash, _) | Operation::Remove(hash) => Some(*hash),
                _ => None,
            };
            apply(&mut table, &mut model, operation);
            if let Some(hash) = probed {
                prop_assert_eq!(table.lookup(hash), model.entry(hash));
            }
            if step % 128 == 0 {
                assert_same(&table, &model);
            }
        }
        assert_same(&table, &model);
    }

    /// Operations between the parts of every round rebuild the sub-table under the hand.
    #[test]
    fn a_round_in_parts_skips_nothing_that_stays(
        min_buckets in prop_oneof![Just(8u32), Just(16u32)],
        hint in prop_oneof![Just(0u64), Just(60_000u64)],
        skip_bits in 0..3u32,
        operations in prop::collection::vec(
            (any_operation(), prop_oneof![9 => Just(Verdicts::KEEP), 1 => any_verdicts()]),
            1..3000,
        ),
    ) {
        let config = DirectConfig { skip_bits, ..config(hint, min_buckets) };
        let mut table = table(config);
        let mut model = Model::new(config);
        let mut waiting = HashSet::new();
        for (operation, verdicts) in operations {
            if matches!(operation, Operation::Sweep(..)) {
                continue;
            }
            apply(&mut table, &mut model, operation);
            waiting.retain(|fingerprint| model.entries.contains_key(fingerprint));
            for visited in sweep(&mut table, &mut model, Some(1), &verdicts) {
                waiting.remove(&visited);
            }
            if model.hand == Hand::default() {
                prop_assert!(waiting.is_empty(), "{} skipped", waiting.len());
                waiting = model.entries.keys().copied().collect();
            }
        }
    }

    #[test]
    fn positions_come_back_from_bucket_and_tag(
        value_bits in 1..=VALUE_BITS_HIGHEST,
        rank_bits in 1..=RANK_BITS_HIGHEST,
        skip_bits in 0..20u32,
        hint in 0..10_000_000u64,
        min_log in 3..8u32,
        hashes in prop::collection::vec(any::<u64>(), 1..50),
    ) {
        let config = DirectConfig {
            value_bits, rank_bits, skip_bits, max_entries_hint: hint, min_buckets: 1 << min_log,
        };
        prop_assume!(config.fingerprint_bits().is_ok());
        let mut table = table(config);
        let model = Model::new(config);
        for hash in hashes {
            table.insert(hash, (1 << value_bits) - 2).unwrap();
            let mut restored = false;
            table.for_each(|prefix, _| restored |= prefix == model.prefix(hash));
            prop_assert!(restored);
            table.remove(hash);
        }
    }
}
