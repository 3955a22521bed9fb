//! The journal under pressure: full, failing, and too full for a recovery. No item whose removal was acknowledged
//! comes back, whichever parts of the journal are lost.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::{Disk as _, Fault, FaultyDisk, Image, Latency, MemoryDisk, Operation, Tear, When};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::journal::Unusable;
use flowstone_engine::{CacheError, Change, Distrust, Engine, ItemView, Put, Start, Stop};
use futures_util::FutureExt;
use rand::Rng;
use runtime::sim::Sim;

use crate::support::{
    Left, Media, for_seeds_until, get, numbered, random, remove, set, simulate, start, tight, value,
};

pub(crate) const IMAGE_BYTES: u64 = 65 << 20;
/// Number of items in the tests: more than memory holds.
pub(crate) const ITEMS: u64 = 20_000;
pub(crate) const BYTES: usize = 2000;

/// Words of a journal with the fewest chunks allowed, so that it fills up soon.
pub(crate) const SHORT_JOURNAL: usize = 512 + 8 * 1024;

fn faulty() -> (Arc<FaultyDisk>, Media) {
    let image = Image::new(IMAGE_BYTES);
    let faulty = Arc::new(FaultyDisk::from_image(image, Latency::default(), 1));
    let media = Media::new(faulty.clone());
    (faulty, media)
}

/// Counts the items found; each must have the value that was set last.
pub(crate) async fn count_right(
    engine: &Arc<Engine>,
    numbers: std::ops::Range<u64>,
    tag: u64,
) -> usize {
    let mut found = 0;
    for number in numbers {
        if let Some(item) = get(engine, &numbered(number)).await {
            assert_eq!(item, value(number + tag, BYTES), "item {number}");
            found += 1;
        }
    }
    found
}

/// Returns the state after a kill of a cache with all items, with a journal of `journal_words` words.
pub(crate) fn killed(journal_words: usize) -> Left {
    let sim = Sim::new(1);
    let disk = Arc::new(MemoryDisk::new(IMAGE_BYTES));
    let media = Media::with_words(disk.clone(), vec![0; journal_words]);
    sim.block_on(async {
        let engine = start(&media, &tight()).await;
        fill_tagged(&engine, 0..ITEMS, 0).await;
    });
    sim.crash();
    Left::of(&disk, &media)
}

pub(crate) async fn fill_tagged(engine: &Arc<Engine>, numbers: std::ops::Range<u64>, tag: u64) {
    for number in numbers {
        set(engine, &numbered(number), &value(number + tag, BYTES))
            .await
            .unwrap();
    }
}

/// A failed sync has lost its writes, even if the next sync succeeds.
#[test]
fn what_was_removed_before_a_failed_sync_stays_gone() {
    for seconds in [1, 20] {
        let (faulty, media) = faulty();
        let left = simulate(1, async {
            let engine = start(&media, &tight()).await;
            fill_tagged(&engine, 0..ITEMS, 0).await;
            runtime::sleep(Duration::from_secs(1)).await;
            assert!(engine.checkpoint_now().await);
            media.journal.set_sync_fails(true);
            for number in 0..ITEMS / 4 {
                remove(&engine, number).await;
            }
            runtime::sleep(Duration::from_millis(200)).await;
            media.journal.set_sync_fails(false);
            assert!(engine.checkpoint_stats().sync_errors > 0);
            runtime::sleep(Duration::from_secs(seconds)).await;
            if seconds > 10 {
                assert!(!engine.journal().is_void(), "a checkpoint has healed it");
                for number in ITEMS / 4..ITEMS / 3 {
                    remove(&engine, number).await;
                }
                runtime::sleep(Duration::from_secs(1)).await;
            }
            Left {
                image: faulty.crash(7, Tear::Pages),
                words: media.journal.power_cut(7),
            }
        });
        simulate(2, async {
            let engine = start(&left.media().1, &tight()).await;
            let gone = if seconds > 10 { ITEMS / 3 } else { ITEMS / 4 };
            assert_eq!(count_right(&engine, 0..gone, 0).await, 0, "{seconds} s");
            if seconds > 10 {
                assert!(matches!(engine.start(), Start::Warm { .. }));
                assert!(count_right(&engine, gone..ITEMS, 0).await as u64 > ITEMS / 2);
            }
        });
    }
}

