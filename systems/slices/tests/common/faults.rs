//! Drives and a log that fail, for every structure.

use std::time::Duration;

use device::{Fault, Operation};
use flowstone_slices::SliceError;

use super::hardware::{opened, used, used_without_power, with, with_seed};
use super::structure::{Settings, Structure, changed, check_all, fill, fill_again, missing};

/// Inserts items until 20 are refused, and the others after the drive works again.
pub(crate) fn writes_that_fail_are_said_and_tried_again<T: Settings>(settings: &T, numbers: u64) {
    for operation in [Operation::Write, Operation::Sync] {
        for flushes in [true, false] {
            with(settings, 1, async |structure, hardware| {
                hardware.every(operation, Fault::Error);
                let (mut refused, mut kept, mut next) = (Vec::new(), Vec::new(), 0);
                while refused.len() < 20 {
                    match structure.put(next).await {
                        Ok(item) => kept.push(item),
                        Err(SliceError::Device { drive: 0, .. }) => {
                            refused.push(next);
                            runtime::sleep(Duration::from_millis(20)).await;
                        }
                        Err(other) => panic!("{other}"),
                    }
                    next += 1;
                    assert!(next < numbers, "memory is bounded");
                }
                assert!(structure.flush().await.is_err());
                hardware.disks[0].heal();
                if flushes {
                    while structure.flush().await.is_err() {
                        runtime::sleep(Duration::from_millis(1)).await;
                    }
                    kept.extend(fill(&structure, refused.into_iter().chain(next..numbers)).await);
                } else {
                    let numbers = refused.into_iter().chain(next..numbers);
                    kept.extend(fill_again(&structure, numbers).await);
                    structure.flush().await.expect("it works again");
                }
                assert_eq!(kept.len() as u64, numbers);
                check_all(&structure, kept, "written").await;
            });
        }
    }
}

/// While the log cannot be synced, of 3,000 items fewer than half are kept. A sync `pause` after the log works again makes all
/// of them durable.
pub(crate) fn a_log_that_cannot_be_synced_loses_nothing<T: Settings>(
    settings: &T,
    seeds: u64,
    pause: Duration,
) {
    for seed in 0..seeds {
        let mut kept = Vec::new();
        let hardware = used_without_power(settings, 1, seed, async |structure, hardware| {
            kept = fill(&structure, 10_000..10_000 + 40 * seed).await;
            hardware.journal.set_sync_fails(true);
            let before = kept.len();
            for number in 0..3_000 {
                kept.extend(structure.put(number).await);
            }
            assert!(kept.len() - before < 1_500, "flushes wait for the log");
            assert!(structure.sync().await.is_err());
            check_all(&structure, kept.iter().copied(), "in memory").await;
            hardware.journal.set_sync_fails(false);
            runtime::sleep(pause).await;
            structure.sync().await.expect("it works again");
        });
        opened(&hardware, settings, seed, async |structure| {
            check_all(&structure, kept, &format!("seed {seed}")).await;
        });
    }
}

/// Writes are lost or go elsewhere, and the drive does not say so. `check` gets the items of each round that changes the keys.
pub(crate) fn writes_that_go_nowhere<T: Settings>(
    settings: impl Fn(u64) -> T,
    keys: u64,
    rounds: u64,
    check: impl AsyncFn(T::Structure, Vec<Vec<<T::Structure as Structure>::Item>>, &str),
) {
    for fault in [
        Fault::Lost,
        Fault::Torn,
        Fault::Zeroed,
        Fault::Misdirected,
        Fault::FlippedBit,
    ] {
        for seed in 0..20 {
            with_seed(&settings(seed), 1, seed, async |structure, hardware| {
                hardware.disks[0].set_rates(vec![(Operation::Write, fault.clone(), 0.2)]);
                let mut items = Vec::new();
                for round in 0..rounds {
                    let numbers = (0..keys).map(|key| changed(key, round));
                    items.push(fill(&structure, numbers).await);
                }
                structure.flush().await.expect("it says nothing");
                check(structure, items, &format!("{fault:?}, seed {seed}")).await;
            });
        }
    }
}

/// A runtime ends while writes fail and memory is full. Another runtime continues the writes when the drive works again, even
/// without a flush.
pub(crate) fn writes_that_fail_and_are_left_are_begun_again<T: Settings>(settings: &T) {
    let mut left = None;
    let (hardware, sim) = used(settings, 1, 1, async |structure, hardware| {
        hardware.every(Operation::Write, Fault::Error);
        let mut items = Vec::new();
        for number in 0.. {
            match structure.put(number).await {
                Ok(item) => items.push(item),
                Err(_) => break,
            }
            assert!(number < 10_000, "memory is bounded");
        }
        left = Some((structure, items));
    });
    sim.crash();
    hardware.disks[0].heal();
    let (structure, mut items) = left.expect("it was used");
    runtime::sim::Sim::new(2).block_on(async {
        let refused = items.len() as u64;
        items.extend(fill_again(&structure, [refused]).await);
        assert_eq!(missing(&structure, items).await, 0);
    });
}
