//! Images: conditions of opening and of refusal, and the effect of crashes during open and stop.
//!
//! Rules: a refused image stays as it was, byte for byte and word for word. After any crash
//! the image opens again, with every item that had reached flash.

use std::sync::Arc;
use std::time::Duration;

use device::{
    Disk, Fault, FaultyDisk, Image, Latency, MemoryDisk, MemoryJournal, Operation, Tear, When,
};
use flowstone_engine::config::META_BYTES;
use flowstone_engine::format::journal::{
    BEGUN_WORD, CLOCK_WORD, HEAD_WORDS, JOURNAL_FORMAT, VERSION_LIMIT, VOID_WORD, encode_clock,
};
use flowstone_engine::format::superblock::{
    HashSeed, IMAGE_FORMAT, ImageShape, IndexRegion, SEQUENCE_LIMIT, SUPERBLOCK_BYTES, Superblock,
};
use flowstone_engine::journal::{JournalError, Unusable};
use flowstone_engine::{
    AfterDowntime, ConfigError, Distrust, Engine, EngineConfig, OpenError, Peek, Start, Stop,
};
use runtime::sim::Sim;

use crate::support::{
    JOURNAL_WORDS, Left, Media, fill, get, get_item, is_warm, numbered, objects, run_background,
    set, simulate, start, started, tight, value,
};

const IMAGE_BYTES: u64 = 33 << 20;
const COPIES: [u64; 2] = [0, META_BYTES / 2];
/// The word of the journal's head that holds the run.
const RUN_WORD: usize = 5;

/// Returns the state after a clean stop with `count` items.
fn stopped(count: u64) -> Left {
    Left::stopped(IMAGE_BYTES, count)
}

/// Opens `left`, expecting a refusal that changes nothing, then opens it with force.
fn refused(left: &Left, config: &EngineConfig) -> OpenError {
    simulate(2, async {
        let (disk, media) = left.media();
        let refusal = media.open(config).await.err().expect("a refusal");
        assert!(Left::of(&disk, &media) == *left, "something was touched");
        let forced = EngineConfig {
            force: true,
            ..config.clone()
        };
        let engine = media.open(&forced).await.unwrap();
        assert!(matches!(engine.start(), Start::Forced | Start::Empty(_)));
        assert_eq!(objects(&engine), 0);
        assert_eq!(get(&engine, &numbered(0)).await, None);
        drop(engine);
        // After a forced open it is an ordinary image.
        let engine = start(&media, config).await;
        let empty = Start::Warm {
            items: Some(0),
            orderly: false,
        };
        assert_eq!(engine.start(), empty);
        refusal
    })
}

async fn has_all(engine: &Arc<Engine>, count: u64) {
    for number in 0..count {
        let found = get(engine, &numbered(number)).await;
        assert_eq!(found, Some(value(number, 3000)), "item {number}");
    }
}

fn superblock(image: &Image, copy: usize) -> [u8; SUPERBLOCK_BYTES] {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    image.read(COPIES[copy], &mut bytes);
    bytes
}

fn map_superblocks(mut left: Left, change: impl Fn(&mut [u8; SUPERBLOCK_BYTES])) -> Left {
    for (copy, offset) in COPIES.into_iter().enumerate() {
        let mut bytes = superblock(&left.image, copy);
        change(&mut bytes);
        left.image.write(offset, &bytes);
    }
    left
}

#[test]
fn an_image_of_another_size_is_refused() {
    let Left { image, words } = stopped(10);
    let mut longer = Image::new(IMAGE_BYTES + (4 << 20));
    let mut bytes = vec![0; IMAGE_BYTES as usize];
    image.read(0, &mut bytes);
    longer.write(0, &bytes);
    let longer = Left {
        image: longer,
        words,
    };
    assert!(matches!(
        refused(&longer, &tight()),
        OpenError::Size { image: IMAGE_BYTES, device } if device == IMAGE_BYTES + (4 << 20)
    ));
}