/// A checkpoint does not cover records that are lost while it is written.
#[test]
fn what_a_sync_loses_while_a_checkpoint_is_written_stays_gone() {
    let slow = Latency {
        write: Duration::from_millis(300),
        ..Latency::default()
    };
    let faulty = Arc::new(FaultyDisk::from_image(Image::new(IMAGE_BYTES), slow, 1));
    let media = Media::new(faulty.clone());
    let left = simulate(1, async {
        let engine = start(&media, &tight()).await;
        fill_tagged(&engine, 0..ITEMS, 0).await;
        runtime::sleep(Duration::from_secs(1)).await;
        let before = engine.checkpoint_stats();
        let writing = Arc::clone(&engine);
        let written = runtime::spawn(async move { writing.checkpoint_now().await });
        runtime::sleep(Duration::from_millis(10)).await;
        for number in 0..ITEMS / 4 {
            remove(&engine, number).await;
        }
        media.journal.set_sync_fails(true);
        runtime::sleep(Duration::from_millis(200)).await;
        let after = engine.checkpoint_stats();
        assert_eq!(after.written, before.written, "it is being written");
        assert!(after.sync_errors > before.sync_errors);
        let _ = written.await;
        Left {
            image: faulty.crash(7, Tear::Pages),
            words: media.journal.power_cut(7),
        }
    });
    simulate(2, async {
        let engine = start(&left.media().1, &tight()).await;
        assert_eq!(count_right(&engine, 0..ITEMS / 4, 0).await, 0);
    });
}

/// Records of the time during which a checkpoint is written are in no checkpoint.
#[test]
fn what_is_removed_while_a_checkpoint_is_written_stays_gone() {
    let slow = Latency {
        write: Duration::from_millis(300),
        ..Latency::default()
    };
    let disk = Arc::new(MemoryDisk::from_image(Image::new(IMAGE_BYTES), slow));
    let media = Media::new(disk.clone());
    let left = simulate(1, async {
        let engine = start(&media, &tight()).await;
        fill_tagged(&engine, 0..ITEMS, 0).await;
        runtime::sleep(Duration::from_secs(1)).await;
        let before = engine.checkpoint_stats().written;
        let writing = Arc::clone(&engine);
        let written = runtime::spawn(async move { writing.checkpoint_now().await });
        runtime::sleep(Duration::from_millis(10)).await;
        for number in 0..ITEMS / 4 {
            remove(&engine, number).await;
        }
        let during = engine.checkpoint_stats().written;
        assert_eq!(during, before, "it is being written");
        assert!(written.await.unwrap());
        Left::of(&disk, &media)
    });
    simulate(2, async {
        let engine = start(&left.media().1, &tight()).await;
        assert!(matches!(engine.start(), Start::Warm { .. }));
        assert_eq!(count_right(&engine, 0..ITEMS / 4, 0).await, 0);
    });
}

/// While the superblock is being written, a start still goes by the checkpoint that it named before.
#[test]
fn a_checkpoint_stays_until_the_superblock_names_the_next() {
    let (faulty, media) = faulty();
    let left = simulate(1, async {
        let engine = start(&media, &tight()).await;
        fill_tagged(&engine, 0..ITEMS, 0).await;
        runtime::sleep(Duration::from_secs(1)).await;
        assert!(engine.checkpoint_now().await);
        let before = engine.checkpoint_stats().written;
        let superblocks = When::every(Operation::Write).within(0..META_BYTES);
        faulty.script(superblocks, Fault::Slow(Duration::from_secs(3600)));
        let writing = Arc::clone(&engine);
        let _written = runtime::spawn(async move { writing.checkpoint_now().await });
        runtime::sleep(Duration::from_secs(1)).await;
        // Every free segment is used.
        fill_tagged(&engine, ITEMS..4 * ITEMS, 0).await;
        assert!(engine.stats().placement.segments_reclaimed > 100);
        faulty.sync().await.unwrap();
        assert_eq!(engine.checkpoint_stats().written, before);
        Left {
            image: faulty.crash(7, Tear::Writes),
            words: media.journal.crash(),
        }
    });
    simulate(2, async {
        let engine = start(&left.media().1, &tight()).await;
        let found = engine.start();
        assert!(matches!(found, Start::Warm { .. }), "{found:?}");
        assert!(count_right(&engine, ITEMS..4 * ITEMS, 0).await as u64 > ITEMS / 2);
    });
}

