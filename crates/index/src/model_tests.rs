//! The table against a plain map, under random operations.
//!
//! The model knows nothing of buckets: it keys a `HashMap` by the top bits of the hash. Tables
//! are tiny, so that entries wrap around, windows fill up, and sub-tables grow and shrink.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::tests::{VALUE_BITS, config, fresh, hash, table};
use crate::*;

/// What the table should be.
struct Model {
    entries: HashMap<u64, Entry>,
    skip_bits: u32,
    fingerprint_bits: u32,
}

impl Model {
    fn new(config: DirectConfig) -> Self {
        Model {
            entries: HashMap::new(),
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
    RemoveMany(u64),
}

/// Hashes from a small universe, part of it crowded at the end of a sub-table (so that entries
/// wrap) or around one place (so that windows fill), some differing only below the fingerprint.
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
        20 => any_hash().prop_map(Operation::Access),
        1 => (1..5u64).prop_map(Operation::RemoveMany),
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
            entry.into_iter().for_each(|entry| entry.recent = true);
        }
        Operation::RemoveMany(keep_one_in) => {
            let mut prefixes = Vec::new();
            table.for_each(|prefix, _, _| prefixes.push(prefix));
            prefixes.retain(|prefix| !hash(*prefix).is_multiple_of(keep_one_in + 1));
            for prefix in prefixes {
                assert!(table.remove(prefix).is_some());
                model.entries.remove(&model.fingerprint(prefix));
            }
        }
    }
}

fn assert_same(table: &DirectTable, model: &Model) {
    table.check();
    assert_eq!(table.len(), model.entries.len());
    let mut visited = HashMap::new();
    table.for_each(|prefix, value, recent| {
        assert_eq!(model.prefix(prefix), prefix, "bits beyond the fingerprint");
        let entry = Entry { value, recent };
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
        operations in prop::collection::vec(any_operation(), 1..3000),
    ) {
        let config = DirectConfig { skip_bits, ..config(hint, min_buckets) };
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

    #[test]
    fn positions_come_back_from_bucket_and_tag(
        value_bits in 1..=VALUE_BITS_HIGHEST,
        skip_bits in 0..20u32,
        hint in 0..10_000_000u64,
        min_log in 3..8u32,
        hashes in prop::collection::vec(any::<u64>(), 1..200),
    ) {
        let config = DirectConfig {
            value_bits, skip_bits, max_entries_hint: hint, min_buckets: 1 << min_log,
        };
        prop_assume!(config.fingerprint_bits().is_ok());
        let mut table = table(config);
        let model = Model::new(config);
        for hash in hashes {
            table.insert(hash, (1 << value_bits) - 2).unwrap();
            let mut restored = false;
            table.for_each(|prefix, _, _| restored |= prefix == model.prefix(hash));
            prop_assert!(restored);
            table.remove(hash);
        }
    }
}