#[test]
fn an_image_of_another_placement_is_refused() {
    let shape = ImageShape {
        image_id: 1,
        hash_seed: HashSeed::new(2),
        image_bytes: IMAGE_BYTES,
        segment_bytes: 256 << 10,
        segments: 128,
        channels: 1,
        partitions: 4,
        expected_items: 1000,
        index_region: IndexRegion::None,
    };
    let mut image = Image::new(IMAGE_BYTES);
    image.write(0, &Superblock::new(&shape, "tiered").encode());
    assert!(matches!(
        refused(&Left::new(image), &tight()),
        OpenError::Placement { found, .. } if found == "tiered"
    ));
}

/// Earlier and later formats are refused. The refusal names the remedy, and changes nothing.
#[test]
fn an_image_of_another_format_is_refused() {
    for format in [IMAGE_FORMAT as u8 - 1, 77] {
        let left = map_superblocks(stopped(10), |bytes| bytes[8] = format);
        let refusal = refused(&left, &tight());
        assert!(
            matches!(refusal, OpenError::Version { found, expected: IMAGE_FORMAT } if found == u32::from(format))
        );
        let words = refusal.to_string();
        assert!(words.contains("the program that made it") && words.contains("`force`"));
    }
}

/// A journal of the previous format cannot be read, so the image starts empty and names the reason.
#[test]
fn a_journal_of_the_last_format_makes_the_start_empty() {
    let mut left = stopped(10);
    left.words[1] = JOURNAL_FORMAT - 1;
    simulate(1, async {
        let (_, media) = left.media();
        let engine = start(&media, &tight()).await;
        let why = Distrust::Journal(Unusable::Format);
        assert_eq!(engine.start(), Start::Empty(why));
        assert_eq!(get(&engine, &numbered(3)).await, None);
    });
}

#[test]
fn an_image_with_both_superblocks_damaged_is_refused() {
    let left = map_superblocks(stopped(10), |bytes| bytes[100] ^= 8);
    assert!(matches!(refused(&left, &tight()), OpenError::Damaged));
}

#[test]
fn what_is_not_an_image_is_refused_wherever_it_begins() {
    // Offsets of the first bytes of well-known file systems and volume managers.
    for offset in [
        0,
        1 << 10,
        4 << 10,
        16 << 10,
        32 << 10,
        64 << 10,
        META_BYTES - 8,
    ] {
        let mut image = Image::new(IMAGE_BYTES);
        image.write(offset, b"not ours");
        let refusal = refused(&Left::new(image), &tight());
        assert!(matches!(refusal, OpenError::Foreign), "{offset}: {refusal}");
    }
}

#[test]
fn settings_that_cannot_work_touch_nothing() {
    let left = stopped(10);
    let too_little = EngineConfig {
        memory_bytes: 8 << 20,
        ..tight()
    };
    let too_large = EngineConfig {
        max_value_bytes: 1 << 20,
        ..tight()
    };
    for config in [too_little, too_large] {
        simulate(1, async {
            let (disk, media) = left.media();
            let refusal = media.open(&config).await.err().unwrap();
            assert!(matches!(refusal, OpenError::Config(_)), "{refusal}");
            assert!(Left::of(&disk, &media) == left);
        });
    }
}

#[test]
fn an_image_laid_out_for_more_items_than_the_memory_has_room_for_is_refused() {
    let left = map_superblocks(stopped(20), |bytes| {
        let mut superblock = Superblock::decode(bytes).unwrap();
        superblock.expected_items = (1 << 32).into();
        *bytes = superblock.encode();
    });
    simulate(2, async {
        let (disk, media) = left.media();
        let refusal = media.open(&tight()).await.err().expect("a refusal");
        let OpenError::Config(ConfigError::Memory { given, needed }) = refusal else {
            panic!("{refusal}");
        };
        assert_eq!(given, tight().memory_bytes);
        assert!((1 << 30..2 << 30).contains(&needed), "{needed} bytes");
        assert!(Left::of(&disk, &media) == left, "something was touched");
    });
}

#[test]
fn force_keeps_an_image_that_can_be_opened() {
    let left = stopped(10);
    let forced = EngineConfig {
        force: true,
        ..tight()
    };
    simulate(1, async {
        let engine = start(&left.media().1, &forced).await;
        assert!(is_warm(&engine), "{:?}", engine.start());
        assert_eq!(objects(&engine), 10);
    });
}