/// While the journal fails, a power cut must not lead to a start that trusts it.
#[test]
fn a_journal_that_fails_makes_the_next_start_empty_and_the_stop_says_so() {
    let (faulty, media) = faulty();
    let left = simulate(1, async {
        let engine = start(&media, &tight()).await;
        fill_tagged(&engine, 0..ITEMS, 0).await;
        media.journal.set_sync_fails(true);
        for number in 0..ITEMS / 4 {
            remove(&engine, number).await;
        }
        runtime::sleep(Duration::from_secs(5)).await;
        assert!(engine.journal().is_void());
        let stop = engine.stop().await;
        assert!(
            matches!(
                stop,
                Stop::Incomplete {
                    next_is_empty: true,
                    ..
                }
            ),
            "{stop:?}"
        );
        Left {
            image: faulty.crash(7, Tear::Pages),
            words: media.journal.power_cut(7),
        }
    });
    simulate(2, async {
        let engine = start(&left.media().1, &tight()).await;
        let void = Distrust::Journal(Unusable::Void);
        assert_eq!(engine.start(), Start::Empty(void));
    });
}

/// Records of dead items are not durable, and a start would not know them. The items that supersede the dead ones must
/// not become durable either, also after the stop has given up.
#[test]
fn no_segment_is_written_whose_deaths_are_unknown_after_a_stop_that_gave_up() {
    let (faulty, media) = faulty();
    simulate(1, async {
        let engine = start(&media, &tight()).await;
        fill_tagged(&engine, 0..ITEMS / 4, 0).await;
        runtime::sleep(Duration::from_secs(1)).await;
        media.journal.set_sync_fails(true);
        let superblocks = When::every(Operation::Write).within(0..META_BYTES);
        faulty.script(superblocks, Fault::Error);
        remove(&engine, 0).await;
        runtime::sleep(Duration::from_secs(1)).await;
        let written = || {
            let counters = engine.store().counters();
            counters.segments_written.load(Ordering::Relaxed)
        };
        let before = written();
        let stop = engine.stop().await;
        assert!(matches!(stop, Stop::Incomplete { .. }), "{stop:?}");
        runtime::sleep(Duration::from_secs(3600)).await;
        assert_eq!(written(), before);
        assert!(engine.store().pool().counts().sealed > 0, "some wait");
    });
}

/// No item can leave memory: a write waits for some seconds and is refused, and the item that it was to replace is gone.
/// Once the device works again, writes succeed.
#[test]
fn a_write_that_finds_no_space_for_long_is_refused() {
    let (faulty, media) = faulty();
    simulate(1, async {
        let engine = start(&media, &tight()).await;
        set(&engine, b"old", b"value").await.unwrap();
        media.journal.set_sync_fails(true);
        let superblocks = When::every(Operation::Write).within(0..META_BYTES);
        faulty.script(superblocks, Fault::Error);
        let mut number = 0;
        let refused = loop {
            assert!(number < 40 * ITEMS, "memory and buffers fill up");
            let begun = runtime::now();
            let (key, value) = (numbered(number), value(number, BYTES));
            if let Err(error) = set(&engine, &key, &value).await {
                break (error, runtime::now().since(begun));
            }
            number += 1;
        };
        assert_eq!(refused.0, CacheError::OutOfMemory);
        let seconds = Duration::from_secs(10)..Duration::from_secs(21);
        assert!(seconds.contains(&refused.1), "{refused:?}");
        assert_eq!(get(&engine, &numbered(number)).await, None);
        let (key, now) = (engine.key(b"old").unwrap(), runtime::unix_seconds());
        let put = |_: Option<&ItemView<'_>>| {
            let value = value(1, BYTES).into();
            (
                Change::Put(Put {
                    value,
                    ..Put::default()
                }),
                (),
            )
        };
        let changed = engine.modify(key, now, put).await;
        assert_eq!(changed.unwrap_err(), CacheError::OutOfMemory);
        assert_eq!(get(&engine, b"old").await, None);
        media.journal.set_sync_fails(false);
        faulty.heal();
        runtime::sleep(Duration::from_secs(60)).await;
        fill_tagged(&engine, 0..ITEMS / 4, 1).await;
    });
}

