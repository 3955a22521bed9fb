//! Values up to 64 MiB: stored with little memory, read in one piece, found after a crash and after a stop; and values near
//! the largest size fill the flash.

use std::sync::Arc;
use std::time::Duration;

use device::{Image, MemoryDisk};
use flowstone_engine::config::Sizes;
use flowstone_engine::config::check::check_new_image;
use flowstone_engine::preset::FLOWSTONE;
use flowstone_engine::{Amend, Change, Count as _, Engine, EngineConfig, Peek, Stop};

use crate::memory::check;
use crate::support::*;

/// Bytes of the largest value that there is.
const LARGEST: usize = 64 << 20;
/// Time after which a cache with the default settings has written back all dirty items.
const WINDOW: Duration = Duration::from_secs(60);

/// Returns the default preset for an image of `flash_mib` MiB with values of up to `max_value_bytes`.
fn preset(memory_mib: u64, flash_mib: u64, max_value_bytes: usize) -> EngineConfig {
    (FLOWSTONE.config)(Sizes {
        memory_bytes: memory_mib << 20,
        flash_bytes: (flash_mib - 1) << 20,
        block_bytes: None,
        segment_bytes: None,
        buffer_bytes: None,
        max_value_bytes: max_value_bytes as u32,
    })
}

/// Returns whether the value of `tag` is the one under its number, read with one command if it is on flash.
async fn is_there(engine: &Arc<Engine>, tag: u64, len: usize) -> bool {
    let counters = engine.store().counters();
    let before = counters.reads.get();
    let found = get(engine, &numbered(tag)).await;
    let reads = counters.reads.get() - before;
    assert!(reads <= 1, "{reads} reads of one item");
    assert!(
        found.as_ref().is_none_or(|found| *found == value(tag, len)),
        "another value"
    );
    found.is_some()
}

#[test]
fn a_value_of_64_mib_takes_little_memory_and_survives_a_crash_and_a_stop() {
    simulate(1, async {
        let config = preset(170, 600, LARGEST);
        let disk = Arc::new(MemoryDisk::from_image(
            Image::new(600 << 20),
            device::Latency::default(),
        ));
        let media = Media::new(disk.clone());
        let engine = start(&media, &config).await;
        fill(&engine, 1000, 3000).await;
        for tag in 2000..2003 {
            set(&engine, &numbered(tag), &value(tag, LARGEST))
                .await
                .unwrap();
            assert!(is_there(&engine, tag, LARGEST).await);
            check(&engine, &config);
        }
        runtime::sleep(2 * WINDOW).await;
        let (disk, media) = Left::of(&disk, &media).media();
        drop(engine);
        let engine = start(&media, &config).await;
        for tag in 2000..2003 {
            assert!(is_there(&engine, tag, LARGEST).await, "{tag} after a crash");
        }
        set(&engine, &numbered(2000), &value(2000, LARGEST - 1))
            .await
            .unwrap();
        remove(&engine, 2001).await;
        check(&engine, &config);
        assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        let (_disk, media) = Left::of(&disk, &media).media();
        drop(engine);
        let engine = start(&media, &config).await;
        assert!(is_warm(&engine));
        assert!(is_there(&engine, 2000, LARGEST - 1).await);
        assert!(!is_there(&engine, 2001, LARGEST).await, "it was removed");
        assert!(is_there(&engine, 2002, LARGEST).await);
        check(&engine, &config);
        assert!(get_item(&engine, &numbered(1), Peek::Yes).await.is_some());
    });
}

/// Returns the settings of a server with the least memory for values of up to `max_value_bytes` on `flash_mib` MiB.
fn least(flash_mib: u64, max_value_bytes: usize) -> EngineConfig {
    (1..)
        .map(|memory_mib| EngineConfig {
            lendable_bytes: (memory_mib << 20) / 10,
            ..preset(memory_mib, flash_mib, max_value_bytes)
        })
        .find(|config| check_new_image(config, flash_mib << 20).is_ok())
        .expect("enough memory")
}

#[test]
fn large_values_stay_on_flash_with_the_least_memory_and_can_be_amended() {
    const LEN: usize = 16 << 20;
    simulate(4, async {
        let config = least(130, LEN);
        let engine = start(&memory_disk(130 << 20), &config).await;
        for tag in 0..3 {
            set(&engine, &numbered(tag), &value(tag, LEN))
                .await
                .unwrap();
        }
        for tag in 0..3 {
            let name = numbered(tag);
            let key = engine.key(&name).unwrap();
            let expiry = runtime::unix_seconds() + 1000;
            let amend = Amend {
                expiry: Some(expiry),
                ..Amend::default()
            };
            let amended = engine
                .modify(key, runtime::unix_seconds(), |found| {
                    (Change::Amend(amend), found.is_some())
                })
                .await;
            assert!(
                amended.is_ok_and(|amended| amended.result),
                "{tag} is missing"
            );
            let found = get_item(&engine, &name, Peek::Yes).await.expect("amended");
            assert_eq!(found.expiry, expiry);
            check(&engine, &config);
        }
    });
}

#[test]
fn many_requests_for_large_values_wait_for_memory() {
    const LEN: usize = 12 << 20;
    simulate(2, async {
        let config = preset(64, 200, LEN);
        let engine = start(&memory_disk(200 << 20), &config).await;
        for tag in 0..8 {
            set(&engine, &numbered(tag), &value(tag, LEN))
                .await
                .unwrap();
        }
        let gets: Vec<_> = (0..32)
            .map(|client| {
                let engine = Arc::clone(&engine);
                runtime::spawn(async move {
                    let found = get(&engine, &numbered(client % 8)).await;
                    assert!(found.is_some(), "{client}");
                    set(&engine, &numbered(client), &value(client, LEN))
                        .await
                        .unwrap();
                    get(&engine, &numbered(client)).await;
                })
            })
            .collect();
        for ended in gets {
            assert_eq!(ended.await, Some(()), "no request panics");
            check(&engine, &config);
        }
    });
}

/// Returns the share of the flash that values of `len` bytes fill, where values of up to `max_value_bytes` may come.
fn share_filled(len: usize, max_value_bytes: usize) -> f64 {
    const FLASH_MIB: u64 = 128;
    simulate(3, async {
        let config = preset(24, FLASH_MIB, max_value_bytes);
        let engine = start(&memory_disk(FLASH_MIB << 20), &config).await;
        let count = 3 * (FLASH_MIB << 20) / 2 / len as u64;
        for tag in 0..count {
            set(&engine, &numbered(tag), &value(tag, len))
                .await
                .unwrap();
        }
        runtime::sleep(2 * WINDOW).await;
        let found = survivors(&engine, 0..count).await;
        let share = (found * len) as f64 / (FLASH_MIB << 20) as f64;
        eprintln!("values of {len} of at most {max_value_bytes} bytes fill {share:.2}");
        share
    })
}

#[test]
fn values_near_the_largest_size_fill_the_flash() {
    const MOST: usize = 256 << 10;
    for len in [MOST, MOST * 7 / 10] {
        let share = share_filled(len, MOST);
        assert!(share >= 0.85, "values of {len} bytes fill {share:.2}");
    }
}