/// Without a valid journal it is unknown which items on flash are dead, so the start is empty.
#[test]
fn a_journal_that_cannot_be_trusted_starts_empty() {
    let left = stopped(20);
    let changed = |change: &dyn Fn(&mut Vec<u64>)| {
        let mut left = left.clone();
        change(&mut left.words);
        left
    };
    let zeros = changed(&|words| words.fill(0));
    let shorter = changed(&|words| words.truncate(HEAD_WORDS + 12 * 8192));
    let runs_later = |runs| {
        changed(&|words| {
            *words = simulate(3, async {
                let (disk, media) = left.media();
                for _ in 0..runs {
                    drop(start(&media, &tight()).await);
                }
                Left::of(&disk, &media).words
            });
        })
    };
    let mut rotten_page = simulate(3, async {
        let (disk, media) = left.media();
        let engine = start(&media, &tight()).await;
        let (key, now) = (numbered(3), runtime::unix_seconds());
        engine.remove(engine.key(&key).unwrap(), now).await.unwrap();
        Left::of(&disk, &media)
    });
    // Two runs begun from copies of the same files: the flash of one, the journal of the other.
    let begun = |seed| {
        simulate(seed, async {
            let (disk, media) = left.media();
            drop(start(&media, &tight()).await);
            Left::of(&disk, &media)
        })
    };
    let of_two_runs = Left {
        words: begun(6).words,
        ..begun(5)
    };
    rotten_page.words[..HEAD_WORDS].fill(0x5555);
    let damaged = changed(&|words| words[3] ^= 1);
    let damaged_clock = changed(&|words| words[CLOCK_WORD] ^= 1 << 20);
    let another_format = changed(&|words| words[1] = 9);
    let void = changed(&|words| words[VOID_WORD] = 1);
    for (left, why) in [
        (zeros, Unusable::Blank),
        (shorter, Unusable::Size),
        (of_two_runs, Unusable::Run),
        (runs_later(1), Unusable::Run),
        (runs_later(3), Unusable::Run),
        (rotten_page, Unusable::Damaged),
        (damaged, Unusable::Damaged),
        (damaged_clock, Unusable::Damaged),
        (another_format, Unusable::Format),
        (void, Unusable::Void),
    ] {
        simulate(4, async {
            let (_, media) = left.media();
            let engine = start(&media, &tight()).await;
            assert_eq!(engine.start(), Start::Empty(Distrust::Journal(why)));
            assert_eq!(get(&engine, &numbered(0)).await, None);
            fill(&engine, 300, 3000).await;
            assert!(matches!(engine.stop().await, Stop::Complete { .. }));
            // The new journal can be trusted.
            let engine = start(&media, &tight()).await;
            assert!(is_warm(&engine), "{why}: {:?}", engine.start());
            has_all(&engine, 300).await;
        });
    }
}

#[test]
fn a_journal_of_another_or_of_nobody_is_refused() {
    let left = stopped(20);
    let other = simulate(5, async {
        let (disk, media) = Left::new(Image::new(IMAGE_BYTES)).media();
        drop(start(&media, &tight()).await);
        Left::of(&disk, &media)
    });
    let swapped = Left {
        words: other.words,
        ..left.clone()
    };
    assert!(matches!(
        refused(&swapped, &tight()),
        OpenError::Journal(JournalError::OtherImage)
    ));
    let new = Left {
        image: Image::new(IMAGE_BYTES),
        ..left.clone()
    };
    let named = EngineConfig {
        journal_is_named: true,
        ..tight()
    };
    simulate(7, async {
        let refusal = new.media().1.open(&named).await.err();
        assert!(matches!(
            refusal,
            Some(OpenError::Journal(JournalError::OtherImage))
        ));
    });
    let mut foreign = left.clone();
    foreign.words.fill(u64::from_le_bytes(*b"not ours"));
    assert!(matches!(
        refused(&foreign, &tight()),
        OpenError::Journal(JournalError::Foreign)
    ));
    let mut short = left;
    short.words.truncate(HEAD_WORDS);
    simulate(6, async {
        let refusal = short.media().1.open(&tight()).await.err();
        assert!(matches!(
            refusal,
            Some(OpenError::Journal(JournalError::TooShort { .. }))
        ));
    });
}