/// The cause of a void journal goes away: the same run writes a checkpoint that covers every death.
#[test]
fn a_void_journal_is_whole_again_once_a_checkpoint_can_be_written() {
    let (faulty, media) = faulty();
    let left = simulate(1, async {
        let engine = start(&media, &tight()).await;
        let superblocks = When::every(Operation::Write).within(0..META_BYTES);
        faulty.script(superblocks, Fault::Error);
        let mut tag = 0;
        while !engine.journal().is_void() {
            assert!(tag < 40 * ITEMS, "it fills up");
            fill_tagged(&engine, 0..ITEMS, tag).await;
            tag += ITEMS;
        }
        fill_tagged(&engine, 0..ITEMS, tag).await;
        faulty.heal();
        runtime::sleep(Duration::from_secs(200)).await;
        assert!(!engine.journal().is_void());
        for number in 0..ITEMS / 4 {
            remove(&engine, number).await;
        }
        runtime::sleep(Duration::from_secs(1)).await;
        let left = Left {
            image: faulty.crash(7, Tear::Pages),
            words: media.journal.power_cut(7),
        };
        (left, tag)
    });
    let (left, tag) = left;
    simulate(2, async {
        let engine = start(&left.media().1, &tight()).await;
        assert!(matches!(engine.start(), Start::Warm { .. }));
        assert_eq!(count_right(&engine, 0..ITEMS / 4, tag).await, 0);
        let found = count_right(&engine, ITEMS / 4..ITEMS, tag).await;
        assert!(found as u64 > ITEMS / 2, "{found}");
    });
}

/// The next checkpoint is made from the index instead.
#[test]
fn a_checkpoint_that_cannot_be_read_does_not_keep_the_next_from_being_written() {
    let (faulty, media) = faulty();
    let left = simulate(1, async {
        let engine = start(&media, &tight()).await;
        fill_tagged(&engine, 0..ITEMS, 0).await;
        for number in 0..ITEMS / 4 {
            remove(&engine, number).await;
        }
        assert!(engine.checkpoint_now().await);
        let image = faulty.crash(7, Tear::Pages);
        let mut checkpoints = 0;
        for at in (META_BYTES..IMAGE_BYTES).step_by(4096) {
            let mut magic = [0; 8];
            image.read(at, &mut magic);
            if &magic == b"flowCKPT" {
                let reads = When::every(Operation::Read).within(at..at + 4096);
                faulty.script(reads, Fault::Error);
                checkpoints += 1;
            }
        }
        assert!(checkpoints > 0);
        for number in ITEMS / 4..ITEMS / 3 {
            remove(&engine, number).await;
        }
        assert!(engine.checkpoint_now().await);
        Left {
            image: faulty.crash(7, Tear::Pages),
            words: media.journal.power_cut(7),
        }
    });
    simulate(2, async {
        let engine = start(&left.media().1, &tight()).await;
        assert!(matches!(engine.start(), Start::Warm { .. }));
        assert_eq!(count_right(&engine, 0..ITEMS / 3, 0).await, 0);
        let found = count_right(&engine, ITEMS / 3..ITEMS, 0).await;
        assert!(found as u64 > ITEMS / 2, "{found}");
    });
}

/// Reads of expired items skip their records while the journal has no space for them.
#[test]
fn reads_of_what_has_expired_do_not_fill_the_journal() {
    let (faulty, mut media) = faulty();
    media.journal = Arc::new(device::MemoryJournal::new(SHORT_JOURNAL));
    simulate(1, async {
        let engine = start(&media, &tight()).await;
        let began = runtime::unix_seconds();
        for number in 0..ITEMS {
            let put = flowstone_engine::Put {
                value: value(number, BYTES).into(),
                expiry: began + 4,
                ..flowstone_engine::Put::default()
            };
            let name = numbered(number);
            let key = engine.key(&name).unwrap();
            engine.set(key, began, &put).await.unwrap();
        }
        let superblocks = When::every(Operation::Write).within(0..META_BYTES);
        faulty.script(superblocks, Fault::Error);
        let has_removed = |number| {
            let name = numbered(number);
            engine.try_remove(engine.key(&name).unwrap(), began)
        };
        let removed = (0..ITEMS).take_while(|&number| has_removed(number)).count() as u64;
        assert!(removed < ITEMS / 2, "the journal is full before");
        runtime::sleep(Duration::from_secs(u64::from(
            began + 4 - runtime::unix_seconds(),
        )))
        .await;
        assert!(!engine.journal().is_void());
        for number in removed..ITEMS {
            assert_eq!(get(&engine, &numbered(number)).await, None, "{number}");
        }
        assert!(!engine.journal().is_void());
    });
}

