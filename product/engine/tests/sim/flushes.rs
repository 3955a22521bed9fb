//! `flush_all` and crashes: flushed items stay gone, and other items stay.

use std::sync::Arc;
use std::time::Duration;

use device::Image;
use flowstone_engine::Engine;
use flowstone_engine::format::journal::{HEAD_WORDS, Record};
use runtime::sim::Sim;

use crate::support::{Left, fill, get, numbered, objects, set, start, started, tight, value};

const IMAGE_BYTES: u64 = 33 << 20;

#[test]
fn a_flush_holds_after_a_crash_also_one_whose_time_has_not_come() {
    for delay in [0, 50] {
        let sim = Sim::new(3);
        let (disk, media) = Left::new(Image::new(IMAGE_BYTES)).media();
        sim.block_on(async {
            let engine = start(&media, &tight()).await;
            fill(&engine, 5000, 3000).await;
            engine.flush_all(runtime::unix_seconds() + delay).await;
        });
        sim.crash();
        let left = Left::of(&disk, &media);
        sim.block_on(async {
            let engine = started(&left).await;
            let held = get(&engine, &numbered(0)).await.is_some();
            assert_eq!(held, delay > 0, "not yet");
            fill(&engine, 1, 3000).await;
            runtime::sleep(Duration::from_secs(u64::from(delay))).await;
            for number in 1..5000 {
                assert_eq!(get(&engine, &numbered(number)).await, None, "{number}");
            }
        });
    }
}

/// Also after a crash, for items in memory and on flash.
#[test]
fn a_flush_with_a_past_time_takes_what_is_older_and_keeps_what_is_newer() {
    let sim = Sim::new(3);
    let (disk, media) = Left::new(Image::new(IMAGE_BYTES)).media();
    let is_right = async |engine: &Arc<Engine>| {
        for number in 0..2000 {
            let found = get(engine, &numbered(number)).await.is_some();
            assert_eq!(found, number >= 1000, "{number}");
        }
    };
    sim.block_on(async {
        let engine = start(&media, &tight()).await;
        let begun = runtime::unix_seconds();
        for number in 0..2000 {
            if number == 1000 {
                runtime::sleep(Duration::from_secs(5)).await;
            }
            let value = value(number, 3000);
            set(&engine, &numbered(number), &value).await.unwrap();
        }
        let newer = runtime::unix_seconds() - 1;
        engine.flush_all(newer + 50).await;
        engine.flush_older(begun - 100).await;
        assert!(get(&engine, &numbered(0)).await.is_some());
        engine.flush_older(newer).await;
        is_right(&engine).await;
        runtime::sleep(Duration::from_secs(60)).await;
        is_right(&engine).await;
        assert_eq!(engine.sync().await, Ok(()));
    });
    sim.crash();
    let left = Left::of(&disk, &media);
    sim.block_on(async {
        let engine = started(&left).await;
        is_right(&engine).await;
    });
}

/// A power cut may leave the words of an earlier chunk in the place of a new one. Cutoffs among them belong to an
/// earlier flush, and the pending flush still holds.
#[test]
fn what_is_left_of_an_earlier_chunk_ends_no_flush() {
    let sim = Sim::new(3);
    let (disk, media) = Left::new(Image::new(IMAGE_BYTES)).media();
    sim.block_on(async {
        let engine = start(&media, &tight()).await;
        fill(&engine, 5000, 3000).await;
        engine.flush_all(runtime::unix_seconds() + 50).await;
    });
    sim.crash();
    let mut left = Left::of(&disk, &media);
    let last = left.words.iter().rposition(|&word| word != 0);
    let behind = last.expect("there is a FLUSH AT") + 1;
    let cutoff = |partition| Record::Cutoff {
        partition,
        version: 1,
        chunk: 9,
    };
    let stale: Vec<u64> = (0..4)
        .flat_map(|partition| cutoff(partition).encode().words().to_vec())
        .collect();
    left.words[behind..][..stale.len()].copy_from_slice(&stale);
    sim.block_on(async {
        runtime::sleep(Duration::from_secs(60)).await;
        let engine = started(&left).await;
        assert_eq!(objects(&engine), 0);
    });
}

/// A power cut may lose the cutoff records of a flush that has come, and keep the record of the next flush.
#[test]
fn a_flush_that_has_come_holds_where_only_the_next_is_left() {
    let sim = Sim::new(3);
    let (disk, media) = Left::stopped(IMAGE_BYTES, 1000).media();
    let before = sim.block_on(async {
        // The journal is not synced.
        let engine = media.open(&tight()).await.unwrap();
        engine.flush_all(runtime::unix_seconds() + 50).await;
        let before = Left::of(&disk, &media).words;
        runtime::sleep(Duration::from_secs(60)).await;
        engine.flush_all(runtime::unix_seconds() + 1000).await;
        before
    });
    sim.crash();
    let mut left = Left::of(&disk, &media);
    let new: Vec<usize> = (0..before.len())
        .filter(|&at| at >= HEAD_WORDS && before[at] != left.words[at])
        .collect();
    let (flush_at, cutoffs) = new.split_last().expect("a FLUSH AT behind four CUTOFFs");
    assert_eq!(cutoffs.len(), 8);
    let record = Record::decode(&left.words[*flush_at..]).0;
    assert!(matches!(record, Some(Record::FlushAt { .. })), "{record:?}");
    for &at in cutoffs {
        left.words[at] = 0;
    }
    sim.block_on(async {
        let engine = started(&left).await;
        assert_eq!(objects(&engine), 0);
    });
}

/// The start that applies a flush records that. The next start does not apply it to items stored in between.
#[test]
fn a_flush_that_comes_between_two_runs_is_not_applied_by_a_third() {
    let sim = Sim::new(4);
    let (disk, media) = Left::new(Image::new(IMAGE_BYTES)).media();
    sim.block_on(async {
        let engine = start(&media, &tight()).await;
        fill(&engine, 100, 3000).await;
        assert_eq!(engine.sync().await, Ok(()));
        engine.flush_all(runtime::unix_seconds() + 10).await;
    });
    sim.crash();
    sim.shift_wall_clock(20);
    let (disk, media) = Left::of(&disk, &media).media();
    sim.block_on(async {
        let engine = start(&media, &tight()).await;
        assert_eq!(get(&engine, &numbered(0)).await, None);
        fill(&engine, 100, 3000).await;
        assert_eq!(engine.sync().await, Ok(()));
    });
    sim.crash();
    let left = Left::of(&disk, &media);
    sim.block_on(async {
        let engine = started(&left).await;
        assert!(get(&engine, &numbered(0)).await.is_some());
    });
}

/// A start takes a flush for one still to come, unless records say that each partition has applied it.
#[test]
fn a_flush_that_has_come_takes_nothing_that_was_stored_after_it() {
    let sim = Sim::new(5);
    let (disk, media) = Left::new(Image::new(IMAGE_BYTES)).media();
    sim.block_on(async {
        let engine = start(&media, &tight()).await;
        fill(&engine, 100, 3000).await;
        engine.flush_all(runtime::unix_seconds() + 10).await;
        runtime::sleep(Duration::from_secs(20)).await;
        fill(&engine, 100, 3000).await;
        assert_eq!(engine.sync().await, Ok(()));
    });
    sim.crash();
    let left = Left::of(&disk, &media);
    sim.block_on(async {
        let engine = started(&left).await;
        assert_eq!(objects(&engine), 100);
        for number in 0..100 {
            assert!(get(&engine, &numbered(number)).await.is_some(), "{number}");
        }
    });
}