/// Either copy may be damaged, at any time, and no old item comes back.
#[test]
fn one_damaged_superblock_never_brings_old_items_back() {
    let left = stopped(20);
    for offset in COPIES {
        let mut left = left.clone();
        left.image.flip_bit(offset + 2000, 3);
        simulate(5, async {
            let engine = started(&left).await;
            has_all(&engine, 20).await;
            let now = runtime::unix_seconds();
            engine
                .remove(engine.key(&numbered(3)).unwrap(), now)
                .await
                .unwrap();
        });
    }
    // After another run, with deletes in between.
    let after = simulate(6, async {
        let (disk, media) = left.media();
        let engine = start(&media, &tight()).await;
        let now = runtime::unix_seconds();
        for number in 0..10 {
            engine
                .remove(engine.key(&numbered(number)).unwrap(), now)
                .await
                .unwrap();
        }
        assert!(engine.checkpoint_now().await);
        for number in 10..15 {
            engine
                .remove(engine.key(&numbered(number)).unwrap(), now)
                .await
                .unwrap();
        }
        assert!(engine.checkpoint_now().await);
        Left::of(&disk, &media)
    });
    for offset in COPIES {
        let mut left = after.clone();
        left.image.flip_bit(offset + 2000, 3);
        simulate(7, async {
            let engine = started(&left).await;
            for number in 0..15 {
                assert_eq!(get(&engine, &numbered(number)).await, None, "{number}");
            }
        });
    }
}

/// A device that reports a write it has not made damages at most one superblock.
#[test]
fn a_lost_superblock_write_gives_no_number_twice() {
    let left = stopped(20);
    for lost in 0..2 {
        let (faulty, media) = faulty_of(&left);
        simulate(6, async {
            faulty.script(
                When::next(Operation::Write)
                    .within(0..META_BYTES)
                    .after(lost),
                Fault::Lost,
            );
            let engine = start(&media, &tight()).await;
            assert!(is_warm(&engine));
            let unique = set(&engine, b"fresh", b"value").await.unwrap();
            let after = Left {
                image: faulty.crash(9, Tear::Pages),
                words: media.journal.crash(),
            };
            drop(engine);
            let engine = started(&after).await;
            has_all(&engine, 20).await;
            let next = set(&engine, b"fresh", b"value").await.unwrap();
            assert!(next > unique, "write {lost} lost");
        });
    }
}

fn faulty_of(left: &Left) -> (Arc<FaultyDisk>, Media) {
    let faulty = Arc::new(FaultyDisk::from_image(
        left.image.clone(),
        Latency::default(),
        1,
    ));
    let media = Media::with_words(faulty.clone(), left.words.clone());
    (faulty, media)
}

/// A flash that syncs nothing is refused before anything has changed: the items are there once it does.
#[test]
fn a_flash_that_cannot_be_synced_is_refused_untouched() {
    let left = stopped(20);
    let (faulty, media) = faulty_of(&left);
    simulate(3, async {
        faulty.set_rates(vec![(Operation::Sync, Fault::Error, 1.0)]);
        let refusal = media.open(&tight()).await.err().expect("a refusal");
        assert!(matches!(refusal, OpenError::NoSync(_)), "{refusal}");
        assert_eq!(faulty.counts().writes, 0);
        assert_eq!(media.journal.crash(), left.words);
        faulty.heal();
        let engine = start(&media, &tight()).await;
        assert!(is_warm(&engine), "{:?}", engine.start());
        has_all(&engine, 20).await;
    });
}

/// A power cut at any moment of an open loses no item.
#[test]
fn a_power_cut_at_any_moment_of_an_open_leaves_everything() {
    let left = stopped(50);
    let (faulty, media) = faulty_of(&left);
    simulate(7, async {
        faulty.keep_history();
        let engine = start(&media, &tight()).await;
        let history = faulty.history().unwrap();
        drop(engine);
        for tear in [Tear::Writes, Tear::Pages, Tear::Sectors] {
            for (point, image) in history.crashes(11, tear) {
                // The journal's head is synced before the first superblock is written, and names the run that has begun
                // after the last one.
                let mut ahead = media.journal.crash();
                ahead[BEGUN_WORD] = left.words[BEGUN_WORD];
                for words in [left.words.clone(), ahead] {
                    if point > 0 && words == left.words {
                        continue;
                    }
                    let image = image.clone();
                    let engine = started(&Left { image, words }).await;
                    assert!(matches!(engine.start(), Start::Warm { .. }), "{point}");
                    has_all(&engine, 50).await;
                }
            }
        }
    });
}