/// A flush waits for space in the journal, as every writer of records there does, and takes effect once it has space.
#[test]
fn a_flush_waits_while_the_journal_is_full() {
    let (faulty, mut media) = faulty();
    media.journal = Arc::new(device::MemoryJournal::new(SHORT_JOURNAL));
    simulate(1, async {
        let engine = start(&media, &tight()).await;
        fill_tagged(&engine, 0..ITEMS, 0).await;
        let superblocks = When::every(Operation::Write).within(0..META_BYTES);
        faulty.script(superblocks, Fault::Error);
        let now = runtime::unix_seconds();
        let removed = (0..ITEMS)
            .find(|&number| !engine.try_remove(engine.key(&numbered(number)).unwrap(), now))
            .expect("the journal is full before");
        for _ in 0..100_000 {
            let flush = engine.flush_all(now).now_or_never();
            assert!(flush.is_none(), "there is no space");
        }
        assert!(!engine.journal().is_void());
        faulty.heal();
        engine.flush_all(runtime::unix_seconds()).await;
        assert!(!engine.journal().is_void());
        assert_eq!(count_right(&engine, removed..ITEMS, 0).await, 0);
    });
}

/// A lost page of the journal holds records that are in no checkpoint.
#[test]
fn a_chunk_that_is_missing_makes_the_start_empty() {
    let disk = Arc::new(MemoryDisk::new(IMAGE_BYTES));
    let media = Media::new(disk.clone());
    let mut left = simulate(1, async {
        let engine = start(&media, &tight()).await;
        fill_tagged(&engine, 0..ITEMS, 0).await;
        for number in 0..ITEMS / 4 {
            remove(&engine, number).await;
        }
        runtime::sleep(Duration::from_secs(1)).await;
        Left::of(&disk, &media)
    });
    let magic = u64::from_le_bytes(*b"flowJCHK");
    let mut chunks: Vec<(u64, usize)> = (512..left.words.len())
        .step_by(1024)
        .filter(|&at| left.words[at] == magic)
        .map(|at| (left.words[at + 2], at))
        .collect();
    chunks.sort_unstable();
    let (_, at) = chunks[chunks.len() - 2];
    left.words[at..at + 512].fill(0);
    simulate(2, async {
        let engine = start(&left.media().1, &tight()).await;
        assert_eq!(engine.start(), Start::Empty(Distrust::JournalGap));
        assert_eq!(count_right(&engine, 0..ITEMS / 4, 0).await, 0);
    });
}

/// Damage to a page that was synced.
#[derive(Clone, Copy, Debug)]
enum Rot {
    Bit,
    Zeros,
    EarlierLap,
}

/// Items removed before the last syncs stay gone, whichever page of the journal is damaged.
#[test]
fn a_rotten_page_of_the_journal_is_not_taken_for_its_end() {
    const PAGE_WORDS: usize = 512;
    let disk = Arc::new(MemoryDisk::new(IMAGE_BYTES));
    let media = Media::with_words(disk.clone(), vec![0; SHORT_JOURNAL]);
    let (earlier, left) = simulate(1, async {
        let engine = start(&media, &tight()).await;
        fill_tagged(&engine, 0..ITEMS, 0).await;
        fill_tagged(&engine, 0..ITEMS, ITEMS).await;
        assert!(engine.checkpoint_now().await);
        let earlier = media.journal.crash();
        for number in 0..ITEMS / 10 {
            remove(&engine, number).await;
        }
        runtime::sleep(Duration::from_secs(1)).await;
        (earlier, Left::of(&disk, &media))
    });
    simulate(2, async {
        let engine = start(&left.media().1, &tight()).await;
        assert!(matches!(engine.start(), Start::Warm { .. }));
    });
    let mut empty = 0;
    for page in 1..SHORT_JOURNAL / PAGE_WORDS {
        let words = page * PAGE_WORDS..(page + 1) * PAGE_WORDS;
        for rot in [Rot::Bit, Rot::Zeros, Rot::EarlierLap] {
            let mut left = left.clone();
            match rot {
                Rot::Bit => left.words[words.start + 20 * page] ^= 1 << page,
                Rot::Zeros => left.words[words.clone()].fill(0),
                Rot::EarlierLap => {
                    left.words[words.clone()].copy_from_slice(&earlier[words.clone()]);
                }
            }
            simulate(3, async {
                let engine = start(&left.media().1, &tight()).await;
                let back = count_right(&engine, 0..ITEMS / 10, ITEMS).await;
                assert_eq!(back, 0, "{rot:?} of page {page}");
                empty += usize::from(matches!(engine.start(), Start::Empty(_)));
            });
        }
    }
    assert!(empty > 3 * ITEMS as usize / 10 / PAGE_WORDS, "{empty}");
}

