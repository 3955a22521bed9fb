//! Admission with ghosts: items that come back go to flash, and no older value ever comes back.

use std::sync::Arc;

use flowstone_engine::{AdmissionKind, AdmitGhosts, AdmitRandom};

use crate::filter::{VALUE_BYTES, filter, nothing_older_comes_back};
use crate::support::{for_each_seed, memory_disk, set, simulate, start, value};

#[test]
fn one_that_comes_back_is_admitted_and_a_stranger_is_not() {
    simulate(4, async {
        let config = filter(Arc::new(AdmitGhosts { reads: 2 }));
        let engine = start(&memory_disk(65 << 20), &config).await;
        let name = |number: u64| format!("key{number}").into_bytes();
        for number in 0..30_000 {
            set(&engine, &name(number), &value(1, VALUE_BYTES))
                .await
                .unwrap();
        }
        let stats = engine.stats();
        assert_eq!(stats.tier.demotions, 0, "nobody has come back");
        for number in 25_000..50_000 {
            // Every second item is known.
            let number = if number % 2 == 0 {
                number - 15_000
            } else {
                number + 100_000
            };
            set(&engine, &name(number), &value(2, VALUE_BYTES))
                .await
                .unwrap();
        }
        let stats = engine.stats();
        assert!(stats.admission.remembered > 5000, "{:?}", stats.admission);
        assert_eq!(stats.admission.remembered, stats.admission.admitted);
        assert_eq!(stats.tier.demotions, stats.admission.admitted);
    });
}

/// With any admission, a get finds the newest value or none, across stops and starts.
#[test]
fn nothing_older_comes_back_whatever_is_admitted() {
    for_each_seed("nothing_older", 4, |seed| {
        let admission: [Arc<dyn AdmissionKind>; 2] = [
            Arc::new(AdmitGhosts { reads: 1 }),
            Arc::new(AdmitRandom { per_mille: 500 }),
        ];
        let admission = Arc::clone(&admission[seed as usize % 2]);
        nothing_older_comes_back(seed, &filter(admission));
    });
}