#[test]
fn a_power_cut_at_any_moment_of_a_stop_leaves_what_had_reached_flash() {
    let (faulty, media) = faulty_of(&Left::new(Image::new(IMAGE_BYTES)));
    simulate(8, async {
        let engine = start(&media, &tight()).await;
        fill(&engine, 400, 3000).await;
        faulty.sync().await.unwrap();
        faulty.keep_history();
        assert_eq!(engine.stop().await, Stop::Complete { objects: 400 });
        let history = faulty.history().unwrap();
        let words = media.journal.crash();
        for tear in [Tear::Writes, Tear::Pages, Tear::Sectors] {
            for (point, image) in history.crashes(13, tear) {
                let words = words.clone();
                let engine = started(&Left { image, words }).await;
                let mut missed = 0;
                for number in 0..400 {
                    match get(&engine, &numbered(number)).await {
                        Some(found) => assert_eq!(found, value(number, 3000), "{point} events"),
                        None => missed += 1,
                    }
                }
                if point == history.len() {
                    assert!(is_warm(&engine) && missed == 0);
                }
            }
        }
    });
}

/// The process dies at random moments and the machine lives: items that were written are found again, and items
/// that were overwritten or removed are not.
#[test]
fn a_crash_at_a_random_moment_leaves_what_had_reached_flash() {
    for seed in 1..=12 {
        let sim = Sim::new(seed);
        let (disk, media) = Left::new(Image::new(IMAGE_BYTES)).media();
        let count = 500 * seed;
        let on_flash = sim.block_on(async {
            let engine = start(&media, &tight()).await;
            fill(&engine, count, 3000).await;
            let now = runtime::unix_seconds();
            for number in (0..count).step_by(3) {
                engine
                    .remove(engine.key(&numbered(number)).unwrap(), now)
                    .await
                    .unwrap();
            }
            let waiting = u64::from(engine.store().pool().counts().sealed) + 3;
            objects(&engine).saturating_sub(waiting * 90)
        });
        sim.crash();
        let left = Left::of(&disk, &media);
        sim.block_on(async {
            let engine = started(&left).await;
            assert!(matches!(engine.start(), Start::Warm { orderly: false, .. }));
            let mut hits = 0;
            for number in 0..count {
                let found = get(&engine, &numbered(number)).await;
                assert!(found.is_none() || number % 3 != 0, "{number} was removed");
                assert!(found.is_none() || found == Some(value(number, 3000)));
                hits += u64::from(found.is_some());
            }
            assert!(hits >= on_flash, "{hits} of {on_flash}");
        });
    }
}

/// Stores `short`, makes it leave memory for flash, and waits until it has expired.
async fn let_expire(engine: &Arc<Engine>) {
    let now = runtime::unix_seconds();
    let put = flowstone_engine::Put {
        value: value(1, 3000).into(),
        expiry: now + 10,
        ..Default::default()
    };
    let short = engine.key(b"short").unwrap();
    engine.set(short, now, &put).await.unwrap();
    fill(engine, 5000, 3000).await;
    runtime::sleep(Duration::from_secs(30)).await;
}

/// Setting the clock back brings no expired item back.
#[test]
fn what_had_expired_stays_so_when_the_clock_goes_back() {
    let sim = Sim::new(4);
    let (disk, media) = Left::new(Image::new(IMAGE_BYTES)).media();
    sim.block_on(async {
        let engine = start(&media, &tight()).await;
        let_expire(&engine).await;
        assert_eq!(get(&engine, b"short").await, None);
    });
    sim.crash();
    sim.shift_wall_clock(-1000);
    let left = Left::of(&disk, &media);
    assert!(left.words[CLOCK_WORD] > 0);
    sim.block_on(async {
        let engine = started(&left).await;
        assert_eq!(get(&engine, b"short").await, None);
        assert!(get(&engine, &numbered(0)).await.is_some());
    });
}