/// Damage to the journal during a run is found when a checkpoint reads it; the dead items are then taken from the index.
#[test]
fn a_checkpoint_does_not_go_by_a_rotten_page_of_the_journal() {
    for seed in 0..12 {
        let disk = Arc::new(MemoryDisk::new(IMAGE_BYTES));
        let media = Media::with_words(disk.clone(), vec![0; 512 + 64 * 1024]);
        let left = simulate(1, async {
            let engine = start(&media, &tight()).await;
            fill_tagged(&engine, 0..ITEMS, 0).await;
            assert!(engine.checkpoint_now().await);
            for number in 0..ITEMS / 4 {
                remove(&engine, number).await;
            }
            runtime::sleep(Duration::from_secs(1)).await;
            // Only one page: a second unreadable page would be noticed by any check.
            let decayed = media.journal.decay(seed);
            assert!(decayed.is_some(), "nothing to decay");
            assert!(engine.checkpoint_now().await);
            assert!(!engine.journal().is_void());
            Left::of(&disk, &media)
        });
        simulate(2, async {
            let engine = start(&left.media().1, &tight()).await;
            assert!(matches!(engine.start(), Start::Warm { .. }));
            let back = count_right(&engine, 0..ITEMS / 4, 0).await;
            assert_eq!(back, 0, "seed {seed}");
            assert!(count_right(&engine, ITEMS / 4..ITEMS, 0).await as u64 > ITEMS / 2);
        });
    }
}

/// Even unreadable pages do not prevent the start: it is empty, and the page is used again.
#[test]
fn a_journal_that_cannot_be_read_makes_the_start_empty() {
    let left = killed(SHORT_JOURNAL);
    for seed in 0..40 {
        let mut image = device::JournalImage::of(left.words.clone());
        let (page, decay) = image.decay(seed).unwrap();
        if decay != device::Decay::Unreadable {
            continue;
        }
        let (_, mut media) = left.media();
        media.journal = Arc::new(device::MemoryJournal::from_image(image));
        simulate(seed, async {
            let engine = start(&media, &tight()).await;
            if page == 0 {
                let damaged = Distrust::Journal(Unusable::Damaged);
                assert_eq!(engine.start(), Start::Empty(damaged));
            }
            fill_tagged(&engine, 0..ITEMS, 0).await;
            fill_tagged(&engine, 0..ITEMS, ITEMS).await;
            count_right(&engine, 0..ITEMS, ITEMS).await;
            assert!(!engine.journal().is_void());
        });
    }
}

/// The system reports a failed write to one sync only, and the next sync succeeds without the write.
#[test]
fn a_checkpoint_counts_for_nothing_if_the_disk_has_refused_a_sync_while_it_was_written() {
    let refused = Cell::new(0);
    let is_refused = || refused.get() > 0;
    for_seeds_until("a_checkpoint_counts_for_nothing", 60, is_refused, |seed| {
        let latency = Latency {
            write: Duration::from_millis(1),
            sync: Duration::from_millis(1),
            ..Latency::default()
        };
        let disk = FaultyDisk::from_image(Image::new(IMAGE_BYTES), latency, seed);
        let disk = Arc::new(disk);
        let media = Media::new(disk.clone());
        let mut random = random(seed);
        let sim = Sim::new(seed);
        sim.block_on(async {
            let engine = start(&media, &tight()).await;
            fill_tagged(&engine, 0..1000, 0).await;
            engine.sync().await.unwrap();
            assert!(engine.checkpoint_now().await);
            let written = Arc::clone(&engine);
            let written = runtime::spawn(async move { written.checkpoint_now().await });
            runtime::sleep(Duration::from_micros(random.random_range(0..8000))).await;
            disk.script(When::next(Operation::Sync), Fault::Error);
            // Only one of the two is told.
            set(&engine, b"more", b"for the sync").await.unwrap();
            let synced = engine.sync().await.is_ok();
            let counts = written.await.unwrap();
            refused.set(refused.get() + u64::from(!synced && !counts));
        });
        let left = disk.crash(seed, Tear::Writes);
        let words = media.journal.power_cut(seed);
        sim.crash();
        let disk = Arc::new(MemoryDisk::from_image(left, Latency::default()));
        let media = Media::with_words(disk, words);
        simulate(seed, async {
            let engine = start(&media, &tight()).await;
            let found = engine.start();
            assert!(matches!(found, Start::Warm { .. }), "{found:?}");
            assert_eq!(count_right(&engine, 0..1000, 0).await, 1000);
        });
    });
}
