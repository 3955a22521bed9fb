//! Drives and a log that fail.

use device::{Fault, Operation, When};
use flowstone_slices::SliceError;
use runtime::sim::Sim;

use crate::life::{Hardware, small};

#[test]
fn a_failed_flush_is_said_once_and_tried_again() {
    let settings = small(8, false);
    for operation in [Operation::Write, Operation::Sync] {
        Sim::new(1).block_on(async {
            let hardware = Hardware::new(&settings, 1, 1);
            let table = hardware.create(&settings).await.expect("drives work");
            hardware.disks[0].script(When::every(operation), Fault::Error);
            let mut refused = 0;
            let mut kept = Vec::new();
            for key in 0..600 {
                match table.insert(key, key).await {
                    Ok(()) => kept.push(key),
                    Err(SliceError::Device { drive: 0, .. }) => refused += 1,
                    Err(other) => panic!("{other}"),
                }
                if refused == 20 {
                    hardware.disks[0].heal();
                }
            }
            assert!(refused >= 20 && kept.len() > 500, "{refused}");
            for key in kept {
                assert_eq!(table.get(key).await.expect("drives work"), Some(key));
            }
        });
    }
}

#[test]
fn a_log_that_cannot_be_synced_stops_flushes_and_nothing_is_lost() {
    let settings = small(8, false);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 1, 1);
        let table = hardware.create(&settings).await.expect("drives work");
        hardware.journal.set_sync_fails(true);
        let mut kept = Vec::new();
        for key in 0..2_000 {
            if table.insert(key, key).await.is_ok() {
                kept.push(key);
            }
        }
        assert!(kept.len() < 1_500, "flushes wait for the log");
        assert!(table.sync().await.is_err());
        hardware.journal.set_sync_fails(false);
        table.sync().await.expect("it works again");
        let left = hardware.without_power(7);
        let again = Hardware::of(left, 2);
        let opened = again.open(&settings).await.expect("drives work");
        for &key in &kept {
            assert_eq!(
                opened.get(key).await.expect("drives work"),
                Some(key),
                "key {key}"
            );
        }
    });
}

#[test]
fn a_damaged_page_is_an_error_until_it_is_written_anew() {
    let settings = small(8, false);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 1, 1);
        let table = hardware.filled(&settings, 300).await;
        table.flush().await.expect("drives work");
        for page in 2..200 {
            hardware.disks[0]
                .decay(page * 4096 + 700, 3)
                .await
                .expect("it decays");
        }
        let mut damaged = 0;
        for key in 0..300 {
            damaged += u64::from(matches!(
                table.get(key).await,
                Err(SliceError::Damaged { drive: 0, .. })
            ));
        }
        assert_eq!(damaged, 300);
        for key in 300..500 {
            table.insert(key, key).await.expect("drives work");
        }
        table.flush().await.expect("drives work");
        assert!(table.stats().pages_lost > 0);
        for key in 0..300 {
            assert_eq!(table.get(key).await.expect("written anew"), None);
        }
        for key in 300..500 {
            assert_eq!(table.get(key).await.expect("written anew"), Some(key));
        }
    });
}

/// An older copy on another drive is not taken for the value if the younger copy may have been in a damaged page.
#[test]
fn what_a_damaged_page_has_superseded_stays_so() {
    let settings = small(8, true);
    Sim::new(1).block_on(async {
        let hardware = Hardware::new(&settings, 2, 1);
        let table = hardware.create(&settings).await.expect("drives work");
        for value in [1, 2] {
            for key in 0..100 {
                table.insert(key, value).await.expect("drives work");
            }
            table.flush().await.expect("drives work");
        }
        // The second flush of each partition went to drive 1.
        for page in 2..200 {
            hardware.disks[1]
                .decay(page * 4096 + 700, 3)
                .await
                .expect("it decays");
        }
        for round in 0..6 {
            for key in 1_000..1_100 {
                table
                    .insert(key + 100 * round, 3)
                    .await
                    .expect("drives work");
            }
            table.flush().await.expect("drives work");
            for key in 0..100 {
                match table.get(key).await {
                    Ok(None) | Err(SliceError::Damaged { .. }) => {}
                    other => panic!("round {round}, key {key}: {other:?}"),
                }
            }
        }
    });
}

#[test]
fn a_write_that_went_nowhere_is_found_out() {
    let settings = small(8, false);
    for fault in [
        Fault::Lost,
        Fault::Torn,
        Fault::Zeroed,
        Fault::Misdirected,
        Fault::FlippedBit,
    ] {
        for seed in 0..20 {
            Sim::new(seed).block_on(async {
                let hardware = Hardware::new(&settings, 1, seed);
                let table = hardware.create(&settings).await.expect("drives work");
                hardware.disks[0].set_rates(vec![(Operation::Write, fault.clone(), 0.2)]);
                for round in 0..4 {
                    for key in 0..200 {
                        table
                            .insert(key, key + 1000 * round)
                            .await
                            .expect("it says nothing");
                    }
                }
                table.flush().await.expect("it says nothing");
                for key in 0..200 {
                    match table.get(key).await {
                        Ok(None) | Err(SliceError::Damaged { .. }) => {}
                        Ok(Some(value)) => assert_eq!(value, key + 3000, "{fault:?}, seed {seed}"),
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
    }
}