/// During recovery the index keeps expired items, since they supersede copies that have not been read yet.
#[test]
fn what_had_expired_is_not_read_while_recovery_goes_on_though_the_clock_goes_back() {
    let sim = Sim::new(4);
    let (disk, media) = Left::new(Image::new(IMAGE_BYTES)).media();
    sim.block_on(async {
        let engine = start(&media, &tight()).await;
        fill(&engine, 3000, 3000).await;
        let_expire(&engine).await;
    });
    sim.crash();
    sim.shift_wall_clock(-1000);
    let left = Left::of(&disk, &media);
    let slow = Latency {
        read: Duration::from_millis(100),
        ..Latency::default()
    };
    let disk = MemoryDisk::from_image(left.image, slow);
    let media = Media::with_words(Arc::new(disk), left.words);
    sim.block_on(async {
        let engine = media.open(&tight()).await.unwrap();
        run_background(&engine);
        let mut meanwhile = 0;
        while engine.recovery().segments_done < engine.recovery().segments {
            assert_eq!(get(&engine, b"short").await, None);
            runtime::sleep(Duration::from_millis(1)).await;
            meanwhile += 1;
        }
        assert!(meanwhile > 100, "{meanwhile} reads");
    });
}

/// The latest known second passes from checkpoint to checkpoint, even if the journal has forgotten it and the
/// clock has been set back. The item is not read in between: a read alone would declare it dead.
#[test]
fn every_checkpoint_keeps_the_latest_second() {
    let sim = Sim::new(4);
    let (disk, media) = Left::new(Image::new(IMAGE_BYTES)).media();
    let mut left = sim.block_on(async {
        let engine = start(&media, &tight()).await;
        let_expire(&engine).await;
        assert!(engine.checkpoint_now().await);
        Left::of(&disk, &media)
    });
    sim.crash();
    sim.shift_wall_clock(-1000);
    for _ in 0..2 {
        left.words[CLOCK_WORD] = encode_clock(1);
        let (disk, media) = left.media();
        left = sim.block_on(async {
            let engine = start(&media, &tight()).await;
            assert!(engine.checkpoint_now().await);
            Left::of(&disk, &media)
        });
        sim.crash();
    }
    left.words[CLOCK_WORD] = encode_clock(1);
    sim.block_on(async {
        let engine = started(&left).await;
        assert_eq!(get(&engine, b"short").await, None);
        assert!(get(&engine, &numbered(0)).await.is_some());
    });
}

#[test]
fn what_was_down_for_too_long_is_empty_or_stale() {
    let left = stopped(20);
    for (max_downtime, after_downtime) in [
        (None, AfterDowntime::Empty),
        (Some(100_000), AfterDowntime::Empty),
        (Some(100), AfterDowntime::Empty),
        (Some(100), AfterDowntime::Stale),
    ] {
        let sim = Sim::new(5);
        sim.shift_wall_clock(1000);
        sim.block_on(async {
            let config = EngineConfig {
                max_downtime,
                after_downtime,
                ..tight()
            };
            let (_, media) = left.media();
            let engine = start(&media, &config).await;
            let found = get_item(&engine, &numbered(5), Peek::Yes).await;
            match (max_downtime, after_downtime) {
                (Some(100), AfterDowntime::Empty) => {
                    assert_eq!(engine.start(), Start::Empty(Distrust::Downtime));
                    assert_eq!(found, None);
                }
                (Some(100), AfterDowntime::Stale) => assert!(found.unwrap().stale),
                _ => assert!(!found.unwrap().stale),
            }
            // Items written after the start are not stale.
            set(&engine, b"fresh", b"value").await.unwrap();
            let fresh = get_item(&engine, b"fresh", Peek::Yes).await.unwrap();
            assert!(!fresh.stale);
        });
    }
}

#[test]
fn versions_are_not_given_twice_whatever_the_end() {
    simulate(9, async {
        let (_, media) = Left::new(Image::new(IMAGE_BYTES)).media();
        let mut last = 0;
        for run in 0..6 {
            let engine = start(&media, &tight()).await;
            for _ in 0..3 {
                let unique = set(&engine, b"counter", b"value").await.unwrap();
                assert!(unique > last, "{unique} after {last}");
                last = unique;
            }
            if run % 2 == 0 {
                assert_eq!(engine.stop().await, Stop::Complete { objects: 1 });
            }
        }
    });
}

