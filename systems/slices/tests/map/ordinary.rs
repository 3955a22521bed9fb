//! A map's answers while nothing fails.

use std::collections::HashMap;

use flowstone_slices::{MapSettings, SliceError, SliceMap};
use proptest::prelude::*;
use runtime::sim::Sim;

use crate::common::structure::{check_all, fill};
use crate::life::{Hardware, key, number, short_ring, small, value, with};

#[derive(Clone, Debug)]
enum Step {
    Insert(u64, u64),
    Delete(u64),
    Get(u64),
    Sync,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        12 => (0_u64..150, any::<u64>()).prop_map(|(key, value)| Step::Insert(key, value)),
        3 => (0_u64..150).prop_map(Step::Delete),
        6 => (0_u64..150).prop_map(Step::Get),
        1 => Just(Step::Sync),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 0..500)
}

async fn check(map: &SliceMap, model: &HashMap<u64, u64>, may_go: bool) {
    for of in 0..150 {
        let found = number(map.get(&key(of)).await.expect("drives work"));
        let expected = model.get(&of).copied();
        assert!(found == expected || may_go && found.is_none(), "key {of}");
    }
}

async fn a_map(settings: &MapSettings, drives: usize, steps: Vec<Step>, may_go: bool) {
    let hardware = Hardware::new(settings, drives, 1);
    let mut map = hardware.create(settings).await.expect("drives work");
    let mut model = HashMap::new();
    for step in steps {
        match step {
            Step::Insert(of, to) => {
                let inserted = map.insert(&key(of), &value(to)).await;
                inserted.expect("drives work");
                model.insert(of, to);
            }
            Step::Delete(of) => {
                map.delete(&key(of)).await.expect("drives work");
                model.remove(&of);
            }
            Step::Get(of) => {
                let found = number(map.get(&key(of)).await.expect("drives work"));
                let expected = model.get(&of).copied();
                assert!(found == expected || may_go && found.is_none(), "key {of}");
            }
            Step::Sync => map.sync().await.expect("drives work"),
            Step::Reopen => {
                map.close().await.expect("drives work");
                map = hardware.open(settings).await.expect("drives work");
            }
        }
    }
    check(&map, &model, may_go).await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_slice_map_is_a_map(steps in steps(), drives in 1_usize..3) {
        Sim::new(1).block_on(a_map(&small(40), drives, steps.clone(), false));
        Sim::new(1).block_on(a_map(&short_ring(), drives, steps, true));
    }
}

#[test]
fn records_and_keys_have_the_lengths_that_they_may_have() {
    let settings = small(8);
    with(&settings, 1, async |map, _| {
        let most = map.shape().records.most_bytes();
        for (key, value) in [(0, 0), (0, 5), (9, 0), (1, most - 1), (most, 0)] {
            let (key, value) = (vec![7; key], vec![8; value]);
            map.insert(&key, &value).await.expect("it may");
            let found = map.get(&key).await.expect("drives work");
            assert_eq!(found.as_ref(), Some(&value));
            map.sync().await.expect("drives work");
            assert_eq!(map.get(&key).await.expect("drives work"), Some(value));
        }
        for (key, value) in [(1, most), (most + 1, 0), (70_000, 0)] {
            let refused = map.insert(&vec![7; key], &vec![8; value]).await;
            assert!(matches!(refused, Err(SliceError::LongRecord { .. })));
        }
        let found = map.get(&[7; 1]).await.expect("drives work");
        assert_eq!(found.map(|of| of.len()), Some(most - 1));
        map.delete(&[7; 1]).await.expect("drives work");
        assert_eq!(map.get(&[7; 1]).await.expect("drives work"), None);
    });
}

/// Records are written once, in whole pages, and the oldest are overwritten.
#[test]
fn the_oldest_records_are_written_over() {
    let settings = short_ring();
    with(&settings, 1, async |map, _| {
        let shape = map.shape().records;
        let ring = shape.segments * u64::from(shape.segment_bytes);
        let mut bytes = 0;
        let mut keys = 0;
        while bytes < 3 * ring {
            fill(&map, [keys]).await;
            bytes += (24 + key(keys).len() + value(keys).len()) as u64;
            keys += 1;
        }
        map.sync().await.expect("drives work");
        let written = map.stats().record_bytes;
        assert!(written < bytes + bytes / 10, "{written} bytes for {bytes}");
        let mut there = Vec::new();
        for of in 0..keys {
            if number(map.get(&key(of)).await.expect("drives work")).is_some() {
                there.push(of);
            }
        }
        let newest = there.len() as u64;
        assert!(
            there.iter().copied().eq(keys - newest..keys),
            "the oldest are gone"
        );
        let share = newest as f64 / (keys as f64 / 3.0);
        assert!((0.7..1.05).contains(&share), "{share} of a round");
        let stats = map.stats();
        assert!(stats.overwritten > 0 && stats.found == newest);
    });
}

/// A look-up of a key in the table reads one page of the table and the pages of the record.
#[test]
fn a_look_up_reads_the_table_and_the_record() {
    let settings = small(8);
    with(&settings, 1, async |map, hardware| {
        fill(&map, 0..250).await;
        map.close().await.expect("drives work");
        let map = hardware.open(&settings).await.expect("drives work");
        check_all(&map, 0..250, "opened").await;
        let stats = map.stats();
        assert_eq!((stats.found, stats.record_reads), (250, 250));
        let all: Vec<_> = (0..300).map(key).collect();
        let found = map.get_all(all.iter().map(Vec::as_slice)).await;
        let there = found.iter().filter(|found| matches!(found, Ok(Some(_))));
        assert_eq!(there.count(), 250);
    });
}