/// Returns the superblock in force.
fn superblock_in_force(left: &Left) -> Superblock {
    let copies = [0, 1].map(|copy| Superblock::decode(&superblock(&left.image, copy)).unwrap());
    let latest = copies.into_iter().max_by_key(|copy| copy.generation.get());
    latest.unwrap()
}

/// Returns the versions and segment sequence numbers that an image has left.
fn numbers_left(superblock: &Superblock) -> [u64; 2] {
    [
        VERSION_LIMIT - superblock.version_limit.get(),
        SEQUENCE_LIMIT - superblock.sequence_limit.get(),
    ]
}

/// Kills and stops alternate, right after each start: an image lasts for millions of starts.
#[test]
fn a_start_takes_a_small_part_of_the_numbers_there_are() {
    const STARTS: u64 = 40;
    const LIFETIME: u64 = 8_000_000;
    let mut left = stopped(20);
    let at_first = numbers_left(&superblock_in_force(&left));
    for start_number in 0..STARTS {
        left = simulate(start_number, async {
            let (disk, media) = left.media();
            let engine = start(&media, &tight()).await;
            assert!(matches!(engine.start(), Start::Warm { .. }));
            if start_number % 2 == 0 {
                assert_eq!(engine.stop().await, Stop::Complete { objects: 20 });
            }
            Left::of(&disk, &media)
        });
    }
    let at_last = numbers_left(&superblock_in_force(&left));
    for (kind, (first, last)) in at_first.into_iter().zip(at_last).enumerate() {
        let each = (first - last) / STARTS;
        assert!(
            first / each > LIFETIME,
            "kind {kind}: {each} each of {first}"
        );
    }
}

/// Starts repeatedly, near the end of the numbers, until none are left. Until then every item is there, also after a
/// checkpoint, which reserves versions again. Then the start is refused and changes nothing.
#[test]
fn an_image_whose_numbers_are_used_up_is_refused_and_not_damaged() {
    const LAST_RUN: u64 = (u32::MAX as u64 - 3) << 32;
    // Enough for three starts, and too few for four. A checkpoint reserves again as many numbers as have been given out,
    // more than are left in the last run.
    let nearly_used_up: [fn(&mut Superblock); 3] = [
        |superblock| superblock.version_limit = (VERSION_LIMIT - (3 << 36) - 1000).into(),
        |superblock| superblock.sequence_limit = (SEQUENCE_LIMIT - (3 << 40) - 400_000).into(),
        |superblock| superblock.run = LAST_RUN.into(),
    ];
    for (kind, use_up) in nearly_used_up.into_iter().enumerate() {
        let mut left = map_superblocks(stopped(20), |bytes| {
            let mut superblock = Superblock::decode(bytes).unwrap();
            use_up(&mut superblock);
            *bytes = superblock.encode();
        });
        let run = superblock_in_force(&left).run.get();
        (left.words[RUN_WORD], left.words[BEGUN_WORD]) = (run, run);
        let mut last_unique = 0;
        for (starts, writes) in [10, 10, 1000].into_iter().enumerate() {
            left = simulate(starts as u64, async {
                let (disk, media) = left.media();
                let engine = start(&media, &tight()).await;
                let found = engine.start();
                assert!(
                    matches!(found, Start::Warm { .. }),
                    "kind {kind}: {found:?}"
                );
                has_all(&engine, 20).await;
                for _ in 0..writes {
                    let unique = set(&engine, b"counter", b"value").await.unwrap();
                    assert!(unique > last_unique, "kind {kind}");
                    last_unique = unique;
                }
                // One checkpoint for each copy of the superblock.
                for _ in COPIES {
                    assert!(engine.checkpoint_now().await);
                }
                Left::of(&disk, &media)
            });
        }
        let refusal = refused(&left, &tight());
        assert!(matches!(refusal, OpenError::UsedUp { .. }), "{refusal}");
        assert!(refusal.to_string().contains("`force`"), "{refusal}");
    }
}

/// As long as pages are written whole, a power cut during the first open of a new device leaves an image that opens
/// without force.
#[test]
fn a_power_cut_at_any_moment_of_the_first_open_leaves_an_empty_image() {
    let (faulty, media) = faulty_of(&Left::new(Image::new(IMAGE_BYTES)));
    simulate(10, async {
        faulty.keep_history();
        let engine = media.open(&tight()).await.unwrap();
        assert_eq!(engine.start(), Start::New);
        let history = faulty.history().unwrap();
        let words = media.journal.crash();
        for tear in [Tear::Writes, Tear::Pages] {
            for seed in 0..20 {
                for (point, image) in history.crashes(seed * 1000, tear) {
                    let words = words.clone();
                    let opened = Left { image, words }.media().1.open(&tight()).await;
                    let engine = opened.unwrap();
                    run_background(&engine);
                    assert_eq!(objects(&engine), 0, "after {point}");
                }
            }
        }
    });
}

/// The seed of the key hash is a number of its own, drawn for each image.
#[test]
fn item_12_keys_are_hashed_with_a_secret_of_the_image() {
    let mut seeds = Vec::new();
    for seed in 1..3 {
        let (disk, media) = Left::new(Image::new(IMAGE_BYTES)).media();
        let hash = simulate(seed, async {
            let engine = start(&media, &tight()).await;
            engine.key(b"key").unwrap().hash().0
        });
        let mut copy = [0; SUPERBLOCK_BYTES];
        disk.snapshot().read(0, &mut copy);
        let shape = Superblock::decode(&copy).unwrap().shape();
        let secret = shape.hash_seed.get();
        assert_eq!(hash, xxhash_rust::xxh3::xxh3_64_with_seed(b"key", secret));
        assert!(secret != shape.image_id && secret != 0);
        seeds.push(secret);
    }
    assert_ne!(seeds[0], seeds[1]);
}

/// The image names its journal. Another file in its place is refused; the right one is taken wherever it lies.
#[test]
fn item_10_a_journal_that_is_not_where_the_image_says_is_refused() {
    let (disk, media) = Left::new(Image::new(IMAGE_BYTES)).media();
    let words = || vec![0; JOURNAL_WORDS];
    let at = |words: Vec<u64>, path: &str| Media {
        journal: Arc::new(MemoryJournal::from_words(words).at(path)),
        disk: Arc::clone(&media.disk),
        placement: None,
    };
    // Starts, looks for the item, stores it again, and stops. Returns the words of the journal.
    let run = |media: &Media, is_warm: bool, config: &EngineConfig| {
        simulate(3, async {
            let engine = start(media, config).await;
            assert_eq!(get(&engine, b"key").await.is_some(), is_warm);
            set(&engine, b"key", b"value").await.unwrap();
            assert!(matches!(engine.stop().await, Stop::Complete { .. }));
        });
        media.journal.crash()
    };
    let refused = |media: &Media, expected: &str| {
        let before = disk.snapshot();
        let refusal = simulate(4, async { media.open(&tight()).await.err().unwrap() });
        let told = refusal.to_string();
        assert!(matches!(refusal, OpenError::JournalMoved { .. }), "{told}");
        assert!(
            told.contains(expected) && told.contains("`force`"),
            "{told}"
        );
        assert!(disk.snapshot() == before, "something was written");
        assert_eq!(media.journal.stores(), 0);
    };
    let first = run(&at(words(), "/a/journal"), false, &tight());
    refused(&at(words(), "/b/journal"), "/a/journal");
    // It has been moved.
    let second = run(&at(first.clone(), "/b/journal"), true, &tight());
    refused(&at(first, "/a/journal"), "/b/journal");
    let mut other = second.clone();
    other[2] ^= 1;
    refused(&at(other, "/a/journal"), "/b/journal");
    run(&at(second, "/b/journal"), true, &tight());
    // Where the image says, a journal without content is told of, and the start is empty.
    run(&at(words(), "/b/journal"), false, &tight());
    let forced = EngineConfig {
        force: true,
        ..tight()
    };
    let third = run(&at(words(), "/c/journal"), false, &forced);
    run(&at(third, "/c/journal"), true, &tight());
}
